package umad

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/goverbs/goverbs/internal/operr"
)

// The errors of this package match these variables with errors.Is, and also their errno. A
// request that was not answered in time matches syscall.ETIMEDOUT.
var (
	// ErrInvalid: an argument was refused before it reached the kernel. It is verbs.ErrInvalid.
	ErrInvalid = operr.ErrInvalid
	// ErrNoPort: there is no such port, or no file for its MADs.
	ErrNoPort = errors.New("no such port")
	// ErrMalformed: a received MAD is too short, or a message too long.
	ErrMalformed = errors.New("malformed MAD")
)

// An OpError names the operation that failed, its port or agent, and the cause. It wraps the
// kernel's errno (a syscall.Errno), a [Status], or a context's error.
type OpError struct {
	Op     string // such as "register agent"
	Object string // such as "mlx5_0/1"
	Err    error  // the cause
	hint   string
}

func (e *OpError) Error() string {
	tried := "umad: " + e.Op
	if e.Object != "" {
		tried += " " + e.Object
	}
	return operr.Message(tried, e.Err, e.hint)
}

func (e *OpError) Unwrap() error { return e.Err }

// Hint returns advice for the user about the error, or "". Error includes it. See [ib.Hint].
func (e *OpError) Hint() string { return e.hint }

func opErr(op, object string, err error) *OpError {
	e := &OpError{Op: op, Object: object, Err: plain(err)}
	switch {
	case errors.Is(err, syscall.EACCES):
		e.hint = "the files in /dev/infiniband belong to root"
	case errors.Is(err, syscall.ETIMEDOUT):
		e.hint = "nobody has answered: nothing there takes such a request, no port has this LID or route, or a link is down"
	}
	return e
}

// plain returns the errno in an error, without the file's name, or the error if it has none.
func plain(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

func invalid(op, object, format string, args ...any) error {
	return &OpError{Op: op, Object: object, Err: operr.Invalid(format, args...)}
}

// A Status is the status in an answer: the request arrived, and was refused. It is an error unless
// it is 0.
type Status uint16

// Bits of a Status. The upper half depends on the class.
const (
	StatusBusy     Status = 1 << 0
	StatusRedirect Status = 1 << 1
)

var reasons = [8]string{
	1: "bad version or class",
	2: "unsupported method",
	3: "unsupported attribute",
	7: "invalid value in attribute or modifier",
}

// Error returns the meaning of the status.
func (s Status) Error() string {
	text := fmt.Sprintf("status %#04x", uint16(s))
	if reason := reasons[s>>2&7]; reason != "" {
		text += ", " + reason
	}
	if s&StatusBusy != 0 {
		text += ", busy"
	}
	if s&StatusRedirect != 0 {
		text += ", redirected"
	}
	return text
}
