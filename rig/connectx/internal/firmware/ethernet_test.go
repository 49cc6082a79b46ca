package firmware

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// rawQP has the objects that the driver creates for a raw packet queue pair.
type rawQP struct {
	d                    *driver
	sqn, rqn, tirn, tisn int
	sq, rq, sdbr, rdbr   []byte // memory of the queues, doorbell records
	data                 []byte // 2 KiB for each receive WQE
	at                   uint64 // of data
	lkey                 uint32
	cqn                  int
	cqes                 []byte
	posted, seq          int
	uar                  int
}

const rawSlot = 2048

// raw creates one in a transport domain, ready to send and to receive. If strip is set, it
// strips VLAN tags.
func (d *driver) raw(domain int, strip bool) *rawQP {
	d.t.Helper()
	s := d.setup()
	q := &rawQP{d: d, uar: s.uar, cqn: s.cqn}
	context := ifc.On("cqc", d.h.cqs.items[uint32(s.cqn)].context)
	q.cqes = d.ram.Bytes(context.Get("dbr_addr")-PageSize, 16*64)
	for i := 63; i < len(q.cqes); i += 64 {
		q.cqes[i] = 0xf1
	}
	q.lkey = uint32(d.do(0x200, func(in ifc.View) {
		in.Set("memory_key_mkey_entry.pd", uint64(s.pd))
		in.Set("memory_key_mkey_entry.length64", 1)
		in.Set("memory_key_mkey_entry.qpn", 0xffffff)
		in.Set("memory_key_mkey_entry.lr", 1)
		in.Set("memory_key_mkey_entry.lw", 1)
	}).Get("mkey_index")) << 8
	queue := func(opcode uint16, stride uint64, number string) (int, []byte, []byte) {
		at := d.pages(2)
		out := d.doWith(opcode, 8, 0, func(in ifc.View) {
			c := in.Sub("ctx")
			c.Set("cqn", uint64(s.cqn))
			c.Set("user_index", 0xffffff)
			if opcode == 0x904 {
				c.Set("tis_lst_sz", 1)
				c.Set("tis_num_0", uint64(q.tisn))
			} else {
				c.SetFlag("vsd", !strip)
			}
			wq := c.Sub("wq")
			wq.Set("wq_type", 1)
			wq.Set("pd", uint64(s.pd))
			wq.Set("log_wq_stride", stride)
			wq.Set("log_wq_sz", 4)
			wq.Set("uar_page", uint64(s.uar))
			wq.Set("dbr_addr", at+PageSize)
			in.SetAt("ctx.wq.pas", 0, at)
		})
		return int(out.Get(number)), d.ram.Bytes(at, PageSize), d.ram.Bytes(at+PageSize, 8)
	}
	q.tisn = int(d.do(0x912, set("ctx.transport_domain", domain)).Get("tisn"))
	q.sqn, q.sq, q.sdbr = queue(0x904, logSendBlock, "sqn")
	q.rqn, q.rq, q.rdbr = queue(0x908, 4, "rqn")
	q.tirn = int(d.do(0x900, set("ctx.transport_domain", domain, "ctx.inline_rqn", q.rqn)).Get("tirn"))
	d.do(0x905, set("sqn", q.sqn, "sq_state", sqReset, "ctx.state", sqReady))
	d.do(0x909, set("rqn", q.rqn, "rq_state", sqReset, "ctx.state", sqReady))
	q.at = d.pages(16 * rawSlot / PageSize)
	q.data = d.ram.Bytes(q.at, 16*rawSlot)
	for i := range 16 {
		binary.BigEndian.PutUint32(q.rq[16*i:], rawSlot)
		binary.BigEndian.PutUint32(q.rq[16*i+4:], q.lkey)
		binary.BigEndian.PutUint64(q.rq[16*i+8:], q.at+uint64(i)*rawSlot)
	}
	bus.Store32(q.rdbr, 16)
	return q
}

// send posts a frame whose first 18 bytes are inline, and runs the HCA.
func (q *rawQP) send(frame []byte, checks byte) {
	q.d.t.Helper()
	q.sendInline(frame, checks, 18)
}

