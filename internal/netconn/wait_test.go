package netconn

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSpin: the more waits in a row poll in vain, the fewer of the next waits poll, until a wait polls with
// success.
func TestSpin(t *testing.T) {
	var s Side
	var got []int // waits without polling between those that poll
	for skipped := 0; len(got) < 20; skipped++ {
		if s.spin(100) == 100 {
			got, skipped = append(got, skipped), -1
			s.spun(true)
		}
	}
	want := []int{0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 15, 15, 15}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
	for s.spin(100) == 0 {
	}
	s.spun(false)
	for range 2 {
		if s.spin(100) != 100 {
			t.Error("a wait doesn't poll after one that has not polled in vain")
		}
		s.spun(true)
	}
}
