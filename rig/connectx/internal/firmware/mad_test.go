package firmware

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
)

// ask sends a MAD to the HCA, and returns the answer's status and data.
func (d *driver) ask(class, method byte, attr uint16, modifier uint32, data []byte) (madResult, []byte) {
	d.t.Helper()
	b := make([]byte, 256)
	b[0], b[madClass], b[2], b[madMethod] = 1, class, 1, method
	binary.BigEndian.PutUint64(b[8:], 0x1122334455667788)
	binary.BigEndian.PutUint16(b[madAttr:], attr)
	binary.BigEndian.PutUint32(b[madModifier:], modifier)
	copy(b[madData:], data)
	out := d.do(0x50d, func(in ifc.View) {
		in.Set("port", 1)
		copy(in.Bytes("mad"), b)
	})
	answer := out.Bytes("response_mad_packet")
	if answer[madMethod] != methodResponse || answer[madClass] != class || binary.BigEndian.Uint64(answer[8:]) != 0x1122334455667788 {
		d.t.Errorf("the answer begins with % x", answer[:24])
	}
	return madResult(binary.BigEndian.Uint16(answer[madStatus:])), slices.Clone(answer[madData:])
}

func TestNodeAttributes(t *testing.T) {
	d := started(t)
	status, b := d.ask(classDirected, methodGet, 0x11, 0, nil)
	if status != madOK || b[2] != 1 || b[3] != 1 || binary.BigEndian.Uint64(b[12:]) != 0x0002c90300000000 || binary.BigEndian.Uint64(b[20:]) != 0x0002c90300000001 ||
		binary.BigEndian.Uint16(b[30:]) != 0x101b || binary.BigEndian.Uint32(b[36:]) != 0x010002c9 {
		t.Errorf("NodeInfo: status %#x, % x", status, b[:40])
	}
	d.doWith(0x805, 64, 64, func(in ifc.View) {
		in.Set("register_id", 0x6001)
		copy(in.Bytes("register_data"), "a name")
	})
	if status, b = d.ask(classSubnet, methodGet, 0x10, 0, nil); status != madOK || string(b[:7]) != "a name\x00" {
		t.Errorf("NodeDescription: status %#x, %q", status, b[:64])
	}
	if status, b = d.ask(classSubnet, methodGet, 0x14, 0, nil); status != madOK || binary.BigEndian.Uint64(b) != 0x0002c90300000001 || binary.BigEndian.Uint64(b[8:]) != 0 {
		t.Errorf("GUIDInfo: status %#x, % x", status, b[:16])
	}
	if status, b = d.ask(classSubnet, methodGet, 0x16, 0, nil); status != madOK || binary.BigEndian.Uint32(b) != 0xffff0000 {
		t.Errorf("P_KeyTable: status %#x, % x", status, b[:4])
	}
}

