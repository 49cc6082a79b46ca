package ibvtrace

import (
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

var (
	_ = rdmatest.Test(TestTracedMapsSIW, rdmatest.OnSIW)
	_ = rdmatest.Test(TestTracedMapsEFA, rdmatest.OnEFA)
)

// The trace says which queue of which object a program maps.
func TestTracedMapsSIW(t *testing.T) {
	traceMaps(t, rping(t), "queue of cq", "receive queue of qp", "send queue of qp")
}

func TestTracedMapsEFA(t *testing.T) {
	p := pair{
		server: []string{"ibv_ud_pingpong", "-d", "efa_0", "-g", "0", "-n", "20"},
		client: []string{"ibv_ud_pingpong", "-d", "efa_1", "-g", "0", "-n", "20", "127.0.0.1"},
		ready:  listening(18515),
	}
	traceMaps(t, p, "queue of cq", "receive doorbell of qp", "receive queue of qp", "send doorbell of qp", "send queue of qp")
}

func traceMaps(t *testing.T, p pair, want ...string) {
	t.Helper()
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "server"), filepath.Join(dir, "client")}
	p.run(t, stopped(t, files[0]), stopped(t, files[1]))
	number := regexp.MustCompile(` \d+$`)
	for _, file := range files {
		var got []string
		for _, e := range rdmatest.ReadTrace(t, file) {
			if e.Verb == "mmap" {
				what := event.Find(e.Args, "what").Str
				if !number.MatchString(what) {
					t.Errorf("%q has no number", what)
				}
				got = append(got, number.ReplaceAllString(what, ""))
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", filepath.Base(file), diff)
		}
	}
}
