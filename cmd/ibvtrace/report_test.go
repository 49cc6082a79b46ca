package main

import (
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/explain"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/figure"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/flight"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/text"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// inUTC makes times in tables and lines the same everywhere.
func inUTC(t *testing.T) {
	local := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = local })
}

// golden compares a file with the golden one of the same name.
func golden(t *testing.T, file string) {
	t.Helper()
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join("testdata", "golden", filepath.Base(file))
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got); go test -update accepts it:\n%s", name, diff)
	}
}

// traces returns the stored traces of both sides of ibv_rc_pingpong -e or rping.
func traces(program string) []string {
	return []string{
		filepath.Join("testdata", "traces", program+"_server.json"),
		filepath.Join("testdata", "traces", program+"_client.json"),
	}
}

// TestGolden compares views of the stored traces with golden files.
func TestGolden(t *testing.T) {
	inUTC(t)
	for _, program := range []string{"rc_pingpong", "rping"} {
		for _, view := range []struct {
			name string
			args []string
			run  func([]string) error
		}{
			{".txt", nil, report},
			{"-failed.txt", []string{"-e", "failed", "-r", "-y"}, report},
			{"-qp.txt", []string{"-e", "object=qp", "-e", "control", "-v", "-ttt", "-T=false"}, report},
			{".table", []string{"-c"}, report},
			{".svg", []string{"--title", "Both sides of " + program}, drawFigure},
		} {
			file := filepath.Join(t.TempDir(), program+view.name)
			if err := view.run(append(append(view.args, "-o", file), traces(program)...)); err != nil {
				t.Fatal(err)
			}
			golden(t, file)
		}
	}
}

// TestReportIsTheTrace: report --json reproduces a trace byte for byte.
func TestReportIsTheTrace(t *testing.T) {
	for _, program := range []string{"rc_pingpong", "rping"} {
		for _, file := range traces(program) {
			out := filepath.Join(t.TempDir(), "out")
			if err := report([]string{"--json", "-o", out, file}); err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		}
	}
}

