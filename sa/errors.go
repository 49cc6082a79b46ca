package sa

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/umad"
)

// The errors of this package match these variables with errors.Is, and also the cause. A
// request that was not answered in time matches syscall.ETIMEDOUT.
var (
	// ErrInvalid: an argument was refused before it was sent. It is verbs.ErrInvalid.
	ErrInvalid = operr.ErrInvalid
	// ErrNoManager: the port knows no subnet manager.
	ErrNoManager = errors.New("the port has no subnet manager")
	// ErrMalformed: an answer doesn't belong to the request, or its length doesn't fit its records.
	ErrMalformed = errors.New("malformed answer")
)

// An OpError names the operation that failed, its port, and the cause. It wraps a [Status], a
// [umad.Status], an errno (a syscall.Errno), or a context's error.
type OpError struct {
	Op     string // such as "get table of NodeRecord"
	Object string // such as "mlx5_0/1"
	Err    error  // the cause
	hint   string
}

func (e *OpError) Error() string {
	return operr.Message("sa: "+e.Op+" at "+e.Object, e.Err, e.hint)
}

func (e *OpError) Unwrap() error { return e.Err }

// Hint returns advice for the user about the error, or "". Error includes it. See [ib.Hint].
func (e *OpError) Hint() string { return e.hint }

// wrap returns the error for an operation. It takes the cause out of a umad.OpError, whose Op says
// less.
func wrap(op, object string, err error) error {
	e := &OpError{Op: op, Object: object, Err: err}
	var under *umad.OpError
	if errors.As(err, &under) {
		e.Err, e.hint = under.Err, under.Hint()
	}
	if errors.Is(e.Err, syscall.ETIMEDOUT) {
		e.hint = "no subnet administration has answered: no subnet manager runs where the port has last seen one, or it is busy"
	}
	var all umad.Status
	if errors.As(e.Err, &all) && all&0xff == 0 {
		e.Err = Status(all >> 8)
	}
	return e
}

// A Status is the SA's reason for refusing a request: the upper half of the status in its
// answer. If the lower half isn't 0, the error is a [umad.Status] instead: the MAD was not
// understood, or the SA is busy.
type Status uint8

// The SA's reasons.
const (
	NoResources            Status = 1
	RequestInvalid         Status = 2
	NoRecords              Status = 3 // no record matches the query
	TooManyRecords         Status = 4 // several records match, but SubnAdmGet gets one
	InvalidGID             Status = 5
	InsufficientComponents Status = 6 // the query must give more components
	Denied                 Status = 7
	PrioritySuggested      Status = 8
)

var reasons = [...]string{
	NoResources:            "no resources",
	RequestInvalid:         "invalid request",
	NoRecords:              "no records",
	TooManyRecords:         "too many records",
	InvalidGID:             "invalid GID",
	InsufficientComponents: "insufficient components",
	Denied:                 "request denied",
	PrioritySuggested:      "another priority is suggested",
}

// Error returns the meaning of the status.
func (s Status) Error() string {
	text := fmt.Sprintf("the SA refuses with status %d", uint8(s))
	if int(s) < len(reasons) && reasons[s] != "" {
		text += ", " + reasons[s]
	}
	return text
}
