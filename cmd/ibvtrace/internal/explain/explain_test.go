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
		{"ibv_query_gid_ex", "ENODATA", nil, "", "no error: this entry of the GID table is empty"},
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

// TestAskedLimits: a device is asked for limits that the program has not queried, once.
func TestAskedLimits(t *testing.T) {
	var c collector
	x, asked := New(&c), 0
	x.Limits = func(pid, fd int) map[string]uint64 {
		if asked++; pid != 9 || fd != 7 {
			t.Errorf("process %d, descriptor %d", pid, fd)
		}
		return map[string]uint64{"max_cqe": 100}
	}
	for range 2 {
		err := x.Event(&event.Event{Kind: event.Control, Verb: "ibv_create_cq", PID: 9, FD: 7, File: 1, Returned: true, Ret: -1, Errno: "EINVAL", Args: []event.Field{field("cqe", number(101))}})
		if want := "the device's limit is 100 (max_cqe)"; err != nil || c.last.Rejects != "cqe" || c.last.Why != want || asked != 1 {
			t.Errorf("%v, rejects %q: %q, want %q; asked %d times", err, c.last.Rejects, c.last.Why, want, asked)
		}
	}
}

// TestOpener: the connection manager refuses commands of processes that have not opened its file.
func TestOpener(t *testing.T) {
	for pid, want := range map[int]string{1: "not allowed for this user", 2: "another process has opened this file, and the connection manager obeys only that"} {
		var c collector
		x := New(&c)
		for _, e := range []*event.Event{
			{Kind: event.Open, Verb: "open", File: 1, PID: 1, Returned: true},
			{Kind: event.CM, Verb: "rdma_create_id", File: 1, PID: pid, Returned: true, Errno: "EACCES"},
		} {
			if err := x.Event(e); err != nil {
				t.Fatal(err)
			}
		}
		if c.last.Why != want {
			t.Errorf("process %d: %q, want %q", pid, c.last.Why, want)
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

// TestProbe: goverbs calls a method that no kernel has, to find a device's driver. The kernel refuses it with one errno
// if it is the driver's, and with another if it isn't.
func TestProbe(t *testing.T) {
	const probe = "no error: this is how goverbs asks which driver a device has"
	for _, test := range []struct{ method, errno, want string }{
		{"0xfff", "EPROTONOSUPPORT", probe},
		{"0xfff", "EINVAL", probe},
		{"0x7", "EPROTONOSUPPORT", "this kernel does not have the verb"},
		{"0x7", "EINVAL", ""},
	} {
		var c collector
		e := &event.Event{Kind: event.Control, Verb: "ibv_device_method_" + test.method, Object: "DEVICE", Method: test.method, File: 1, Returned: true, Errno: test.errno}
		if err := New(&c).Event(e); err != nil {
			t.Fatal(err)
		}
		if c.last.Why != test.want {
			t.Errorf("%s, %s: %q, want %q", test.method, test.errno, c.last.Why, test.want)
		}
	}
}

// TestCompletion: failed completions are explained, with the vendor's error, the operation, the QP
// and its peer.
func TestCompletion(t *testing.T) {
	structure := func(f ...event.Field) event.Value { return event.Value{Form: event.Struct, Fields: f} }
	list := func(v ...event.Value) event.Value { return event.Value{Form: event.List, Elems: v} }
	wr := func(id uint64, op string) event.Value {
		if op == "" {
			return structure(field("wr_id", number(id)))
		}
		return structure(field("wr_id", number(id)), field("opcode", word(op)))
	}
	const peer = "qp 3, whose peer is qpn 0x14 at ::ffff:192.168.77.1"
	for _, test := range []struct {
		driver, status string
		vendor, id     uint64
		want           string
	}{
		{"MLX5", "SUCCESS", 0, 1, ""},
		{"MLX5", "RETRY_EXC_ERR", 0x81, 1, "RETRY_EXC_ERR: " + meaning("RETRY_EXC_ERR") + "; vendor error 0x81: no acknowledgement after all retries; RDMA_WRITE on " + peer},
		{"MLX5", "WR_FLUSH_ERR", 0xf9, 2, "WR_FLUSH_ERR: " + meaning("WR_FLUSH_ERR") + "; vendor error 0xf9: flushed; RECV on " + peer},
		{"MLX5", "LOC_PROT_ERR", 0x99, 3, "LOC_PROT_ERR: " + meaning("LOC_PROT_ERR") + "; " + peer}, // a send or a receive
		{"RXE", "RNR_RETRY_EXC_ERR", 0, 7, "RNR_RETRY_EXC_ERR: the peer had no receive posted; " + peer},
		{"EFA", "RNR_RETRY_EXC_ERR", 10, 7, "RNR_RETRY_EXC_ERR: the peer had no receive posted; vendor error 0xa: receiver not ready; " + peer},
		{"", "99", 1, 7, "99: unspecified failure; " + peer},
	} {
		var c collector
		x := New(&c)
		data := func(verb string, wrs ...event.Value) *event.Event {
			return &event.Event{Kind: event.Data, Verb: verb, File: 1, Returned: true, Args: []event.Field{field("qp", handle("qp", 3)), field("wr", list(wrs...))}}
		}
		events := []*event.Event{
			{Kind: event.Control, Verb: "ibv_create_qp", File: 1, Returned: true, Created: []event.Object{{Type: "qp", Handle: 3, Gen: 1, File: 1, Num: 0x13}}},
			{Kind: event.Control, Verb: "ibv_modify_qp", File: 1, Returned: true, Args: []event.Field{
				field("qp", handle("qp", 3)), field("qp_state", word("RTR")), field("dest_qp_num", number(0x14)),
				field("dest", structure(field("dgid", word("::ffff:192.168.77.1"))))}},
		}
		for range 3 * maxPosts {
			events = append(events, data("ibv_post_send", wr(99, "SEND")))
		}
		for _, e := range append(events,
			data("ibv_post_send", wr(1, "RDMA_WRITE"), wr(3, "SEND")), data("ibv_post_recv", wr(2, ""), wr(3, "")),
			&event.Event{Kind: event.Data, Verb: "ibv_poll_cq", Driver: test.driver, File: 1, Returned: true, Ret: 2, Out: []event.Field{
				field("wc", list(structure(field("status", word("SUCCESS"))), structure(field("wr_id", number(test.id)),
					field("status", word(test.status)), field("vendor_err", number(test.vendor)), field("qp_num", number(0x13)))))}}) {
			if err := x.Event(e); err != nil {
				t.Fatal(err)
			}
		}
		if c.last.Why != test.want {
			t.Errorf("%s %s: %q, want %q", test.driver, test.status, c.last.Why, test.want)
		}
		for _, o := range x.files[1].objects {
			if len(o.posts) > maxPosts {
				t.Errorf("%d posts are remembered", len(o.posts))
			}
		}
	}

	// The program has put the QP into the error state.
	var c collector
	x := New(&c)
	for i, want := range []string{"WR_FLUSH_ERR: " + meaning("WR_FLUSH_ERR") + "; qp 3", "no error: flushed, as the program has put the queue pair into the error state"} {
		for _, e := range []*event.Event{
			{Kind: event.Control, Verb: "ibv_create_qp", File: 1, Returned: true, Created: []event.Object{{Type: "qp", Handle: 3, Gen: 1, File: 1, Num: 0x13}}},
			{Kind: event.Control, Verb: "ibv_modify_qp", File: 1, Returned: true, Args: []event.Field{field("qp", handle("qp", 3)), field("qp_state", word([]string{"RTS", "ERR"}[i]))}},
			{Kind: event.Data, Verb: "ibv_poll_cq", File: 1, Returned: true, Ret: 1, Out: []event.Field{
				field("wc", list(structure(field("status", word("WR_FLUSH_ERR")), field("qp_num", number(0x13)))))}},
		} {
			if err := x.Event(e); err != nil {
				t.Fatal(err)
			}
		}
		if c.last.Why != want || c.last.Wrong() == (i == 1) {
			t.Errorf("%q, want %q; wrong is %t", c.last.Why, want, c.last.Wrong())
		}
	}

	// A poll of a file that nothing is known of.
	e := &event.Event{Kind: event.Data, Verb: "ibv_poll_cq", Returned: true, Ret: 1, Out: []event.Field{
		field("wc", list(structure(field("status", word("WR_FLUSH_ERR")), field("qp_num", number(0x13)))))}}
	if err := New(&c).Event(e); err != nil {
		t.Fatal(err)
	}
	if want := "WR_FLUSH_ERR: " + meaning("WR_FLUSH_ERR"); c.last.Why != want {
		t.Errorf("%q, want %q", c.last.Why, want)
	}
}
