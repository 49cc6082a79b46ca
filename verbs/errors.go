package verbs

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
)

// The errors of this package match these variables with errors.Is, and also their errno.
var (
	// ErrInvalid: an argument was refused before it reached the kernel.
	ErrInvalid = operr.ErrInvalid
	// ErrClosed: the object or its Device is closed, or was never opened.
	ErrClosed = errors.New("object is closed")
	// ErrBusy: the object is in use by another object, by a running verb, or by a batch
	// that is being built. Close may be called again later.
	ErrBusy = errors.New("object is in use")
	// ErrNotSupported: the device, its driver or the kernel doesn't support the
	// operation.
	ErrNotSupported = provider.ErrNotSupported
	// ErrDeviceRemoved: the device is gone, or broken. Objects on it can only be
	// closed.
	ErrDeviceRemoved = errors.New("device was removed")
	// ErrQueueFull: the queue has no room until completions are polled.
	ErrQueueFull = provider.ErrQueueFull
	// ErrCQOverrun: the CQ had no room for a completion. EventCQErr reports this, too.
	// Completions are lost, and the CQ's QPs have failed.
	ErrCQOverrun = provider.ErrCQOverrun
	// ErrPoolExhausted: all memory that a BufferPool may register is in use.
	ErrPoolExhausted = errors.New("buffer pool is exhausted")
	// ErrNoDevice: there is no matching RDMA device.
	ErrNoDevice = operr.ErrNoDevice
)

// A CQEError is an entry in a CQ that matches no request of this process. CQ.Poll
// returns it.
type CQEError = provider.CQEError

// An OpError names the verb that failed, its object, and the cause. It wraps the kernel's
// errno (a syscall.Errno), and matches the package's errors with errors.Is.
type OpError struct {
	Op     string // the verb, such as "create QP"
	Object string // the object or arguments, such as "RC, 16 WR"; may be empty
	Err    error  // the cause
	hint   string
}

func (e *OpError) Error() string {
	tried := "verbs: " + e.Op
	if e.Object != "" {
		tried += " (" + e.Object + ")"
	}
	return operr.Message(tried, e.Err, e.hint)
}

func (e *OpError) Unwrap() error { return e.Err }

// Hint returns advice for the user about the error, or "". Error includes it. See [ib.Hint].
func (e *OpError) Hint() string { return e.hint }

// Is reports whether the errno corresponds to target, an error of this package.
func (e *OpError) Is(target error) bool {
	var errno syscall.Errno
	if !errors.As(e.Err, &errno) {
		return false
	}
	switch target {
	case ErrBusy:
		return errno == syscall.EBUSY
	case ErrNotSupported:
		return isNotSupported(errno)
	}
	return false
}

// A removedError is an errno caused by the device's removal.
type removedError struct{ errno error }

func (e *removedError) Error() string {
	return ErrDeviceRemoved.Error() + " (" + operr.Text(e.errno) + ")"
}
func (e *removedError) Unwrap() []error { return []error{ErrDeviceRemoved, e.errno} }

func opErr(op, object string, err error) error {
	return &OpError{Op: op, Object: object, Err: err}
}

// failed returns the error for a verb that the kernel or the provider has refused.
func (d *Device) failed(op, object string, err error) *OpError {
	return &OpError{Op: op, Object: object, Err: d.explain(err), hint: hint(err)}
}

// hint returns advice about an error that any verb that creates an object may return.
func hint(err error) string {
	var mapping *ioctl.MapError
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return "the rdma cgroup's limit is reached (rdma.max; ibv doctor shows it), or the adapter has no more of these"
	case errors.Is(err, syscall.ENOMEM) && errors.As(err, &mapping):
		return "the process may have too many mappings: raise the limit (sysctl vm.max_map_count)"
	}
	return ""
}

// failedToLock is like failed, for a verb that locks memory for the device.
func (d *Device) failedToLock(op, object string, err error) *OpError {
	e := d.failed(op, object, err)
	if e.hint == "" && errors.Is(err, syscall.ENOMEM) {
		e.hint = "memory that the device uses is locked: raise RLIMIT_MEMLOCK (ulimit -l), in a container --ulimit memlock"
	}
	return e
}

// needsRaw adds the hint for a verb that gives access to the packets of other programs.
func (e *OpError) needsRaw() *OpError {
	if errors.Is(e.Err, syscall.EPERM) {
		e.hint = "raw packets need the capability CAP_NET_RAW"
	}
	return e
}

// failedPath is like failed, for a verb for which the kernel resolves a neighbour. The errno
// names neither the neighbour nor the source, so the error does.
func (d *Device) failedPath(op, object string, a *AHAttr, err error) *OpError {
	e := d.failed(op, object, err)
	if !a.IsGlobal {
		return e
	}
	from, unknown := d.QueryGID(a.Port, a.SGIDIndex)
	if unknown != nil {
		e.Object += fmt.Sprintf(", from GID index %d of port %d to %v", a.SGIDIndex, a.Port, a.DGID)
		return e
	}
	e.Object += fmt.Sprintf(", from %v (%v) to %v", from.GID, from, a.DGID)
	switch {
	case from.Type == GIDTypeIB:
	case from.GID.IsIPv4Mapped() != a.DGID.IsIPv4Mapped():
		e.hint = "one of the GIDs is of IPv4 and the other isn't: use a GID of the peer's family"
	case errors.Is(err, syscall.ETIMEDOUT):
		e.hint = "no neighbour has answered for " + a.DGID.String() + ": is the GID the peer's, and its interface up? (ip neigh)"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		e.hint = "the host has no route to " + a.DGID.String() + " from this GID"
	}
	return e
}

// invalid returns the error for an invalid argument.
func invalid(op, format string, args ...any) error {
	return &OpError{Op: op, Err: operr.Invalid(format, args...)}
}

// errBatch is the error of a QP that can't be closed or moved to QPReset now.
var errBatch = fmt.Errorf("%w: QP.Sends is building a batch", ErrBusy)

var errNoContext = operr.Invalid("the context.Context is nil")
