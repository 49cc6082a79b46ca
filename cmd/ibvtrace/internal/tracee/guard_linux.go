//go:build amd64 || arm64

package tracee

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// A bug in ibvtrace must not kill the programs that it traces, which have no other tracer. The
// code that decodes and shows calls therefore runs in Guard.

// maxFailures is the number of bugs after which nothing is decoded and shown any more. A bug
// may have left a state that causes others.
const maxFailures = 2

// Guard calls f, and returns an error if it panics.
func (t *Set) Guard(f func()) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		err = fmt.Errorf("a bug in ibvtrace: %v", p)
		fmt.Fprintf(os.Stderr, "ibvtrace: %v\n%s", err, debug.Stack())
		if t.failures++; t.failures == maxFailures {
			fmt.Fprintln(os.Stderr, "ibvtrace: nothing more is shown; what it traces goes on")
		}
	}()
	f()
	return nil
}

// Broken reports whether nothing is to be decoded and shown any more.
func (t *Set) Broken() bool { return t.failures >= maxFailures }

// Undecoded returns a call that could not be decoded.
func (t *Set) Undecoded(th *Thread, nr uint64, args [6]uint64, why error) *Call {
	c := t.NewCall(th, KindControl, fmt.Sprintf("syscall_%d", nr))
	for i, a := range args {
		c.Args = append(c.Args, HexNumber(fmt.Sprintf("arg%d", i), a))
	}
	c.Problem = why
	return c
}

// bare returns the event of a call without its arguments, results and objects.
func (c *Call) bare(why error) *event.Event {
	e := &event.Event{
		Time: c.start, PID: c.PID, TID: c.TID, Comm: c.comm,
		Kind: eventKinds[c.Kind], Verb: c.Name, FD: c.FD, Path: c.Path, Problem: why.Error(),
		Returned: c.Returned, Ret: c.Ret, Duration: c.Duration, Timed: c.Timed,
	}
	if c.Errno != 0 {
		e.Errno, e.Error = errnoName(c.Errno), errnoText(c.Errno)
	}
	return e
}

// Show passes finished calls to the sink, and returns the sink's error.
func (t *Set) Show(sink event.Sink) error {
	var err error
	for _, c := range t.Done {
		if err != nil || t.Broken() {
			break
		}
		bug := t.Guard(func() {
			if c.Said == nil {
				c.Said = c.Event()
			}
			err = sink.Event(c.Said)
		})
		if bug != nil && !t.Broken() {
			t.Guard(func() { err = sink.Event(c.bare(bug)) })
		}
	}
	clear(t.Done)
	t.Done = t.Done[:0]
	return err
}
