package chrome

import (
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cmd/ibvtrace/event"
)

// fullWriter has room for some bytes.
type fullWriter struct{ room int }

var errFull = errors.New("full")

func (w *fullWriter) Write(b []byte) (int, error) {
	if w.room < len(b) {
		n := w.room
		w.room = 0
		return n, errFull
	}
	w.room -= len(b)
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

// TestNoRoom: wherever a file ends for want of room, the writer says so.
func TestNoRoom(t *testing.T) {
	var whole writerTo
	write := func(to interface{ Write([]byte) (int, error) }) (err error) {
		w := NewWriter(to)
		for _, e := range lives() {
			if err := w.Event(e); err != nil {
				return err
			}
		}
		return w.Close()
	}
	if err := write(&whole); err != nil {
		t.Fatal(err)
	}
	for room := range len(whole) {
		if err := write(&fullWriter{room}); !errors.Is(err, errFull) {
			t.Fatalf("with room for %d bytes: %v", room, err)
		}
	}
}
