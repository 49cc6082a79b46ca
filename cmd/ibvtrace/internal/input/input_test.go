package input

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// line returns an event with a start and a duration in seconds.
func line(verb string, begin, seconds, file int, more string) string {
	return fmt.Sprintf(`{"v":"1.0","ts":"2026-01-02T03:04:%02dZ","pid":1,"tid":1,"comm":"c","kind":"control","verb":"%s","file":%d,"ret":0,"dur_ns":%d%s}`,
		begin, verb, file, seconds*int(time.Second), more)
}

// files writes each text to a file and returns the files' names.
func files(t *testing.T, texts ...string) []string {
	t.Helper()
	var names []string
	for i, s := range texts {
		name := filepath.Join(t.TempDir(), fmt.Sprintf("trace%d", i))
		if err := os.WriteFile(name, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// read calls Each. order has the source and the verb of each event.
func read(t *testing.T, names []string) (events []*event.Event, order []string, complaints []error, err error) {
	t.Helper()
	err = Each(names, func(err error) { complaints = append(complaints, err) }, func(source int, e *event.Event) error {
		events = append(events, e)
		order = append(order, fmt.Sprintf("%d %s", source, e.Verb))
		return nil
	})
	return
}

// TestOrder: events of different files are ordered by their ends. Events of one file keep their
// order.
func TestOrder(t *testing.T) {
	names := files(t,
		strings.Join([]string{line("a1", 1, 9, 1, ""), line("a2", 5, 1, 1, ""), line("a3", 20, 0, 1, "")}, "\n"),
		strings.Join([]string{line("b1", 2, 1, 1, ""), line("b2", 3, 8, 1, ""), line("b3", 20, 0, 1, "")}, "\n")+"\n",
		"",
	)
	_, order, complaints, err := read(t, names)
	if err != nil || complaints != nil {
		t.Fatal(err, complaints)
	}
	want := []string{"1 b1", "0 a1", "0 a2", "1 b2", "0 a3", "1 b3"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// TestFiles: open files of different traces get different numbers. A file has the same number
// in all events.
func TestFiles(t *testing.T) {
	object := `,"created":[{"type":"pd","handle":1,"gen":1,"file":1}],"destroyed":[{"type":"pd","handle":2,"gen":1,"file":2}]`
	names := files(t,
		line("a", 1, 0, 1, object)+"\n"+line("a", 3, 0, 2, "")+"\n"+line("a", 5, 0, 0, ""),
		line("b", 2, 0, 1, object),
	)
	events, _, _, err := read(t, names)
	if err != nil || len(events) != 4 {
		t.Fatal(err, len(events))
	}
	a, b := events[0], events[1]
	if a.File == b.File || a.Created[0].File != a.File || b.Created[0].File != b.File {
		t.Errorf("files %d %d and %d %d", a.File, a.Created[0].File, b.File, b.Created[0].File)
	}
	if a.Destroyed[0].File == b.Destroyed[0].File || a.Destroyed[0].File == a.File || events[2].File != a.Destroyed[0].File {
		t.Errorf("second files %d and %d, then %d", a.Destroyed[0].File, b.Destroyed[0].File, events[2].File)
	}
	if events[3].File != 0 {
		t.Errorf("no file became %d", events[3].File)
	}
	// A single trace keeps its numbers.
	if events, _, _, err = read(t, names[:1]); err != nil || events[0].File != 1 || events[1].File != 2 {
		t.Errorf("alone: %v %+v", err, events)
	}
}

// TestSkipsBadLines: lines that are not events are reported and skipped. Files that are not traces are
// rejected.
func TestSkipsBadLines(t *testing.T) {
	names := files(t, "nonsense\n"+line("a", 1, 0, 1, "")+"\n"+`{"v":"1.0","ts":"20`)
	_, order, complaints, err := read(t, names)
	if err != nil || len(order) != 1 || len(complaints) != 2 || !strings.HasPrefix(complaints[0].Error(), names[0]+": ") {
		t.Errorf("%v, %q, %q", err, order, complaints)
	}
	names = files(t, strings.Repeat("#!/bin/sh\n", 100))
	if _, _, complaints, err = read(t, names); err == nil || !strings.Contains(err.Error(), names[0]+" is not a trace") || len(complaints) != maxBad {
		t.Errorf("%v after %d complaints", err, len(complaints))
	}
	if _, _, _, err = read(t, []string{"/nosuch"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, _, _, err = read(t, []string{t.TempDir()}); err == nil {
		t.Error("a folder is accepted as a trace")
	}
}

// TestStopsAtError: Each stops at an error of f.
func TestStopsAtError(t *testing.T) {
	stop := errors.New("stop")
	n := 0
	err := Each(files(t, line("a", 1, 0, 1, "")+"\n"+line("a", 2, 0, 1, "")), nil, func(int, *event.Event) error {
		n++
		return stop
	})
	if err != stop || n != 1 {
		t.Errorf("%v after %d events", err, n)
	}
}

// TestStandardInput: "-" is the standard input.
func TestStandardInput(t *testing.T) {
	f, err := os.Open(files(t, line("piped", 1, 0, 1, ""))[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stdin := os.Stdin
	os.Stdin = f
	defer func() { os.Stdin = stdin }()
	_, order, _, err := read(t, append(files(t, line("named", 2, 0, 1, "")), "-"))
	if diff := cmp.Diff([]string{"1 piped", "0 named"}, order); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
