package figure

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// A side generates the events of one program.
type side struct {
	f      *Figure
	source int
	qpn    uint64
	peer   uint64
	now    time.Time
}

func (s *side) do(kind event.Kind, verb string, e event.Event) {
	s.now = s.now.Add(time.Millisecond)
	e.Time, e.Kind, e.Verb, e.PID, e.TID, e.Comm, e.Device, e.File = s.now, kind, verb, 100, 100, "prog", "rxe0", s.source+1
	e.Returned, e.Timed, e.Duration = true, true, 50*time.Microsecond
	if err := s.f.Add(s.source, &e); err != nil {
		panic(err)
	}
}

func handle(kind string, n uint64) event.Value {
	return event.Value{Form: event.Handle, Str: kind, Num: n, Gen: 1}
}

func word(s string) event.Value { return event.Value{Form: event.Word, Str: s} }

func (s *side) connect() {
	s.do(event.Control, "ibv_create_qp", event.Event{
		Args:    []event.Field{{Name: "type", Value: word("RC")}},
		Created: []event.Object{{Type: "qp", Handle: 3, Gen: 1, File: s.source + 1, Num: s.qpn}},
	})
	for _, state := range []string{"INIT", "RTR", "RTS"} {
		args := []event.Field{{Name: "qp", Value: handle("qp", 3)}, {Name: "qp_state", Value: word(state)}}
		if state == "RTR" {
			args = append(args, event.Field{Name: "dest_qp_num", Value: event.Value{Form: event.Hex, Num: s.peer}})
		}
		s.do(event.Control, "ibv_modify_qp", event.Event{Args: args})
	}
}

func (s *side) send(opcode string) {
	wr := event.Value{Form: event.Struct, Fields: []event.Field{{Name: "opcode", Value: word(opcode)}, {Name: "length", Value: event.Value{Num: 64}}}}
	s.do(event.Data, "ibv_post_send", event.Event{Args: []event.Field{
		{Name: "qp", Value: handle("qp", 3)}, {Name: "wr", Value: event.Value{Form: event.List, Elems: []event.Value{wr}}}}})
}

func (s *side) poll(opcode string) {
	wc := event.Value{Form: event.Struct, Fields: []event.Field{{Name: "opcode", Value: word(opcode)}, {Name: "qp_num", Value: event.Value{Form: event.Hex, Num: s.qpn}}}}
	s.do(event.Data, "ibv_poll_cq", event.Event{Ret: 1, Out: []event.Field{{Name: "wc", Value: event.Value{Form: event.List, Elems: []event.Value{wc}}}}})
}

func pair(f *Figure) (a, b *side) {
	start := time.Date(2026, 2, 3, 10, 31, 7, 0, time.UTC)
	return &side{f: f, source: 0, qpn: 0x11, peer: 0x12, now: start}, &side{f: f, source: 1, qpn: 0x12, peer: 0x11, now: start}
}

// wellFormed checks that b is well-formed XML, and returns its text.
func wellFormed(t *testing.T, b []byte) string {
	t.Helper()
	var text strings.Builder
	d := xml.NewDecoder(bytes.NewReader(b))
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return text.String()
		}
		if err != nil {
			t.Fatalf("not XML: %v", err)
		}
		if c, ok := tok.(xml.CharData); ok {
			text.Write(c)
			text.WriteByte('\n')
		}
	}
}

func svg(t *testing.T, f *Figure) string {
	t.Helper()
	var b bytes.Buffer
	if err := f.SVG(&b); err != nil {
		t.Fatal(err)
	}
	return wellFormed(t, b.Bytes())
}

// TestConnection: one program sends 1000 messages, and the other one answers 7 of them.
func TestConnection(t *testing.T) {
	f := New()
	f.Sources = []string{"a.json", "b.json"}
	a, b := pair(f)
	a.connect()
	b.connect()
	for i := range 1000 {
		a.send("SEND")
		a.poll("SEND")
		b.poll("RECV")
		if i < 7 {
			b.send("SEND_WITH_IMM")
			a.poll("RECV")
		}
		b.send("RDMA_WRITE")
	}
	a.do(event.Control, "ibv_destroy_qp", event.Event{Destroyed: []event.Object{{Type: "qp", Handle: 3, Gen: 1, File: 1}}})
	text := svg(t, f)
	for _, want := range []string{"a.json", "b.json", "RC, qp 3, number 0x11", "to RTR, peer 0x12", "× 1000", "SEND, 62.5 KiB in all",
		"1000 messages", "7 messages", "QPN 0x11", "QPN 0x12", "RESET", "INIT", "RTR", "RTS"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the figure", want)
		}
	}
	if n := len(f.lanes[0].items); n != 7 { // create, 3 modify, post, poll, destroy
		t.Errorf("%d items in the first lane", n)
	}
	var messages uint64
	for _, arrow := range f.arrows {
		if arrow.kind == message {
			messages += arrow.n
		}
	}
	if messages != 1007 {
		t.Errorf("arrows for %d messages, want 1007", messages)
	}
}

// TestArrowsPointDown: no arrow points up, even if the clocks of two machines differ.
func TestArrowsPointDown(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, 0, time.Hour} {
		f := New()
		a, b := pair(f)
		b.now = b.now.Add(skew)
		a.connect()
		b.connect()
		a.send("SEND")
		b.poll("RECV")
		p := f.layout()
		n := 0
		for _, arrow := range p.arrows {
			if arrow.kind == message {
				n++
				if arrow.to.row < arrow.from.row {
					t.Errorf("with a skew of %v, a message goes up from row %d to %d", skew, arrow.from.row, arrow.to.row)
				}
			}
		}
		if n != 1 {
			t.Errorf("with a skew of %v: %d arrows for messages", skew, n)
		}
	}
}

