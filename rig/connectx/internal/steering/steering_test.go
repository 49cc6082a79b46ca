package steering

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
)

// udp returns a frame of Ethernet, IPv4 and UDP, with the VLAN tags.
func udp(to byte, port uint16, tags ...uint16) []byte {
	b := []byte{2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, 99}
	for _, tci := range tags {
		b = append(b, 0x81, 0, byte(tci>>8), byte(tci))
	}
	b = append(b, 8, 0, 0x45, 4<<2|1, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	b = binary.BigEndian.AppendUint16(b, 1000)
	b = binary.BigEndian.AppendUint16(b, port)
	return append(b, 0, 12, 0, 0, 1, 2, 3, 4)
}

// tcp6 returns a frame of Ethernet, IPv6 and TCP.
func tcp6() []byte {
	b := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 99, 0x86, 0xdd, 0x60, 1, 2, 3, 0, 20, 6, 64}
	b = append(b, []byte{0x20, 1, 15: 1}...)
	b = append(b, []byte{0x20, 1, 15: 2}...)
	return append(b, 0, 80, 0, 81, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x12, 0, 0, 0, 0, 0, 0)
}

// vxlan returns a VXLAN packet with a frame in it.
func vxlan(inner []byte) []byte {
	b := udp(1, 4789)
	b = append(b[:14+20+8], 8, 0, 0, 0, 0, 0, 7, 0)
	b = append(b, inner...)
	binary.BigEndian.PutUint16(b[16:], uint16(len(b)-14))
	return b
}

// describe fills in each field, and no other.
func TestDescribe(t *testing.T) {
	for _, c := range []struct {
		frame []byte
		want  map[string]uint64
	}{
		{udp(5, 53, 0xa123), map[string]uint64{
			"outer_headers.dmac_47_16": 0x02000000, "outer_headers.dmac_15_0": 5, "outer_headers.smac_15_0": 99,
			"outer_headers.ethertype": 0x800, "outer_headers.cvlan_tag": 1, "outer_headers.first_prio": 5,
			"outer_headers.first_cfi": 0, "outer_headers.first_vid": 0x123, "outer_headers.ip_version": 4,
			"outer_headers.ip_protocol": 17, "outer_headers.ip_dscp": 4, "outer_headers.ip_ecn": 1,
			"outer_headers.ttl_hoplimit": 64, "outer_headers.udp_sport": 1000, "outer_headers.udp_dport": 53,
			"outer_headers.tcp_dport": 0, "outer_headers.frag": 0,
		}},
		{udp(5, 53, 1, 2), map[string]uint64{
			"outer_headers.first_vid": 1, "misc_parameters.outer_second_vid": 2, "misc_parameters.outer_second_cvlan_tag": 1,
			"outer_headers.udp_dport": 53,
		}},
		{tcp6(), map[string]uint64{
			"outer_headers.ethertype": 0x86dd, "outer_headers.ip_version": 6, "outer_headers.tcp_sport": 80,
			"outer_headers.tcp_dport": 81, "outer_headers.tcp_flags": 0x12, "misc_parameters.outer_ipv6_flow_label": 0x10203,
			"outer_headers.cvlan_tag": 0,
		}},
		{vxlan(udp(9, 77)), map[string]uint64{
			"outer_headers.udp_dport": 4789, "misc_parameters.vxlan_vni": 7, "inner_headers.udp_dport": 77, "inner_headers.dmac_15_0": 9,
		}},
		{udp(1, 2)[:20], map[string]uint64{"outer_headers.ethertype": 0x800, "outer_headers.ip_version": 0}},
	} {
		v := ifc.Make("fte_match_param")
		describe(v.Data, c.frame)
		for field, want := range c.want {
			if got := v.Get(field); got != want {
				t.Errorf("frame % x: %s is %#x, want %#x", c.frame, field, got, want)
			}
		}
	}
	v := ifc.Make("fte_match_param")
	describe(v.Data, udp(1, 2))
	if a := v.Bytes("outer_headers.src_ipv4_src_ipv6"); a[15] != 1 || a[12] != 10 {
		t.Errorf("IPv4's source is % x", a)
	}
}

// match returns a value with the fields, and the mask of all their bits.
func match(fields map[string]uint64) (value, mask []byte) {
	v, m := ifc.Make("fte_match_param"), ifc.Make("fte_match_param")
	for field, x := range fields {
		v.Set(field, x)
		m.Set(field, ^uint64(0))
	}
	return v.Data, m.Data
}

