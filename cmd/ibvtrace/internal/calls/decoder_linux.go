//go:build amd64 || arm64

package calls

import (
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
)

// A Decoder makes calls of what threads do: of the system calls that stop and of those
// that were recorded.
type Decoder struct {
	*tracee.Set
	stops stops
	verbs verbs
	raw   bool // the attributes as they are too
}

// stops are told of the descriptors that have to stop.
type stops interface {
	Opened(th *tracee.Thread, fd int, f *tracee.File) // a device, or the connection manager
	Watch(th *tracee.Thread, fd int, f *tracee.File)  // the descriptor is a file of RDMA's now
}

// verbs are told of control verbs, of which each comes at its exit.
type verbs interface {
	Succeeded(th *tracee.Thread, c *tracee.Call) // on a file
	Returned(th *tracee.Thread, c *tracee.Call)  // by ioctl, failed or not, after all else
	Destroyed(pid int, user uint64)              // an object, by the program's own name for it
}

// NewDecoder returns one for the programs of a set.
func NewDecoder(s *tracee.Set, w stops, v verbs, raw bool) *Decoder {
	return &Decoder{Set: s, stops: w, verbs: v, raw: raw}
}