// A subnet manager gives the port a LID and brings it up. The driver is told, and sees the same.
func TestPortInfo(t *testing.T) {
	d := started(t)
	_, b := d.ask(classSubnet, methodGet, 0x15, 1, nil)
	if b[32]&0xf != portActive || b[33]>>4 != linkUp || binary.BigEndian.Uint16(b[16:]) != d.port.LID() || b[31] != width4x || b[62] != speedEDR<<4|speedsToEDR || b[50] != gids {
		t.Errorf("PortInfo: % x", b[:64])
	}
	if context := d.do(0x762, nil).Sub("hca_vport_context"); uint64(binary.BigEndian.Uint32(b[20:])) != context.Get("cap_mask1") || !context.Flag("has_smi") {
		t.Errorf("the capabilities are %x, and the driver's %#x", b[20:24], context.Get("cap_mask1"))
	}
	set := func(lid uint16, state byte) madResult {
		t.Helper()
		binary.BigEndian.PutUint16(b[16:], lid)
		binary.BigEndian.PutUint16(b[18:], 0x33)
		b[32], b[36], b[51] = state, 4<<4|2, 0x80|20
		status, answer := d.ask(classSubnet, methodSet, 0x15, 1, b[:64])
		if status == madOK && (binary.BigEndian.Uint16(answer[16:]) != lid || answer[51] != 0x80|20 || answer[36] != 4<<4|2) {
			t.Errorf("set to LID %#x, state %d: the answer is % x", lid, state, answer[:64])
		}
		return status
	}
	if status := set(0x77, stateNothing); status != madOK || d.port.LID() != 0x77 {
		t.Errorf("LID: status %#x, and it is %#x", status, d.port.LID())
	}
	if c := d.do(0x762, nil).Sub("hca_vport_context"); c.Get("lid") != 0x77 || c.Get("sm_lid") != 0x33 || c.Get("sm_sl") != 2 || c.Get("subnet_timeout") != 20 {
		t.Errorf("the driver sees LID %#x, of the SM %#x and %d, timeout %d", c.Get("lid"), c.Get("sm_lid"), c.Get("sm_sl"), c.Get("subnet_timeout"))
	}
	// From active, a port gets to no lower state but by training again.
	if status := set(0x77, stateArmed); status != madBadValue {
		t.Errorf("from active to armed: status %#x", status)
	}
	d.h.logical = portInit
	if status := set(0x77, portActive); status != madBadValue {
		t.Errorf("from init to active: status %#x", status)
	}
	for _, state := range []byte{stateArmed, stateArmed, portActive, portActive} {
		if status := set(0x77, state); status != madOK || d.h.logical != uint64(state) {
			t.Errorf("to state %d: status %#x, state %d", state, status, d.h.logical)
		}
	}
	for name, lid := range map[string]uint16{"none": 0, "multicast": 0xc000, "permissive": 0xffff} {
		if status := set(lid, stateNothing); status != madBadValue || d.port.LID() != 0x77 {
			t.Errorf("LID %s: status %#x, LID %#x", name, status, d.port.LID())
		}
	}
}

// A port that a subnet manager must bring up has no LID and is not active, also after the cable was
// pulled. It gets both back when the fabric brings it up again.
func TestManaged(t *testing.T) {
	d := started(t)
	lid := d.port.LID()
	info := func() (uint16, byte) {
		_, b := d.ask(classDirected, methodGet, 0x15, 1, nil)
		return binary.BigEndian.Uint16(b[16:]), b[32] & 0xf
	}
	expect := func(when string, lid uint16, state byte) {
		t.Helper()
		if gotLID, gotState := info(); gotLID != lid || gotState != state {
			t.Errorf("%s: LID %d, state %d; want %d, %d", when, gotLID, gotState, lid, state)
		}
	}
	d.h.Manage(true)
	expect("managed", 0, portInit)
	_, b := d.ask(classDirected, methodGet, 0x15, 1, nil)
	for _, state := range []byte{stateArmed, portActive} {
		binary.BigEndian.PutUint16(b[16:], 0x20)
		b[32] = state
		if status, _ := d.ask(classDirected, methodSet, 0x15, 1, b[:64]); status != madOK {
			t.Errorf("to state %d: status %#x", state, status)
		}
	}
	expect("brought up", 0x20, portActive)
	d.port.SetUp(false)
	expect("cable pulled", 0x20, portDown)
	d.port.SetUp(true)
	expect("plugged in again", 0x20, portInit)
	d.h.Manage(false)
	expect("not managed", lid, portActive)
}

// The events that a subnet manager causes reach the driver.
func TestPortEvents(t *testing.T) {
	d := started(t)
	_, entries := d.createEQ(0, eq.TypePortChange)
	_, b := d.ask(classSubnet, methodGet, 0x15, 1, nil)
	binary.BigEndian.PutUint16(b[16:], 0x99)
	b[32], b[51] = stateNothing, b[51]|0x80
	d.ask(classSubnet, methodSet, 0x15, 1, b[:64])
	d.ask(classSubnet, methodSet, 0x16, 0, b[:64])
	const entry, subtype = 64, 3
	got := []uint8{entries[subtype], entries[entry+subtype], entries[2*entry+subtype]}
	if !slices.Equal(got, []uint8{eq.PortLID, eq.PortReregister, eq.PortPKey}) {
		t.Errorf("events %d", got)
	}
}

