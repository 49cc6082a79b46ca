package ib

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
)

func TestGUID(t *testing.T) {
	want := GUID{0x50, 0x54, 0x00, 0xff, 0xfe, 0x12, 0x0a, 0x56}
	if got := want.String(); got != "5054:00ff:fe12:0a56" {
		t.Errorf("String() = %q", got)
	}
	for _, s := range []string{"5054:00ff:fe12:0a56", "505400fffe120a56", "5054:00FF:FE12:0A56"} {
		if got, err := ParseGUID(s); err != nil || got != want {
			t.Errorf("ParseGUID(%q) = %v, %v", s, got, err)
		}
	}
	if got := GUIDOf(want.Uint64()); got != want || want.Uint64() != 0x505400fffe120a56 {
		t.Errorf("%v as a number is %#x, and back %v", want, want.Uint64(), got)
	}
	for _, s := range []string{"", "rxe0", "505400fffe120a5", "505400fffe120a5678", "50:5400ff:fe120a:56", ":::505400fffe120a56", "505400fffe120axx"} {
		if got, err := ParseGUID(s); !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseGUID(%q) = %v, %v, want a refusal", s, got, err)
		}
	}
}

func TestStrings(t *testing.T) {
	for _, test := range []struct {
		v    fmt.Stringer
		want string
	}{
		{PortDown, "DOWN"},
		{PortInit, "INIT"},
		{PortArmed, "ARMED"},
		{PortActive, "ACTIVE"},
		{PortNop, "NOP"},
		{PhysSleep, "SLEEP"},
		{PhysPolling, "POLLING"},
		{PhysDisabled, "DISABLED"},
		{PhysLinkUp, "LINK_UP"},
		{PhysLinkErrorRecovery, "LINK_ERROR_RECOVERY"},
		{PhysTest, "PHY_TEST"},
		{PhysState(0), "NOP"},
		{PhysTraining, "TRAINING"},
		{PhysState(8), "unknown(8)"},
		{PortState(200), "unknown(200)"},
		{NodeType(200), "unknown(200)"},
		{RC, "RC"},
		{SMI, "SMI"},
		{GSI, "GSI"},
		{RawPacket, "RAW_PACKET"},
		{XRCSend, "XRC_INI"},
		{SRD, "SRD"},
		{DriverQP, "DRIVER"},
		{QPRTS, "RTS"},
		{QPErr, "ERR"},
		{MigRearm, "REARM"},
		{LinkLayerUnspecified, "Unspecified"},
		{LinkLayerInfiniBand, "InfiniBand"},
		{LinkLayerEthernet, "Ethernet"},
		{LinkLayer(3), "Unknown"},
		{Width1X, "1X"},
		{Width2X, "2X"},
		{Width4X, "4X"},
		{Width8X, "8X"},
		{Width12X, "12X"},
		{SpeedSDR, "2.5 Gbps"},
		{SpeedQDR, "10.0 Gbps"},
		{SpeedFDR10, "10.0 Gbps"},
		{SpeedFDR, "14.0 Gbps"},
		{SpeedEDR, "25.0 Gbps"},
		{SpeedHDR, "50.0 Gbps"},
		{SpeedNDR, "100.0 Gbps"},
		{SpeedXDR, "200.0 Gbps"},
		{Speed(3), "invalid speed"},
		{MTU256, "256"},
		{MTU4096, "4096"},
		{MTU(6), "invalid MTU"},
	} {
		if got := test.v.String(); got != test.want {
			t.Errorf("%T(%d).String() = %q, want %q", test.v, test.v, got, test.want)
		}
	}
}

func TestMTUOf(t *testing.T) {
	for n, want := range map[int]MTU{-1: 0, 255: 0, 256: MTU256, 1500: MTU1024, 2047: MTU1024, 2048: MTU2048, 4096: MTU4096, 9000: MTU4096} {
		if got := MTUOf(n); got != want {
			t.Errorf("MTUOf(%d) is %v, want %v", n, got, want)
		}
	}
}

func TestNodeTypes(t *testing.T) {
	for typ, want := range map[NodeType][2]string{
		NodeCA:          {"ca", "InfiniBand"},
		NodeSwitch:      {"switch", "InfiniBand"},
		NodeRouter:      {"router", "InfiniBand"},
		NodeRNIC:        {"rnic", "iWARP"},
		NodeUSNIC:       {"usnic", "usNIC"},
		NodeUSNICUDP:    {"usnic_udp", "usNIC UDP"},
		NodeUnspecified: {"unspecified", "unspecified"},
		0:               {"unknown", "invalid transport"},
	} {
		if got := [2]string{typ.String(), typ.Transport().String()}; got != want {
			t.Errorf("node type %d: %q, want %q", typ, got, want)
		}
	}
}

// TestTexts: GIDs and GUIDs are texts in JSON, and are read in each of their forms.
func TestTexts(t *testing.T) {
	type both struct {
		GID  GID
		GUID GUID
	}
	x := both{GID{0: 0xfe, 1: 0x80, 15: 1}, GUID{0x50, 0x54, 0, 0xff, 0xfe, 0x12, 0x34, 0x56}}
	text, err := json.Marshal(x)
	if want := `{"GID":"fe80::1","GUID":"5054:00ff:fe12:3456"}`; string(text) != want || err != nil {
		t.Errorf("JSON is %s, %v, want %s", text, err, want)
	}
	var got both
	if err := json.Unmarshal(text, &got); err != nil || got != x {
		t.Errorf("JSON gives %v, %v", got, err)
	}
	for s, want := range map[string]GID{
		"fe80:0000:0000:0000:0000:0000:0000:0001": x.GID, "::ffff:1.2.3.4": {10: 0xff, 11: 0xff, 12: 1, 13: 2, 14: 3, 15: 4}, "1.2.3.4": {10: 0xff, 11: 0xff, 12: 1, 13: 2, 14: 3, 15: 4},
	} {
		if got, err := ParseGID(s); got != want || err != nil {
			t.Errorf("%s is %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "fe80::1%eth0", "fe80", "5054:00ff:fe12:3456"} {
		if got, err := ParseGID(s); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s is %v, %v", s, got, err)
		}
	}
}
