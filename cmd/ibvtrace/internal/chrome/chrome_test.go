package chrome

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/input"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

// A record is an entry as a reader parses it.
type record map[string]any

// parse reads a file, and checks each entry by the rules of the trace-event format.
func parse(t *testing.T, file []byte) []record {
	t.Helper()
	var all []record
	if err := json.Unmarshal(file, &all); err != nil {
		t.Fatalf("%v in %s", err, file)
	}
	for i, r := range all {
		need := map[string]func(any) bool{"name": isString, "ph": isString, "pid": isWhole, "tid": isWhole, "ts": isTime}
		switch r["ph"] {
		case "M": // metadata: the name of a process or a thread
			need["args"] = func(v any) bool {
				args, ok := v.(map[string]any)
				return ok && len(args) == 1 && isString(args["name"])
			}
			if r["name"] != "process_name" && r["name"] != "thread_name" {
				t.Errorf("entry %d: metadata called %v", i, r["name"])
			}
		case "X": // complete
			need["dur"] = isTime
		case "i": // instant
			need["s"] = func(v any) bool { return v == "g" || v == "p" || v == "t" }
		case "b", "e", "s", "f": // asynchronous spans and flows go by category and id
			need["cat"], need["id"] = isString, isString
		default:
			t.Errorf("entry %d: phase %v", i, r["ph"])
		}
		for field, ok := range need {
			if !ok(r[field]) {
				t.Errorf("entry %d: %s is %#v in %v", i, field, r[field], r)
			}
		}
		for field := range r {
			if need[field] == nil && field != "cat" && field != "args" && field != "bp" {
				t.Errorf("entry %d: %s has no meaning in %v", i, field, r)
			}
		}
	}
	return all
}

func isString(v any) bool { s, ok := v.(string); return ok && s != "" }
func isTime(v any) bool   { f, ok := v.(float64); return ok && f >= 0 }
func isWhole(v any) bool  { f, ok := v.(float64); return ok && f > 0 && f == float64(int(f)) }

// spans checks that asynchronous spans nest, and returns how many are open.
func spans(t *testing.T, all []record) (open int) {
	t.Helper()
	stacks := make(map[string][]record)
	for i, r := range all {
		k := fmt.Sprint(r["cat"], " ", r["id"])
		switch s := stacks[k]; {
		case r["ph"] == "b":
			stacks[k] = append(s, r)
		case r["ph"] == "e" && len(s) == 0:
			t.Errorf("entry %d ends what did not begin: %v", i, r)
		case r["ph"] == "e":
			begun := s[len(s)-1]
			if begun["name"] != r["name"] || begun["ts"].(float64) > r["ts"].(float64) {
				t.Errorf("entry %d: %v ends %v", i, r, begun)
			}
			stacks[k] = s[:len(s)-1]
		}
	}
	for _, s := range stacks {
		open += len(s)
	}
	return open
}

// arrows checks that each flow leads from a slice to a later one, and returns the number of
// flows.
func arrows(t *testing.T, all []record, sameClock bool) (n int) {
	t.Helper()
	begun := make(map[any]record)
	for i, r := range all {
		if r["ph"] == "s" {
			if begun[r["id"]] != nil {
				t.Errorf("entry %d: a second flow %v", i, r["id"])
			}
			begun[r["id"]] = r
		}
	}
	for i, r := range all {
		if r["ph"] != "s" && r["ph"] != "f" {
			continue
		}
		inside := false
		for _, x := range all {
			inside = inside || x["ph"] == "X" && x["pid"] == r["pid"] && x["tid"] == r["tid"] &&
				x["ts"].(float64) <= r["ts"].(float64) && r["ts"].(float64) <= x["ts"].(float64)+x["dur"].(float64)
		}
		if !inside {
			t.Errorf("entry %d is in no slice: %v", i, r)
		}
		if r["ph"] == "s" {
			continue
		}
		n++
		from := begun[r["id"]]
		delete(begun, r["id"]) // it has one end
		if from == nil || from["name"] != r["name"] || from["cat"] != r["cat"] || r["bp"] != "e" ||
			sameClock && from["ts"].(float64) > r["ts"].(float64) {
			t.Errorf("entry %d: the flow from %v to %v", i, from, r)
		}
	}
	return n
}

