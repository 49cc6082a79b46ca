package transport

import (
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/rig/internal/bus"
)

// An HCA can't refuse some errors of a driver: it misinterprets a doorbell or its record,
// and the effect differs between HCAs. Here, these are violations, which fail the test.

// violation reports one.
func (e *Engine) violation(format string, args ...any) {
	if e.c.Violation != nil {
		e.c.Violation(fmt.Errorf(format, args...))
	}
}

// counter reads a doorbell record: a 16-bit counter in a word whose other bits are
// reserved.
func (e *Engine) counter(addr uint64, what string, number uint32) (n uint16, ok bool) {
	b := e.c.Memory.Bytes(addr, 4)
	if b == nil {
		return 0, false
	}
	v := bus.Load32(b)
	if v>>16 != 0 {
		e.violation("doorbell record of %s %#x: %#x has more than 16 bits", what, number, v)
	}
	return uint16(v), true
}

// announced checks a doorbell of the queue pair.
func (q *QP) announced(uar uint32, data []byte) bool {
	if uar != q.c.UAR {
		q.e.violation("doorbell of queue %#x through UAR %#x: it was created with UAR %#x", q.number, uar, q.c.UAR)
		return false
	}
	index := binary.BigEndian.Uint16(data[1:])
	if q.c.State == RTS && !q.sqBroken && q.sqProducer() == index {
		q.e.violation("doorbell of queue %#x: its record ends before the WQE, %d", q.number, index)
	}
	ahead := index + uint16(max(1, (int(data[7]&0x3f)+3)/4)) - q.sqNext
	if int(ahead) <= 1<<q.c.LogSQSize && ahead > q.sqRung-q.sqNext {
		q.sqRung = q.sqNext + ahead
	}
	return true
}

// fromCopy executes w from the BlueFlame copy, if that is of the WQE at index. Only the
// first block of the WQE in the ring has been read so far.
func (q *QP) fromCopy(w *sendWQE, posted uint16) (ok bool) {
	if len(q.copied) == 0 {
		return false
	}
	ahead := binary.BigEndian.Uint16(q.copied[1:]) - w.index
	if ahead != 0 {
		if ahead >= posted {
			q.copied = q.copied[:0] // it was executed already
		}
		return false
	}
	n := int(q.copied[7]&0x3f) * 16
	if n == 0 || n > len(q.copied) {
		return false
	}
	w.raw = grow(w.raw, n)
	copy(w.raw, q.copied)
	q.copied = q.copied[:0]
	return true
}

// sameAsRing compares a copy with the ring. Only NOPs may differ, in their completion
// flags, with which drivers detect whether copies are executed.
func (q *QP) sameAsRing(w *sendWQE, at func(bb uint16) uint64) {
	var block [64]byte
	for i := 0; i < len(w.raw); i += len(block) {
		if !readRing(q.e, &q.c.Buffer, at(w.index+uint16(i/len(block))), block[:]) {
			return
		}
		c := w.raw[i:min(len(w.raw), i+len(block))]
		r := block[:len(c)]
		if i == 0 && c[3] == wqeNop {
			const flags = 11
			r[flags] = c[flags]
		}
		if string(c) != string(r) {
			q.e.violation("queue %#x: WQE %d as it was copied to the UAR is not what is in the ring, from byte %d on:\ncopy %x\nring %x",
				q.number, w.index, i, c, r)
			return
		}
	}
}