// readEvents returns the events of a trace in JSON.
func readEvents(t *testing.T, file string) []*event.Event {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []*event.Event
	for r := event.NewReader(f); ; {
		e, err := r.Read()
		if err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
}

// TestCompressed: a trace whose name ends in .gz is compressed, and read as such.
func TestCompressed(t *testing.T) {
	dir := t.TempDir()
	small, again := filepath.Join(dir, "trace.json.gz"), filepath.Join(dir, "again")
	trace := traces("rping")[0]
	for _, args := range [][]string{{"--json", "-o", small, trace}, {"--json", "-o", again, small}} {
		if err := report(args); err != nil {
			t.Fatal(err)
		}
	}
	var sizes []int
	var texts []string
	for _, file := range []string{trace, small, again} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sizes, texts = append(sizes, len(b)), append(texts, string(b))
	}
	if texts[0] != texts[2] || sizes[1] > sizes[0]/4 {
		t.Errorf("%d bytes are %d compressed, and %d again", sizes[0], sizes[1], sizes[2])
	}
	if err := os.Truncate(small, int64(sizes[1]/2)); err != nil {
		t.Fatal(err)
	}
	if err := report([]string{"--json", "-o", again, small}); err != errBad {
		t.Errorf("a torn file: %v", err)
	}
	if b, err := os.ReadFile(again); err != nil || len(b) == 0 || !strings.HasPrefix(texts[0], string(b)) {
		t.Errorf("a torn file: %v, %q", err, b)
	}
	if err := os.WriteFile(small, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := report([]string{small}); err == nil || !strings.Contains(err.Error(), small) {
		t.Errorf("a file that is not compressed: %v", err)
	}
}

// TestMerged: report merges two traces by time, and numbers their files differently.
func TestMerged(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	if err := report(append([]string{"--json", "-o", out}, traces("rc_pingpong")...)); err != nil {
		t.Fatal(err)
	}
	owner := make(map[int]int)
	var last time.Time
	events := readEvents(t, out)
	for n, e := range events {
		if end := e.Time.Add(e.Duration); end.Before(last.Add(-time.Second)) {
			t.Errorf("line %d is %v too late", n, last.Sub(end))
		} else if end.After(last) {
			last = end
		}
		if e.File != 0 && owner[e.File] != 0 && owner[e.File] != e.PID {
			t.Errorf("file %d belongs to processes %d and %d", e.File, owner[e.File], e.PID)
		}
		owner[e.File] = e.PID
	}
	if len(events) < 100 || len(owner) < 5 {
		t.Errorf("%d events on %d files", len(events), len(owner))
	}
}

// TestChrome checks what Perfetto relies on: every span that begins also ends, and every
// arrow has two ends.
func TestChrome(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "perfetto.json")
	if err := report(append([]string{"--chrome", file, "-o", filepath.Join(dir, "text")}, traces("rc_pingpong")...)); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var entries []struct {
		Name, Cat, Ph, ID string
		TS, Dur           float64
		PID, TID          int
	}
	if err := json.Unmarshal(b, &entries); err != nil {
		t.Fatal(err)
	}
	open := make(map[string]int)
	flows := make(map[string]int) // an arrow's end may precede its beginning in the file
	verbs, spans, arrows := 0, 0, 0
	for _, e := range entries {
		switch e.Ph {
		case "X", "i":
			verbs++
			if e.TS < 3.6e9 || e.TS > 7.3e9 || e.Dur < 0 || e.PID == 0 {
				t.Errorf("%+v", e)
			}
		case "s":
			flows[e.ID]++
		case "f":
			flows[e.ID]--
			arrows++
		case "b":
			open[e.Cat+e.ID+e.Name]++
			spans++
		case "e":
			if open[e.Cat+e.ID+e.Name]--; open[e.Cat+e.ID+e.Name] < 0 {
				t.Errorf("ends without beginning: %+v", e)
			}
		}
	}
	for id, n := range flows {
		if n != 0 {
			t.Errorf("arrow %s has only one end", id)
		}
	}
	for name, n := range open {
		if n != 0 {
			t.Errorf("%s does not end", name)
		}
	}
	if verbs < 100 || spans < 2*(3+4) || arrows != 2*20 { // as many messages as ibv_rc_pingpong exchanged
		t.Errorf("%d verbs, %d spans, %d arrows", verbs, spans, arrows)
	}
}

