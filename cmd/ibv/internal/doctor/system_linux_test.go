package doctor

import (
	"errors"
	"io/fs"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Every Linux has /dev/null and a loopback interface.
func TestSystem(t *testing.T) {
	var s system
	if n := s.Node("/dev/null"); n.Missing != nil || n.Open != nil || n.Dev != "1:3" {
		t.Errorf("/dev/null: %+v", n)
	}
	if n := s.Node("/proc/self/status"); n.Missing != nil || n.Dev != "" {
		t.Errorf("a file: %+v", n)
	}
	if n := s.Node("/dev/infiniband/missing"); !errors.Is(n.Missing, fs.ErrNotExist) {
		t.Errorf("no file: %+v", n)
	}
	if a := s.Addrs("lo"); !slices.Contains(a, netip.MustParsePrefix("127.0.0.1/8")) {
		t.Errorf("lo has %v", a)
	}
	if v := s.VLAN("lo"); v != 0 {
		t.Errorf("lo is in VLAN %d", v)
	}
	if active, both := s.Speeds("lo"); active != 0 || both != 0 {
		t.Errorf("lo runs at %d, can %d", active, both)
	}
	for _, none := range []string{"", "no such thing"} {
		if s.Addrs(none) != nil || s.VLAN(none) != 0 || s.Stats(none) != nil {
			t.Errorf("%q has something", none)
		}
	}
	if _, err := s.Query("no such device"); err == nil {
		t.Error("a device that doesn't exist answers")
	}
}

// Netlink attributes, also cut off.
func TestAttribute(t *testing.T) {
	b := native.AppendUint16(nil, 7)
	b = native.AppendUint16(b, 5)
	b = append(b, "abc\x00"...) // padded
	b = native.AppendUint16(b, 6)
	b = native.AppendUint16(b, unix.NLA_F_NESTED|9)
	b = append(b, "de"...)
	for _, test := range []struct {
		n    int
		typ  uint16
		want string
	}{{len(b), 5, "abc"}, {len(b), 9, "de"}, {len(b), 1, ""}, {len(b) - 1, 9, ""}, {6, 5, ""}, {3, 5, ""}, {0, 5, ""}} {
		if got := attribute(b[:test.n], test.typ); string(got) != test.want {
			t.Errorf("attribute %d of %d bytes: %q, want %q", test.typ, test.n, got, test.want)
		}
	}
	if attribute(make([]byte, 8), 5) != nil {
		t.Error("an attribute of length 0 has a value")
	}
}
