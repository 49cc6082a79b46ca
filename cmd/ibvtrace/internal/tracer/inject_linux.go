//go:build amd64 || arm64

package tracer

import (
	"encoding/binary"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/calls"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/inject"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
)

// An injector changes calls by the rules of --inject.
type injector struct {
	rules   []*inject.Rule
	results map[*tracee.Thread]int64    // of calls that are not made
	delayed map[*tracee.Thread]*delayed // threads that wait before a call
}

// A delayed is a stopped thread that is resumed later.
type delayed struct {
	due     time.Time
	resumed atomic.Bool
}

func newInjector(rules []*inject.Rule) *injector {
	return &injector{rules, make(map[*tracee.Thread]int64), make(map[*tracee.Thread]*delayed)}
}

// forget forgets a thread that has ended or is being detached.
func (x *injector) forget(th *tracee.Thread) {
	delete(x.results, th)
	x.resumed(th)
}

// resumed ends the delay of a thread.
func (x *injector) resumed(th *tracee.Thread) {
	if d := x.delayed[th]; d != nil {
		d.resumed.Store(true)
		delete(x.delayed, th)
	}
}

// Layouts of struct ib_uverbs_async_event_desc, rdma_ucm_cmd_hdr with rdma_ucm_get_event, and
// rdma_ucm_event_resp.
const (
	asyncBytes    = 16
	asyncType     = 8
	commandBody   = 8
	responseEvent = 12
)

// injectBefore changes a call at its entry.
func (t *tracer) injectBefore(th *tracee.Thread, args [6]uint64) {
	c := th.Call
	if len(t.injector.rules) == 0 || c.Silent {
		return
	}
	c.TrapArgs = args
	e := c.Event()
	for _, r := range t.injector.rules {
		if r.Status != nil || r.Event != nil && !r.Async() || !r.Match(e) {
			continue
		}
		if r.Delay > 0 {
			t.injector.delayed[th] = &delayed{due: time.Now().Add(r.Delay)}
		}
		result := -int64(r.Errno)
		if r.Async() {
			b := make([]byte, asyncBytes)
			b[0] = 1 // the port, little-endian as amd64 and arm64 are
			binary.NativeEndian.PutUint32(b[asyncType:], *r.Event)
			if args[2] < asyncBytes || ptrace.WriteMemory(th.TID, args[1], b) != nil {
				continue
			}
			result = asyncBytes
		}
		if result != 0 && ptrace.Skip(th.TID) == nil {
			t.injector.results[th] = result
			break
		}
	}
	if d := t.injector.delayed[th]; d != nil {
		go wakeAt(d, t.tid)
	}
}

// wakeAt makes wait4 return when a thread is due, until it has been resumed: see quit.
func wakeAt(d *delayed, tid int) {
	time.Sleep(time.Until(d.due))
	for ; !d.resumed.Load(); time.Sleep(wakeEvery) {
		unix.Tgkill(os.Getpid(), tid, wakeSignal)
	}
}

// resumeDue resumes the threads that have waited long enough.
func (t *tracer) resumeDue() {
	for th, d := range t.injector.delayed {
		if !time.Now().Before(d.due) {
			t.injector.resumed(th)
			t.Resume(th, 0) // fails only if the thread has ended
		}
	}
}

// injectAfter changes a call at its exit, and returns its result.
func (t *tracer) injectAfter(th *tracee.Thread, c *tracee.Call, result int64) int64 {
	if r, ok := t.injector.results[th]; ok {
		delete(t.injector.results, th)
		if ptrace.SetResult(th.TID, r) == nil {
			c.Injected = true
			return r
		}
	}
	if c.Kind != tracee.KindEvent || c.File == nil || c.File.Kind != tracee.FileCM || result <= 0 {
		return result
	}
	for _, r := range t.injector.rules {
		response, ok := ptrace.ReadPointer(th.TID, c.TrapArgs[1]+commandBody)
		var old [4]byte
		if !ok || ptrace.ReadMemory(th.TID, response+responseEvent, old[:]) != nil {
			return result
		}
		if !r.Replaced(binary.NativeEndian.Uint32(old[:])) || !r.Match(c.Event()) {
			continue
		}
		b := binary.NativeEndian.AppendUint32(nil, *r.Event)
		b = binary.NativeEndian.AppendUint32(b, r.Reason)
		c.Injected = ptrace.WriteMemory(th.TID, response+responseEvent, b) == nil
	}
	return result
}

// injectCompletions changes the statuses of the n completions at addr.
func (t *tracer) injectCompletions(th *tracee.Thread, c *tracee.Call, addr, n uint64) {
	e := c.Event()
	for range n {
		for _, r := range t.injector.rules {
			if r.Status != nil && r.Match(e) && ptrace.WriteUint32(th.TID, addr+calls.WCStatus, *r.Status) == nil {
				c.Injected = true
			}
		}
		addr += calls.WCBytes
	}
}
