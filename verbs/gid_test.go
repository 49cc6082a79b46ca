package verbs

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func gid(s string) GID { return GID(netip.MustParseAddr(s).As16()) }

func TestGID(t *testing.T) {
	for _, test := range []struct {
		text, addr string
		mapped     bool
	}{
		{"fe80::5054:ff:fe12:3456", "fe80::5054:ff:fe12:3456", false},
		{"::ffff:192.168.77.1", "192.168.77.1", true},
		{"fe80::", "fe80::", false},
		{"::", "::", false},
		{"2001:db8:0:1::1", "2001:db8:0:1::1", false},
	} {
		g := gid(test.text)
		if g.String() != test.text || g.Addr().String() != test.addr || g.IsIPv4Mapped() != test.mapped {
			t.Errorf("%s: String %v, Addr %v, IsIPv4Mapped %v", test.text, g, g.Addr(), g.IsIPv4Mapped())
		}
	}
}

func TestGIDType(t *testing.T) {
	// The kernel's numbers: enum ib_uverbs_gid_type.
	for v, want := range []GIDType{GIDTypeIB, GIDTypeRoCEv1, GIDTypeRoCEv2} {
		if got := gidType(uint32(v)); got != want {
			t.Errorf("gidType(%d) = %v, want %v", v, got, want)
		}
	}
	if got := GIDTypeIB.String() + ", " + GIDTypeRoCEv1.String() + ", " + GIDTypeRoCEv2.String(); got != "IB, RoCE v1, RoCE v2" {
		t.Error(got)
	}
}

var table = GIDTable{
	{GID: gid("fe80::1"), Port: 1, Index: 0, Type: GIDTypeRoCEv1, NetDev: "eth0"},
	{GID: gid("fe80::1"), Port: 1, Index: 1, Type: GIDTypeRoCEv2, NetDev: "eth0"},
	{GID: gid("2001:db8::1"), Port: 1, Index: 2, Type: GIDTypeRoCEv2, NetDev: "eth0"},
	{GID: gid("::ffff:192.168.77.1"), Port: 1, Index: 3, Type: GIDTypeRoCEv1, NetDev: "eth0"},
	{GID: gid("::ffff:192.168.77.1"), Port: 1, Index: 4, Type: GIDTypeRoCEv2, NetDev: "eth0"},
	{GID: gid("::ffff:10.0.0.1"), Port: 1, Index: 5, Type: GIDTypeRoCEv2, NetDev: "eth0.7"},
	{GID: gid("fe80::2"), Port: 2, Index: 0, Type: GIDTypeIB},
}

func TestFindGID(t *testing.T) {
	addr := netip.MustParseAddr
	for _, test := range []struct {
		s           GIDSelector
		port, index int
	}{
		{GIDSelector{}, 1, 4},
		{GIDSelector{Type: GIDTypeRoCEv2}, 1, 4},
		{GIDSelector{Type: GIDTypeRoCEv1}, 1, 3},
		{GIDSelector{Type: GIDTypeIB}, 2, 0},
		{GIDSelector{Port: 2}, 2, 0},
		{GIDSelector{NetDev: "eth0.7"}, 1, 5},
		{GIDSelector{Addr: addr("192.168.77.1"), Type: GIDTypeRoCEv2}, 1, 4},
		{GIDSelector{Addr: addr("::ffff:192.168.77.1"), Type: GIDTypeRoCEv1}, 1, 3},
		{GIDSelector{Addr: addr("192.168.77.1")}, 1, 4},
		{GIDSelector{Addr: addr("fe80::1%eth0")}, 1, 1},
		{GIDSelector{Addr: addr("2001:db8::1"), NetDev: "eth0", Port: 1, Type: GIDTypeRoCEv2}, 1, 2},
	} {
		e, err := table.Find(test.s)
		if err != nil || e.Port != test.port || e.Index != test.index {
			t.Errorf("Find(%v) = %v, %v, want port %d index %d", test.s, e, err, test.port, test.index)
		}
	}
}

func TestFindGIDErrors(t *testing.T) {
	s := GIDSelector{Addr: netip.MustParseAddr("192.168.77.1"), NetDev: "eth0.7", Type: GIDTypeRoCEv2, Port: 1}
	_, err := table.Find(s)
	if !errors.Is(err, ErrInvalid) {
		t.Fatalf("Find(%v): %v, want ErrInvalid", s, err)
	}
	for _, words := range []string{
		"no GID of type RoCE v2 with address 192.168.77.1 on interface eth0.7 on port 1",
		"port 1 index 5: ::ffff:10.0.0.1, RoCE v2, eth0.7",
		"port 2 index 0: fe80::2, IB",
	} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("the error lacks %q: %v", words, err)
		}
	}
	if _, err := (GIDTable{}).Find(GIDSelector{}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "empty") {
		t.Errorf("Find in an empty table: %v", err)
	}
}
