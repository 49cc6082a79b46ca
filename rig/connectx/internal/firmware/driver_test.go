package firmware

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// driver is a small driver of an HCA, with its own memory.
type driver struct {
	t       testing.TB
	h       *HCA
	ram     *bus.RAM
	free    uint64
	raised  []int // interrupts
	packets int   // that arrived
	now     time.Duration
	port    *fabric.Port

	hostile    bool // its violations are intended
	violations []error
}

const (
	ramBase = 0x100000
	ramSize = 4 << 20
)

func newDriver(t testing.TB) *driver { return newDriverOf(t, false) }

// newDriverOf returns a driver of an HCA with an Ethernet or an InfiniBand port.
func newDriverOf(t testing.TB, ethernet bool) *driver { return newDriverAs(t, ethernet, Profiles[0]) }

func newDriverAs(t testing.TB, ethernet bool, p Profile) *driver {
	d := &driver{t: t, ram: &bus.RAM{Base: ramBase, Data: make([]byte, ramSize)}, free: ramBase}
	f := fabric.New(fabric.Config{Clock: func() time.Duration { return d.now }})
	d.port = f.Attach(fabric.PortConfig{
		GUID:    0x0002c90300000001,
		Receive: func(p *fabric.Packet) { d.packets++; p.Free() },
		Changed: func(up bool) { d.h.PortChanged(up) },
	})
	d.h = New(Config{
		GUID: 0x0002c90300000000, Port: d.port, Memory: d.ram, Vectors: 4, UARs: 64, Ethernet: ethernet, Profile: p,
		Interrupt: func(v int) { d.raised = append(d.raised, v) },
		Now:       func() time.Duration { d.now += time.Microsecond; return d.now },
		Violation: d.violation,
	})
	queue := d.pages(1)
	d.write(segQueueHigh, uint32(queue>>32))
	d.write(segQueueLow, uint32(queue))
	return d
}

func (d *driver) violation(err error) {
	d.violations = append(d.violations, err)
	if !d.hostile {
		d.t.Error(err)
	}
}

// started returns a driver that has executed INIT_HCA.
func started(t testing.TB) *driver { return startedOf(t, false) }

func startedOf(t testing.TB, ethernet bool) *driver { return startedAs(t, ethernet, Profiles[0]) }

func startedAs(t testing.TB, ethernet bool, p Profile) *driver {
	d := newDriverAs(t, ethernet, p)
	d.do(0x104, nil)
	d.start()
	return d
}

// start executes what follows ENABLE_HCA and SET_HCA_CAP, up to INIT_HCA.
func (d *driver) start() {
	for _, boot := range []uint64{1, 2} {
		n := d.do(0x107, func(in ifc.View) { in.Set("op_mod", boot) }).Get("num_pages")
		d.doWith(0x108, int(8*n), 0, func(in ifc.View) {
			in.Set("op_mod", 1)
			in.Set("input_num_entries", n)
			for i := range n {
				in.SetAt("pas", int(i), d.pages(1))
			}
		})
	}
	d.do(0x102, nil)
}

// pages allocates memory that is never freed.
func (d *driver) pages(n int) uint64 {
	at := d.free
	d.free += uint64(n) * PageSize
	if d.ram.Bytes(at, n*PageSize) == nil {
		d.t.Fatal("out of memory")
	}
	return at
}

