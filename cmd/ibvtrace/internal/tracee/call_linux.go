//go:build amd64 || arm64

package tracee

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/event"
	"github.com/goverbs/goverbs/ioctl"
)

// A Kind says what a call is.
type Kind uint8

const (
	KindControl Kind = iota // a verb by way of the kernel
	KindData                // one that posts or polls
	KindCM                  // of the connection manager
	KindEvent               // an event that was read
	KindMap
	KindOpen
	KindClose
	kindExit
	kindNote
)

// A Call is something that a thread did.
type Call struct {
	Kind  Kind
	Name  string
	start time.Time
	PID   int
	TID   int
	comm  string
	FD    int
	File  *File  // nil: fd is not RDMA's
	Path  string // then what it is

	Args    []ioctl.NamedValue
	Results []ioctl.NamedValue
	Made    []ObjectKey
	Ended   []ObjectKey
	Raw     []event.RawAttr
	Verb    *ioctl.Call // of a control verb that could be read
	Problem error       // why arguments are missing
	why     string

	Resumed  time.Time // when the kernel began with it
	Returned bool      // else the fields below say nothing
	Duration time.Duration
	Timed    bool // duration is known
	Ret      int64
	Errno    unix.Errno

	Silent bool                 // not to be shown
	Said   *event.Event         // what is to be shown, nil: to be made then
	Finish func(*Thread, *Call) // once it has returned

	// Of data verbs:
	TrapArgs [6]uint64
	Chain    []uint64 // where the work requests are
	UD       bool     // on a QP whose work requests have an address handle
}

// NewCall begins a call that a thread makes now.
func (t *Set) NewCall(th *Thread, k Kind, name string) *Call {
	th.Proc.comm = th.name()
	return &Call{
		Kind: k, Name: name, start: t.Now,
		PID: th.Proc.PID, TID: th.TID, comm: th.Proc.comm, FD: -1,
	}
}

// Complete completes a call that has returned now and prints it.
func (t *Set) Complete(th *Thread, c *Call, result int64) {
	c.Duration, c.Timed = t.Now.Sub(c.Resumed), true
	c.Returned = true
	c.Ret = result
	if c.Ret < 0 && c.Ret > -4096 {
		c.Errno = unix.Errno(-c.Ret)
		c.Ret = -1
	}
	if c.Finish != nil {
		c.Finish(th, c)
	}
	if !c.Silent {
		t.Emit(c)
	}
}

// AddEmpty adds how often a process has polled in vain since that was last said.
func (c *Call) AddEmpty(n uint64) {
	if n > 0 {
		c.Results = append(c.Results, Number("empty_polls", n))
	}
}
