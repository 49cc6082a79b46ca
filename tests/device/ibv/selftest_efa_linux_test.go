package ibv

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var (
	_ = rdmatest.Test(TestSelftestEFA, rdmatest.OnEFA)
	_ = rdmatest.Test(TestSelftestIWARP, rdmatest.OnSIW)
)

// An EFA adapter passes, by itself and with another adapter, in the groups that apply to it.
// The report lists missing features.
func TestSelftestEFA(t *testing.T) {
	const seconds = "3s"
	absent := []string{"counters", "clocks", "addresses", "raw", "combining", "peers", "speed"} // peers needs the default time
	for _, devices := range [][]string{{device}, {device, second}} {
		r, text, status := selftest(t, append([]string{"-t", seconds, "-p", rdmatest.Patience.String()}, devices...)...)
		if status != 0 || r.Status != "shortened" && r.Status != "passed" || !slices.Equal(r.Devices, devices) || len(r.Groups) != 15 {
			t.Errorf("status %d, %s, devices %v, %d groups", status, r.Status, r.Devices, len(r.Groups))
		}
		for _, g := range r.Groups {
			for _, f := range g.Failures {
				t.Errorf("%s, %s: %s: expected %s, seen %s", f.Group, f.Check, f.Object, f.Expected, f.Seen)
			}
			if (g.Status == "not there") != slices.Contains(absent, g.Name) || g.Passed == 0 && len(g.NotThere) == 0 {
				t.Errorf("%s: %s, %d checks, missing %q", g.Name, g.Status, g.Passed, g.NotThere)
			}
			if g.Name == "data" && !slices.Contains(g.NotThere, "atomic operations") {
				t.Errorf("data: missing %q", g.NotThere)
			}
		}
		for _, secret := range secrets(t) {
			if strings.Contains(text, secret) {
				t.Errorf("the report has %q", secret)
			}
		}
	}
}

// Over iWARP, a sentence says why there is no self-test, and names the alternatives.
func TestSelftestIWARP(t *testing.T) {
	stdout, stderr, status := result(t, exec.Command(rdmatest.Program(t, "ibv"), "selftest", device))
	if status != 1 || stdout != "" || !strings.HasPrefix(stderr, "ibv selftest: "+device+": ") ||
		!strings.Contains(stderr, "through the connection manager only") || !strings.Contains(stderr, "ibv rping") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
}
