package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/event"
)

// recorded builds the program whose verbs are recorded.
func recorded(t *testing.T, flags ...string) string {
	t.Helper()
	needDevice(t)
	return compiled(t, "recorded", flags...)
}

// onDevice traces a program that has /dev/null for an RDMA device.
func onDevice(t *testing.T, args ...string) *traced {
	p := ibvtrace(t)
	all := append(append(asDevice(), bin.ibvtrace, "--json", "-o", p.file), args...)
	p.Cmd = exec.CommandContext(t.Context(), all[0], all[1:]...)
	p.Stdout, p.Stderr = &p.out, &p.out
	return p
}

// address is one of memory, which differ from run to run.
var address = regexp.MustCompile(`0x7[0-9a-f]{11}`)

// said returns what a trace says, but when and of which process: by the names of threads,
// with the PDs, which a handler of signals destroys at any moment, apart.
func said(t *testing.T, file string) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for _, e := range readEvents(t, file) {
		who := e.Comm
		if e.Object == "PD" {
			who += " in a handler"
		}
		c := *e
		c.Time, c.Duration, c.PID, c.TID = time.Time{}, 0, 0, 0
		if e.Kind == event.Exit { // named after the thread that did something last
			who, c.Comm = "", ""
		}
		all[who] = append(all[who], address.ReplaceAllString(fmt.Sprintf("%+v", c), "ADDRESS"))
	}
	return all
}

// TestRecorded traces a program once by stops and once by what it is made to record: both
// traces must say the same.
func TestRecorded(t *testing.T) {
	dynamic, static := recorded(t), recorded(t, "-static")
	for _, how := range []string{"plain", "static", "thread", "late", "fork", "nested", "vfork", "signal", "seccomp"} {
		t.Run(how, func(t *testing.T) {
			program := dynamic
			if how == "static" {
				program, how = static, "plain"
			}
			stop := onDevice(t, "--stop", program, how, "200")
			if err := stop.Run(); err != nil || !strings.HasSuffix(stop.out.String(), "stopped\n") {
				t.Fatalf("by stops: %v %q", err, stop.out.String())
			}
			record := onDevice(t, program, how, "200")
			if err := record.Run(); err != nil || !strings.HasSuffix(record.out.String(), "recorded\n") {
				t.Fatalf("recorded: %v %q", err, record.out.String())
			}
			want := said(t, stop.file)
			if len(want) == 0 {
				t.Fatal("nothing was traced")
			}
			if diff := cmp.Diff(want, said(t, record.file)); diff != "" {
				t.Errorf("(-stops +recorded):\n%s", diff)
			}
		})
	}
}

// TestRecordedRefused has programs give all their threads, while these call verbs, a filter
// that kills them for what a recorder calls: it must find none in the middle.
func TestRecordedRefused(t *testing.T) {
	program := recorded(t)
	for range 10 {
		p := onDevice(t, program, "tsync", "20")
		if err := p.Run(); err != nil || p.out.String() != "recorded\n" {
			t.Fatalf("%v %q", err, p.out.String())
		}
		shown := make(map[string]int)
		for _, e := range readEvents(t, p.file) {
			if e.Kind != event.Exit { // named after the thread that did something last
				shown[e.Comm]++
			}
		}
		want := shown["one"]
		for _, name := range []string{"two", "three", "four"} {
			if shown[name] != want || want < 100 {
				t.Errorf("%s is shown %d times, one %d times", name, shown[name], want)
			}
		}
	}
}

// TestRecordedFull stops ibvtrace until the program has no more room to record: it must
// wait, and nothing be lost.
func TestRecordedFull(t *testing.T) {
	p := onDevice(t, recorded(t), "full", "2000")
	pid, next := p.start()
	tracer := parentOf(t, pid)
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", tracer))
	if err != nil || len(files) < 3 {
		t.Fatalf("ibvtrace's files: %q, %v", files, err)
	}
	processes := 0
	for _, file := range files {
		to, _ := os.Readlink(file)
		if strings.HasPrefix(to, "/memfd:") { // what it shares with the program it has mapped
			t.Errorf("%s is %s", file, to)
		}
		if strings.Contains(to, "pidfd") {
			processes++
		}
	}
	if processes != 1 {
		t.Errorf("%d of %q are processes, want the one that signals go to", processes, files)
	}
	unix.Kill(tracer, unix.SIGSTOP)
	fmt.Fprint(p.stdin, "x")
	p.await("the program had no more room", func() bool { return state(t, pid) == "t" })
	unix.Kill(tracer, unix.SIGCONT)
	if got := next(); got != "recorded" {
		t.Errorf("the program says %q", got)
	}
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	var n uint64
	for _, e := range readEvents(t, p.file) {
		if e.Verb != "ibv_destroy_qp" || event.Find(e.Args, "qp") == nil || e.FD < 0 {
			continue
		}
		if h := event.Find(e.Args, "qp").Num; h == n {
			n++
		}
	}
	if n != 2000 {
		t.Errorf("the trace has %d rounds in order, want 2000", n)
	}
}

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "PPid:")
	var parent int
	if _, err := fmt.Sscan(after, &parent); err != nil {
		t.Fatal(err)
	}
	return parent
}

// TestRecordedKilled kills ibvtrace, and then programs, while they record: no program
// must be left, and no half of a trace.
func TestRecordedKilled(t *testing.T) {
	program := recorded(t)
	for i := range 6 {
		p := onDevice(t, program, "full", "1000000")
		pid, _ := p.start()
		fmt.Fprint(p.stdin, "x")
		time.Sleep(time.Duration(i) * 5 * time.Millisecond)
		victim := pid
		if i%2 == 0 {
			victim = parentOf(t, pid)
		}
		unix.Kill(victim, unix.SIGKILL)
		p.Wait()
		awaitEnd(t, pid)
		if i%2 == 1 {
			all := readEvents(t, p.file)
			if last := all[len(all)-1]; last.Verb != "killed" {
				t.Errorf("the trace ends with %+v", last)
			}
		}
	}
}

// TestRecordedLies has a program write what it likes where its verbs are recorded. It may
// hurt itself.
func TestRecordedLies(t *testing.T) {
	program := recorded(t)
	for range 3 {
		p := onDevice(t, program, "scribble", "300")
		err := p.Run()
		out := strings.TrimSpace(p.out.String())
		if err == nil && out != "recorded" || err != nil && out != "" {
			t.Errorf("%v %q", err, out)
		}
		if n := len(readEvents(t, p.file)); n < 10 {
			t.Errorf("%d events", n)
		}
	}
}
