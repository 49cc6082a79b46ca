package firmware

import (
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

func TestPhases(t *testing.T) {
	d := newDriver(t)
	d.refused(BadSysState, 0x107, set("op_mod", 1))
	d.do(0x104, nil)
	d.refused(BadSysState, 0x800, nil)
	d.refused(NoRes, 0x102, nil) // it has no pages yet

	d = started(t)
	d.refused(BadSysState, 0x102, nil)
	d.do(0x800, nil)
	d.do(0x103, nil)
	d.refused(BadSysState, 0x800, nil)

	// The driver gets its pages back.
	out := d.doWith(0x108, 0, 8*64, set("op_mod", 2, "input_num_entries", 64))
	if n := out.Get("output_num_entries"); n != bootPages+initPages {
		t.Errorf("%d pages came back", n)
	}
	d.do(0x105, nil)
	for kind, n := range d.h.Resources() {
		if n != 0 {
			t.Errorf("%d %s left", n, kind)
		}
	}
}

func TestObjects(t *testing.T) {
	d := started(t)
	eqn, _ := d.createEQ(1)
	cqn := d.createCQ(eqn)
	d.refused(ResBusy, 0x302, set("eq_number", eqn))
	d.refused(BadRes, 0x401, set("cqn", cqn+1))
	if c := d.do(0x402, set("cqn", cqn)); c.Get("cq_context.log_cq_size") != 4 || c.Get("cq_context.c_eqn_or_apu_element") != uint64(eqn) {
		t.Error("QUERY_CQ tells other than CREATE_CQ was told")
	}
	d.do(0x401, set("cqn", cqn))
	d.refused(BadRes, 0x401, set("cqn", cqn))
	d.do(0x302, set("eq_number", eqn))

	pd := int(d.do(0x800, nil).Get("pd"))
	create := func(in ifc.View) {
		in.Set("memory_key_mkey_entry.pd", uint64(pd))
		in.Set("memory_key_mkey_entry.length64", 1)
		in.Set("memory_key_mkey_entry.qpn", 0xffffff)
		in.Set("memory_key_mkey_entry.lr", 1)
	}
	key := int(d.do(0x200, create).Get("mkey_index"))
	d.refused(ResBusy, 0x801, set("pd", pd))
	if !d.do(0x201, set("mkey_index", key)).Flag("memory_key_mkey_entry.lr") {
		t.Error("QUERY_MKEY tells other than CREATE_MKEY was told")
	}
	d.do(0x202, set("mkey_index", key))
	d.refused(BadRes, 0x202, set("mkey_index", key))
	d.do(0x801, set("pd", pd))
	d.refused(BadRes, 0x801, set("pd", pd))
	d.refused(BadRes, 0x200, create)
}

// Events go to the queue that asked for their type, and interrupt it.
func TestEvents(t *testing.T) {
	d := started(t)
	_, commands := d.createEQ(0, eq.TypeCommand)
	if commands[63] == 0 || len(d.raised) != 0 {
		t.Error("the command that made the queue is in it")
	}
	_, async := d.createEQ(2, eq.TypePortChange)
	if commands[1] != eq.TypeCommand || len(d.raised) == 0 || d.raised[0] != 0 {
		t.Errorf("no completion of a command: % x, interrupts %d", commands[:64], d.raised)
	}
	d.raised = nil
	d.port.SetUp(false)
	if async[1] != eq.TypePortChange || async[3] != eq.PortDown || len(d.raised) != 1 || d.raised[0] != 2 {
		t.Errorf("event % x, interrupts %d", async[:64], d.raised)
	}
	if s := d.do(0x762, nil).Get("hca_vport_context.vport_state"); s != portDown {
		t.Errorf("the port's state is %d", s)
	}
}

// A command that exceeds the capabilities is refused with the status for that.
func TestRefusals(t *testing.T) {
	d := started(t)
	d.refused(BadParam, 0x100, set("op_mod", 0x7f<<1))
	d.refused(BadParam, 0x805, set("register_id", 0x1234))
	d.refused(BadRes, 0x301, nil) // no UAR
	d.refused(LimitErr, 0x400, set("cq_context.log_cq_size", 31))
	out := make([]byte, 16)
	d.h.execute([]byte{0xff, 0xff, 0, 0, 0, 0, 0, 0}, out)
	if Status(out[0]) != BadOp {
		t.Errorf("an unknown command has status %#x", out[0])
	}
}

// Every binding names a field, and has a type that load and store support.
func TestBindings(t *testing.T) {
	var q transport.QPContext
	var d transport.DCTContext
	var a transport.Address
	for layout, bindings := range map[string][]binding{
		"qpc": append(qpBindings(&q), liveBindings(&q)...), "dctc": dctBindings(&d),
		"roce_addr_layout": roceBindings(&a),
	} {
		ones := ifc.Make(layout)
		for i := range ones.Data {
			ones.Data[i] = 0xff
		}
		load(ones, bindings)
		zeros := ifc.Make(layout)
		store(zeros, bindings)
		for _, b := range bindings {
			if zeros.Get(b.path) != ones.Get(b.path) {
				t.Errorf("%s.%s: loaded %#x, stored %#x", layout, b.path, ones.Get(b.path), zeros.Get(b.path))
			}
		}
	}
}

func TestCapabilities(t *testing.T) {
	d := newDriver(t)
	d.do(0x104, nil)
	get := func(mode int) ifc.View {
		return ifc.On("cmd_hca_cap", d.do(0x100, set("op_mod", mode)).Data[16:])
	}
	const maximum, current = 0, 1
	if get(maximum).Get("dct") < get(current).Get("dct") || get(current).Get("log_max_qp") != logMaxQP {
		t.Error("capabilities of another kind")
	}
	change := func(field string, value uint64) func(in ifc.View) {
		return func(in ifc.View) {
			now := get(current)
			now.Set(field, value)
			copy(in.Data[16:], now.Data)
		}
	}
	d.do(0x109, change("log_max_qp", 10))
	if get(current).Get("log_max_qp") != 10 || get(maximum).Get("log_max_qp") != logMaxQP {
		t.Error("SET_HCA_CAP was not heeded")
	}
	d.refused(BadParam, 0x109, change("log_max_qp", logMaxQP+1))
}

// A driver with pages of 16 KiB gets four UARs at a time, which it can all use.
func TestUARsPerPage(t *testing.T) {
	d := newDriver(t)
	d.do(0x104, nil)
	pages := func(log, small uint64) func(in ifc.View) {
		return func(in ifc.View) {
			capabilities := ifc.On("cmd_hca_cap", in.Data[16:])
			copy(capabilities.Data, d.do(0x100, set("op_mod", 1)).Data[16:])
			capabilities.Set("log_uar_page_sz", log)
			capabilities.Set("uar_4k", small)
		}
	}
	d.refused(BadParam, 0x109, pages(2, 0))
	d.refused(BadParam, 0x109, pages(5, 1))
	d.do(0x109, pages(2, 1))
	if got := ifc.On("cmd_hca_cap", d.do(0x100, set("op_mod", 1)).Data[16:]).Get("num_of_uars_per_page"); got != 4 {
		t.Errorf("%d UARs per page, want 4", got)
	}
	d.start()
	first := d.do(0x802, nil).Get("uar")
	second := d.do(0x802, nil).Get("uar")
	if first != firstUAR || second != first+4 {
		t.Errorf("UARs %d and %d, want %d and %d", first, second, firstUAR, firstUAR+4)
	}
	for number, want := range map[uint64]bool{first - 1: false, first: true, first + 3: true, second + 3: true, second + 4: false} {
		if got := d.h.uar(uint32(number)) != nil; got != want {
			t.Errorf("UAR %d is allocated: %t", number, got)
		}
	}
	d.refused(BadRes, 0x803, set("uar", int(first+1)))
	d.do(0x803, set("uar", int(first)))
	if d.h.uar(uint32(first)) != nil || d.h.uar(uint32(second)) == nil {
		t.Error("DEALLOC_UAR freed the wrong page")
	}
}

// A fatal error silences the HCA until the driver has reset it.
func TestFatal(t *testing.T) {
	d := started(t)
	d.h.Fail()
	if d.read(segHealthSynd)>>16&0xff == 0 || d.read(segHealthRFR)>>31 == 0 {
		t.Error("the health buffer says nothing")
	}
	entry := ifc.On("cmd_queue_entry", d.ram.Bytes(d.h.seg.queue(), 64))
	entry.Set("ownership", 1)
	d.write(segDoorbell, 1)
	if !entry.Flag("ownership") {
		t.Error("a command was carried out")
	}
	d.write(segQueueLow, d.read(segQueueLow)|nicReset<<8)
	if d.read(segQueueLow)>>8&7 != nicDisabled || d.read(segHealthSynd) != 0 || d.h.Resources()["pages"] != 0 {
		t.Error("it was not reset")
	}
}

func TestRemoved(t *testing.T) {
	d := started(t)
	d.h.Remove(true)
	if d.read(segFirmware) != 0xffffffff || d.read(segHealthCount) != 0xffffffff || d.read(20*PageSize) != 0xffffffff {
		t.Error("something still answers")
	}
	d.write(segDoorbell, 1)
	d.h.Remove(false)
	if d.read(segFirmware) == 0xffffffff {
		t.Error("nothing answers")
	}
}
