package firmware

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// flameQueue is a send queue whose NOPs are copied to its doorbell.
type flameQueue struct {
	d        *driver
	s        setup
	sqn      int
	ring     []byte
	record   []byte
	register uint64
}

func newFlameQueue(t *testing.T, c Combining) *flameQueue {
	d := started(t)
	d.h.c.Profile.Combining = c
	q := &flameQueue{d: d, s: d.setup()}
	at := d.pages(2)
	q.sqn = int(d.doWith(0x904, 8, 0, func(in ifc.View) {
		in.Set("ctx.cqn", uint64(q.s.cqn))
		wq := in.Sub("ctx.wq")
		wq.Set("wq_type", 1)
		wq.Set("log_wq_stride", logSendBlock)
		wq.Set("log_wq_sz", 4)
		wq.Set("uar_page", uint64(q.s.uar))
		wq.Set("dbr_addr", at+PageSize)
		in.SetAt("ctx.wq.pas", 0, at)
	}).Get("sqn"))
	d.do(0x905, set("sqn", q.sqn, "sq_state", sqReset, "ctx.state", sqReady))
	q.ring, q.record = d.ram.Bytes(at, PageSize), d.ram.Bytes(at+PageSize, 8)
	q.register = uint64(q.s.uar)*PageSize + uarSend
	return q
}

// The opcode of a WQE that a send queue without a QP refuses, whatever its contents.
const refusedOpcode = 0x08

// post writes a WQE with this many segments, which requests a completion, to the ring.
func (q *flameQueue) post(index uint16, opcode byte, segments int) (wqe []byte) {
	wqe = make([]byte, (segments*16+63)&^63)
	binary.BigEndian.PutUint32(wqe, uint32(index)<<8|uint32(opcode))
	binary.BigEndian.PutUint32(wqe[4:], uint32(q.sqn)<<8|uint32(segments))
	const completion = 8
	wqe[11] = completion
	for i := 16; i < len(wqe); i++ {
		wqe[i] = byte(i)
	}
	copy(q.ring[int(index)*64:], wqe)
	bus.Store32(q.record[4:], uint32(index)+uint32(len(wqe)/64))
	return wqe
}

// copy writes the bytes [from, to) of a WQE, 8 at a time.
func (q *flameQueue) copy(wqe []byte, from, to int) {
	for i := from; i < to; i += 8 {
		q.d.h.Write(q.register+uint64(i), wqe[i:i+8])
	}
}

func (q *flameQueue) produced() int {
	return int(q.d.do(0x402, set("cqn", q.s.cqn)).Get("cq_context.producer_counter"))
}

// The copy of a NOP is executed, not the WQE in the ring.
func TestBlueFlameOfNOPs(t *testing.T) {
	for c, want := range map[Combining]int{Combined: 1, Separate: 1, Uncombined: 0} {
		q := newFlameQueue(t, c)
		wqe := q.post(0, opcodeNOP, 1)
		q.ring[11] = 0 // only the copy asks for a completion
		q.copy(wqe, 0, 64)
		if n := q.produced(); n != want {
			t.Errorf("combining %d: %d completions, want %d", c, n, want)
		}
		q.d.do(0x906, set("sqn", q.sqn))
	}
}

// A copy is assembled from its pieces and executed. It must equal the WQE in the ring.
func TestBlueFlame(t *testing.T) {
	const blocks = 3
	for _, damage := range []int{-1, 3, 16, 64, blocks*64 - 17} {
		q := newFlameQueue(t, Combined)
		q.d.hostile = damage >= 0
		wqe := q.post(0, refusedOpcode, blocks*4-1)
		if damage >= 0 {
			wqe[damage] ^= 1
		}
		q.copy(wqe, 0, blocks*64-8)
		if n := q.d.h.Doorbells(); n != (Doorbells{}) {
			t.Errorf("%+v before the last piece", n)
		}
		q.copy(wqe, blocks*64-8, blocks*64)
		if n := q.d.h.Doorbells(); n != (Doorbells{Copies: 1, Executed: 1}) {
			t.Errorf("damage at %d: %+v", damage, n)
		}
		if n := q.produced(); n != 1 {
			t.Errorf("damage at %d: %d completions", damage, n)
		}
		if v := q.d.violations; (len(v) == 1) != (damage >= 0) || len(v) > 0 && !strings.Contains(v[0].Error(), "WQE 0") {
			t.Errorf("damage at %d: violations %v", damage, v)
		}
	}

	// Bytes after the WQE don't matter.
	q := newFlameQueue(t, Combined)
	wqe := q.post(0, refusedOpcode, 3)
	wqe[48] ^= 1
	q.copy(wqe, 0, 64)
	if n := q.d.h.Doorbells(); n.Executed != 1 {
		t.Errorf("%+v", n)
	}
}

