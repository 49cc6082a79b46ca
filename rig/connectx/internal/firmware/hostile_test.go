package firmware

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
)

// A hostile HCA lies once as requested, and doesn't attack the driver.
func TestLies(t *testing.T) {
	d := started(t)
	s := d.setup()
	lie := func(want bool, l Lie) {
		t.Helper()
		if err := d.h.Lie(l); (err == nil) != want {
			t.Errorf("%+v: %v", l, err)
		}
	}
	lie(true, Lie{Opcode: 0x800, N: 2, Status: 0x42, Syndrome: 0x1234})
	before := d.h.Resources()["pd"]
	d.do(0x800, nil)
	out, status := d.try(0x800, 0, 0, nil)
	if status != 0x42 || out.Get("syndrome") != 0x1234 {
		t.Errorf("status %#x, syndrome %#x", status, out.Get("syndrome"))
	}
	d.do(0x800, nil)
	if got := d.h.Resources()["pd"]; got != before+2 {
		t.Errorf("%d PDs, want %d", got, before+2)
	}

	query := set("cqn", s.cqn)
	truth := d.do(0x402, query).Data
	lie(true, Lie{Opcode: 0x402, N: 1, Seed: 5})
	if wrong := d.do(0x402, query).Data; bytes.Equal(wrong, truth) || bytes.Equal(wrong[8:], make([]byte, len(wrong)-8)) {
		t.Error("the answer is no noise")
	}
	if again := d.do(0x402, query).Data; !bytes.Equal(again, truth) {
		t.Error("the noise goes on")
	}
	lie(false, Lie{Opcode: 0x400, N: 1}) // who would the new CQ be?
	lie(false, Lie{Opcode: 0xfff, N: 1, Status: 1})
	lie(false, Lie{Opcode: 0x402})
}

func TestForgeries(t *testing.T) {
	const rings = 16*64 + 16*64 // of the queue pair that setup describes
	d := started(t)
	s := d.setup()
	at := d.pages(2)
	s.cqn = int(d.doWith(0x400, 8, 0, func(in ifc.View) {
		in.Set("cq_context.log_cq_size", 2)
		in.Set("cq_context.uar_page", uint64(s.uar))
		in.Set("cq_context.c_eqn_or_apu_element", uint64(s.eqn))
		in.Set("cq_context.dbr_addr", at+PageSize)
		in.SetAt("pas", 0, at)
	}).Get("cqn"))
	create := d.qp(s, serviceRC)
	var ring uint64
	qpn := uint32(d.doWith(0x500, 8, 0, func(in ifc.View) {
		create(in)
		ring = in.At("pas", 0)
	}).Get("qpn"))

	cqe := bytes.Repeat([]byte{0xee}, 64)
	cqes := d.ram.Bytes(at, 4*64)
	for i, receive := range []bool{true, false, true, false} {
		if err := d.h.Forge(qpn, receive, cqe); err != nil {
			t.Fatal(err)
		}
		if got := cqes[64*i : 64*i+64]; !bytes.Equal(got[:63], cqe[:63]) || got[63] != 0xee {
			t.Errorf("entry %d is %x", i, got)
		}
	}
	// The queue accepts no more entries than fit.
	if err := d.h.Forge(qpn, true, cqe); err != nil {
		t.Fatal(err)
	}
	if st := d.do(0x402, set("cqn", s.cqn)).Get("cq_context.status"); st == 0 {
		t.Error("the CQ is well")
	}
	beside := bytes.Clone(d.ram.Bytes(ring+rings, PageSize-rings))
	for _, where := range []string{"records", "rings", "send cq", "receive cq"} {
		clear(cqes)
		memory := append(bytes.Clone(d.ram.Bytes(ring, 2*PageSize)), cqes...)
		if err := d.h.Scribble(qpn, where, 500, 7); err != nil {
			t.Error(err)
		}
		if bytes.Equal(memory, append(bytes.Clone(d.ram.Bytes(ring, 2*PageSize)), cqes...)) {
			t.Errorf("nothing of the %s has changed", where)
		}
		if !bytes.Equal(beside, d.ram.Bytes(ring+rings, PageSize-rings)) {
			t.Errorf("%s: memory after the rings has changed, in the same page", where)
		}
	}
	driver := d.qp(s, serviceRC)
	own := uint32(d.doWith(0x500, 8, 0, func(in ifc.View) {
		driver(in)
		in.Set("qpc.rlky", 1)
	}).Get("qpn"))
	for _, err := range []error{
		d.h.Forge(own, true, cqe), d.h.Scribble(own, "rings", 1, 0), d.h.Tell(eq.TypeQPFatal, own),
		d.h.Forge(qpn+9, true, cqe), d.h.Forge(qpn, true, cqe[1:]), d.h.Scribble(qpn, "elsewhere", 1, 0),
		d.h.Tell(eq.TypeCompletion, uint32(s.cqn)), d.h.Tell(eq.TypePageFault, qpn), d.h.Tell(eq.TypeCommand, 1),
	} {
		if err == nil {
			t.Error("the driver's are not spared")
		}
	}
}

// Events arrive in the driver's event queue.
func TestTell(t *testing.T) {
	d := started(t)
	_, ring := d.createEQ(0, eq.TypeCQError, eq.TypeQPFatal)
	s := d.setup()
	qpn := uint32(d.doWith(0x500, 8, 0, d.qp(s, serviceRC)).Get("qpn"))
	for i, c := range []struct {
		typ    uint8
		number uint32
		want   uint32
	}{
		{eq.TypeQPFatal, qpn, qpn}, {eq.TypeQPFatal, 0xabcdef, 0xabcdef}, {eq.TypeCompletion, 0xabcdef, 0xabcdef}, {eq.TypeCQError, qpn, uint32(s.cqn)},
	} {
		if err := d.h.Tell(c.typ, c.number); err != nil {
			t.Fatal(err)
		}
		e := ring[64*i:][:64]
		at := 0x38
		if c.typ == eq.TypeCQError {
			at = 0x20
		}
		if got := binary.BigEndian.Uint32(e[at:]); e[1] != c.typ || got != c.want {
			t.Errorf("event %d: type %#x, number %#x: %x", i, e[1], got, e)
		}
	}
}
