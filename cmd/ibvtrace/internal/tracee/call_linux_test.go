//go:build amd64 || arm64

package tracee

import (
	"io"
	"os"
	"strings"
	"testing"
)

// TestBugAtReturn: a call whose results can't be decoded because of a bug is shown without them. After
// a second bug nothing more is to be shown.
func TestBugAtReturn(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func(f *os.File) { os.Stderr = f }(os.Stderr)
	os.Stderr = w
	set, p := NewSet(), NewProcess(4)
	for i := range maxFailures {
		if set.Broken() {
			t.Errorf("broken after %d bugs", i)
		}
		set.Complete(&Thread{TID: 4, Proc: p}, &Call{Name: "verb", Finish: func(*Thread, *Call) { panic("a bug") }}, -22)
	}
	w.Close()
	said, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if !set.Broken() || !strings.Contains(string(said), "nothing more is shown") {
		t.Errorf("not broken after %d bugs: %s", maxFailures, said)
	}
	if e := set.Done[0].Event(); e.Errno != "EINVAL" || !strings.Contains(e.Problem, "a bug in ibvtrace: a bug") {
		t.Errorf("%+v", e)
	}
}