// If pieces arrive separately or too late, the WQE in the ring is executed.
func TestBlueFlameInPieces(t *testing.T) {
	q := newFlameQueue(t, Separate)
	wqe := q.post(0, refusedOpcode, 4)
	q.copy(wqe, 0, 8)
	if n := q.produced(); n != 1 {
		t.Errorf("%d completions after the first piece", n)
	}
	q.copy(wqe, 8, 64)
	if n := q.d.h.Doorbells(); n != (Doorbells{Plain: 1, Stray: 7}) {
		t.Errorf("%+v", n)
	}

	q = newFlameQueue(t, Combined)
	wqe = q.post(0, refusedOpcode, 4)
	q.copy(wqe, 0, 32)
	if _, wait := q.d.h.Run(); wait > copyTime {
		t.Errorf("nothing will happen for %v", wait)
	}
	q.d.settle()
	if n := q.produced(); n != 1 {
		t.Errorf("%d completions of half a copy", n)
	}
	q.copy(wqe, 32, 64)
	if n := q.d.h.Doorbells(); n != (Doorbells{Plain: 1, Stray: 4}) {
		t.Errorf("%+v", n)
	}
}

// Doorbells of a queue whose driver makes no copies don't wait, until it makes one.
func TestBlueFlameLearns(t *testing.T) {
	q := newFlameQueue(t, Combined)
	q.copy(q.post(0, opcodeNOP, 2), 0, 8)
	q.d.h.Run()
	if n := q.d.h.Doorbells(); n != (Doorbells{}) {
		t.Errorf("%+v at once", n)
	}
	q.d.settle()
	bell := func(index uint16) {
		wqe := q.post(index, opcodeNOP, 2)
		wqe[3] = 0x0a // another opcode, because copies of NOPs are always waited for
		q.copy(wqe, 0, 8)
	}
	bell(1)
	if n := q.d.h.Doorbells(); n != (Doorbells{Plain: 2}) {
		t.Errorf("%+v: a doorbell had to wait", n)
	}
	wqe := q.post(2, opcodeNOP, 2)
	wqe[3] = 0x0a
	q.copy(wqe, 0, 64)
	bell(3)
	if n := q.d.h.Doorbells(); n != (Doorbells{Plain: 3, Stray: 7}) {
		t.Errorf("%+v: after a copy, nothing is waited for", n)
	}
	q.produced() // a command executes the doorbell first
	if n := q.d.h.Doorbells(); n.Plain != 4 {
		t.Errorf("%+v after a command", n)
	}
}

// A doorbell through a UAR that isn't the object's has no effect, except that it is
// reported as the driver's violation.
func TestForeignUARs(t *testing.T) {
	q := newFlameQueue(t, Uncombined)
	d := q.d
	d.hostile = true
	eqn, _ := d.createEQ(0)
	cqUAR := uint64(d.do(0x402, set("cqn", q.s.cqn)).Get("cq_context.uar_page"))
	eqUAR := uint64(d.do(0x303, set("eq_number", eqn)).Get("eq_context_entry.uar_page"))
	wqe := q.post(0, opcodeNOP, 1)
	armed := func() bool { return d.do(0x402, set("cqn", q.s.cqn)).Get("cq_context.st") == 9 }
	for _, c := range []struct {
		what      string
		own, page uint64
		ring      func(page uint64)
		rung      func() bool
	}{
		{"queue", uint64(q.s.uar), cqUAR, func(page uint64) { d.h.Write(page*PageSize+uarSend, wqe[:8]) }, func() bool { return q.produced() == 1 }},
		{"CQ", cqUAR, uint64(q.s.uar), func(page uint64) { d.write(page*PageSize+uarArmCQ, 1, uint32(q.s.cqn)) }, armed},
		{"EQ", eqUAR, uint64(q.s.uar), func(page uint64) { d.write(page*PageSize+uarUpdateEQ, uint32(eqn)<<24|5) },
			func() bool { return d.do(0x303, set("eq_number", eqn)).Get("eq_context_entry.consumer_counter") == 5 }},
	} {
		d.violations = nil
		c.ring(c.page)
		if c.rung() || len(d.violations) != 1 || !strings.Contains(d.violations[0].Error(), c.what) {
			t.Errorf("%s: rung %t, violations %v", c.what, c.rung(), d.violations)
		}
		d.violations = nil
		c.ring(c.own)
		if !c.rung() || len(d.violations) > 0 {
			t.Errorf("%s through its own UAR: rung %t, violations %v", c.what, c.rung(), d.violations)
		}
	}
}
