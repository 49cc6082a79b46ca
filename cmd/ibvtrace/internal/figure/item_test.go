package figure

import (
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// TestItemAdd: a box counts its repetitions, and keeps the first error.
func TestItemAdd(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	one := func(o item) *item {
		o.key, o.kind = "k", event.Data
		return &o
	}
	i := one(item{calls: [2]uint64{1, 0}, moved: 10, done: 1, first: at(1), end: at(5), spent: time.Second, details: []string{"a"}})
	plain := one(item{calls: [2]uint64{1, 0}, moved: 20, done: 2, first: at(2), end: at(3), spent: time.Second, details: []string{"b", "c"}})
	bad := one(item{calls: [2]uint64{1, 0}, failed: 1, errno: "EIO", timed: true, first: at(6), end: at(7), spent: time.Second, details: []string{"d", "e"}})
	worse := one(item{calls: [2]uint64{0, 1}, failed: 1, errno: "EINVAL", first: at(8), end: at(9), spent: time.Second})
	worse.kind = event.Control
	i.add(plain)
	if i.errno != "" || i.timed || !i.end.Equal(at(5)) || i.kind != event.Data {
		t.Errorf("after one: %+v", i)
	}
	i.add(bad)
	i.add(worse)
	if i.count() != 3 || i.calls != [2]uint64{3, 1} || i.failed != 2 || i.errno != "EIO" || !i.timed || i.moved != 30 || i.done != 3 {
		t.Errorf("after all: %+v", i)
	}
	// The kernel's part is within the library's time.
	if i.spent != 3*time.Second || !i.first.Equal(at(1)) || !i.end.Equal(at(9)) || i.kind != event.Control {
		t.Errorf("after all: %v, from %v to %v, %v", i.spent, i.first, i.end, i.kind)
	}
	if want := []string{"a", "b", "c", "d"}; !slices.Equal(i.details, want) {
		t.Errorf("details %q, want %q", i.details, want)
	}
	for _, o := range []*item{plain, bad, worse, i} {
		if o.is() != i {
			t.Errorf("%+v is another one", o)
		}
	}
}
