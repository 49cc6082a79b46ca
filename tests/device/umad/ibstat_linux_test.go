package umad

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var _ = rdmatest.Test(TestIbstat, rdmatest.Long)

// TestIbstat: ibstat and ibstatus print the same, and refuse the same devices and ports.
func TestIbstat(t *testing.T) {
	load(t)
	for _, test := range []struct {
		line string
		ok   bool
	}{
		{"ibstat " + rdmatest.Devices[0], true},
		{"ibstat " + rdmatest.Devices[1], true},
		{"ibstat " + rdmatest.Device + " 1", true},
		{"ibstat -s " + rdmatest.Device, true},
		{"ibstat -p " + rdmatest.Device, true},
		{"ibstat --port_list " + rdmatest.Device, true},
		{"ibstat -l", true},
		{"ibstat nosuch", false},
		{"ibstat " + rdmatest.Device + " 7", false},
		{"ibstatus", true},
		{"ibstatus " + rdmatest.Devices[1] + ":1", true},
	} {
		words := strings.Fields(test.line)
		want, wantOK := outcome(t, words...)
		got, ok := outcome(t, append([]string{rdmatest.Program(t, "ibv")}, words...)...)
		if ok != test.ok || wantOK != test.ok {
			t.Errorf("%s: ibv succeeds: %t, the other: %t, want %t; they print %q and %q", test.line, ok, wantOK, test.ok, got, want)
			continue
		}
		if !ok {
			continue
		}
		if got == "" {
			t.Errorf("%s prints nothing", test.line)
		}
		a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
		// ibstat lists the devices in no order.
		if test.line == "ibstat -l" {
			slices.Sort(a)
			slices.Sort(b)
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("%s (-infiniband-diags +ibv):\n%s", test.line, diff)
		}
	}
}
