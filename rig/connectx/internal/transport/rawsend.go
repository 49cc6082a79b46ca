package transport

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/frame"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
)

// Bits of the Ethernet segment's cs_flags.
const (
	checkL3 = 1 << 6
	checkL4 = 1 << 7
)

// sendFrame sends an Ethernet frame, or all frames of a large send.
func (q *QP) sendFrame(w *sendWQE) {
	port := q.e.port(q.c.Primary.Port)
	step := w.length
	if w.op == wqeLSO {
		step = w.mss
	}
	for i, off := 0, 0; ; i, off = i+1, off+step {
		n := min(step, w.length-off)
		p := fabric.NewPacket()
		p.Ethernet = true
		p.Data = append(p.Data, w.frame...)
		var f mkey.Fault
		if p.Data, f = q.gather(p.Data, w, off, n); f != mkey.FaultNone {
			p.Free()
			q.localFault(w, f)
			return
		}
		if w.op == wqeLSO {
			frame.Segment(p.Data, off, i, off+n == w.length)
		}
		if w.checks != 0 {
			l := frame.Parse(p.Data, 0)
			if w.checks&checkL3 != 0 {
				l.SetIP(p.Data)
			}
			if w.checks&checkL4 != 0 {
				l.SetTransport(p.Data)
			}
		}
		if q.raw.domain != 0 { // loopback: queues of this HCA may receive it too
			q.e.receiveFrame(Frame{Port: max(q.c.Primary.Port, 1), Domain: q.raw.domain, Data: p.Data})
		}
		q.spend(len(p.Data))
		q.transmit(port, p)
		if off+n >= w.length {
			break
		}
	}
	q.advance()
	q.req.acked = w.last()
	q.complete()
}

// parseFrame reads the Ethernet segment.
func (q *QP) parseFrame(w *sendWQE, r *reader) {
	b := r.take(16)
	w.checks = b[4] & (checkL3 | checkL4)
	if w.checks != 0 && !q.e.c.Checksums {
		r.bad = true
		return
	}
	w.mss = int(binary.BigEndian.Uint16(b[6:]))
	n := int(binary.BigEndian.Uint16(b[12:]))
	if n < q.raw.minInline {
		r.bad = true
		return
	}
	if n <= 2 {
		w.frame = b[14 : 14+n]
		return
	}
	more := (n - 2 + 15) &^ 15
	at := len(w.raw) - len(r.b) - 2
	r.drop(more)
	if !r.bad {
		w.frame = w.raw[at : at+n]
	}
}

// drop skips n bytes.
func (r *reader) drop(n int) {
	if len(r.b) < n {
		r.bad = true
		r.b = nil
		return
	}
	r.b = r.b[n:]
}

// measureFrame checks the frame's length.
func (q *QP) measureFrame(w *sendWQE) {
	w.packets = 1
	n := w.length
	if w.op == wqeLSO {
		if w.mss == 0 || w.length > 1<<q.e.c.LogLSO || len(w.frame) < frame.Min {
			w.fail(cq.SyndromeLocalLength, vendorLength)
			return
		}
		n = min(n, w.mss)
	}
	if len(w.frame)+n > fabric.MaxPacket || len(w.frame)+w.length < frame.Min {
		w.fail(cq.SyndromeLocalLength, vendorLength)
	}
}
