package verbs

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/provider"
)

// What errors.Is finds in the errors of this package, beside the errno itself.
var (
	// ErrInvalid: an argument was refused before it reached the kernel.
	ErrInvalid = errors.New("invalid argument")
	// ErrClosed: the object, or its Context, was closed, or was never opened.
	ErrClosed = errors.New("object is closed")
	// ErrBusy: the object is in use by another one, or by a verb that runs.
	// Close may be called again later.
	ErrBusy = errors.New("object is in use")
	// ErrNotSupported: the device, its driver or the kernel lacks what was asked for.
	ErrNotSupported = errors.New("not supported")
	// ErrDeviceRemoved: the device is gone. Objects on it can only be closed.
	ErrDeviceRemoved = errors.New("device was removed")
	// ErrQueueFull: the queue has no room until completions are polled.
	ErrQueueFull = provider.ErrQueueFull
	// ErrCQOverrun: the CQ had no room for a completion, as AsyncEvent has said
	// with EventCQErr. Completions are lost, and its QPs have failed.
	ErrCQOverrun = provider.ErrCQOverrun
	// ErrNoDevice: no RDMA device fits.
	ErrNoDevice = errors.New("no RDMA device")
)

// An OpError says which verb failed, on what, and why. It wraps the kernel's
// errno (a syscall.Errno), and matches the package's errors with errors.Is.
type OpError struct {
	Op     string // the verb, such as "create QP"
	Object string // what it was called on or with, such as "RC, 16 WR"; may be empty
	Err    error
	Hint   string // what a person can do about it; may be empty
}

func (e *OpError) Error() string {
	var b strings.Builder
	b.WriteString("verbs: ")
	b.WriteString(e.Op)
	if e.Object != "" {
		fmt.Fprintf(&b, " (%s)", e.Object)
	}
	b.WriteString(": ")
	if errno, ok := e.Err.(syscall.Errno); ok {
		b.WriteString(errnoName(errno))
	} else {
		b.WriteString(e.Err.Error())
	}
	if e.Hint != "" {
		b.WriteString("; ")
		b.WriteString(e.Hint)
	}
	return b.String()
}

func (e *OpError) Unwrap() error { return e.Err }

// Is relates errnos to the errors of this package.
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
	case ErrDeviceRemoved:
		return isRemoved(errno)
	}
	return false
}

// isRemoved: uverbs answers EIO to everything once the device is unregistered.
func isRemoved(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENODEV)
}

func opErr(op, object string, err error) error {
	return &OpError{Op: op, Object: object, Err: err}
}

// invalid refuses an argument.
func invalid(op, format string, args ...any) error {
	return &OpError{Op: op, Err: &argError{fmt.Sprintf(format, args...)}}
}

type argError struct{ msg string }

func (e *argError) Error() string { return e.msg }
func (e *argError) Unwrap() error { return ErrInvalid }

// errBatch is why a QP doesn't close or go to QPReset.
var errBatch = fmt.Errorf("%w: a batch is being built, which Complete or Abort ends", ErrBusy)

var errNoContext = &argError{"the context.Context is nil"}