func TestKeysOfPartitions(t *testing.T) {
	d := started(t)
	table := make([]byte, 64)
	copy(table, []byte{0xff, 0xff, 0x80, 0x01})
	if status, b := d.ask(classSubnet, methodSet, 0x16, 1, table); status != madOK || string(b[:64]) != string(table) {
		t.Errorf("set: status %#x, % x", status, b[:4])
	}
	out := d.doWith(0x765, 0, 4*pkeys, func(in ifc.View) { in.Set("pkey_index", 33) })
	if key := binary.BigEndian.Uint32(out.Bytes("pkey")); key != 0x8001 || d.h.pkey(1, 33) != 0x8001 {
		t.Errorf("the driver sees %#x, queue pairs use %#x", key, d.h.pkey(1, 33))
	}
	if status, _ := d.ask(classSubnet, methodGet, 0x16, pkeys/32, nil); status != madBadValue {
		t.Errorf("a block beyond the table: status %#x", status)
	}
}

func TestPortCounters(t *testing.T) {
	d := started(t)
	send := func(group bool) {
		p := fabric.NewPacket()
		p.DLID = d.port.LID()
		if group {
			p.HasGRH, p.GRH[24] = true, 0xff
		}
		p.Data = append(p.Data, make([]byte, 28)...) // with the headers 40 bytes, or 80
		d.port.Send(p)
	}
	request := []byte{0, 1, 0xff, 0xff}
	read := func(attr uint16) []byte {
		t.Helper()
		status, b := d.ask(classPerformance, methodGet, attr, 0, request)
		if status != madOK {
			t.Fatalf("attribute %#x: status %#x", attr, status)
		}
		return b
	}
	send(false)
	send(true)
	d.port.SetUp(false)
	d.port.SetUp(true)
	b := read(0x12)
	if b[7] != 1 || !slices.Equal(words32(b[24:40]), []uint32{30, 10, 2, 1}) {
		t.Errorf("PortCounters: % x", b[:44])
	}
	if got := words64(read(0x1d)[8:72]); !slices.Equal(got, []uint64{30, 10, 2, 1, 1, 1, 1, 0}) {
		t.Errorf("PortCountersExtended: %d", got)
	}
	// The two attributes are reset apart, and only what is selected.
	if status, b := d.ask(classPerformance, methodSet, 0x12, 0, []byte{0, 0xff, 0x10, 0}); status != madOK || !slices.Equal(words32(b[24:40]), []uint32{0, 10, 2, 1}) {
		t.Errorf("reset: status %#x, % x", status, b[24:40])
	}
	if got := words64(read(0x1d)[8:16]); got[0] != 30 {
		t.Errorf("the extended counter is %d", got[0])
	}
	// CounterSelect2 selects PortXmitWait.
	d.h.counted.Waits = ^uint64(0) - 99
	selected2 := make([]byte, 19)
	selected2[1], selected2[18] = 1, 1
	if got := words32(read(0x12)[40:44]); got[0] != 100 {
		t.Errorf("PortXmitWait is %d", got[0])
	}
	if status, b := d.ask(classPerformance, methodSet, 0x12, 0, selected2); status != madOK || !slices.Equal(words32(b[24:44]), []uint32{0, 10, 2, 1, 0}) {
		t.Errorf("reset of PortXmitWait: status %#x, % x", status, b[24:44])
	}
	// A counter stays at its greatest value.
	d.h.counted.ReceivedWords = 1<<63 + 1
	d.h.counted.Downs = ^uint64(0) - 0x1ff
	if b := read(0x12); b[7] != 0xff || words32(b[28:32])[0] != 0xffffffff {
		t.Errorf("overflow: % x", b[:44])
	}
	if status, _ := d.ask(classPerformance, methodGet, 0x12, 0, []byte{0, 2}); status != madBadValue {
		t.Errorf("port 2: status %#x", status)
	}
	if _, b := d.ask(classPerformance, methodGet, 1, 0, nil); binary.BigEndian.Uint16(b[2:]) != 0x1300 {
		t.Errorf("ClassPortInfo: % x", b[:8])
	}
}

