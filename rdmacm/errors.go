package rdmacm

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
)

// The errors of this package match these variables with errors.Is, and also their errno.
var (
	// ErrAddrResolution: no RDMA device, or no neighbour, was found for the address.
	ErrAddrResolution = errors.New("address resolution failed")
	// ErrRouteResolution: there is no path to the address.
	ErrRouteResolution = errors.New("route resolution failed")
	// ErrUnreachable: the peer did not answer, or the connection can't reach it any more,
	// because the network has moved the address of either end.
	ErrUnreachable = errors.New("peer is unreachable")
	// ErrRejected: the peer, or its kernel, rejected the connection. An EventError
	// has the reason and the peer's private data.
	ErrRejected = errors.New("connection was rejected")
	// ErrConnect: the handshake failed.
	ErrConnect = errors.New("connection setup failed")
	// ErrDisconnected: the peer has ended the connection.
	ErrDisconnected = errors.New("peer disconnected")
	// ErrNotMessage: something other than a message that fits has consumed one of a
	// Conn's receive buffers.
	ErrNotMessage = errors.New("received something other than a message")
	// ErrMulticast: the multicast group can't be joined, or was lost.
	ErrMulticast = errors.New("multicast group is unavailable")

	// ErrInvalid: an argument was refused before it reached the kernel.
	ErrInvalid = verbs.ErrInvalid
	// ErrClosed: the object was closed. The errors of this package that match it
	// also match net.ErrClosed and verbs.ErrClosed. Those of package verbs match
	// verbs.ErrClosed only: it doesn't link package net.
	ErrClosed error = closedError{}
	// ErrBusy: the object is in use by another one.
	ErrBusy = verbs.ErrBusy
	// ErrNotSupported: the system does not support the operation.
	ErrNotSupported = verbs.ErrNotSupported
	// ErrDeviceRemoved: the device is gone. Its objects can only be closed.
	ErrDeviceRemoved = verbs.ErrDeviceRemoved
)

// An OpError says which call failed, on what object, and why. It wraps the
// kernel's errno (a syscall.Errno), an *EventError, or a context's error.
type OpError struct {
	Op     string // such as "connect"
	Object string // the object or argument, such as "to 192.168.77.1:7174"; may be empty
	Err    error  // the cause
	hint   string
}

func (e *OpError) Error() string {
	tried := "rdmacm: " + e.Op
	if e.Object != "" {
		tried += " " + e.Object
	}
	return operr.Message(tried, e.Err, e.hint)
}

func (e *OpError) Unwrap() error { return e.Err }

// Hint returns what a person can do about the error, or "". Error has it, too. See [ib.Hint].
func (e *OpError) Hint() string { return e.hint }

// Is reports whether the error matches target. ErrClosed matches whichever
// package has found the object closed. An errno that the kernel returns at once
// matches the error of this package that it stands for.
func (e *OpError) Is(target error) bool {
	if target == ErrClosed || target == net.ErrClosed {
		return errors.Is(e.Err, verbs.ErrClosed)
	}
	errno, ok := e.Err.(syscall.Errno)
	if !ok {
		return false
	}
	switch target {
	case ErrAddrResolution:
		return e.Op == opResolveAddr
	case ErrRouteResolution:
		return e.Op == opResolveRoute
	case ErrRejected: // over iWARP, if nothing listens
		return e.Op == opConnect && errno == syscall.ECONNREFUSED
	case ErrBusy:
		return errno == syscall.EBUSY
	case ErrDeviceRemoved:
		return errno == syscall.ENXIO || errno == syscall.ENODEV && e.Op != opResolveAddr && e.Op != opResolveRoute && e.Op != opBind
	case ErrNotSupported:
		return errno == syscall.ENOSYS
	}
	return false
}

// closedError is the type of ErrClosed.
type closedError struct{}

func (closedError) Error() string        { return verbs.ErrClosed.Error() }
func (closedError) Unwrap() error        { return verbs.ErrClosed }
func (closedError) Is(target error) bool { return target == net.ErrClosed }

