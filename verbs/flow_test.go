package verbs

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// The bytes are those of struct ib_uverbs_flow_spec_*, field by field: the header's
// numbers are the processor's, which is little-endian where tests run, all others
// in network order.
func TestFlowSpecs(t *testing.T) {
	for _, test := range []struct {
		spec FlowSpec
		want string
	}{
		{
			FlowEth{
				Val:  FlowEthFilter{DstMAC: [6]byte{1, 2, 3, 4, 5, 6}, SrcMAC: [6]byte{7, 8, 9, 10, 11, 12}, EtherType: 0x0800, VLANTag: 0x123},
				Mask: FlowEthFilter{DstMAC: [6]byte{255, 255, 255, 255, 255, 255}, EtherType: 0xffff},
			},
			"20000000 2800 0000 010203040506 0708090a0b0c 0800 0123 ffffffffffff 000000000000 ffff 0000",
		},
		{
			FlowIPv4{
				Val:  FlowIPv4Filter{Src: netip.MustParseAddr("1.2.3.4"), Dst: netip.MustParseAddr("5.6.7.8"), Proto: 17, TOS: 2, TTL: 3, Flags: 4},
				Mask: FlowIPv4Filter{Dst: netip.MustParseAddr("255.255.255.0")},
			},
			"30000000 2000 0000 01020304 05060708 11 02 03 04 00000000 ffffff00 00 00 00 00",
		},
		{
			FlowIPv6{Val: FlowIPv6Filter{
				Src: netip.MustParseAddr("::1"), Dst: netip.MustParseAddr("fe80::2"), FlowLabel: 0x12345, NextHeader: 6, TrafficClass: 7, HopLimit: 8,
			}},
			"31000000 5800 0000 00000000000000000000000000000001 fe800000000000000000000000000002 00012345 06 07 08 00" + strings.Repeat("00", 40),
		},
		{FlowTCP{Val: FlowPorts{Src: 0x102, Dst: 0x304}, Mask: FlowPorts{Dst: 0xffff}}, "40000000 1000 0000 0304 0102 ffff 0000"},
		{FlowUDP{Mask: FlowPorts{Src: 0xff00}}, "41000000 1000 0000 0000 0000 0000 ff00"},
		{FlowTag(0x01020304), "00100000 1000 0000 04030201 00000000"},
		{FlowDrop{}, "01100000 0800 0000"},
	} {
		want := strings.ReplaceAll(test.want, " ", "")
		if got := hex.EncodeToString(test.spec.append(nil)); got != want {
			t.Errorf("%+v is\n%s, want\n%s", test.spec, got, want)
		}
	}
}

func TestFlowRefused(t *testing.T) {
	if _, err := (*QP)(nil).CreateFlow(FlowOptions{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("on no QP: %v", err)
	}
	raw, rc := &QP{typ: RawPacket}, &QP{typ: RC}
	for name, f := range map[string]func() (*Flow, error){
		"RC": func() (*Flow, error) { return rc.newFlow("create flow", &FlowOptions{}, nil) },
		"11 specs": func() (*Flow, error) {
			return raw.newFlow("create flow", &FlowOptions{Specs: make([]FlowSpec, 11)}, nil)
		},
		"nil": func() (*Flow, error) {
			return raw.CreateFlow(FlowOptions{Specs: make([]FlowSpec, 1)})
		},
		"priority": func() (*Flow, error) { return raw.newFlow("create flow", &FlowOptions{Priority: 1 << 16}, nil) },
		"port":     func() (*Flow, error) { return raw.newFlow("create flow", &FlowOptions{Port: 256}, nil) },
	} {
		if _, err := f(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (*Flow)(nil).Close(); err != nil {
		t.Error(err)
	}
}
