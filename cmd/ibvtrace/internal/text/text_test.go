package text

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

var at = time.Date(2026, 2, 3, 10, 31, 7, 120345678, time.UTC)

func num(name string, n uint64) event.Field {
	return event.Field{Name: name, Value: event.Value{Form: event.Uint, Num: n}}
}

func hex(name string, n uint64) event.Field {
	return event.Field{Name: name, Value: event.Value{Form: event.Hex, Num: n}}
}

func handle(name, kind string, n uint64, gen int) event.Field {
	return event.Field{Name: name, Value: event.Value{Form: event.Handle, Str: kind, Num: n, Gen: gen}}
}

func create() *event.Event {
	return &event.Event{
		Time: at, PID: 4711, TID: 4711, Comm: "server", Kind: event.Control, Verb: "ibv_create_qp", Device: "rxe0", File: 1, FD: 3,
		Args: []event.Field{
			handle("pd", "pd", 3, 1), handle("send_cq", "cq", 5, 2),
			{Name: "user_handle", Value: event.Value{Form: event.Pointer, Num: 0x7f00}},
			{Name: "type", Value: event.Value{Form: event.Word, Str: "RC"}},
			{Name: "flags", Value: event.Value{Form: event.Flags}},
			{Name: "cap", Value: event.Value{Form: event.Struct, Fields: []event.Field{num("a", 1), num("b", 0), num("c", 0), num("d", 0), num("e", 0), num("f", 6)}}},
		},
		Out:      []event.Field{handle("qp", "qp", 7, 1), num("max_send_wr", 16), hex("qp_num", 0x11)},
		Returned: true, Duration: 84 * time.Microsecond, Timed: true,
		Created: []event.Object{{Type: "qp", Handle: 7, Gen: 1, File: 1, Num: 0x11}},
	}
}

