//go:build amd64 || arm64

package stops

import (
	"maps"
	"testing"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
)

// TestForked: a child inherits its parent's filters. Later filters of one do not affect the
// other.
func TestForked(t *testing.T) {
	s := New(tracee.NewSet(), nil)
	parent, child := tracee.NewProcess(4), tracee.NewProcess(9)
	g := s.given(parent)
	g.watched, g.watchedAbove, g.filters = map[int]watching{5: watchClose}, 40, 3
	s.Forked(parent, child)
	if c := s.given(child); !maps.Equal(c.watched, g.watched) || c.watchedAbove != 40 || c.filters != 3 {
		t.Errorf("the child has the filters %+v", c)
	}
	s.given(child).watched[6] = watchRead
	s.Gone(child)
	if len(g.watched) != 1 || s.given(parent) != g {
		t.Errorf("the parent was changed by its child: %+v", g)
	}
}
