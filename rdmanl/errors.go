package rdmanl

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/goverbs/goverbs/internal/operr"
)

// The errors of this package match these variables with errors.Is, and also their errno.
var (
	// ErrInvalid: an argument was refused before it reached the kernel. It is verbs.ErrInvalid.
	ErrInvalid = operr.ErrInvalid
	// ErrNoDevice: there is no such RDMA device in this network namespace. It is verbs.ErrNoDevice.
	ErrNoDevice = operr.ErrNoDevice
	// ErrAnswer: the kernel's answer is malformed.
	ErrAnswer = errors.New("malformed answer")
)

// An OpError names the operation that failed, its object, and the cause. It wraps the
// kernel's errno (a syscall.Errno), or a context's error.
type OpError struct {
	Op     string // such as "add link"
	Object string // such as "rxe0"; may be empty
	Err    error  // the cause
	hint   string
}

func (e *OpError) Error() string {
	tried := "rdmanl: " + e.Op
	if e.Object != "" {
		tried += " " + e.Object
	}
	return operr.Message(tried, e.Err, e.hint)
}

func (e *OpError) Unwrap() error { return e.Err }

// Hint returns advice for the user about the error, or "". Error includes it. See [ib.Hint].
func (e *OpError) Hint() string { return e.hint }

// A refusal is an errno with the kernel's explanation.
type refusal struct {
	errno syscall.Errno
	why   string
}

func (e *refusal) Error() string { return operr.Text(e.errno) + ", " + e.why }
func (e *refusal) Unwrap() error { return e.errno }

// opErr returns the error of an operation. Its hint depends only on the errno, not on the
// operation.
func opErr(op, object string, err error) *OpError {
	e := &OpError{Op: op, Object: object, Err: err}
	switch {
	case errors.Is(err, syscall.EPERM):
		e.hint = "this needs CAP_NET_ADMIN"
	case errors.Is(err, syscall.EPROTONOSUPPORT):
		e.Err = fmt.Errorf("%w (%w)", ErrNoDevice, err)
		e.hint = "the kernel has no RDMA: load the module ib_core, or a device's driver"
	}
	return e
}

func invalid(op, object, format string, args ...any) error {
	return &OpError{Op: op, Object: object, Err: operr.Invalid(format, args...)}
}

// onDevice names a device in an error.
func onDevice(dev uint32) string { return fmt.Sprintf("of device %d", dev) }

// onPort names a port in an error.
func onPort(dev, port uint32) string { return fmt.Sprintf("of device %d, port %d", dev, port) }
