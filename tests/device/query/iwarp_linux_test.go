package query

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

var _ = rdmatest.Test(TestIWARPQueries, rdmatest.OnSIW)

// TestIWARPQueries: soft-iWARP's answers to queries equal the values in /sys.
func TestIWARPQueries(t *testing.T) {
	var names []string
	for _, d := range rdmatest.Must(verbs.Devices())(t) {
		names = append(names, d.Name())
		// Only netlink reports the interface of a soft-iWARP device.
		netDevs := d.NetDevs()
		if len(netDevs) != 1 {
			t.Fatalf("%v has the interfaces %v", d, netDevs)
		}
		if c, err := verbs.Open(netDevs[0]); err != nil || c.Info().Name() != d.Name() {
			t.Errorf("Open(%s) opens %v, %v, want %v", netDevs[0], c.Info(), err, d)
		} else {
			rdmatest.Close(t, c)
		}
		if d.Err() != nil || d.NodeType() != verbs.NodeRNIC || d.Transport() != verbs.TransportIWARP {
			t.Errorf("%v: %v, %v, %v", d, d.NodeType(), d.Transport(), d.Err())
		}
	}
	if diff := cmp.Diff(rdmatest.Devices[:], names); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	c := open(t)
	a := rdmatest.Must(c.QueryDevice())(t)
	if a.PhysPortCnt != 1 || a.NodeGUID.String() != sys(t, "node_guid") || a.AtomicCap != verbs.AtomicNone {
		t.Errorf("%d ports, node GUID %v, atomics %v", a.PhysPortCnt, a.NodeGUID, a.AtomicCap)
	}
	for name, n := range map[string]int{"MaxQP": a.MaxQP, "MaxQPWR": a.MaxQPWR, "MaxSGE": a.MaxSGE, "MaxCQ": a.MaxCQ, "MaxCQE": a.MaxCQE, "MaxMR": a.MaxMR, "MaxPD": a.MaxPD, "MaxSRQ": a.MaxSRQ} {
		if n <= 0 {
			t.Errorf("%s = %d", name, n)
		}
	}
	p := rdmatest.Must(c.QueryPort(1))(t)
	gid := rdmatest.Must(c.QueryGID(1, 0))(t)
	var groups []string
	for i := 0; i < len(gid.GID); i += 2 {
		groups = append(groups, fmt.Sprintf("%x", gid.GID[i:i+2]))
	}
	for file, got := range map[string]string{
		"ports/1/state":      fmt.Sprintf("%d: %v", p.State, p.State),
		"ports/1/link_layer": p.LinkLayer.String(),
		"ports/1/gids/0":     strings.Join(groups, ":"),
	} {
		if want := sys(t, file); got != want {
			t.Errorf("%s is %q, the query says %q", file, want, got)
		}
	}
	gids, err := filepath.Glob(filepath.Join(class, "ports/1/gids/*"))
	if err != nil || len(gids) != p.GIDTableLen || p.State != verbs.PortActive {
		t.Errorf("port %v with %d GIDs, in /sys %d", p.State, p.GIDTableLen, len(gids))
	}
	if keys, _ := filepath.Glob(filepath.Join(class, "ports/1/pkeys/*")); len(keys) != p.PKeyTableLen {
		t.Errorf("%d P_Keys, in /sys %d", p.PKeyTableLen, len(keys))
	}
	if table := rdmatest.Must(c.GIDTable())(t); len(table) != 1 || table[0] != gid {
		t.Errorf("the GID table %v, its entry %v", table, gid)
	}
}
