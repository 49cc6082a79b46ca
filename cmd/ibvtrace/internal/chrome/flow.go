package chrome

import (
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// An end is a QP as one end of a connection. Messages arrive in order, so counting matches sends
// and receives.
type end struct {
	pid  int
	file int
	num  uint64
	peer uint64 // the other end's number; 0: not connected
	id   string
	sent uint64
	got  uint64
}

// flowEnds are the existing QPs by number.
type flowEnds map[uint64][]*end

func (f flowEnds) open(pid int, o event.Object) *end {
	q := &end{pid: pid, file: o.File, num: o.Num, id: fmt.Sprintf("qp %d#%d of file %d", o.Handle, o.Gen, o.File)}
	f[o.Num] = append(f[o.Num], q)
	return q
}

func (f flowEnds) shut(q *end) {
	if q == nil {
		return
	}
	var left []*end
	for _, x := range f[q.num] {
		if x != q {
			left = append(left, x)
		}
	}
	if f[q.num] = left; len(left) == 0 {
		delete(f, q.num)
	}
}

// other returns the other end of a connection, or nil if it is not traced. Numbers are unique on
// one device only, so both ends must name each other.
func (f flowEnds) other(q *end) *end {
	for _, x := range f[q.peer] {
		if x != q && x.peer == q.num && q.peer != 0 {
			return x
		}
	}
	return nil
}

// flows writes the beginnings and ends of arrows.
func (w *Writer) flows(e *event.Event) error {
	if e.Failed() {
		return nil
	}
	if v := event.Find(e.Args, "qp"); v != nil && v.Form == event.Handle {
		l := w.alive[event.Object{Type: v.Str, Handle: v.Num, Gen: v.Gen, File: e.File}]
		if l == nil || l.qp == nil {
			return nil
		}
		if d := event.Find(e.Args, "dest_qp_num"); d != nil {
			l.qp.peer = d.Num
		}
		return w.sends(e, l.qp)
	}
	return w.receives(e)
}

func (w *Writer) sends(e *event.Event, q *end) error {
	wrs := event.Find(e.Args, "wr")
	if wrs == nil {
		return nil
	}
	for i := range wrs.Elems {
		op := event.Find(wrs.Elems[i].Fields, "opcode")
		if op == nil || !strings.HasPrefix(op.Str, "SEND") && op.Str != "RDMA_WRITE_WITH_IMM" {
			continue
		}
		q.sent++
		x := entry{Name: "message", Cat: "message", Phase: "s", Time: w.at(e.Time), PID: e.PID, TID: e.TID, ID: fmt.Sprintf("%s, %d", q.id, q.sent)}
		if err := w.write(&x); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) receives(e *event.Event) error {
	wcs := event.Find(e.Out, "wc")
	if wcs == nil {
		return nil
	}
	for i := range wcs.Elems {
		op, num := event.Find(wcs.Elems[i].Fields, "opcode"), event.Find(wcs.Elems[i].Fields, "qp_num")
		if op == nil || num == nil || !strings.HasPrefix(op.Str, "RECV") {
			continue
		}
		for _, q := range w.flowEnds[num.Num] {
			if q.pid != e.PID || q.file != e.File {
				continue
			}
			q.got++
			from := w.other(q)
			if from == nil {
				continue
			}
			x := entry{Name: "message", Cat: "message", Phase: "f", Bind: "e", Time: w.at(e.Time), PID: e.PID, TID: e.TID, ID: fmt.Sprintf("%s, %d", from.id, q.got)}
			if err := w.write(&x); err != nil {
				return err
			}
		}
	}
	return nil
}
