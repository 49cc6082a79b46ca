package dgram

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
)

func port(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), 0, 1}), uint16(n))
}

// TestTable: when strangers fill the table, destinations in use, or used a short time ago, are kept.
func TestTable(t *testing.T) {
	table := newTable(10)
	used, busy := port(1), port(2)
	for _, a := range []netip.AddrPort{used, busy} {
		if _, err := table.add(a, nil); err != nil {
			t.Fatal(err)
		}
	}
	table.find(busy).busy++
	table.find(used).qpn = 7
	random := rand.New(rand.NewPCG(13, 14))
	for i := range 1000 {
		a := port(100 + random.IntN(1<<20))
		if table.find(a) == nil {
			if _, err := table.add(a, nil); err != nil {
				t.Fatal(err)
			}
		}
		if len(table.all) > 10 {
			t.Fatalf("%d destinations", len(table.all))
		}
		if !table.knows(used, 7) || table.knows(used, 8) || table.knows(a, 0) || table.knows(port(99), 7) {
			t.Fatalf("%d: the sender isn't known, or another one is taken for it", i)
		}
	}
	if table.find(busy) == nil {
		t.Error("one in use is gone")
	}
	for _, d := range table.all {
		d.busy++
	}
	if _, err := table.add(port(99), nil); !errors.Is(err, errBusy) {
		t.Error(err)
	}
	if err := table.close(); err != nil || len(table.all) != 0 {
		t.Errorf("%v, %v", table.all, err)
	}
}