// TestRecorded checks the output for stored traces.
func TestRecorded(t *testing.T) {
	for _, test := range []struct {
		program string
		arrows  int
		// rping ran on two machines with different clocks, by which the client ended
		// shortly after the server began.
		sameClock bool
	}{{"rc_pingpong", 40, true}, {"rping", 2, false}} {
		program := test.program
		var out bytes.Buffer
		w := NewWriter(&out)
		files := []string{
			filepath.Join("..", "..", "testdata", "traces", program+"_server.json"),
			filepath.Join("..", "..", "testdata", "traces", program+"_client.json"),
		}
		err := input.Each(files, func(err error) { t.Error(err) }, func(_ int, e *event.Event) error { return w.Event(e) })
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		all := parse(t, out.Bytes())
		if open := spans(t, all); open != 0 {
			t.Errorf("%s: %d spans have no end", program, open)
		}
		if n := arrows(t, all, test.sameClock); n != test.arrows {
			t.Errorf("%s: %d arrows, want %d", program, n, test.arrows)
		}
	}
}

// A side generates the events of one end of a connection.
type side struct {
	pid  int
	qpn  uint64
	peer uint64
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (s side) event(at int, verb string, kind event.Kind) *event.Event {
	return &event.Event{
		Time: start.Add(time.Duration(at) * time.Microsecond), Duration: 500 * time.Nanosecond, Timed: true,
		PID: s.pid, TID: s.pid, Comm: "side", Kind: kind, Verb: verb, File: s.pid, Device: "rxe0", Returned: true,
	}
}

func (s side) qp() event.Field {
	return event.Field{Name: "qp", Value: event.Value{Form: event.Handle, Str: "qp", Num: 1, Gen: 1}}
}

func word(name, s string) event.Field {
	return event.Field{Name: name, Value: event.Value{Form: event.Word, Str: s}}
}

func number(name string, n uint64) event.Field {
	return event.Field{Name: name, Value: event.Value{Num: n}}
}

func (s side) connect(at int) []*event.Event {
	create := s.event(at, "ibv_create_qp", event.Control)
	create.Created = []event.Object{{Type: "qp", Handle: 1, Gen: 1, File: s.pid, Num: s.qpn}}
	modify := s.event(at+1, "ibv_modify_qp", event.Control)
	modify.Args = []event.Field{s.qp(), word("qp_state", "RTR"), number("dest_qp_num", s.peer)}
	return []*event.Event{create, modify}
}

func (s side) send(at int, opcodes ...string) *event.Event {
	e := s.event(at, "ibv_post_send", event.Data)
	var wrs []event.Value
	for _, op := range opcodes {
		wrs = append(wrs, event.Value{Fields: []event.Field{word("opcode", op)}})
	}
	e.Args = []event.Field{s.qp(), {Name: "wr", Value: event.Value{Elems: wrs}}}
	return e
}

func (s side) poll(at int, opcodes ...string) *event.Event {
	e := s.event(at, "ibv_poll_cq", event.Data)
	var wcs []event.Value
	for _, op := range opcodes {
		wcs = append(wcs, event.Value{Fields: []event.Field{word("opcode", op), number("qp_num", s.qpn)}})
	}
	e.Out = []event.Field{{Name: "wc", Value: event.Value{Elems: wcs}}}
	return e
}

// write returns the records of some events.
func write(t *testing.T, events ...*event.Event) []record {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out)
	for _, e := range events {
		if err := w.Event(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return parse(t, out.Bytes())
}

// TestArrows: exactly the messages that complete a receive get an arrow.
func TestArrows(t *testing.T) {
	a, b := side{pid: 10, qpn: 17, peer: 18}, side{pid: 20, qpn: 18, peer: 17}
	events := append(a.connect(0), b.connect(10)...)
	failed := a.send(25, "SEND")
	failed.Errno = "ENOMEM"
	events = append(events,
		a.send(20, "SEND", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM"),
		failed,
		b.poll(30, "RECV", "RECV_RDMA_WITH_IMM"),
		a.poll(31, "SEND", "RDMA_WRITE"),
		b.send(40, "SEND_WITH_IMM"),
		a.poll(50, "RECV"),
	)
	if n := arrows(t, write(t, events...), true); n != 3 {
		t.Errorf("%d arrows, want 3", n)
	}
	// Without the sender's trace there are no arrows.
	if n := arrows(t, write(t, append(b.connect(0), b.poll(30, "RECV"))...), true); n != 0 {
		t.Errorf("%d arrows from nowhere", n)
	}
}

// TestLives: a QP's states are within its lifetime, which ends at the latest with its file.
func TestLives(t *testing.T) {
	s := side{pid: 10, qpn: 17, peer: 18}
	refused := s.event(5, "ibv_modify_qp", event.Control)
	refused.Args, refused.Errno = []event.Field{s.qp(), word("qp_state", "RTS")}, "EINVAL"
	destroy := s.event(6, "ibv_destroy_qp", event.Control)
	destroy.Destroyed = []event.Object{{Type: "qp", Handle: 1, Gen: 1, File: s.pid}}
	exit := s.event(8, "exited", event.Exit)
	exit.Args = []event.Field{number("status", 0)}

	all := write(t, append(s.connect(0), refused)...)
	if open := spans(t, all); open != 2 { // it and its state
		t.Errorf("%d open spans of an existing QP, want 2", open)
	}
	var states []any
	for _, r := range all {
		if r["ph"] == "b" {
			states = append(states, r["name"])
		}
	}
	if got := fmt.Sprint(states); got != "[qp 1 (qpn 0x11) RESET RTR]" {
		t.Errorf("spans %s", got)
	}
	for _, end := range []*event.Event{destroy, s.event(7, "close", event.Close)} {
		if open := spans(t, write(t, append(s.connect(0), end, exit)...)); open != 0 {
			t.Errorf("%d spans outlive %s", open, end.Verb)
		}
	}
}

// TestNames: each thread is named before its first entry, and again if its name changes.
func TestNames(t *testing.T) {
	var events []*event.Event
	for tid := 1; tid <= maxNames+2; tid++ {
		e := side{pid: 1}.event(tid, "ibv_alloc_pd", event.Control)
		e.TID = tid
		events = append(events, e)
	}
	renamed := side{pid: 1}.event(maxNames+5, "ibv_alloc_pd", event.Control)
	renamed.Comm = "other"
	named := make(map[any]any)
	for i, r := range write(t, append(events, renamed)...) {
		if r["ph"] == "M" {
			if r["name"] == "thread_name" {
				named[r["tid"]] = r["args"].(map[string]any)["name"]
			}
		} else if named[r["tid"]] == nil {
			t.Fatalf("entry %d: thread %v has no name", i, r["tid"])
		}
	}
	if named[1.0] != "other" || named[2.0] != "side" {
		t.Errorf("threads are called %v and %v", named[1.0], named[2.0])
	}
}

// TestEmpty: a trace without events is a valid file.
func TestEmpty(t *testing.T) {
	if all := write(t); len(all) != 0 {
		t.Errorf("%v", all)
	}
}

// TestNotClosed: a file without its end can be read.
func TestNotClosed(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out)
	for _, e := range (side{pid: 1, qpn: 2}).connect(0) {
		if err := w.Event(e); err != nil {
			t.Fatal(err)
		}
	}
	if all := parse(t, append(out.Bytes(), ']')); len(all) < 4 {
		t.Errorf("%v", all)
	}
}
