package explain

import (
	"testing"

	"github.com/goverbs/goverbs/cmd/ibvtrace/event"
)

// TestNothingToSay: a rule says nothing of a call that it isn't about, whatever the
// call has for arguments.
func TestNothingToSay(t *testing.T) {
	qp, state := field("qp", handle("qp", 3)), field("qp_state", word("RTS"))
	for _, test := range []struct {
		verb, errno string
		args        []event.Field
	}{
		{"ibv_query_qp", "EINVAL", []event.Field{qp, state}},
		{"ibv_modify_qp", "EMLINK", []event.Field{qp, state}},
		{"ibv_modify_srq", "EINVAL", []event.Field{state}},
		{"ibv_destroy_cq", "EBUSY", nil},
		{"ibv_destroy_cq", "EBUSY", []event.Field{field("cq", number(2))}},
		{"ibv_destroy_cq", "EXDEV", []event.Field{field("cq", handle("cq", 2))}},
	} {
		var c collector
		x := New(&c)
		for _, e := range script() {
			if err := x.Event(e); err != nil {
				t.Fatal(err)
			}
		}
		e := &event.Event{Kind: event.Control, Verb: test.verb, File: 1, Returned: true, Ret: -1, Errno: test.errno, Args: test.args}
		f := x.files[1]
		for name, rule := range map[string]func(*event.Event) (string, string){"busy": f.busy, "transition": f.transition} {
			if rejects, why := rule(e); rejects != "" || why != "" {
				t.Errorf("%s of %s %s: rejects %q: %q", name, test.verb, test.errno, rejects, why)
			}
		}
	}
}

// TestLimits: what is no number is no limit.
func TestLimits(t *testing.T) {
	var c collector
	x := New(&c)
	for _, e := range []*event.Event{
		{Kind: event.Control, Verb: "ibv_query_device", File: 1, Returned: true, Out: []event.Field{field("max_cqe", word("many")), field("max_mr", number(5))}},
		{Kind: event.Control, Verb: "ibv_create_cq", File: 1, Returned: true, Ret: -1, Errno: "EINVAL", Args: []event.Field{field("cqe", number(40000))}},
	} {
		if err := x.Event(e); err != nil {
			t.Fatal(err)
		}
	}
	if c.last.Why != "" || c.last.Rejects != "" {
		t.Errorf("rejects %q: %q", c.last.Rejects, c.last.Why)
	}
}