func TestTables(t *testing.T) {
	second := &Table{Level: 1, Size: 4}
	first := &Table{Size: 16, Miss: second}
	add := func(t *testing.T, to *Table, at uint32, a Action, fields map[string]uint64) *Group {
		t.Helper()
		value, mask := match(fields)
		g, err := to.AddGroup(at, at+1, partOuter, mask)
		if err == nil {
			err = to.Add(g, at, value, a)
		}
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	counter := &Counter{}
	add(t, first, 4, Action{Receivers: []uint32{1}, Tag: 7}, map[string]uint64{"outer_headers.dmac_15_0": 1})
	add(t, first, 2, Action{Receivers: []uint32{2, 3}}, map[string]uint64{"outer_headers.udp_dport": 53})
	g := add(t, first, 0, Action{Counters: []*Counter{counter}}, map[string]uint64{"outer_headers.udp_dport": 1})
	add(t, first, 6, Action{Tables: []*Table{second}, Receivers: []uint32{4}}, map[string]uint64{"outer_headers.udp_dport": 9})
	add(t, second, 0, Action{Receivers: []uint32{5}}, nil)
	for _, c := range []struct {
		frame []byte
		want  string
	}{
		{udp(1, 2), "[{1 7}]"},        // by the address
		{udp(1, 53), "[{2 0} {3 0}]"}, // a lower index has precedence
		{udp(1, 1), "[]"},             // dropped
		{udp(2, 9), "[{4 0} {5 0}]"},  // to a receiver and to another table
		{udp(2, 8), "[{5 0}]"},        // nothing matches
	} {
		if got := fmt.Sprint(first.Steer(nil, c.frame)); got != c.want {
			t.Errorf("to % x: %s, want %s", c.frame, got, c.want)
		}
	}
	if counter.Packets != 1 || counter.Octets != uint64(len(udp(1, 1))) {
		t.Errorf("counted %+v", *counter)
	}
	if err := first.RemoveGroup(g); !errors.Is(err, ErrBusy) {
		t.Errorf("removing a group with an entry: %v", err)
	}
	if first.Remove(0) == nil || first.Remove(0) != nil {
		t.Error("an entry is removed once")
	}
	if err := first.RemoveGroup(g); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(first.Steer(nil, udp(2, 1))); got != "[{5 0}]" {
		t.Errorf("after removal: %s", got)
	}
}

func TestRefusedGroups(t *testing.T) {
	table := &Table{Size: 8}
	_, none := match(nil)
	if _, err := table.AddGroup(2, 4, 0, none); err != nil {
		t.Fatal(err)
	}
	_, source := match(map[string]uint64{"misc_parameters.source_sqn": 1})
	for name, c := range map[string]struct {
		first, last uint32
		parts       uint8
		mask        []byte
		want        error
	}{
		"a range that overlaps": {4, 5, 0, none, ErrIndex},
		"a range backwards":     {7, 6, 0, none, ErrParam},
		"beyond the table":      {5, 8, 0, none, ErrParam},
		"an unknown part":       {5, 6, 0x80, none, ErrParam},
		"an unknown field":      {5, 6, partMisc, source, ErrParam},
	} {
		if _, err := table.AddGroup(c.first, c.last, c.parts, c.mask); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := table.AddGroup(5, 6, partOuter, source); err != nil {
		t.Errorf("a field of a part that does not count: %v", err)
	}
}

// The examples in Microsoft's specification of receive side scaling.
func TestToeplitz(t *testing.T) {
	key := [40]byte{
		0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
		0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
		0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
	}
	b := []byte{11: 0, 12: 8, 13: 0}
	b = append(b, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 66, 9, 149, 187, 161, 142, 100, 80)
	b = append(b, []byte{2794 >> 8, 2794 & 0xff, 1766 >> 8, 1766 & 0xff, 12: 0x50, 19: 0}...)
	for fields, want := range map[uint32]uint32{
		hashSource | hashDestination:                                        0x323e8fc2,
		hashSource | hashDestination | hashSourcePort | hashDestinationPort: 0x51ccc178,
	} {
		h := Hash{Function: HashToeplitz, Key: key, Fields: fields}
		if got, kind := h.Of(b); got != want || kind == 0 {
			t.Errorf("fields %#x: hash %#x of kind %#x, want %#x", fields, got, kind, want)
		}
		h.UDP, h.IPv6 = true, true
		if got, kind := h.Of(b); got != 0 || kind != 0 {
			t.Errorf("of another kind of packet: hash %#x of kind %#x", got, kind)
		}
	}
	// Both directions alike.
	back := append([]byte(nil), b...)
	copy(back[26:30], b[30:34])
	copy(back[30:34], b[26:30])
	for _, f := range []Function{HashToeplitz, HashXOR} {
		h := Hash{Function: f, Key: key, Symmetric: true, Fields: hashSource | hashDestination}
		there, _ := h.Of(b)
		here, _ := h.Of(back)
		if there != here || there == 0 {
			t.Errorf("symmetric: %#x there, %#x back", there, here)
		}
	}
}

// No frame makes matching panic.
func FuzzFrame(f *testing.F) {
	for _, b := range [][]byte{udp(1, 2), udp(1, 2, 3, 4), tcp6(), vxlan(tcp6()), {}, make([]byte, 14)} {
		f.Add(b)
	}
	table := &Table{Size: 1}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(table.Steer(nil, b)) != 0 {
			t.Error("an empty table matches")
		}
		for _, h := range []Hash{{Function: HashToeplitz, Fields: HashFields}, {Function: HashXOR, IPv6: true, UDP: true, Fields: HashFields}} {
			h.Of(b)
		}
	})
}
