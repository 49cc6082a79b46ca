// Package figure draws traces. Each process has a lane. Control verbs are dark, data verbs are
// light, and repetitions are folded. The states of queue pairs are drawn along the lanes. Arrows
// lead from sends to the receives that they complete.
package figure

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/text"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

// A Figure collects events and draws them. Its memory use is bounded, for any number of events.
type Figure struct {
	Title   string
	Sources []string // the names of the traces, by source

	lanes    []*lane
	byID     map[laneID]*lane
	omitted  int // processes without a lane
	line     bytes.Buffer
	describe *text.Writer
	arrows   []arrow
	links    links
}

type laneID struct{ source, pid int }

// maxLanes bounds the processes that a figure shows.
const maxLanes = 6

// New returns a Figure.
func New() *Figure {
	f := &Figure{byID: make(map[laneID]*lane)}
	f.describe = text.NewWriter(&f.line, text.Options{Durations: true, MaxBytes: 32})
	return f
}

// Empty reports whether there is nothing to draw.
func (f *Figure) Empty() bool {
	for _, l := range f.lanes {
		if len(l.items) > 0 {
			return false
		}
	}
	return true
}

// lane returns the lane of the event's process, or nil if there are too many.
func (f *Figure) lane(source int, e *event.Event) *lane {
	id := laneID{source, e.PID}
	if l, ok := f.byID[id]; ok {
		return l
	}
	if len(f.lanes) == maxLanes {
		f.omitted++
		f.byID[id] = nil
		return nil
	}
	l := &lane{source: source, pid: e.PID, comm: e.Comm, hot: -1}
	f.lanes = append(f.lanes, l)
	f.byID[id] = l
	return l
}

// Add adds an event of a source.
func (f *Figure) Add(source int, e *event.Event) error {
	switch e.Kind {
	case event.Note:
		return nil
	case event.Exit:
		if l := f.byID[laneID{source, e.PID}]; l != nil {
			l.ended = text.Remark(e)
		}
		return nil
	}
	l := f.lane(source, e)
	if l == nil {
		return nil
	}
	if e.PID == e.TID {
		l.comm = e.Comm
	}
	if e.Device != "" {
		l.device = e.Device
	}
	n := &item{
		key: verbKey(e), verb: e.Verb, kind: e.Kind,
		errno: e.Errno, first: e.Time, end: e.Time.Add(e.Duration), spent: e.Duration, timed: e.Timed,
	}
	probe := e.Harmless()
	if e.Failed() && !probe {
		n.failed = 1
	}
	if d := detail(e); probe {
		n.key, n.details = n.key+" probe", []string{"a probe that fails"}
	} else if !e.Returned {
		n.details = []string{"did not return"}
	} else if d != "" {
		n.details = []string{d}
	}
	for _, wr := range list(e.Args, "wr") {
		if v := event.Find(wr.Fields, "length"); v != nil {
			n.moved += v.Num
		}
	}
	n.done = uint64(len(list(e.Out, "wc")))
	if status, broken := e.Broken(); broken > 0 {
		n.errno, n.failed = status, uint64(broken)
	}
	where := 0
	if e.Kind == event.Control {
		where = 1
	}
	n.calls[where] = max(1, uint64(len(list(e.Args, "wr"))))
	if e.Kind == event.Async {
		n.first = n.end // it waited until then
	}
	at := l.add(n)
	if at == nil {
		return nil
	}
	f.follow(l, e, at)
	if at != n {
		return nil
	}
	f.line.Reset()
	err := f.describe.Event(e)
	n.line = strings.TrimSuffix(f.line.String(), "\n")
	return err
}

// follow tracks QPs and the messages between them.
func (f *Figure) follow(l *lane, e *event.Event, at *item) {
	for _, o := range e.Created {
		if o.Type == "qp" && len(l.qps) < maxQPs {
			q := &qp{file: o.File, handle: o.Handle, gen: o.Gen, num: o.Num}
			name := "RESET"
			if o.Before {
				name = "?"
			}
			q.states = []state{{name, at}}
			l.qps = append(l.qps, q)
			f.links.made(l, q, at)
		}
	}
	for _, o := range e.Destroyed {
		if o.Type == "qp" {
			if q := l.qp(o.File, &event.Value{Form: event.Handle, Num: o.Handle, Gen: o.Gen}); q != nil {
				q.over = at
			}
		}
	}
	if e.Failed() {
		return
	}
	q := l.qp(e.File, event.Find(e.Args, "qp"))
	if s := event.Find(e.Args, "qp_state"); s != nil && q != nil && strings.HasSuffix(e.Verb, "modify_qp") {
		if q.states[len(q.states)-1].name != s.Str {
			q.states = append(q.states, state{s.Str, at})
		}
		if d := event.Find(e.Args, "dest_qp_num"); d != nil {
			q.peer = d.Num
			f.links.connected(l, q, at)
		}
	}
	f.links.cm(l, e, at)
	for _, wr := range list(e.Args, "wr") {
		op := event.Find(wr.Fields, "opcode")
		switch {
		case q == nil || op == nil:
		case consumesReceive(op.Str):
			to := q.peer
			if d := event.Find(wr.Fields, "remote_qpn"); d != nil {
				to = d.Num // a datagram
			}
			count(&q.sent, to, at)
		case strings.HasPrefix(op.Str, "RDMA_") || strings.HasPrefix(op.Str, "ATOMIC_"):
			count(&q.aside, op.Str, at)
		}
	}
	for _, wc := range list(e.Out, "wc") {
		num, op := event.Find(wc.Fields, "qp_num"), event.Find(wc.Fields, "opcode")
		if num == nil || op == nil || !strings.HasPrefix(op.Str, "RECV") {
			continue
		}
		if q := l.byNumber(num.Num); q != nil {
			from := q.peer
			if d := event.Find(wc.Fields, "src_qp"); d != nil && from == 0 {
				from = d.Num
			}
			count(&q.got, from, at)
		}
	}
}

// consumesReceive reports whether a message completes a receive on the other side.
func consumesReceive(opcode string) bool {
	return strings.HasPrefix(opcode, "SEND") || opcode == "RDMA_WRITE_WITH_IMM"
}

// since formats a time on the figure's axis.
func since(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 100*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}
