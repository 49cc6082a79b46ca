// Package operr has the common parts of all packages' OpErrors: their form, and the names
// of errnos.
package operr

import (
	"errors"
	"fmt"
	"syscall"
)

// ErrInvalid matches the errors that report an invalid argument. It is verbs.ErrInvalid.
var ErrInvalid = errors.New("invalid argument")

// ErrNoDevice matches the errors that report a missing device. It is verbs.ErrNoDevice.
var ErrNoDevice = errors.New("no such RDMA device")

// Invalid returns an error that gives the reason why an argument is invalid, and matches
// ErrInvalid.
func Invalid(format string, args ...any) error { return &invalid{fmt.Sprintf(format, args...)} }

type invalid struct{ message string }

func (e *invalid) Error() string { return e.message }
func (e *invalid) Unwrap() error { return ErrInvalid }

// Message returns the text of an OpError: the operation, the cause, and the hint, unless it
// is empty.
func Message(tried string, err error, hint string) string {
	if hint != "" {
		hint = "; " + hint
	}
	return tried + ": " + Text(err) + hint
}

// Hinted returns an error with a hint for the user.
func Hinted(err error, hint string) error { return &hinted{err, hint} }

type hinted struct {
	err  error
	hint string
}

func (e *hinted) Error() string { return Text(e.err) + "; " + e.hint }
func (e *hinted) Unwrap() error { return e.err }
func (e *hinted) Hint() string  { return e.hint }

// Text returns the error's text; an errno's is its name in C.
func Text(err error) string {
	if errno, ok := err.(syscall.Errno); ok {
		return Name(errno)
	}
	return err.Error()
}
