// Package operr has what the OpErrors of all packages share: their form,
// and the names of errnos.
package operr

import (
	"errors"
	"fmt"
	"syscall"
)

// ErrInvalid is the error that refused arguments match: verbs.ErrInvalid.
var ErrInvalid = errors.New("invalid argument")

// ErrNoDevice is the error of a device that isn't there: verbs.ErrNoDevice.
var ErrNoDevice = errors.New("no such RDMA device")

// Invalid returns an error that says why an argument is refused, and matches
// ErrInvalid.
func Invalid(format string, args ...any) error { return &invalid{fmt.Sprintf(format, args...)} }

type invalid struct{ message string }

func (e *invalid) Error() string { return e.message }
func (e *invalid) Unwrap() error { return ErrInvalid }

// Message returns the text of an OpError: the operation tried, why it failed, and
// the hint, unless that is empty.
func Message(tried string, err error, hint string) string {
	if hint != "" {
		hint = "; " + hint
	}
	return tried + ": " + Text(err) + hint
}

// Hinted returns err with a hint: what a person can do about it.
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
