package firmware

import (
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
)

// address fills a SET_ROCE_ADDRESS.
func address(index, kind int, gid fabric.GID, mac fabric.MAC) func(in ifc.View) {
	return func(in ifc.View) {
		set("roce_address_index", index, "roce_address.roce_version", 2, "roce_address.roce_l3_type", kind,
			"roce_address.vlan_valid", 1, "roce_address.vlan_id", 77)(in)
		v := in.Sub("roce_address")
		copy(v.Bytes("source_l3_address"), gid[:])
		copy(v.Data[v.Field("source_mac_47_32").Offset/8:], mac[:])
	}
}

// Addresses are read back as they were set, and take effect when RoCE is enabled.
func TestRoCEAddresses(t *testing.T) {
	d := startedOf(t, true)
	caps := ifc.On("roce_cap", d.doWith(0x100, 0, 2048/8, set("op_mod", capRoCE<<1|1)).Data[16:])
	last := int(caps.Get("roce_address_table_size")) - 1
	v4, v6 := fabric.GID{10: 0xff, 0xff, 10, 0, 0, 1}, fabric.GID{0xfd, 15: 1}
	mac := fabric.MAC{0, 2, 0xc9, 0x6f, 0x76, 1}
	d.do(0x761, address(0, roceIPv6, v6, mac))
	d.do(0x761, address(last, roceIPv4, v4, mac))
	for index, want := range map[int]fabric.GID{0: v6, last: v4} {
		q := d.do(0x760, set("roce_address_index", index)).Sub("roce_address")
		at := q.Field("source_mac_47_32").Offset / 8
		if fabric.GID(q.Bytes("source_l3_address")) != want || fabric.MAC(q.Data[at:]) != mac || q.Get("vlan_id") != 77 ||
			!q.Flag("vlan_valid") || q.Get("roce_version") != 2 || q.Get("roce_l3_type") == roceIPv4 != (want == v4) {
			t.Errorf("entry %d: % x", index, q.Data)
		}
	}
	d.refused(BadParam, 0x761, address(last+1, roceIPv6, v6, mac))
	d.refused(BadParam, 0x760, set("roce_address_index", last+1))
	d.refused(BadParam, 0x761, address(1, roceIPv4, v6, mac))
	d.refused(BadParam, 0x761, address(1, 2, v6, mac))
	d.refused(BadParam, 0x761, nil) // version 1
	both := startedAs(t, true, profile(t, "rocev1"))
	both.do(0x761, func(in ifc.View) { address(1, 0, v4, mac)(in); in.Set("roce_address.roce_version", roceVersion1) })
	if q := both.do(0x760, set("roce_address_index", 1)).Sub("roce_address"); q.Get("roce_version") != roceVersion1 || fabric.GID(q.Bytes("source_l3_address")) != v4 {
		t.Errorf("version 1: % x", q.Data)
	}
	both.refused(BadParam, 0x761, set("roce_address.roce_version", 1))
	started(t).refused(BadOp, 0x761, address(0, roceIPv6, v6, mac))

	arrives := func() bool {
		p, was := fabric.NewPacket(), d.packets
		p.RoCE, p.Link.Dest = true, mac
		d.port.Send(p)
		return d.packets > was
	}
	enable := func(on int) {
		d.do(0x755, set("field_select.roce_en", 1, "nic_vport_context.roce_en", on))
		if got := d.do(0x754, nil).Get("nic_vport_context.roce_en"); got != uint64(on) || arrives() != (on == 1) {
			t.Errorf("enabled %d, reported %d, packets arrive: %t", on, got, arrives())
		}
	}
	if arrives() {
		t.Error("packets arrive before RoCE is enabled")
	}
	enable(1)
	enable(0)
	enable(1)
	d.do(0x103, nil)
	if arrives() {
		t.Error("packets arrive after TEARDOWN_HCA")
	}
}

// TestOtherPort: the port of another function, which doesn't exist, has addresses of its own and answers
// datagrams. Drivers use neither before they know that it is down.
func TestOtherPort(t *testing.T) {
	for name, ports := range map[string]uint64{"connectx6dx": 1, "dualport": 2} {
		d := startedAs(t, true, profile(t, name))
		for port := range uint64(4) {
			set := func(in ifc.View) {
				in.Set("vhca_port_num", port)
				in.Set("roce_address.roce_version", roceVersion2)
				in.Set("roce_address.roce_l3_type", roceIPv6)
				in.Set("roce_address.source_mac_47_32", 0x70+port)
			}
			get := func(in ifc.View) { in.Set("vhca_port_num", port) }
			if port > ports {
				d.refused(BadParam, 0x761, set)
				d.refused(BadParam, 0x760, get)
				d.refused(BadParam, 0x50d, func(in ifc.View) { in.Set("port", port) })
				continue
			}
			d.do(0x761, set)
			if got := d.do(0x760, get).Get("roce_address.source_mac_47_32"); got != 0x70+port {
				t.Errorf("%s: the address of port %d is %#x", name, port, got)
			}
			d.do(0x50d, func(in ifc.View) { in.Set("port", port) })
		}
		// A group's members are on all ports.
		qpn := d.doWith(0x500, 8, 0, d.qp(d.setup(), serviceUD)).Get("qpn")
		d.do(0x806, func(in ifc.View) {
			in.Set("qpn", qpn)
			copy(in.Bytes("multicast_gid"), []byte{0xff, 0x12, 15: 1})
		})
	}
}
