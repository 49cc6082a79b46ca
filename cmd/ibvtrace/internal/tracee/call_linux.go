//go:build amd64 || arm64

package tracee

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/tracing/event"
	"github.com/goverbs/goverbs/ioctl"
)

// A Kind is the kind of a call.
type Kind uint8

const (
	KindControl Kind = iota // a verb that the kernel executes
	KindData                // a post or a poll
	KindCM                  // a command of the connection manager
	KindEvent               // a read of an event
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
	File  *File  // nil if FD is not an RDMA file
	Path  string // what FD refers to, if File is nil

	Args    []ioctl.NamedValue
	Results []ioctl.NamedValue
	Made    []ObjectKey
	Ended   []ObjectKey
	Raw     []event.RawAttr
	Verb    *ioctl.Call // of a control verb that could be read
	Problem error       // why arguments are missing
	why     string

	Resumed  time.Time // when the thread was resumed to execute the call
	Returned bool      // if false, the next fields are not set
	Duration time.Duration
	Timed    bool // Duration is known
	Ret      int64
	Errno    unix.Errno

	Silent bool                 // the call is not shown
	Said   *event.Event         // the call's event; if nil, it is created when the call is shown
	Finish func(*Thread, *Call) // called when the call has returned

	Injected bool // --inject has changed the call

	// TrapArgs are the arguments of a data verb, and with --inject of a system call. The others
	// are set for data verbs.
	TrapArgs [6]uint64
	Chain    []uint64 // the addresses of the work requests
	UD       bool     // the work requests have an address handle
}

// NewCall returns a call that a thread is entering now.
func (t *Set) NewCall(th *Thread, k Kind, name string) *Call {
	th.Proc.comm = th.name()
	return &Call{
		Kind: k, Name: name, start: t.Now,
		PID: th.Proc.PID, TID: th.TID, comm: th.Proc.comm, FD: -1,
	}
}

// Complete completes a call that has just returned, and emits it.
func (t *Set) Complete(th *Thread, c *Call, result int64) {
	c.Duration, c.Timed = t.Now.Sub(c.Resumed), true
	c.Returned = true
	c.Ret = result
	if c.Ret < 0 && c.Ret > -4096 {
		c.Errno = unix.Errno(-c.Ret)
		c.Ret = -1
	}
	if c.Finish != nil {
		if err := t.Guard(func() { c.Finish(th, c) }); err != nil {
			c.Results, c.Problem = nil, err
			c.Silent = c.Name == ""
		}
	}
	if !c.Silent {
		th.Proc.rdma = th.Proc.rdma || c.File != nil
		t.Emit(c)
	}
}

// AddEmpty adds the number of earlier polls that found nothing.
func (c *Call) AddEmpty(n uint64) {
	if n > 0 {
		c.Results = append(c.Results, Number("empty_polls", n))
	}
}