// sendInline is like send with this many bytes inline: 18 or 0.
func (q *rawQP) sendInline(frame []byte, checks byte, inline int) {
	q.d.t.Helper()
	at := q.d.pages(1)
	copy(q.d.ram.Bytes(at, PageSize), frame[inline:])
	wqe := q.sq[q.posted%16*64:][:64]
	clear(wqe)
	data := 32
	if inline > 0 {
		data = 48
	}
	binary.BigEndian.PutUint32(wqe, uint32(q.posted)<<8|0x0a)
	binary.BigEndian.PutUint32(wqe[4:], uint32(q.sqn)<<8|uint32(data/16+1))
	wqe[11] = 8
	wqe[20] = checks
	binary.BigEndian.PutUint16(wqe[28:], uint16(inline))
	copy(wqe[30:30+inline], frame)
	binary.BigEndian.PutUint32(wqe[data:], uint32(len(frame)-inline))
	binary.BigEndian.PutUint32(wqe[data+4:], q.lkey)
	binary.BigEndian.PutUint64(wqe[data+8:], at)
	q.posted++
	bus.Store32(q.sdbr[4:], uint32(q.posted))
	q.d.write(uint64(q.uar)*PageSize+uarSend, binary.BigEndian.Uint32(wqe), binary.BigEndian.Uint32(wqe[4:]))
	q.d.settle()
}

// next returns the next completion, nil if there is none.
func (q *rawQP) next() []byte {
	cqe := q.cqes[q.seq%16*64:][:64]
	if cqe[63]>>4 == 0xf || int(cqe[63]&1) != q.seq/16&1 {
		return nil
	}
	q.seq++
	return cqe
}

// flow creates a table with one entry, which sends frames to an address to a destination.
// level is the table's, tag the entry's.
func (d *driver) flow(level int, to byte, kind, destination, tag, counter int) (table int) {
	d.t.Helper()
	table = int(d.do(0x930, set("flow_table_context.level", level, "flow_table_context.log_size", 4)).Get("table_id"))
	group := d.do(0x933, func(in ifc.View) {
		in.Set("table_id", uint64(table))
		in.Set("end_flow_index", 3)
		in.Set("match_criteria_enable", 1)
		in.Set("match_criteria.outer_headers.dmac_15_0", 0xffff)
	}).Get("group_id")
	d.doWith(0x936, 16, 0, d.entry(table, int(group), to, kind, destination, tag, counter))
	return table
}

func (d *driver) entry(table, group int, to byte, kind, destination, tag, counter int) func(in ifc.View) {
	return func(in ifc.View) {
		in.Set("table_id", uint64(table))
		in.Set("flow_index", 2)
		c := in.Sub("flow_context")
		c.Set("group_id", uint64(group))
		c.Set("flow_tag", uint64(tag))
		c.Set("action", actionForward)
		c.Set("destination_list_size", 1)
		c.Set("match_value.outer_headers.dmac_15_0", uint64(to))
		list := in.Data[in.Size():]
		binary.BigEndian.PutUint32(list, uint32(kind)<<24|uint32(destination))
		if counter != 0 {
			c.Set("action", actionForward|actionCount)
			c.Set("flow_counter_list_size", 1)
			binary.BigEndian.PutUint32(list[8:], uint32(counter))
		}
	}
}

// sniffer creates a sniffer table with one entry for all frames.
func (d *driver) sniffer(kind uint64, tirn int) (table int) {
	d.t.Helper()
	table = int(d.do(0x930, set("table_type", int(kind))).Get("table_id"))
	d.do(0x933, set("table_type", int(kind), "table_id", table))
	d.doWith(0x936, 8, 0, func(in ifc.View) {
		in.Set("table_type", kind)
		in.Set("table_id", uint64(table))
		in.Set("flow_context.group_id", 1)
		in.Set("flow_context.action", actionForward)
		in.Set("flow_context.destination_list_size", 1)
		binary.BigEndian.PutUint32(in.Data[in.Size():], uint32(toTIR<<24|tirn))
	})
	d.do(0x92f, set("table_type", int(kind), "table_id", table))
	return table
}

const (
	toTable = 1
	toTIR   = 2
)

