package explain

import (
	"testing"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

type collector struct{ last *event.Event }

func (c *collector) Event(e *event.Event) error { c.last = e; return nil }
func (c *collector) Close() error               { return nil }

func handle(kind string, n uint64) event.Value {
	return event.Value{Form: event.Handle, Str: kind, Num: n, Gen: 1}
}

func field(name string, v event.Value) event.Field { return event.Field{Name: name, Value: v} }

func number(n uint64) event.Value   { return event.Value{Form: event.Uint, Num: n} }
func word(s string) event.Value     { return event.Value{Form: event.Word, Str: s} }
func flags(s ...string) event.Value { return event.Value{Form: event.Flags, Words: s} }
func made(kind string, n uint64) []event.Object {
	return []event.Object{{Type: kind, Handle: n, Gen: 1, File: 1}}
}

// script returns the events before the one that is explained.
func script() []*event.Event {
	ok := func(verb string, e event.Event) *event.Event {
		e.Verb, e.Kind, e.File, e.Returned = verb, event.Control, 1, true
		return &e
	}
	return []*event.Event{
		ok("ibv_query_device", event.Event{Errno: "ENOSPC"}),
		ok("ibv_query_device_ex", event.Event{Out: []event.Field{
			field("base", event.Value{Form: event.Struct, Fields: []event.Field{field("max_qp_wr", number(1000)), field("max_cqe", number(32767))}}),
		}}),
		ok("ibv_alloc_pd", event.Event{Created: made("pd", 1)}),
		ok("ibv_create_cq", event.Event{Created: made("cq", 2)}),
		ok("ibv_create_qp", event.Event{
			Args:    []event.Field{field("pd", handle("pd", 1)), field("send_cq", handle("cq", 2)), field("recv_cq", handle("cq", 2)), field("type", word("RC"))},
			Created: made("qp", 3),
		}),
		ok("ibv_reg_mr", event.Event{Args: []event.Field{field("pd", handle("pd", 1))}, Created: made("mr", 4)}),
		ok("ibv_dereg_mr", event.Event{Args: []event.Field{field("mr", handle("mr", 4))}, Destroyed: made("mr", 4)}),
		ok("ibv_modify_qp", event.Event{Args: []event.Field{field("qp", handle("qp", 3)), field("qp_state", word("INIT"))}}),
	}
}

func TestExplain(t *testing.T) {
	qp := field("qp", handle("qp", 3))
	for _, test := range []struct {
		verb, errno  string
		args         []event.Field
		rejects, why string
	}{
		{"ibv_modify_qp", "EINVAL", []event.Field{qp, field("attr_mask", flags("STATE", "AV")), field("qp_state", word("RTR"))},
			"attr_mask", "INIT to RTR of a RC QP needs PATH_MTU|RQ_PSN|MIN_RNR_TIMER|MAX_DEST_RD_ATOMIC|DEST_QPN too"},
		{"ibv_modify_qp", "EINVAL", []event.Field{qp, field("attr_mask", flags("STATE")), field("qp_state", word("RTS"))},
			"attr_mask", "a RC QP can't go from INIT to RTS"},
		{"ibv_modify_qp", "EINVAL", []event.Field{qp, field("attr_mask", flags("PORT"))},
			"", "the state transition allows these attributes, so a value is wrong (port, P_Key or GID index, path MTU), or there is no path to the peer"},
		{"ibv_modify_qp", "EINVAL", []event.Field{qp, field("attr_mask", flags("STATE")), field("qp_state", word("99"))},
			"qp_state", "there is no such state"},
		{"ibv_destroy_cq", "EBUSY", []event.Field{field("cq", handle("cq", 2))}, "cq", "still used by qp 3"},
		{"ibv_dealloc_pd", "EBUSY", []event.Field{field("pd", handle("pd", 1))}, "pd", "still used by qp 3"},
		{"ibv_dereg_mr", "ENOENT", []event.Field{field("mr", handle("mr", 4))}, "mr", "mr 4 was destroyed"},
		{"ibv_create_cq", "ENOENT", []event.Field{field("comp_channel", event.Value{Form: event.Handle, Str: "comp_channel", Num: 9})},
			"comp_channel", "there is no comp_channel 9 in this context"},
		{"ibv_create_qp", "EINVAL", []event.Field{field("pd", handle("pd", 1)), field("cap", event.Value{Form: event.Struct, Fields: []event.Field{field("max_send_wr", number(1001))}})},
			"cap.max_send_wr", "the device's limit is 1000 (max_qp_wr)"},
		{"ibv_create_cq", "EINVAL", []event.Field{field("cqe", number(40000))}, "cqe", "the device's limit is 32767 (max_cqe)"},
		{"ibv_reg_mr", "ENOMEM", nil, "length", "more memory than the process may lock, see ulimit -l (RLIMIT_MEMLOCK), or the kernel has no more"},
		{"ibv_reg_mr", "EINVAL", []event.Field{field("access_flags", flags("REMOTE_WRITE"))}, "access_flags", "REMOTE_WRITE also needs LOCAL_WRITE"},
		{"ibv_reg_mr", "EINVAL", []event.Field{field("start", number(0x1000)), field("hca_va", number(0x1001))}, "hca_va", "its offset in the page differs from start's"},
		{"ibv_query_gid_ex", "ENODATA", nil, "gid_index", "this entry of the GID table is empty"},
		{"ibv_open_xrcd", "EOPNOTSUPP", nil, "", "the device or its driver does not support this"},
		{"ibv_query_device", "ENOSPC", nil, "", ""},
		{"ibv_create_qp", "EDOM", nil, "", ""},
	} {
		var c collector
		x := New(&c)
		for _, e := range script() {
			if err := x.Event(e); err != nil {
				t.Fatal(err)
			}
			if e.Errno == "ENOSPC" && c.last.Why == "" {
				t.Error("rdma-core's probe is not explained")
			}
		}
		err := x.Event(&event.Event{Kind: event.Control, Verb: test.verb, File: 1, Returned: true, Ret: -1, Errno: test.errno, Args: test.args})
		if err != nil {
			t.Fatal(err)
		}
		if c.last.Rejects != test.rejects || c.last.Why != test.why {
			t.Errorf("%s %s: rejects %q: %q; want %q: %q", test.verb, test.errno, c.last.Rejects, c.last.Why, test.rejects, test.why)
		}
	}
}

// TestForgets: a file is forgotten when it is closed, or when its process ends.
func TestForgets(t *testing.T) {
	for _, end := range []*event.Event{
		{Kind: event.Close, Verb: "close", File: 1, Returned: true},
		{Kind: event.Exit, Verb: "exited", Returned: true},
	} {
		var c collector
		x := New(&c)
		for _, e := range append(script(), end) {
			if err := x.Event(e); err != nil {
				t.Fatal(err)
			}
		}
		if len(x.files) != 0 {
			t.Errorf("%d files are remembered after %s", len(x.files), end.Verb)
		}
	}
}

// TestProbe: goverbs calls a method that no kernel has, to find a device's driver.
func TestProbe(t *testing.T) {
	for method, want := range map[string]string{
		"0xfff": "no error: this is how goverbs asks which driver a device has",
		"0x7":   "this kernel does not have the verb",
	} {
		var c collector
		e := &event.Event{Kind: event.Control, Verb: "ibv_device_method_" + method, Object: "DEVICE", Method: method, File: 1, Returned: true, Errno: "EPROTONOSUPPORT"}
		if err := New(&c).Event(e); err != nil {
			t.Fatal(err)
		}
		if c.last.Why != want {
			t.Errorf("%s: %q, want %q", method, c.last.Why, want)
		}
	}
}

// TestCompletion: failed completions are explained.
func TestCompletion(t *testing.T) {
	wc := func(status string) event.Value {
		return event.Value{Form: event.Struct, Fields: []event.Field{field("status", word(status))}}
	}
	for status, want := range map[string]string{
		"SUCCESS":           "",
		"RNR_RETRY_EXC_ERR": "RNR_RETRY_EXC_ERR: the peer had no receive posted",
		"99":                "99: unspecified failure",
	} {
		var c collector
		e := &event.Event{Kind: event.Data, Verb: "ibv_poll_cq", File: 1, Returned: true, Ret: 2, Out: []event.Field{
			field("wc", event.Value{Form: event.List, Elems: []event.Value{wc("SUCCESS"), wc(status)}})}}
		if err := New(&c).Event(e); err != nil {
			t.Fatal(err)
		}
		if c.last.Why != want {
			t.Errorf("%s: %q, want %q", status, c.last.Why, want)
		}
	}
}
