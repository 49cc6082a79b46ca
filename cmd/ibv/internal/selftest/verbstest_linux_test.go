package selftest

import (
	"fmt"
	"testing"
	"time"

	"github.com/goverbs/goverbs/verbstest"
)

// TestVerbstest: the devices of package verbstest pass the test. A report has the features that they
// lack.
func TestVerbstest(t *testing.T) {
	verbstest.New(t)
	for _, devices := range [][]string{{"vt0"}, {"vt0", "vt1"}} {
		rep, err := Run(t.Context(), Options{Devices: devices, GID: -1, Time: 3 * time.Second, Patience: 2 * time.Minute, Seed: 1,
			Groups: []string{"identity", "data", "doorbells", "wraps", "counters", "cqs", "syndromes", "memory", "addresses"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range rep.Groups {
			for _, f := range g.Failures {
				t.Errorf("%v, %s, %s: %v", devices, g.Name, f.Check, &f)
			}
			if g.Passed == 0 {
				t.Errorf("%v, %s: nothing was tested: %v", devices, g.Name, g.NotThere)
			}
		}
		if got, want := fmt.Sprint(rep.Groups[1].NotThere), "[XRC DC masked atomics memory windows of type 2]"; len(devices) == 1 && got != want {
			t.Errorf("not there: %s, want %s", got, want)
		}
	}
}

// TestOpenSide: an error names the device, also if it wasn't named.
func TestOpenSide(t *testing.T) {
	verbstest.New(t)
	for _, name := range []string{"", "vt0"} {
		if _, err := openSide(name, 2, -1, 0); err == nil || err.Error() != "vt0: port 2 isn't active, or isn't there" {
			t.Errorf("device %q: %v", name, err)
		}
	}
}