func TestReportComplains(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "bad")
	good := `{"v":"1.0","ts":"2026-01-02T03:04:05Z","pid":1,"kind":"control","verb":"ibv_x","ret":0}` + "\n"
	if err := os.WriteFile(file, []byte(good+"rubbish\n"+good), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	if err := report([]string{"-o", out, file}); err != errBad {
		t.Errorf("a bad line: %v", err)
	}
	if b, err := os.ReadFile(out); err != nil || strings.Count(string(b), "ibv_x") != 2 {
		t.Errorf("the lines around a bad one: %q, %v", b, err)
	}
	if err := os.WriteFile(file, []byte(strings.Repeat("rubbish\n", 100)), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, run := range map[string]func() error{
		"not a trace":                      func() error { return report([]string{"-o", out, file}) },
		"no such file":                     func() error { return report([]string{"/nosuch"}) },
		"no FILE given":                    func() error { return drawFigure(nil) },
		"no verbs in":                      func() error { return drawFigure([]string{os.DevNull}) },
		"no qualifier":                     func() error { return report([]string{"-e", "x=y", file}) },
		"are mutually exclusive":           func() error { return report([]string{"--json", "-c", file}) },
		"is not one of":                    func() error { return report([]string{"-S", "x", file}) },
		"unexpected argument":              func() error { return listObjects([]string{"7"}) },
		"is not a process ID":              func() error { return listObjects([]string{"-p", "x"}) },
		"want one argument":                func() error { return completion([]string{"csh"}) },
		"flag provided but not defined: -": func() error { return report([]string{"-Q"}) },
	} {
		if err := run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// TestControls: no text of a trace controls the terminal.
func TestControls(t *testing.T) {
	const evil = `\u001b[2J\u009b`
	var lines string
	for _, more := range []string{
		`"ret":-1,"errno":"EVIL","error":"EVIL","rejects":"EVIL","why":"EVIL"`,
		`"ret":-1,"errno":"ERESTARTEVIL"`,
		`"ret":0,"args":{"EVIL":"EVIL"},"out":{"EVIL":7},"types":{"out.EVIL":"EVIL#1"},"problem":"EVIL","why":"EVIL"`,
		`"path":"EVIL","raw":[{"name":"EVIL","data":"0x1"}]`,
		`"created":[{"type":"EVIL","handle":1,"gen":1,"file":1}],"file":1`,
		`"args":{"EVIL":7},"types":{"args.EVIL":"EVIL#EVIL"}`, // no event
	} {
		for _, kind := range []string{"control", "note", "exit", "close"} {
			lines += `{"v":"1.0","ts":"2026-01-02T03:04:05Z","pid":1,"tid":1,"comm":"EVIL","dev":"EVIL","kind":"` + kind + `","verb":"EVIL",` + more + "}\n"
		}
	}
	dir := t.TempDir()
	file, out := filepath.Join(dir, "trace"), filepath.Join(dir, "out")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(lines, "EVIL", evil)), 0o644); err != nil {
		t.Fatal(err)
	}
	said, err := os.Create(filepath.Join(dir, "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	stderr := os.Stderr
	os.Stderr = said
	defer func() { os.Stderr = stderr }()
	for _, run := range []func() error{
		func() error { return report([]string{"-o", out, "-y", file}) },
		func() error { return report([]string{"-o", out, "-C", "-v", "--raw", file}) },
		func() error { return report([]string{"-o", out, "--no-time", file}) },
		func() error { return drawFigure([]string{"-o", out, file}) },
		func() error { return diff([]string{"-o", out, file, os.DevNull}) },
	} {
		if err := run(); err != errBad {
			t.Error(err)
		}
		for _, name := range []string{out, said.Name()} {
			b, err := os.ReadFile(name)
			if err != nil || len(b) == 0 || strings.ContainsAny(string(b), "\x1b\u009b") {
				t.Errorf("%v, %q", err, b)
			}
		}
	}
	why := "ibv_x of 1 \x1b[2J failed with EIO"
	r := &recorder{o: &recordOptions{dir: dir, files: 1}, kept: flight.New(time.Minute, 1<<20)}
	r.write(why, time.Now())
	r.Close()
	if b, err := os.ReadFile(said.Name()); err != nil || !strings.Contains(string(b), "failed with EIO") || strings.Contains(string(b), "\x1b") {
		t.Errorf("%v, %q", err, b)
	}
}

// TestReportKeepsInput: a trace is not emptied because it is also named as the output.
func TestReportKeepsInput(t *testing.T) {
	trace, err := os.ReadFile(traces("rping")[0])
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "trace.json")
	link := file + ".link"
	if err := os.WriteFile(file, trace, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(file, link); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-o", file, file}, {"-o", link, file}, {"-o", os.DevNull, "--chrome", file, file}} {
		if err := report(args); err == nil || !strings.Contains(err.Error(), "is also the output") {
			t.Errorf("%q: %v", args, err)
		}
		if b, err := os.ReadFile(file); err != nil || string(b) != string(trace) {
			t.Fatalf("%q: %d of %d bytes, %v", args, len(b), len(trace), err)
		}
	}
	if err := report([]string{"-o", os.DevNull, os.DevNull}); err != nil {
		t.Error(err)
	}
}

// program generates the events of a long-running program. It creates, uses and destroys
// objects, and sometimes leaks one.
type program struct {
	n   int
	now time.Time
	qp  int
}

func (p *program) next() *event.Event {
	p.n++
	p.now = p.now.Add(10 * time.Microsecond)
	e := &event.Event{
		Time: p.now, PID: 100, TID: 100 + p.n%4, Comm: "server", Kind: event.Control, Device: "rxe0", File: 1, FD: 3,
		Returned: true, Timed: true, Duration: time.Duration(p.n%977) * time.Microsecond,
	}
	qp := event.Object{Type: "qp", Handle: uint64(p.qp % 10), Gen: p.qp, File: 1, Num: uint64(p.qp)}
	arg := []event.Field{{Name: "qp", Value: event.Value{Form: event.Handle, Str: "qp", Num: qp.Handle, Gen: qp.Gen}}}
	switch p.n % 20 {
	case 0:
		p.qp++
		qp.Handle, qp.Gen, qp.Num = uint64(p.qp%10), p.qp, uint64(p.qp)
		e.Verb, e.Created = "ibv_create_qp", []event.Object{qp}
	case 1:
		e.Verb, e.Args = "ibv_modify_qp", append(arg, event.Field{Name: "qp_state", Value: event.Value{Form: event.Word, Str: "RTR"}},
			event.Field{Name: "dest_qp_num", Value: event.Value{Form: event.Hex, Num: qp.Num + 1}})
	case 2:
		e.Verb, e.Args, e.Errno, e.Ret = "ibv_modify_qp", arg, "EINVAL", -1
	case 19:
		e.Verb, e.Args = "ibv_destroy_qp", arg
		if p.n%20_000 > 20 {
			e.Destroyed = []event.Object{qp}
		}
	default:
		e.Verb, e.Kind, e.Args = "ibv_post_send", event.Data, append(arg, event.Field{Name: "wr", Value: event.Value{Form: event.List, Elems: []event.Value{
			{Form: event.Struct, Fields: []event.Field{{Name: "opcode", Value: event.Value{Form: event.Word, Str: "SEND"}}}}}}})
	}
	return e
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMillionEvents: memory use does not grow with the length of a trace, not even by the byte an
// event that would show after millions of them.
func TestMillionEvents(t *testing.T) {
	for _, view := range []struct {
		name string
		args []string
	}{
		{"summary", []string{"-c", "-o", os.DevNull}},
		{"all", []string{"-C", "--chrome", os.DevNull, "-o", os.DevNull}},
		{"json", []string{"--json", "-o", os.DevNull}},
	} {
		o, err := parseTrace(append(view.args, "true"))
		if err != nil {
			t.Fatal(err)
		}
		s, err := o.open(os.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		s.buffer()
		grows(t, view.name, explain.New(s).Event)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f := figure.New()
	grows(t, "figure", func(e *event.Event) error { return f.Add(0, e) })
}

// grows passes many events to take. It fails the test if memory use grows after the first tenth.
func grows(t *testing.T, name string, take func(*event.Event) error) {
	t.Helper()
	const n = 100_000
	p := program{now: time.Unix(1e9, 0)}
	var early uint64
	for i := range n {
		if i == n/10 {
			early = heap()
		}
		if err := take(p.next()); err != nil {
			t.Fatal(err)
		}
	}
	const maxGrowth = n / 2
	if late := heap(); late > early+maxGrowth {
		t.Errorf("%s: %d bytes more after %d events than after %d", name, late-early, n, n/10)
	}
}

// TestFullDisk: if the trace cannot be written, one message says so, and Event and Close
// do not fail.
func TestFullDisk(t *testing.T) {
	o, err := parseTrace([]string{"-C", "-o", "/dev/full", "true"})
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = w
	s, err := o.open(os.Stdout)
	os.Stderr = w
	for range 3 {
		if err == nil {
			err = s.Event(&event.Event{Kind: event.Control, Verb: "ibv_x", Returned: true})
		}
	}
	if err == nil {
		err = s.Close()
	}
	os.Stderr = stderr
	w.Close()
	if err != nil {
		t.Error(err)
	}
	message, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if want := "ibvtrace: write /dev/full: no space left on device; the rest of /dev/full is lost\n"; string(message) != want {
		t.Errorf("message %q, want %q", message, want)
	}
}

// TestTextOfRecorded: an event and its JSON have the same line of text.
func TestTextOfRecorded(t *testing.T) {
	var a, b strings.Builder
	live, read := text.NewWriter(&a, text.Options{Verbose: true}), text.NewWriter(&b, text.Options{Verbose: true})
	for _, e := range readEvents(t, traces("rping")[0]) {
		again, err := event.Parse(e.AppendJSON(nil))
		if err != nil {
			t.Fatal(err)
		}
		if err := live.Event(e); err != nil {
			t.Fatal(err)
		}
		if err := read.Event(again); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(a.String(), b.String()); diff != "" || a.Len() == 0 {
		t.Errorf("(-event +json):\n%s", diff)
	}
}