// someFrame returns an IPv4 UDP frame without checksums, with a VLAN tag.
func someFrame(to byte) []byte {
	b := []byte{2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, 99, 0x81, 0, 0x61, 0x23, 8, 0}
	b = append(b, 0x45, 0, 0, 48, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	b = append(b, 3, 0xe8, 3, 0xe9, 0, 28, 0, 0)
	for i := range 20 {
		b = append(b, byte(i))
	}
	return b
}

// A frame goes from one queue pair to another through two flow tables. The HCA computes its
// checksums, and the completion describes it.
func TestRawPackets(t *testing.T) {
	d := startedOf(t, true)
	here, there := int(d.do(0x816, nil).Get("transport_domain")), int(d.do(0x816, nil).Get("transport_domain"))
	a, b := d.raw(here, false), d.raw(there, true)
	counter := int(d.do(0x939, nil).Get("flow_counter_id"))
	last := d.flow(1, 5, toTIR, b.tirn, 0x1234, counter)
	first := d.flow(0, 5, toTable, last, 0, 0)
	d.do(0x92f, set("table_id", first))
	const bothChecks = 3 << 6
	f := someFrame(5)
	a.send(f, bothChecks)
	if cqe := a.next(); cqe == nil || cqe[63]>>4 != 0 || cqe[56] != 0x0a {
		t.Errorf("the sender's completion: % x", cqe)
	}
	cqe := b.next()
	if cqe == nil {
		t.Fatal("nothing was received")
	}
	const ok, udp4Tagged = 7, 2<<4 | 2<<2 | 1
	if cqe[63]>>4 != 2 || cqe[28] != ok || cqe[29] != udp4Tagged || binary.BigEndian.Uint16(cqe[30:]) != 0x6123 ||
		binary.BigEndian.Uint32(cqe[44:]) != uint32(len(f)-4) || binary.BigEndian.Uint32(cqe[56:]) != 0x1234 {
		t.Errorf("the receiver's completion: % x", cqe)
	}
	got := bytes.Clone(b.data[:len(f)-4])
	if bytes.Equal(got[24:26], []byte{0, 0}) || bytes.Equal(got[40:42], []byte{0, 0}) {
		t.Error("checksums are missing")
	}
	clear(got[24:26])
	clear(got[40:42])
	if want := append(bytes.Clone(f[:12]), f[16:]...); !bytes.Equal(got, want) {
		t.Errorf("got  % x\nwant % x", got, want)
	}
	if q := d.doWith(0x93b, 0, 16, set("flow_counter_id", counter)); binary.BigEndian.Uint64(q.Data[q.Size():]) != 1 {
		t.Errorf("counter: % x", q.Data)
	}
	// The queue can be set to keep the tag.
	d.do(0x909, set("rqn", b.rqn, "rq_state", sqReady, "ctx.state", sqReady, "modify_bitmask", modifyVSD, "ctx.vsd", 1))
	a.send(f, 0)
	if cqe := b.next(); cqe == nil || int(binary.BigEndian.Uint32(cqe[44:])) != len(f) || cqe[28]&4 != 4 || cqe[28]&2 != 0 {
		t.Errorf("without checksums, with the tag: % x", cqe)
	}
	// Frames without a receiver, and without an inline header.
	a.send(someFrame(6), 0)
	if cqe := b.next(); cqe != nil {
		t.Errorf("a frame for nobody: % x", cqe)
	}
	a.next()
	a.next()

	// Loopback works within a domain only on request, and not at all if the driver
	// disables it.
	for _, c := range []struct {
		from             *rawQP
		selfLB, disabled int
		want             bool
	}{
		{b, 0, 0, false}, {b, selfUnicast, 0, true}, {b, selfMulticast, 0, false},
		{b, selfUnicast, 1, false}, {a, 0, 1, false}, {a, 0, 0, true},
	} {
		d.do(0x901, set("tirn", b.tirn, "bitmask.self_lb_en", 1, "ctx.self_lb_block", c.selfLB))
		d.do(0x755, set("field_select.disable_uc_local_lb", 1, "nic_vport_context.disable_uc_local_lb", c.disabled))
		c.from.send(f, 0)
		received := false
		for cqe := b.next(); cqe != nil; cqe = b.next() {
			received = received || cqe[63]>>4 == 2
		}
		if received != c.want {
			t.Errorf("from %#x, self_lb_block %d, disabled %d: received is %v", c.from.sqn, c.selfLB, c.disabled, received)
		}
	}

	// A sniffer gets a copy of each frame, wherever else the frame goes.
	sniffer := d.sniffer(tableSniffTx, b.tirn)
	d.do(0x755, set("field_select.disable_uc_local_lb", 1, "nic_vport_context.disable_uc_local_lb", 1))
	a.send(f, 0)
	if cqe := b.next(); cqe == nil || b.next() != nil {
		t.Errorf("sniffed: % x, or more than one", cqe)
	}
	d.refused(BadRes, 0x938, set("table_id", sniffer, "flow_index", 0)) // of another type
	for _, opcode := range []uint16{0x938, 0x934, 0x931} {
		d.do(opcode, func(in ifc.View) {
			in.Set("table_type", tableSniffTx)
			in.Set("table_id", uint64(sniffer))
			if opcode == 0x934 {
				in.Set("group_id", 1)
			}
		})
	}

	// Objects can be destroyed in order, but not while they are used.
	d.refused(ResBusy, 0x902, set("tirn", b.tirn))
	d.refused(ResBusy, 0x90a, set("rqn", b.rqn))
	d.refused(ResBusy, 0x931, set("table_id", first))
	d.refused(ResBusy, 0x934, set("table_id", last, "group_id", 1))
	d.refused(ResBusy, 0x93a, set("flow_counter_id", counter))
	d.refused(ResBusy, 0x817, set("transport_domain", there))
	for _, table := range []int{first, last} {
		d.do(0x938, set("table_id", table, "flow_index", 2))
		d.do(0x934, set("table_id", table, "group_id", 1))
		d.do(0x931, set("table_id", table))
	}
	if a.send(f, 0); b.next() != nil {
		t.Error("a frame was received without a table")
	}
	d.do(0x93a, set("flow_counter_id", counter))
	for _, q := range []*rawQP{a, b} {
		d.do(0x902, set("tirn", q.tirn))
		d.do(0x90a, set("rqn", q.rqn))
		d.do(0x906, set("sqn", q.sqn))
		d.do(0x914, set("tisn", q.tisn))
	}
	d.do(0x817, set("transport_domain", there))
	resources := d.h.Resources()
	for _, kind := range []string{"rq", "sq", "tir", "tis", "flow", "flow_table", "flow_counter"} {
		if resources[kind] != 0 {
			t.Errorf("%d of %s left", resources[kind], kind)
		}
	}
}

// A hash chooses among queues, always the same for the same connection.
func TestReceiveSideScaling(t *testing.T) {
	d := startedOf(t, true)
	domain, other := int(d.do(0x816, nil).Get("transport_domain")), int(d.do(0x816, nil).Get("transport_domain"))
	from, queues := d.raw(other, false), []*rawQP{d.raw(domain, false), d.raw(domain, false)}
	rqt := int(d.doWith(0x916, 8, 0, func(in ifc.View) {
		in.Set("rqt_context.rqt_max_size", 2)
		in.Set("rqt_context.rqt_actual_size", 2)
		for i, q := range queues {
			binary.BigEndian.PutUint32(in.Data[in.Size()+4*i:], uint32(q.rqn))
		}
	}).Get("rqtn"))
	const sourceAndDestinationPorts = 3 << 2
	tir := int(d.do(0x900, func(in ifc.View) {
		c := in.Sub("ctx")
		c.Set("transport_domain", uint64(domain))
		c.Set("disp_type", 1)
		c.Set("indirect_table", uint64(rqt))
		c.Set("rx_hash_fn", 2)
		c.Set("rx_hash_field_selector_outer.l4_prot_type", 1)
		c.Set("rx_hash_field_selector_outer.selected_fields", sourceAndDestinationPorts)
		for i := range c.Bytes("rx_hash_toeplitz_key") {
			c.Bytes("rx_hash_toeplitz_key")[i] = byte(0x6d + 29*i)
		}
	}).Get("tirn"))
	d.do(0x92f, set("table_id", d.flow(0, 5, toTIR, tir, 0, 0)))
	d.refused(ResBusy, 0x918, set("rqtn", rqt))
	got := map[byte]int{}
	count := [2]int{}
	for round := range 2 {
		for port := range byte(8) {
			f := someFrame(5)
			f[39] = port
			from.send(f, 0)
			from.next()
			for i, q := range queues {
				if cqe := q.next(); cqe != nil {
					if round == 1 && got[port] != i {
						t.Errorf("port %d goes to queue %d, then to queue %d", port, got[port], i)
					}
					if hash := binary.BigEndian.Uint32(cqe[12:]); int(hash%2) != i || cqe[16] == 0 {
						t.Errorf("queue %d got hash %#x, type %#x", i, hash, cqe[16])
					}
					got[port] = i
					count[i]++
				}
			}
		}
	}
	if count[0] == 0 || count[1] == 0 || count[0]+count[1] != 16 {
		t.Errorf("the queues received %d", count)
	}
}

// Commands that exceed the capabilities, or that make no sense, are refused.
func TestBadFlows(t *testing.T) {
	d := startedOf(t, true)
	q := d.raw(int(d.do(0x816, nil).Get("transport_domain")), false)
	table := d.flow(3, 5, toTIR, q.tirn, 0, 0)
	d.refused(BadParam, 0x930, set("table_type", 1))
	d.refused(BadParam, 0x930, set("other_vport", 1))
	d.refused(BadParam, 0x930, set("flow_table_context.level", maxTableLevel+1))
	d.refused(BadParam, 0x930, set("flow_table_context.reformat_en", 1))
	d.refused(BadParam, 0x930, set("flow_table_context.level", 3, "flow_table_context.table_miss_action", 1, "flow_table_context.table_miss_id", table))
	d.refused(BadRes, 0x930, set("flow_table_context.table_miss_action", 1, "flow_table_context.table_miss_id", table+9))
	d.refused(BadIndex, 0x933, set("table_id", table, "start_flow_index", 3, "end_flow_index", 4))
	d.refused(BadParam, 0x933, set("table_id", table, "start_flow_index", 4, "end_flow_index", 16))
	d.refused(BadParam, 0x933, set("table_id", table, "start_flow_index", 4, "end_flow_index", 5,
		"match_criteria_enable", 2, "match_criteria.misc_parameters.bth_opcode", 1))
	for name, c := range map[string]struct {
		fill func(in ifc.View)
		want Status
	}{
		"an entry that is there":     {nil, BadIndex},
		"no such group":              {func(in ifc.View) { in.Set("flow_context.group_id", 9) }, BadRes},
		"an action without a list":   {func(in ifc.View) { in.Set("flow_context.destination_list_size", 0) }, BadParam},
		"a list beyond the box":      {func(in ifc.View) { in.Set("flow_context.destination_list_size", 1<<20) }, BadInLen},
		"to drop and to forward":     {func(in ifc.View) { in.Set("flow_context.action", actionForward|actionDrop) }, BadParam},
		"to change headers":          {func(in ifc.View) { in.Set("flow_context.action", actionForward|1<<6) }, BadParam},
		"to a table of its own":      {func(in ifc.View) { binary.BigEndian.PutUint32(in.Data[in.Size():], uint32(toTable<<24|table)) }, BadParam},
		"to a receiver that is none": {func(in ifc.View) { binary.BigEndian.PutUint32(in.Data[in.Size():], toTIR<<24|99) }, BadRes},
	} {
		_, status := d.try(0x936, 16, 0, func(in ifc.View) {
			d.entry(table, 1, 5, toTIR, q.tirn, 0, 0)(in)
			if c.fill != nil {
				c.fill(in)
			}
		})
		if status != c.want {
			t.Errorf("%s: status %#x, want %#x", name, status, c.want)
		}
	}
	d.refused(BadParam, 0x900, set("ctx.transport_domain", 1, "ctx.disp_type", 7))
	d.refused(BadRes, 0x900, set("ctx.transport_domain", 1, "ctx.inline_rqn", 1))
	d.refused(BadResState, 0x909, set("rqn", q.rqn, "rq_state", sqReset, "ctx.state", sqReady))
	d.refused(BadParam, 0x909, set("rqn", q.rqn, "rq_state", sqReady, "ctx.state", sqReady, "modify_bitmask", 1<<2))
	d.refused(BadParam, 0x755, set("field_select.min_inline", 1))
	started(t).refused(BadOp, 0x900, nil) // of an InfiniBand port
}

// The driver's address lists are read back as written, and the port follows its settings.
func TestEthernetPort(t *testing.T) {
	d := startedOf(t, true)
	if q := d.do(0x754, nil); q.Bytes("nic_vport_context.permanent_address")[2] != 0 || q.Get("nic_vport_context.mtu") == 0 {
		t.Errorf("a port without address or MTU: % x", q.Data)
	}
	d.doWith(0x755, 8, 0, func(in ifc.View) {
		in.Set("field_select.addresses_list", 1)
		in.Set("nic_vport_context.allowed_list_type", 1)
		in.Set("nic_vport_context.allowed_list_size", 1)
		copy(in.Data[in.Size():], []byte{0, 0, 1, 0, 0x5e, 0, 0, 1})
	})
	q := d.doWith(0x754, 0, 8, set("allowed_list_type", 1))
	if q.Get("nic_vport_context.allowed_list_size") != 1 || q.Data[q.Size()+7] != 1 {
		t.Error("the list of multicast addresses is lost")
	}
	port := func(write bool, fields ...any) ifc.View {
		t.Helper()
		out := d.doWith(0x805, 16, 16, func(in ifc.View) {
			in.Set("register_id", 0x5006)
			in.SetFlag("op_mod", !write)
			v := ifc.On("paos_reg", in.Data[in.Size():])
			v.Set("local_port", 1)
			set(fields...)(v)
		})
		return ifc.On("paos_reg", out.Data[out.Size():])
	}
	const up, down = 1, 2
	for _, want := range []int{down, up} {
		port(true, "admin_status", want)
		if got := port(false).Get("oper_status"); got != uint64(want) {
			t.Errorf("told %d, the port's state is %d", want, got)
		}
		if d.do(0x750, nil).Flag("state") != (want == up) {
			t.Errorf("told %d, the port's state is another", want)
		}
	}
}
