package rsocket

import (
	"errors"
	"net"
	"syscall"

	"github.com/goverbs/goverbs/rdmacm"
)

// A lostError is a connection that broke. It matches the errno that a TCP connection would have
// failed with, and the cause.
type lostError struct {
	errno syscall.Errno
	cause error
}

func (e *lostError) Error() string {
	if e.cause == nil {
		return e.errno.Error()
	}
	return e.errno.Error() + ": " + e.cause.Error()
}

func (e *lostError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.errno}
	}
	return []error{e.errno, e.cause}
}

var (
	errReset = &lostError{errno: syscall.ECONNRESET}
	errPipe  = &lostError{errno: syscall.EPIPE}
)

func lost(cause error) error { return &lostError{syscall.ECONNRESET, cause} }

// An acceptError is a failure of this side to make a connection for a client. The listener lives on.
type acceptError struct{ err error }

func (e *acceptError) Error() string { return e.err.Error() }
func (e *acceptError) Unwrap() error { return e.err }

// Temporary is for servers that wait and go on, as http.Server does: net.OpError.Temporary calls it.
func (e *acceptError) Temporary() bool { return true }

const opNet = "rsocket" // net.OpError.Net

// opErr names the call that failed on the connection.
func (c *Conn) opErr(op string, err error) error {
	return &net.OpError{Op: op, Net: opNet, Source: c.local, Addr: c.remote, Err: err}
}

// closedErr translates the error of an object that was closed.
func closedErr(err error) error {
	if errors.Is(err, rdmacm.ErrClosed) {
		return net.ErrClosed
	}
	return err
}