func TestLines(t *testing.T) {
	failed := create()
	failed.Ret, failed.Errno, failed.Error, failed.Rejects, failed.Why = -1, "EINVAL", "Invalid argument", "cap.f", "too much"
	failed.Out, failed.Created, failed.TID = nil, nil, 4712
	died := create()
	died.Returned = false
	again := create()
	again.Ret, again.Errno, again.Out = -1, "ERESTARTSYS", nil
	other := create()
	other.File = 2
	null := &event.Event{Time: at, PID: 1, TID: 1, Comm: "a\nb", Kind: event.Control, Verb: "ibv_x", FD: 3, Path: "/dev/null", Problem: "bad address", Returned: true}
	part := &event.Event{Time: at, PID: 1, TID: 1, Comm: "c", Kind: event.Control, Verb: "ibv_x", File: 1, Args: []event.Field{num("a", 1)}, Problem: "bad address", Returned: true}
	long := &event.Event{Time: at, PID: 1, TID: 1, Comm: "c", Kind: event.Async, Verb: "rdma_get_cm_event", File: 1, Returned: true, Out: []event.Field{
		num("o1", 1), num("o2", 2), num("o3", 3), num("o4", 4), num("o5", 5), num("o6", 6), num("o7", 7), num("o8", 8), num("o9", 9)}}
	data := &event.Event{Time: at, PID: 1, TID: 1, Comm: "c", Kind: event.Data, Verb: "ibv_y", File: 1, Returned: true, Args: []event.Field{
		{Name: "s", Value: event.Value{Form: event.Text, Str: "häßlich\x1b"}},
		{Name: "b", Value: event.Value{Form: event.Bytes, Str: "\x01\x02\x03\x04\x05\x06\x07\x08\x09"}},
		{Name: "lost", Value: event.Value{Form: event.Lost, Num: 0x10}},
		{Name: "i", Value: event.Value{Form: event.Int, Num: ^uint64(4)}},
		{Name: "l", Value: event.Value{Form: event.List, Elems: []event.Value{{Num: 1}, {Form: event.Flags, Words: []string{"A", "B"}}}}},
	}}
	modify := &event.Event{Time: at, PID: 1, TID: 1, Comm: "c", Kind: event.Control, Verb: "ibv_modify_qp", File: 1, Returned: true, Args: []event.Field{
		handle("qp", "qp", 7, 3), {Name: "attr_mask", Value: event.Value{Form: event.Flags, Words: []string{"STATE", "PORT"}}}, num("port_num", 1),
		{Name: "qp_state", Value: event.Value{Form: event.Word, Str: "INIT"}}}}
	query := &event.Event{Time: at, PID: 1, TID: 1, Comm: "c", Kind: event.Control, Verb: "ibv_query_qp", File: 1, Returned: true, Args: []event.Field{
		handle("qp", "qp", 7, 1), {Name: "attr_mask", Value: event.Value{Form: event.Flags, Words: []string{"CAP"}}}},
		Out: []event.Field{num("dest", 1), num("qkey", 2), num("max_send_wr", 16), {Name: "qp_state", Value: event.Value{Form: event.Word, Str: "RTS"}}}}
	exit := &event.Event{Time: at, PID: 4711, TID: 4711, Comm: "server", Kind: event.Exit, Verb: "exited", Args: []event.Field{num("status", 0)}, Returned: true}
	killed := &event.Event{Time: at, PID: 4711, TID: 4711, Comm: "server", Kind: event.Exit, Verb: "killed",
		Args: []event.Field{{Name: "signal", Value: event.Value{Form: event.Text, Str: "SIGKILL"}}}, Returned: true}
	note := &event.Event{Time: at, PID: 1, TID: 1, Comm: "c", Kind: event.Note, Why: "was open before", Created: []event.Object{{Type: "pd", Handle: 1}, {Type: "qp", Handle: 2}}}

	const head = "10:31:07.120345 [4711 server] "
	const call = "ibv_create_qp(pd=3, send_cq=5#2, type=RC, cap={a=1, f=6}) = "
	const whole = "ibv_create_qp(pd=3, send_cq=5#2, user_handle=0x7f00, type=RC, flags=0, cap={a=1, b=0, c=0, d=0, e=0, f=6}) = qp 7 (max_send_wr=16, qp_num=0x11)"
	for _, test := range []struct {
		name   string
		opt    Options
		events []*event.Event
		want   []string
	}{
		{"plain", Options{}, []*event.Event{create()}, []string{head + call + "qp 7 (qpn 0x11, max_send_wr=16)"}},
		{"-T", Options{Durations: true}, []*event.Event{create()}, []string{head + call + "qp 7 (qpn 0x11, max_send_wr=16) <84 µs>"}},
		{"-y", Options{Devices: true}, []*event.Event{create(), other}, []string{
			head + "rxe0: " + call + "qp 7 (qpn 0x11, max_send_wr=16)", head + "rxe0 file 2: " + call + "qp 7 (qpn 0x11, max_send_wr=16)"}},
		{"-v", Options{Verbose: true}, []*event.Event{create()}, []string{head + whole}},
		{"-t", Options{Clock: Seconds}, []*event.Event{exit}, []string{"10:31:07 [4711 server] +++ exited with 0 +++"}},
		{"-ttt", Options{Clock: Epoch}, []*event.Event{exit}, []string{"1770114667.120345 [4711 server] +++ exited with 0 +++"}},
		{"-r", Options{Clock: Relative}, []*event.Event{exit, exit}, []string{
			"    0.000000 [4711 server] +++ exited with 0 +++", "    0.000000 [4711 server] +++ exited with 0 +++"}},
		{"failed", Options{Durations: true}, []*event.Event{failed}, []string{
			"10:31:07.120345 [4711/4712 server] " + call + "-1 EINVAL (Invalid argument), rejects cap.f: too much <84 µs>"}},
		{"died", Options{Durations: true}, []*event.Event{died}, []string{head + call + "?"}},
		{"restarted", Options{}, []*event.Event{again}, []string{head + call + "? ERESTARTSYS"}},
		{"no device", Options{}, []*event.Event{null}, []string{"10:31:07.120345 [1 a?b] 3</dev/null>: ibv_x(bad address) = 0"}},
		{"a problem after arguments", Options{}, []*event.Event{part}, []string{"10:31:07.120345 [1 c] ibv_x(a=1, bad address) = 0"}},
		{"many results", Options{}, []*event.Event{long}, []string{
			"10:31:07.120345 [1 c] rdma_get_cm_event() = 0 (o1=1, o2=2, o3=3, o4=4, o5=5, o6=6, o7=7, o8=8, …)"}},
		{"values", Options{MaxBytes: 8}, []*event.Event{data}, []string{
			`10:31:07.120345 [1 c] ibv_y(s="häßlich\x1b", b=0x0102030405060708...(9 bytes), lost=?0x10, i=-5, l=[1, A|B]) = 0`}},
		{"a letter of two bytes is not cut", Options{}, []*event.Event{{Time: at, PID: 1, TID: 1, Comm: "c", Kind: event.Data, Verb: "ibv_y", File: 1, Returned: true,
			Args: []event.Field{{Name: "s", Value: event.Value{Form: event.Text, Str: "h" + strings.Repeat("ä", maxText)}}}}},
			[]string{`10:31:07.120345 [1 c] ibv_y(s="h` + strings.Repeat("ä", maxText/2-1) + `"...) = 0`}},
		{"no time", Options{Clock: None}, []*event.Event{exit}, []string{"[4711 server] +++ exited with 0 +++"}},
		{"what is closed", Options{}, []*event.Event{{Time: at, PID: 1, TID: 1, Comm: "a\u202eb", Kind: event.Close, Verb: "close", Device: "rxe0", File: 1, Returned: true,
			Args: []event.Field{{Name: "fd", Value: event.Value{Form: event.FD, Num: 3}}}}}, []string{"10:31:07.120345 [1 a?b] close(fd=3<rxe0>) = 0"}},
		{"query_qp", Options{}, []*event.Event{query}, []string{"10:31:07.120345 [1 c] ibv_query_qp(qp=7, attr_mask=CAP) = 0 (qp_state=RTS, max_send_wr=16)"}},
		{"five fields, zeros too", Options{}, []*event.Event{{Time: at, PID: 1, TID: 1, Comm: "c\x7f", Kind: event.Data, Verb: "ibv_y", File: 1, Returned: true,
			Args: []event.Field{{Name: "s", Value: event.Value{Form: event.Struct, Fields: []event.Field{num("a", 1), num("b", 0), num("c", 0), num("d", 0), num("e", 0)}}}}}},
			[]string{"10:31:07.120345 [1 c?] ibv_y(s={a=1, b=0, c=0, d=0, e=0}) = 0"}},
		{"modify_qp", Options{}, []*event.Event{modify}, []string{"10:31:07.120345 [1 c] ibv_modify_qp(qp=7#3, qp_state=INIT, port_num=1) = 0"}},
		{"killed", Options{}, []*event.Event{killed}, []string{head + "+++ killed by SIGKILL +++"}},
		{"note", Options{}, []*event.Event{note}, []string{"10:31:07.120345 [1 c] --- was open before: pd 1, qp 2 ---"}},
	} {
		var b strings.Builder
		test.opt.Location = time.UTC
		w := NewWriter(&b, test.opt)
		for _, e := range test.events {
			if err := w.Event(e); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(strings.Join(test.want, "\n")+"\n", b.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// TestFirstFile: lines name the device file if it is not the process's first, until the first
// is closed.
func TestFirstFile(t *testing.T) {
	on := func(kind event.Kind, file int) *event.Event {
		return &event.Event{Time: at, PID: 1, TID: 1, Comm: "c", Kind: kind, Verb: "v", Device: "rxe0", File: file, Returned: true}
	}
	var b strings.Builder
	w := NewWriter(&b, Options{Location: time.UTC})
	for _, e := range []*event.Event{
		on(event.Open, 1), on(event.Open, 2), on(event.Close, 2), on(event.Control, 3),
		on(event.Close, 1), on(event.Control, 4), on(event.Control, 3),
	} {
		if err := w.Event(e); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"", "file 2: ", "", "file 3: ", "", "", "file 3: "}
	var got []string
	for line := range strings.Lines(b.String()) {
		_, after, _ := strings.Cut(line, "] ")
		where, _, _ := strings.Cut(after, "v(")
		got = append(got, where)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestColor(t *testing.T) {
	var b strings.Builder
	w := NewWriter(&b, Options{Color: true, Durations: true, Location: time.UTC})
	if err := w.Event(create()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\x1b[1mibv_create_qp\x1b[0m(", "\x1b[32mqp 7\x1b[0m", "\x1b[2m <84 µs>\x1b[0m"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in %q", want, b.String())
		}
	}
}

func TestRaw(t *testing.T) {
	e := create()
	e.Raw = []event.RawAttr{{ID: 0x1000, Name: "UVERBS_ATTR_UHW_IN", Len: 12, Flags: 1, Data: 0x7f00, Bytes: []byte{1, 2}}, {ID: 9, Len: 8, Data: 3, Elem: 2}}
	var b strings.Builder
	if err := NewWriter(&b, Options{Raw: true, MaxBytes: 32}).Event(e); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(b.String(), "\n")
	want := "        UVERBS_ATTR_UHW_IN (0x1000): len=12 flags=0x1 data=0x7f00 0x0102\n        attribute (0x9): len=8 flags=0x0 elem=2 data=0x3\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestJSONKeepsTheLine: an event that was read from JSON has the same line as before.
func TestJSONKeepsTheLine(t *testing.T) {
	e := create()
	again, err := event.Parse(e.AppendJSON(nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{{}, {Verbose: true, Durations: true, Devices: true}, {Clock: Epoch, MaxBytes: 2}} {
		var live, read strings.Builder
		if err := NewWriter(&live, o).Event(e); err != nil {
			t.Fatal(err)
		}
		if err := NewWriter(&read, o).Event(again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(live.String(), read.String()); diff != "" {
			t.Errorf("(-live +read):\n%s", diff)
		}
	}
}
