package xfer

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// The errors of this package match these with errors.Is. An invalid argument matches
// verbs.ErrInvalid, and anything that is closed verbs.ErrClosed.
var (
	// ErrRevoked: the memory's owner has revoked the grant, or it has expired.
	ErrRevoked = errors.New("the grant was revoked")
	// ErrStale: the Remote was made by another engine than the peer's present one.
	ErrStale = errors.New("the memory belongs to another engine than this peer's")
	// ErrDenied: the owner of the memory, or the peer, refuses.
	ErrDenied = errors.New("denied")
	// ErrPeerLost: the control connection to the peer has ended. What was in flight may have been
	// done.
	ErrPeerLost = errors.New("the peer is lost")
	// ErrNoRail: no rail reaches the peer.
	ErrNoRail = errors.New("no rail reaches the peer")
	// ErrUncertain: it isn't known whether an atomic operation was carried out.
	ErrUncertain = errors.New("the atomic operation may have been carried out")
	// ErrCanceled: Batch.Cancel has taken parts of the batch back.
	ErrCanceled = errors.New("canceled")
)

// An Error is why a batch has failed.
type Error struct {
	Op     string         // "read", "write", "notify", "fetch-and-add" or "compare-and-swap"
	Peer   string         // the address of its control connection
	Rail   string         // the rail's name, such as "mlx5_0/1"; "" if the failure is not a rail's
	Status verbs.WCStatus // of the completion; WCSuccess if no request has failed
	Vendor uint32         // the completion's vendor syndrome
	Err    error          // the cause
}

func (e *Error) Error() string {
	s := "xfer: " + e.Op + ", peer " + e.Peer
	if e.Rail != "" {
		s += ", rail " + e.Rail
	}
	if e.Vendor != 0 {
		s += fmt.Sprintf(", vendor syndrome %#x", e.Vendor)
	}
	return s + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// A PendingError is the error of a wait that ended before the batch. The batch goes on: the numbers are
// those of the moment in which the wait ended.
type PendingError struct {
	Done  int64 // bytes that were read and written
	Total int64 // bytes in the batch: the other ones may still be read or written
	Err   error // the context's error
}

func (e *PendingError) Error() string {
	return fmt.Sprintf("xfer: %v, with %d of %d bytes done; the others may still be read or written", e.Err, e.Done, e.Total)
}

func (e *PendingError) Unwrap() error { return e.Err }

func invalid(format string, a ...any) error {
	return fmt.Errorf("xfer: %w: %s", verbs.ErrInvalid, fmt.Sprintf(format, a...))
}

// permanent reports whether a request that has failed with this status would fail on any rail. The
// statuses of errors in a queue or a device, WCLocQPOpErr and WCRemOpErr, can be one rail's.
func permanent(s verbs.WCStatus) bool {
	switch s {
	case verbs.WCLocLenErr, verbs.WCLocProtErr, verbs.WCLocAccessErr, verbs.WCRemInvReqErr, verbs.WCRemAccessErr:
		return true
	}
	return false
}

// codes are the errors that travel over the control connection.
var codes = map[string]error{"revoked": ErrRevoked, "stale": ErrStale, "denied": ErrDenied, "invalid": verbs.ErrInvalid}

func codeOf(err error) string {
	for code, is := range codes {
		if errors.Is(err, is) {
			return code
		}
	}
	return ""
}
