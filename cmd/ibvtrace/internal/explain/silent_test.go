package explain

import (
	"testing"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// TestNothingToSay: a rule says nothing of a call that it isn't about, whatever the
// call has for arguments.
func TestNothingToSay(t *testing.T) {
	qp, state, mask := field("qp", handle("qp", 3)), field("qp_state", word("RTS")), field("attr_mask", flags("STATE"))
	for _, test := range []struct {
		verb, errno string
		args        []event.Field
	}{
		{"ibv_query_qp", "EINVAL", []event.Field{qp, state, mask}},
		{"ibv_modify_qp", "EMLINK", []event.Field{qp, state, mask}},
		{"ibv_modify_qp", "EINVAL", []event.Field{state, mask}},
		{"ibv_modify_qp", "EINVAL", []event.Field{field("qp", number(3)), state, mask}},
		{"ibv_modify_srq", "EINVAL", []event.Field{state, mask}},
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

// TestLimits: a number is a limit, whether it has a sign or not. Other values are
// not.
func TestLimits(t *testing.T) {
	for _, test := range []struct {
		limit event.Value
		why   string
	}{
		{number(32767), "the device's limit is 32767 (max_cqe)"},
		{event.Value{Form: event.Int, Num: 32767}, "the device's limit is 32767 (max_cqe)"},
		{event.Value{Form: event.Hex, Num: 32767}, ""},
		{word("many"), ""},
	} {
		var c collector
		x := New(&c)
		for _, e := range []*event.Event{
			{Kind: event.Control, Verb: "ibv_query_device", File: 1, Returned: true, Out: []event.Field{field("max_cqe", test.limit)}},
			{Kind: event.Control, Verb: "ibv_create_cq", File: 1, Returned: true, Ret: -1, Errno: "EINVAL", Args: []event.Field{field("cqe", number(32768))}},
		} {
			if err := x.Event(e); err != nil {
				t.Fatal(err)
			}
		}
		if c.last.Why != test.why {
			t.Errorf("%+v: %q, want %q", test.limit, c.last.Why, test.why)
		}
	}
}
