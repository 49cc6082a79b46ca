package flight

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

var start = time.Date(2026, 2, 3, 10, 31, 7, 0, time.UTC)

// verb returns a verb that was called some seconds after the start.
func verb(after int, name string) *event.Event {
	return &event.Event{Time: start.Add(time.Duration(after) * time.Second), PID: 1, TID: 1, Kind: event.Control, Verb: name, FD: 3, File: 1, Returned: true}
}

// taken returns what a Recorder has kept, a line for each event, and the number of bytes.
func taken(t *testing.T, r *Recorder) (lines []string, size int) {
	t.Helper()
	var b bytes.Buffer
	if _, err := r.Take("test").WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	size = b.Len()
	for in := event.NewReader(&b); ; {
		e, err := in.Read()
		if err == io.EOF {
			return lines, size
		}
		if err != nil {
			t.Fatal(err)
		}
		line := strings.TrimSpace(e.Verb + " " + e.Why)
		for _, o := range e.Created {
			line += fmt.Sprintf(" %s %d %v", o.Type, o.Handle, o.Before)
		}
		lines = append(lines, line)
	}
}

// TestKeep: events are kept for the time, and dropped soon after it.
func TestKeep(t *testing.T) {
	r := New(16*time.Second, 1<<20)
	for i := range 100 {
		r.Event(verb(i, fmt.Sprint(i)))
		lines, _ := taken(t, r)
		if n := len(lines) - 1; n < min(i+1, 16) || n > 18 {
			t.Fatalf("%d events after %d seconds", n, i)
		}
	}
}

// TestSize: what is kept does not exceed the size by more than the last event.
func TestSize(t *testing.T) {
	const size = 64 << 10
	r := New(time.Hour, size)
	for i := range 5000 {
		r.Event(verb(0, fmt.Sprint(i)))
	}
	lines, n := taken(t, r)
	if n > size+1000 || n < size*3/4 || lines[len(lines)-1] != "4999" {
		t.Errorf("%d events, %d bytes, the last is %q", len(lines), n, lines[len(lines)-1])
	}
}

// TestBefore: objects that are older than what is kept are listed, unless they are gone.
func TestBefore(t *testing.T) {
	r := New(10*time.Second, 1<<20)
	create := func(after, file int, kind string, handle uint64) *event.Event {
		e := verb(after, "create")
		e.File, e.PID = file, file
		e.Created = []event.Object{{Type: kind, Handle: handle, Gen: 1, File: file}}
		return e
	}
	destroy := func(after int, kind string, handle uint64) *event.Event {
		e := verb(after, "destroy")
		e.Destroyed = []event.Object{{Type: kind, Handle: handle, Gen: 1, File: 1}}
		return e
	}
	closed, exited := verb(4, "close"), verb(4, "exited")
	closed.Kind, closed.File = event.Close, 2
	exited.Kind, exited.File, exited.PID = event.Exit, 0, 3
	for _, e := range []*event.Event{
		create(0, 1, "qp", 5), create(1, 1, "pd", 1), create(2, 1, "cq", 2), destroy(3, "cq", 2),
		create(3, 2, "pd", 1), create(3, 3, "pd", 1), closed, exited,
		verb(40, "now"), destroy(41, "qp", 5), create(42, 1, "mr", 9),
	} {
		r.Event(e)
	}
	lines, _ := taken(t, r)
	want := []string{"test", "had before pd 1 true qp 5 true", "now", "destroy", "create mr 9 false"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.Event(verb(80, "later"))
	lines, _ = taken(t, r)
	if diff := cmp.Diff([]string{"test", "had before mr 9 true pd 1 true", "later"}, lines); diff != "" {
		t.Errorf("later (-want +got):\n%s", diff)
	}
}

func TestRaised(t *testing.T) {
	failed, probe, rejected, arrived := verb(0, "ibv_reg_mr"), verb(0, "ibv_query_gid"), verb(0, "rdma_get_cm_event"), verb(0, "ibv_get_async_event")
	failed.Errno = "ENOMEM"
	probe.Errno, probe.Why = "ENODATA", event.NoError+"it is empty"
	word := func(name, s string) []event.Field {
		return []event.Field{{Name: name, Value: event.Value{Form: event.Word, Str: s}}}
	}
	rejected.Kind, rejected.Out = event.Async, word("event", "REJECTED")
	arrived.Kind, arrived.Out = event.Async, word("event_type", "COMM_EST")
	broken := verb(0, "ibv_poll_cq")
	broken.Out = []event.Field{{Name: "wc", Value: event.Value{Form: event.List, Elems: []event.Value{
		{Form: event.Struct, Fields: word("status", "RETRY_EXC_ERR")}}}}}
	for _, test := range []struct {
		e         *event.Event
		all, none string
	}{
		{failed, "ibv_reg_mr of 1  failed with ENOMEM", ""},
		{probe, "", ""},
		{rejected, "rdma_get_cm_event of 1  returned REJECTED", ""},
		{arrived, "", ""},
		{broken, "ibv_poll_cq of 1  returned a completion with RETRY_EXC_ERR", ""},
	} {
		if got := Raised(test.e, Alarms); got != test.all {
			t.Errorf("%s: %q, want %q", test.e.Verb, got, test.all)
		}
		if got := Raised(test.e, nil); got != "" {
			t.Errorf("%s, with no alarm: %q", test.e.Verb, got)
		}
	}
}
