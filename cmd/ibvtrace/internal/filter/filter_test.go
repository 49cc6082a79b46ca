package filter

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

var (
	create = &event.Event{Kind: event.Control, Verb: "ibv_create_qp", Device: "rxe0", Returned: true,
		Args:    []event.Field{{Name: "pd", Value: event.Value{Form: event.Handle, Str: "pd", Num: 3, Gen: 1}}},
		Created: []event.Object{{Type: "qp", Handle: 7, Gen: 2}}}
	failed = &event.Event{Kind: event.Control, Verb: "ibv_reg_mr", Device: "rxe1", Returned: true, Errno: "ENOMEM"}
	post   = &event.Event{Kind: event.Data, Verb: "ibv_post_send", Device: "rxe0", Returned: true,
		Args: []event.Field{{Name: "qp", Value: event.Value{Form: event.Handle, Str: "qp", Num: 7, Gen: 2}}}}
	connect = &event.Event{Kind: event.CM, Verb: "rdma_connect"}
	async   = &event.Event{Kind: event.Async, Verb: "ibv_get_async_event", Returned: true}
	flushed = &event.Event{Kind: event.Data, Verb: "ibv_poll_cq", Returned: true, Out: []event.Field{{Name: "wc", Value: event.Value{Form: event.List,
		Elems: []event.Value{{Form: event.Struct, Fields: []event.Field{{Name: "status", Value: event.Value{Form: event.Word, Str: "WR_FLUSH_ERR"}}}}}}}}}
	note = &event.Event{Kind: event.Note}
	exit = &event.Event{Kind: event.Exit, Verb: "exited", Returned: true}
)

var names = map[*event.Event]string{create: "create", failed: "failed", post: "post", connect: "connect", async: "async", note: "note", exit: "exit"}

func TestFilter(t *testing.T) {
	for _, test := range []struct {
		expr string // separated by blanks
		want string
		data bool
	}{
		{"", "create failed post connect async exit note", false},
		{"trace=all", "create failed post connect async exit note", true},
		{"all", "create failed post connect async exit note", true},
		{"none", "note", false},
		{"trace=create_qp", "create note", false},
		{"ibv_create_qp,reg_mr", "create failed note", false},
		{"create_qp reg_mr", "create failed note", false},
		{"rdma_connect", "connect note", false},
		{"data", "post note", true},
		{"%data,cm", "post connect note", true},
		{"post_send", "post note", true},
		{"create_qp !post_send", "create note", false},
		{"create_qp !data", "create note", false},
		{"trace=!control", "post connect async exit note", true},
		{"all trace=!data", "create failed connect async exit note", true},
		{"event", "async note", false},
		{"/^ibv_(create|post)", "create post note", true},
		{"failed", "failed note", false},
		{"status=!failed", "create post connect async exit note", false},
		{"status=unfinished", "connect note", false},
		{"all status=successful", "create post async exit note", true},
		{"object=qp", "create post note", false},
		{"all object=qp:7", "create post note", true},
		{"all object=qp:7#1", "note", true},
		{"all object=qp:0x7#2", "create post note", true},
		{"all object=!pd", "failed post connect async exit note", true},
		{"object=pd:3", "create note", false},
		{"all device=rxe1", "failed note", true},
		{"control device=!rxe1", "create note", false},
	} {
		var f Filter
		for expr := range strings.FieldsSeq(test.expr) {
			if err := f.Add(expr); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, e := range []*event.Event{create, failed, post, connect, async, exit, note} {
			if f.Match(e) {
				got = append(got, names[e])
			}
		}
		if s := strings.Join(got, " "); s != test.want {
			t.Errorf("%q selects %q, want %q", test.expr, s, test.want)
		}
		if f.Data() != test.data {
			t.Errorf("%q: Data() is %v", test.expr, f.Data())
		}
	}
}

// TestHarmless: -e failed does not select what fails where all is well.
func TestHarmless(t *testing.T) {
	var f Filter
	if err := f.Add("failed"); err != nil {
		t.Fatal(err)
	}
	for _, e := range []*event.Event{
		{Kind: event.Control, Verb: "ibv_query_device", Returned: true, Errno: "ENOSPC", Why: event.NoError + "a probe"},
		{Kind: event.Async, Verb: "rdma_get_cm_event", Returned: true, Errno: "ERESTARTSYS"},
	} {
		if f.Match(e) {
			t.Errorf("-e failed selects %s with %s", e.Verb, e.Errno)
		}
	}
}

// TestFailedCompletions: -e failed selects polls that returned a failed completion.
func TestFailedCompletions(t *testing.T) {
	var f Filter
	if err := f.Add("failed"); err != nil {
		t.Fatal(err)
	}
	if !f.Match(flushed) || f.Match(post) {
		t.Error("-e failed does not select by completions")
	}
}

func TestRefused(t *testing.T) {
	for expr, want := range map[string]string{
		"creat_qp":       "no verb",
		"signal=none":    "no qualifier",
		"status=bad":     "no status",
		"object=":        "no type of object",
		"object=qp:x":    "not a handle",
		"object=qp:1#x":  "not a number",
		"/(":             "missing closing",
		"device=":        "no device",
		"trace=qp,%what": "no verb",
	} {
		var f Filter
		if err := f.Add(expr); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "-e ") {
			t.Errorf("%q: %v", expr, err)
		}
	}
}