// Timeout reports whether the error is a timeout, for os.IsTimeout.
func (e *OpError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// join joins err and the error of a Close. If closing is nil, it returns err itself, for callers
// that use its methods.
func join(err, closing error) error {
	if closing == nil {
		return err
	}
	return errors.Join(err, closing)
}

func opErr(op, object string, err error) error {
	return &OpError{Op: op, Object: object, Err: err}
}

// invalid refuses an argument.
func invalid(op, format string, args ...any) error {
	return &OpError{Op: op, Err: operr.Invalid(format, args...)}
}

// An EventError is an Event that reports a failure.
type EventError struct {
	Type   EventType // of the event
	Status int       // as the kernel reports it: a negative errno, or for EventRejected a RejectReason

	// The private data of a rejection, padded with zeros to MaxRejectData bytes.
	// It is nil if the kernel rejected the connection.
	PrivateData []byte

	hint string

	err error // one of the errors above
}

func (e *EventError) Error() string {
	s := e.err.Error()
	switch {
	case e.Type == EventRejected && e.Status != 0:
		s += ": " + e.Reason().String()
	case e.datagramStatus():
		s += ": " + datagramStatus(e.Status)
	case e.Status != 0:
		s += ": " + operr.Name(e.errno())
	}
	if e.hint != "" {
		s += "; " + e.hint
	}
	return s
}

// Hint returns what a person can do about the error, or "". Error has it, too. See [ib.Hint].
func (e *EventError) Hint() string { return e.hint }

// Reason returns why the peer rejected the connection.
func (e *EventError) Reason() RejectReason { return RejectReason(e.Status) }

func (e *EventError) errno() syscall.Errno {
	if e.Status < 0 {
		return syscall.Errno(-e.Status)
	}
	return syscall.Errno(e.Status)
}

// datagramStatus reports whether Status is a datagram service's answer. The
// kernel reports one as Unreachable.
func (e *EventError) datagramStatus() bool { return e.Type == EventUnreachable && e.Status > 0 }

// datagramStatus names an answer (enum ib_cm_sidr_status).
func datagramStatus(status int) string {
	switch status {
	case 1:
		return "nothing listens on the port"
	case 2:
		return RejectConsumer.String()
	case 3:
		return RejectNoQP.String()
	}
	return fmt.Sprintf("status %d", status)
}

// Unwrap returns the error of this package that the event stands for, and the
// errno. A rejected connection is ECONNREFUSED, as in librdmacm.
func (e *EventError) Unwrap() []error {
	switch {
	case e.Type == EventRejected:
		return []error{e.err, syscall.ECONNREFUSED}
	case e.datagramStatus():
		return []error{e.err, ErrRejected, syscall.ECONNREFUSED}
	}
	if e.Status != 0 {
		return []error{e.err, e.errno()}
	}
	return []error{e.err}
}

// Timeout reports whether nobody answered in time.
func (e *EventError) Timeout() bool {
	return e.Type != EventRejected && e.Status == -int(syscall.ETIMEDOUT)
}

// A RejectReason is why a connection was rejected (InfiniBand specification,
// 12.6.7.2; enum ib_cm_rej_reason). Over iWARP it is a negative errno.
type RejectReason int

// The reasons that occur on RoCE and InfiniBand.
const (
	RejectNoQP             RejectReason = 1  // the peer is out of QPs
	RejectNoResources      RejectReason = 3  // the peer lacks another resource
	RejectTimeout          RejectReason = 4  // the peer gave up waiting
	RejectUnsupported      RejectReason = 5  // the peer can't do what the request asks for
	RejectInvalidCommID    RejectReason = 6  // the peer no longer knows this handshake
	RejectInvalidServiceID RejectReason = 8  // nothing listens there
	RejectInvalidGID       RejectReason = 12 // the address is not the peer's
	RejectStaleConn        RejectReason = 10 // the peer believes that the QP is connected
	RejectConsumer         RejectReason = 28 // the program at the other end rejected the request, or exited
	RejectVendorOption     RejectReason = 35 // an extension is not supported
)

func (r RejectReason) String() string {
	switch r {
	case RejectNoQP:
		return "no QP available"
	case RejectNoResources:
		return "no resources available"
	case RejectTimeout:
		return "timeout at the peer"
	case RejectUnsupported:
		return "unsupported request"
	case RejectInvalidCommID:
		return "the peer does not know the connection"
	case RejectInvalidServiceID:
		return "nothing listens on the port"
	case RejectInvalidGID:
		return "invalid GID"
	case RejectStaleConn:
		return "stale connection"
	case RejectConsumer:
		return "by the program at the other end"
	case RejectVendorOption:
		return "vendor option not supported"
	}
	if r < 0 {
		return operr.Name(syscall.Errno(-r))
	}
	return fmt.Sprintf("reason %d", int(r))
}