func (d *driver) write(offset uint64, words ...uint32) {
	var b []byte
	for _, w := range words {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	d.h.Write(offset, b)
}

func (d *driver) read(offset uint64) uint32 {
	var b [4]byte
	d.h.Read(offset, b[:])
	return binary.BigEndian.Uint32(b[:])
}

// try makes the firmware execute a command through its queue and mailboxes. The boxes are
// longer than their layouts by moreIn and moreOut bytes.
func (d *driver) try(opcode uint16, moreIn, moreOut int, fill func(in ifc.View)) (out ifc.View, status Status) {
	d.t.Helper()
	in := ifc.View{Layout: ifc.Of(opcodes[opcode].name + "_in")}
	in.Data = make([]byte, in.Size()+moreIn)
	in.Set("opcode", uint64(opcode))
	if fill != nil {
		fill(in)
	}
	out = ifc.View{Layout: ifc.Of(opcodes[opcode].name + "_out")}
	out.Data = make([]byte, out.Size()+moreOut)
	const token = 0x5a
	before := d.free
	defer func() { d.free = before }()
	// mailboxes returns the address of a chain of mailboxes with the data.
	mailboxes := func(data []byte) (first uint64) {
		n := (len(data) + blockSize - 1) / blockSize
		if n == 0 {
			return 0
		}
		first = d.pages((n*1024 + PageSize - 1) / PageSize)
		for i := range n {
			memory := d.ram.Bytes(first+uint64(i)*1024, mailboxSize)
			clear(memory)
			box := ifc.On("cmd_if_box", memory)
			copy(memory[:blockSize], data[i*blockSize:])
			box.Set("block_number", uint64(i))
			box.Set("token", token)
			if i+1 < n {
				next := first + uint64(i+1)*1024
				box.Set("next_pointer_63_32", next>>32)
				box.Set("next_pointer_31_10", next>>10)
			}
		}
		return first
	}
	entry := ifc.On("cmd_queue_entry", d.ram.Bytes(d.h.seg.queue(), 64))
	clear(entry.Data)
	entry.Set("type", 7)
	entry.Set("token", token)
	entry.Set("input_length", uint64(len(in.Data)))
	entry.Set("output_length", uint64(len(out.Data)))
	copy(entry.Bytes("command_input_inline_data"), in.Data)
	setPointer := func(which string, data []byte) uint64 {
		first := mailboxes(data[min(16, len(data)):])
		entry.Set(which+"_mailbox_pointer_63_32", first>>32)
		entry.Set(which+"_mailbox_pointer_31_9", first>>9)
		return first
	}
	setPointer("input", in.Data)
	answer := setPointer("output", out.Data)
	entry.Set("ownership", 1)
	d.write(segDoorbell, 1)
	if entry.Flag("ownership") || entry.Flag("status") {
		d.t.Fatalf("command %#x: ownership %d, delivery status %d", opcode, entry.Get("ownership"), entry.Get("status"))
	}
	n := copy(out.Data, entry.Bytes("command_output_inline_data"))
	for i := 0; n < len(out.Data); i++ {
		n += copy(out.Data[n:], d.ram.Bytes(answer+uint64(i)*1024, blockSize))
	}
	return out, Status(out.Get("status"))
}

// doWith executes a command that has to succeed.
func (d *driver) doWith(opcode uint16, moreIn, moreOut int, fill func(in ifc.View)) ifc.View {
	d.t.Helper()
	out, status := d.try(opcode, moreIn, moreOut, fill)
	if status != OK {
		d.t.Fatalf("%s: status %#x", opcodes[opcode].name, status)
	}
	return out
}

func (d *driver) do(opcode uint16, fill func(in ifc.View)) ifc.View {
	d.t.Helper()
	return d.doWith(opcode, 0, 0, fill)
}

// refused executes a command that has to fail with a status.
func (d *driver) refused(want Status, opcode uint16, fill func(in ifc.View)) {
	d.t.Helper()
	if _, status := d.try(opcode, 0, 0, fill); status != want {
		d.t.Errorf("%s: status %#x, want %#x", opcodes[opcode].name, status, want)
	}
}

// settle runs the HCA until it is idle.
func (d *driver) settle() {
	d.t.Helper()
	for range 100000 {
		if more, wait := d.h.Run(); !more && wait == time.Hour {
			return
		}
	}
	d.t.Fatal("the HCA doesn't become idle")
}

func set(pairs ...any) func(in ifc.View) {
	return func(in ifc.View) {
		for i := 0; i < len(pairs); i += 2 {
			in.Set(pairs[i].(string), uint64(pairs[i+1].(int)))
		}
	}
}

// createEQ creates an event queue of 16 entries for the types of events.
func (d *driver) createEQ(vector int, types ...int) (number int, ring []byte) {
	d.t.Helper()
	uar := d.do(0x802, nil).Get("uar")
	at := d.pages(1)
	ring = d.ram.Bytes(at, 16*64)
	for i := 63; i < len(ring); i += 64 {
		ring[i] = 1
	}
	out := d.doWith(0x301, 8, 0, func(in ifc.View) {
		in.Set("eq_context_entry.log_eq_size", 4)
		in.Set("eq_context_entry.uar_page", uar)
		in.Set("eq_context_entry.intr", uint64(vector))
		for _, typ := range types {
			in.SetAt("event_bitmask", typ/64, in.At("event_bitmask", typ/64)|1<<(typ%64))
		}
		in.SetAt("pas", 0, at)
	})
	number = int(out.Get("eq_number"))
	d.write(uar*PageSize+uarArmEQ, uint32(number)<<24)
	return number, ring
}

// createCQ creates a completion queue of 16 entries.
func (d *driver) createCQ(eqn int) (number int) {
	d.t.Helper()
	uar := d.do(0x802, nil).Get("uar")
	at := d.pages(2)
	out := d.doWith(0x400, 8, 0, func(in ifc.View) {
		in.Set("cq_context.log_cq_size", 4)
		in.Set("cq_context.uar_page", uar)
		in.Set("cq_context.c_eqn_or_apu_element", uint64(eqn))
		in.Set("cq_context.dbr_addr", at+PageSize)
		in.SetAt("pas", 0, at)
	})
	return int(out.Get("cqn"))
}

// setup has the objects that queue pairs need.
type setup struct{ pd, cqn, uar, xrcd, eqn int }

func (d *driver) setup() setup {
	d.t.Helper()
	var s setup
	s.eqn, _ = d.createEQ(0)
	s.cqn = d.createCQ(s.eqn)
	s.pd = int(d.do(0x800, nil).Get("pd"))
	s.uar = int(d.do(0x802, nil).Get("uar"))
	s.xrcd = int(d.do(0x80e, nil).Get("xrcd"))
	return s
}

// qp fills a CREATE_QP: 16 receive WQEs of 64 bytes and 16 send blocks.
func (d *driver) qp(s setup, service int) func(in ifc.View) {
	at := d.pages(2)
	return func(in ifc.View) {
		for field, value := range map[string]int{
			"st": service, "pd": s.pd, "cqn_snd": s.cqn, "cqn_rcv": s.cqn, "uar_page": s.uar,
			"log_rq_size": 4, "log_rq_stride": 2, "log_sq_size": 4, "user_index": 7,
		} {
			in.Set("qpc."+field, uint64(value))
		}
		in.Set("qpc.dbr_addr", at+PageSize)
		in.SetAt("pas", 0, at)
	}
}