// TestLoops: a repeated sequence is drawn once, with a count.
func TestLoops(t *testing.T) {
	f := New()
	a, _ := pair(f)
	for range 100 {
		for _, verb := range []string{"ibv_alloc_pd", "ibv_reg_mr", "ibv_dereg_mr", "ibv_dealloc_pd"} {
			a.do(event.Control, verb, event.Event{})
		}
	}
	a.do(event.Control, "ibv_query_port", event.Event{})
	if n := len(f.lanes[0].items); n != 5 {
		t.Errorf("%d items, want 5", n)
	}
	if text := svg(t, f); !strings.Contains(text, "these 4, 100 times over") || !strings.Contains(text, "× 100") {
		t.Errorf("no loop in %q", text)
	}
}

// TestBounded: a long trace without repetitions, of many processes, makes a small figure.
func TestBounded(t *testing.T) {
	f := New()
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 50_000 {
		e := &event.Event{Time: time.Unix(int64(i), 0), PID: 1 + random.IntN(9), Kind: event.Control, Verb: fmt.Sprint("ibv_", random.IntN(1e6)), Returned: true}
		if err := f.Add(0, e); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range f.lanes {
		if len(l.items) > maxItems {
			t.Errorf("%d items in a lane", len(l.items))
		}
	}
	text := svg(t, f)
	if !strings.Contains(text, "more verbs, which did not fit") || !strings.Contains(text, "3 more processes are not shown") {
		t.Error("the figure does not say what it omits")
	}
}

// TestHostileNames: names that programs choose break neither SVG nor HTML.
func TestHostileNames(t *testing.T) {
	f := New()
	f.Title = "</svg><script>\x00"
	e := &event.Event{Time: time.Unix(1, 0), PID: 1, TID: 1, Comm: "<&>\"'\x01\xff\ufffe", Kind: "<x>", Verb: "<b>]]>", Returned: true, Device: "<i>", File: 1, Errno: "<e>"}
	if err := f.Add(0, e); err != nil {
		t.Fatal(err)
	}
	svg(t, f)
	var b bytes.Buffer
	if err := f.HTML(&b); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<script", "<b>]", "<i>", "<e>", "<&>"} {
		if strings.Contains(b.String(), bad) {
			t.Errorf("%q is in the page", bad)
		}
	}
	if !strings.Contains(b.String(), `href="#v0-0"`) || !strings.Contains(b.String(), `id="v0-0"`) {
		t.Error("the box does not link to its line")
	}
}

func FuzzFigure(f *testing.F) {
	f.Add([]byte(`{"v":"1.0","ts":"2026-01-02T03:04:05Z","kind":"control","verb":"ibv_create_qp","created":[{"type":"qp","handle":1,"gen":1,"file":1,"num":2}]}
{"v":"1.0","ts":"2026-01-02T03:04:05Z","kind":"control","verb":"ibv_modify_qp","file":1,"args":{"qp":1,"qp_state":"RTR","dest_qp_num":2},"types":{"args.qp":"qp#1"},"ret":0}
{"v":"1.0","ts":"0001-02-02T03:04:05Z","pid":5,"kind":"data","verb":"ibv_poll_cq","out":{"wc":[{"qp_num":2,"opcode":"RECV"}]},"ret":1,"dur_ns":-5}`))
	f.Fuzz(func(t *testing.T, trace []byte) {
		fig := New()
		for i, line := range bytes.Split(trace, []byte("\n")) {
			if e, err := event.Parse(line); err == nil {
				if err := fig.Add(i%2, e); err != nil {
					t.Fatal(err)
				}
			}
		}
		svg(t, fig)
	})
}

// TestDatagrams: the QP numbers in work requests and completions match datagrams.
func TestDatagrams(t *testing.T) {
	f := New()
	a, b := pair(f)
	for _, s := range []*side{a, b} {
		s.do(event.Control, "ibv_create_qp", event.Event{Created: []event.Object{{Type: "qp", Handle: 3, Gen: 1, File: s.source + 1, Num: s.qpn}}})
	}
	hex := func(name string, n uint64) event.Field {
		return event.Field{Name: name, Value: event.Value{Form: event.Hex, Num: n}}
	}
	one := func(fields ...event.Field) event.Value {
		return event.Value{Form: event.List, Elems: []event.Value{{Form: event.Struct, Fields: fields}}}
	}
	for range 3 {
		a.do(event.Data, "ibv_post_send", event.Event{Args: []event.Field{{Name: "qp", Value: handle("qp", 3)},
			{Name: "wr", Value: one(event.Field{Name: "opcode", Value: word("SEND")}, hex("remote_qpn", b.qpn))}}})
		b.do(event.Data, "ibv_poll_cq", event.Event{Out: []event.Field{
			{Name: "wc", Value: one(event.Field{Name: "opcode", Value: word("RECV")}, hex("qp_num", b.qpn), hex("src_qp", a.qpn))}}})
	}
	if text := svg(t, f); !strings.Contains(text, "3 messages") {
		t.Errorf("no messages in %q", text)
	}
}

// TestOneSided: arrows of one-sided operations do not lead to an item.
func TestOneSided(t *testing.T) {
	f := New()
	a, b := pair(f)
	a.connect()
	b.connect()
	for range 5 {
		a.send("RDMA_WRITE")
	}
	f.layout()
	n := 0
	for _, arrow := range f.arrows {
		if arrow.kind == message {
			t.Errorf("a message: %+v", arrow)
		}
		if arrow.kind == oneSided {
			n++
			if arrow.to != nil || arrow.label != "5 RDMA_WRITE" {
				t.Errorf("%+v", arrow)
			}
		}
	}
	if n != 1 {
		t.Errorf("%d arrows for writes", n)
	}
}
