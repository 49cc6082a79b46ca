//go:build amd64 || arm64

package calls

import (
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
)

// A Decoder decodes system calls, both those that stop and those that were seen in the kernel.
type Decoder struct {
	*tracee.Set
	stops stops
	verbs verbs
	raw   bool // keep the ioctls' attributes too
}

// stops handles the descriptors whose system calls must stop.
type stops interface {
	Opened(th *tracee.Thread, fd int, f *tracee.File) // a device or the connection manager was opened
	Watch(th *tracee.Thread, fd int, f *tracee.File)  // the descriptor refers to an RDMA file
}

// verbs handles control verbs that stop, at their exit.
type verbs interface {
	Succeeded(th *tracee.Thread, c *tracee.Call) // a verb has succeeded
	Destroyed(pid int, user uint64)              // the object with this user_handle was destroyed
}

// NewDecoder returns a Decoder for a set.
func NewDecoder(s *tracee.Set, w stops, v verbs, raw bool) *Decoder {
	return &Decoder{Set: s, stops: w, verbs: v, raw: raw}
}
