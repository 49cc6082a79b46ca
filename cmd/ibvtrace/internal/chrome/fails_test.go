package chrome

import (
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// faultyWriter fails once, at the n-th Write, and counts them.
type faultyWriter struct{ n, writes int }

var errFaulty = errors.New("faulty")

func (w *faultyWriter) Write(b []byte) (int, error) {
	w.writes++
	if w.writes == w.n {
		return 0, errFaulty
	}
	return len(b), nil
}

// lives are events in which objects begin, change and end.
func lives() []*event.Event {
	qp := event.Object{Type: "qp", Handle: 3, Gen: 1, File: 1, Num: 17}
	cq := event.Object{Type: "cq", Handle: 4, Gen: 1, File: 1}
	at := func(n int, e event.Event) *event.Event {
		e.Time, e.Kind, e.PID, e.TID, e.File, e.Returned = time.Unix(int64(n), 0), event.Control, 1, 1, 1, true
		return &e
	}
	return []*event.Event{
		at(1, event.Event{Verb: "ibv_create_qp", Created: []event.Object{qp, cq}}),
		at(2, event.Event{Verb: "ibv_modify_qp", Args: []event.Field{
			{Name: "qp", Value: event.Value{Form: event.Handle, Str: "qp", Num: 3, Gen: 1}},
			{Name: "qp_state", Value: event.Value{Form: event.Word, Str: "INIT"}},
		}}),
		at(3, event.Event{Verb: "ibv_destroy_qp", Destroyed: []event.Object{qp, cq}}),
	}
}

// TestLivesTogether: objects that begin and end in one event all do.
func TestLivesTogether(t *testing.T) {
	var b writerTo
	w := NewWriter(&b)
	for _, e := range lives() {
		if err := w.Event(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	all := parse(t, b)
	if open := spans(t, all); open != 0 {
		t.Errorf("%d spans don't end", open)
	}
	var begun []string
	for _, r := range all {
		if r["ph"] == "b" {
			begun = append(begun, r["name"].(string))
		}
	}
	want := []string{"qp 3 (qpn 0x11)", "RESET", "cq 4", "INIT"}
	if len(begun) != len(want) {
		t.Fatalf("%q, want %q", begun, want)
	}
	for i := range want {
		if begun[i] != want[i] {
			t.Errorf("%q, want %q", begun, want)
		}
	}
}

type writerTo []byte

func (w *writerTo) Write(b []byte) (int, error) {
	*w = append(*w, b...)
	return len(b), nil
}

// TestWriteFails: whichever entry is not written, the writer says so.
func TestWriteFails(t *testing.T) {
	write := func(to *faultyWriter) (err error) {
		w := NewWriter(to)
		for _, e := range lives() {
			if err := w.Event(e); err != nil {
				return err
			}
		}
		return w.Close()
	}
	var all faultyWriter
	if err := write(&all); err != nil {
		t.Fatal(err)
	}
	if all.writes < 10 {
		t.Errorf("%d writes", all.writes)
	}
	for n := 1; n <= all.writes; n++ {
		if err := write(&faultyWriter{n: n}); !errors.Is(err, errFaulty) {
			t.Errorf("write %d of %d fails: %v", n, all.writes, err)
		}
	}
}
