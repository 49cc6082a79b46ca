package likeness

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/text"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

// run returns the events of a run in which numbers begin at n.
func run(n int) []*event.Event {
	u := uint64(n)
	value := func(name string, v event.Value) event.Field { return event.Field{Name: name, Value: v} }
	handle := func(kind string, h uint64) event.Value {
		return event.Value{Form: event.Handle, Str: kind, Num: h, Gen: 1 + n%2}
	}
	verb := func(tid int, name string, args []event.Field, out ...event.Field) *event.Event {
		return &event.Event{PID: n, TID: tid, Comm: "server", Kind: event.Control, Verb: name, Device: "rxe0", File: n, FD: n, Args: args, Out: out, Returned: true}
	}
	return []*event.Event{
		verb(n, "ibv_alloc_pd", nil, value("pd", handle("pd", u+1))),
		verb(n, "ibv_reg_mr", []event.Field{value("pd", handle("pd", u+1)), value("start", event.Value{Form: event.Pointer, Num: u << 12}), value("length", event.Value{Form: event.Uint, Num: 4096})},
			value("mr", handle("mr", u)), value("lkey", event.Value{Form: event.Hex, Num: u << 8})),
		verb(n+7, "ibv_create_qp", []event.Field{value("pd", handle("pd", u+1)), value("event_fd", event.Value{Form: event.FD, Num: u})},
			value("qp", handle("qp", u+3)), value("qp_num", event.Value{Form: event.Hex, Num: u + 17})),
		verb(n+7, "ibv_modify_qp", []event.Field{value("qp", handle("qp", u+3)), value("rq_psn", event.Value{Form: event.Uint, Num: u * 3}), value("dest_qp_num", event.Value{Form: event.Hex, Num: u + 17})}),
	}
}

func lines(t *testing.T, events []*event.Event) []string {
	t.Helper()
	var b strings.Builder
	r := NewRenamer(text.NewWriter(&b, text.Options{Clock: text.None}))
	for _, e := range events {
		if err := r.Event(e); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

// TestRenamed: two runs have the same lines, and the events that are renamed don't change.
func TestRenamed(t *testing.T) {
	first := run(4711)
	got := lines(t, first)
	want := []string{
		"[1 server] ibv_alloc_pd() = pd 1",
		"[1 server] ibv_reg_mr(pd=1, start=addr1, length=4096) = mr 1 (lkey=x1)",
		"[1/2 server] ibv_create_qp(pd=1, event_fd=fd1) = qp 1 (qpn x2)",
		"[1/2 server] ibv_modify_qp(qp=1, rq_psn=x3, dest_qp_num=x2) = 0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, lines(t, run(9000))); diff != "" {
		t.Errorf("another run (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(run(4711), first); diff != "" {
		t.Errorf("the events have changed:\n%s", diff)
	}
}

func TestDiff(t *testing.T) {
	for _, test := range []struct{ a, b, want string }{
		{"", "", ""},
		{"a b c", "a b c", " a  b  c"},
		{"a b c", "a c", " a -b  c"},
		{"a c", "a b c", " a +b  c"},
		{"a b c d", "x b c y", "-a +x  b  c -d +y"},
		{"a b", "", "-a -b"},
		{"", "a b", "+a +b"},
	} {
		var words []string
		for _, e := range Diff(strings.Fields(test.a), strings.Fields(test.b)) {
			words = append(words, string(e.Op)+e.Line)
		}
		if got := strings.Join(words, " "); got != test.want {
			t.Errorf("%q and %q: %q, want %q", test.a, test.b, got, test.want)
		}
	}
}

// TestDiffApplies: the edits of random lists make the second of the first.
func TestDiffApplies(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	list := func() (out []string) {
		for range rnd.IntN(12) {
			out = append(out, string(rune('a'+rnd.IntN(3))))
		}
		return out
	}
	for range 3000 {
		a, b := list(), list()
		var first, second []string
		for _, e := range Diff(a, b) {
			if e.Op != '+' {
				first = append(first, e.Line)
			}
			if e.Op != '-' {
				second = append(second, e.Line)
			}
		}
		if !cmp.Equal(a, first) || !cmp.Equal(b, second) {
			t.Fatalf("%q and %q: the edits are of %q and %q", a, b, first, second)
		}
	}
}
