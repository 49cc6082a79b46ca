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

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// recorded builds the program whose verbs are recorded.
func recorded(t *testing.T, flags ...string) string {
	t.Helper()
	needDevice(t)
	return compiled(t, "recorded", flags...)
}

// onDevice traces a program, with /dev/null as an RDMA device.
func onDevice(t *testing.T, args ...string) *traced {
	p := ibvtrace(t)
	all := append(append(asDevice(), bin.ibvtrace, "--json", "-o", p.file), args...)
	p.Cmd = exec.CommandContext(t.Context(), all[0], all[1:]...)
	p.Stdout, p.Stderr = &p.out, &p.out
	return p
}

// address matches pointers, which differ from run to run.
var address = regexp.MustCompile(`0x7[0-9a-f]{11}`)

// byThreadName returns the events of a trace by thread name, without times and process IDs. Events
// of PDs have a key of their own: a signal handler destroys PDs at any moment.
func byThreadName(t *testing.T, file string) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for _, e := range readEvents(t, file) {
		who := e.Comm
		if e.Object == "PD" {
			who += " in a handler"
		}
		c := *e
		c.Time, c.Duration, c.PID, c.TID = time.Time{}, 0, 0, 0
		if e.Kind == event.Exit { // has the name of the thread that ran last
			who, c.Comm = "", ""
		}
		all[who] = append(all[who], address.ReplaceAllString(fmt.Sprintf("%+v", c), "ADDRESS"))
	}
	return all
}

// TestRecorded traces a program once with stops and once with a recorder. Both traces must
// be equal.
func TestRecorded(t *testing.T) {
	dynamic, static := recorded(t), recorded(t, "-static")
	for _, how := range []string{"plain", "static", "thread", "late", "fork", "nested", "vfork", "signal", "seccomp"} {
		t.Run(how, func(t *testing.T) {
			program := dynamic
			if how == "static" {
				program, how = static, "plain"
			}
			// More calls than the recorder has slots. Only some meet a signal.
			n := "40"
			if how == "signal" {
				n = "200"
			}
			stop := onDevice(t, "--stop", program, how, n)
			if err := stop.Run(); err != nil || !strings.HasSuffix(stop.out.String(), "stopped\n") {
				t.Fatalf("by stops: %v %q", err, stop.out.String())
			}
			record := onDevice(t, program, how, n)
			if err := record.Run(); err != nil || !strings.HasSuffix(record.out.String(), "recorded\n") {
				t.Fatalf("recorded: %v %q", err, record.out.String())
			}
			want := byThreadName(t, stop.file)
			if len(want) == 0 {
				t.Fatal("nothing was traced")
			}
			if diff := cmp.Diff(want, byThreadName(t, record.file)); diff != "" {
				t.Errorf("(-stops +recorded):\n%s", diff)
			}
		})
	}
}

// TestRecordedRefused runs programs that install a seccomp filter in all their threads while
// these call verbs. The filter kills the program for the recorder's system calls, so no
// thread may be in the recorder when it is installed.
func TestRecordedRefused(t *testing.T) {
	program := recorded(t)
	for range 6 {
		p := onDevice(t, program, "tsync", "4")
		if err := p.Run(); err != nil || p.out.String() != "recorded\n" {
			t.Fatalf("%v %q", err, p.out.String())
		}
		shown := make(map[string]int)
		for _, e := range readEvents(t, p.file) {
			if e.Kind != event.Exit { // has the name of the thread that ran last
				shown[e.Comm]++
			}
		}
		want := shown["one"]
		for _, name := range []string{"two", "three", "four"} {
			if shown[name] != want || want < 30 {
				t.Errorf("thread %s has %d events, thread one %d", name, shown[name], want)
			}
		}
	}
}

// TestRecordedFull stops ibvtrace until the recorder's memory is full. The program must wait,
// and no event may be lost.
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
		if strings.HasPrefix(to, "/memfd:") { // shared memory is mapped, and its descriptor closed
			t.Errorf("%s is %s", file, to)
		}
		if strings.Contains(to, "pidfd") {
			processes++
		}
	}
	if processes != 1 {
		t.Errorf("%d of %q are pidfds, want one, for signals", processes, files)
	}
	unix.Kill(tracer, unix.SIGSTOP)
	fmt.Fprint(p.stdin, "x")
	p.await("the recorder's memory was full", func() bool { return state(t, pid) == "t" })
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

// TestRecordedKilled kills ibvtrace or the program while verbs are recorded. No program may
// be left, and no trace may be incomplete.
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

// TestRecordedLies runs a program that writes garbage into the recorder's memory. It may crash
// itself, but not ibvtrace.
func TestRecordedLies(t *testing.T) {
	program := recorded(t)
	for range 3 {
		p := onDevice(t, program, "scribble", "100")
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