// TestPauses: an Ethernet port counts the pause frames that it obeys.
func TestPauses(t *testing.T) {
	d := startedOf(t, true)
	access := func(id, op uint64, layout string, fill func(r ifc.View)) (r ifc.View) {
		t.Helper()
		r = ifc.View{Layout: ifc.Of(layout)}
		out := d.doWith(0x805, r.Layout.Size(), r.Layout.Size(), func(in ifc.View) {
			in.Set("op_mod", op)
			in.Set("register_id", id)
			r.Data = in.Bytes("register_data")
			r.Set("local_port", 1)
			if fill != nil {
				fill(r)
			}
		})
		r.Data = out.Bytes("register_data")
		return r
	}
	const read, write = 1, 0
	counted := func() (frames [3]uint64) {
		for i, c := range []struct {
			group, prio   uint64
			layout, field string
		}{
			{0, 0, "eth_802_3_cntrs_grp_data_layout", "a_pause_mac_ctrl_frames_received_low"},
			{0x10, 0, "eth_per_prio_grp_data_layout", "rx_pause_low"},
			{0x10, 1, "eth_per_prio_grp_data_layout", "rx_pause_low"},
		} {
			r := access(0x5008, read, "ppcnt_reg", func(r ifc.View) { r.Set("grp", c.group); r.Set("prio_tc", c.prio) })
			frames[i] = ifc.On(c.layout, r.Bytes("counter_set")).Get(c.field)
		}
		return frames
	}
	if got := counted(); got != [3]uint64{} {
		t.Errorf("before: %d", got)
	}
	if err := d.h.Pause(true); err != nil {
		t.Fatal(err)
	}
	d.now += 5 * time.Millisecond
	if got := counted(); got[0] < 5 || got[0] > 6 || got[1] != got[0] || got[2] != 0 {
		t.Errorf("in the pause: %d", got)
	}
	if r := access(0x5007, read, "pfcc_reg", nil); !r.Flag("pprx") || !r.Flag("pptx") {
		t.Error("the port doesn't say that it obeys")
	}
	access(0x5007, write, "pfcc_reg", nil) // neither obeys nor sends them
	if r := access(0x5007, read, "pfcc_reg", nil); r.Flag("pprx") || r.Flag("pptx") {
		t.Error("the port obeys, although the driver has turned that off")
	}
	if d.h.Pause(true) == nil {
		t.Error("the port is paused, although it doesn't obey")
	}
}

func words32(b []byte) (all []uint32) {
	for ; len(b) >= 4; b = b[4:] {
		all = append(all, binary.BigEndian.Uint32(b))
	}
	return all
}

func words64(b []byte) (all []uint64) {
	for ; len(b) >= 8; b = b[8:] {
		all = append(all, binary.BigEndian.Uint64(b))
	}
	return all
}

// What the agents don't know is refused with the reason.
func TestMADsRefused(t *testing.T) {
	d := started(t)
	for _, c := range []struct {
		class, method byte
		attr          uint16
		modifier      uint32
		want          madResult
	}{
		{3, methodGet, 0x11, 0, madNoClass},
		{0x32, methodGet, 0, 0, madNoClass},
		{classSubnet, 5, 0x11, 0, madNoMethod},
		{classSubnet, methodGet, 0x12, 0, madNoAttribute},
		{classSubnet, methodGet, 0xff90, 1, madOK},
		{classSubnet, methodGet, 0xff91, 0, madNoAttribute},
		{classSubnet, methodSet, 0x11, 0, madNoAttribute},
		{classSubnet, methodGet, 0x15, 2, madBadValue},
		{classSubnet, methodGet, 0x15, 1<<31 | 1, madOK},
		{classSubnet, methodGet, 0x14, 1, madBadValue},
		{classPerformance, methodGet, 0x10, 0, madNoAttribute},
	} {
		if got, _ := d.ask(c.class, c.method, c.attr, c.modifier, nil); got != c.want {
			t.Errorf("class %#x, method %d, attribute %#x, modifier %#x: status %#x, want %#x", c.class, c.method, c.attr, c.modifier, got, c.want)
		}
	}
}
