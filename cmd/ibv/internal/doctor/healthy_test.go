package doctor

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// examine examines a host whose files don't change.
func examine(t *testing.T, b *bed, device string) *Report {
	t.Helper()
	return Examine(b.host(t), Options{Device: device, Sleep: func(time.Duration) {}})
}

// ids returns the findings or the notes of a report.
func ids(r *Report, notes bool) []string {
	var list []string
	for _, f := range r.Findings {
		if f.Note == notes {
			list = append(list, f.ID)
		}
	}
	slices.Sort(list)
	return list
}

// complete fails the test if a finding lacks something.
func complete(t *testing.T, r *Report) {
	t.Helper()
	for _, f := range r.Findings {
		if f.What == "" || len(f.Evidence) == 0 || f.LeadsTo == "" || len(f.Mend) == 0 && f.Advice == "" && !f.Note {
			t.Errorf("%s is incomplete: %+v", f.ID, f)
		}
		for _, e := range f.Evidence {
			if e.Source == "" || e.Value == "" {
				t.Errorf("%s: %q says %q", f.ID, e.Source, e.Value)
			}
		}
		for _, m := range append(f.Mend, f.What, f.Advice) {
			if strings.Contains(m, "%!") || strings.Contains(m, "  ") {
				t.Errorf("%s: %q", f.ID, m)
			}
		}
	}
}

// Healthy hosts have no findings, and only notes that apply to them.
func TestHealthy(t *testing.T) {
	for _, test := range []struct {
		name  string
		bed   *bed
		notes []string
	}{
		{"a laptop with rxe", laptopWithRXE(), nil},
		{"a guest of the rig with rxe", rigRXE(), []string{"rxe-two-devices"}},
		{"the same, whose interfaces accept its own addresses", ownAccepted(), nil},
		{"InfiniBand, one of two ports in use", infiniBand(), []string{"port-spare"}},
		{"RoCE", roce(), nil},
		{"a device without provider beside one with", newcardAndMLX5(), []string{"no-provider-here"}},
		{"EFA", efa(), nil},
		{"iWARP beside rxe", iwarp(), []string{"no-provider-here"}},
		{"a bond", bonded(), nil},
		{"a container", dockerShared(), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.bed.refuse["newcard_0"] = errNoProvider
			r := examine(t, test.bed, "")
			complete(t, r)
			if got := ids(r, false); len(got) > 0 || !r.Healthy() {
				t.Errorf("findings: %+v", r.Findings)
			}
			if got := ids(r, true); !slices.Equal(got, test.notes) {
				t.Errorf("notes %v, want %v", got, test.notes)
			}
			if len(r.Unseen) > 0 {
				t.Errorf("not seen: %v", r.Unseen)
			}
		})
	}
}
