package netconn

import (
	"errors"
	"net"
	"syscall"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// A LostError is a connection that broke. It matches the errno that a TCP connection would have
// failed with, and the cause.
type LostError struct {
	Errno syscall.Errno
	Cause error
}

func (e *LostError) Error() string {
	if e.Cause == nil {
		return e.Errno.Error()
	}
	return e.Errno.Error() + ": " + e.Cause.Error()
}

func (e *LostError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Errno}
	}
	return []error{e.Errno, e.Cause}
}

var (
	// ErrReset says that the peer has ended the connection.
	ErrReset = &LostError{Errno: syscall.ECONNRESET}
	// ErrPipe says that this side has ended its direction.
	ErrPipe = &LostError{Errno: syscall.EPIPE}
)

// Lost returns the error of a connection that broke.
func Lost(cause error) error { return &LostError{syscall.ECONNRESET, cause} }

// An acceptError is a failure of this side to make a connection for a client. The listener lives on.
type acceptError struct{ err error }

func (e *acceptError) Error() string { return e.err.Error() }
func (e *acceptError) Unwrap() error { return e.err }

// Temporary is for servers that wait and go on, as http.Server does: net.OpError.Temporary calls it.
func (e *acceptError) Temporary() bool { return true }

// ThisSide marks a failure to answer a client as this side's, unless the client has left. Accept reports it.
func ThisSide(err error) error {
	if err == nil || errors.Is(err, rdmacm.ErrDisconnected) {
		return err
	}
	return &acceptError{err}
}

// closedErr translates the error of an object that was closed.
func closedErr(err error) error {
	if errors.Is(err, rdmacm.ErrClosed) {
		return net.ErrClosed
	}
	return err
}

// NoDevice reports whether err says that no device of this host has an address, or that the host
// has no device.
func NoDevice(err error) bool {
	return errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.ENOENT) ||
		errors.Is(err, verbs.ErrNoDevice) || errors.Is(err, errors.ErrUnsupported)
}
