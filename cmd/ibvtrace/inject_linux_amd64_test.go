package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// TestInject: a program sees the faults that are asked for, and no other. So does the trace, in
// which they are marked.
func TestInject(t *testing.T) {
	needDevice(t)
	for _, test := range []struct{ rules, want string }{
		{"", "ENOTTY ENOTTY ENOTTY ENOTTY ENOTTY ADDR_RESOLVED 0, ESTABLISHED 0, ESTABLISHED 0,"},
		{"dealloc_pd:error=EBUSY:when=2", "ENOTTY EBUSY ENOTTY ENOTTY ENOTTY ADDR_RESOLVED 0, ESTABLISHED 0, ESTABLISHED 0,"},
		{"dealloc_pd:error=EBUSY:when=4+ dealloc_pd:error=EIO:when=1", "EIO ENOTTY ENOTTY EBUSY EBUSY ADDR_RESOLVED 0, ESTABLISHED 0, ESTABLISHED 0,"},
		{"dealloc_pd:error=EBUSY:process=other alloc_pd:error=EIO", "ENOTTY ENOTTY ENOTTY ENOTTY ENOTTY ADDR_RESOLVED 0, ESTABLISHED 0, ESTABLISHED 0,"},
		{"dealloc_pd:delay=1s:when=3 dealloc_pd:delay=1s:error=EIO:when=5", "ENOTTY ENOTTY ENOTTY slowly, ENOTTY EIO slowly, ADDR_RESOLVED 0, ESTABLISHED 0, ESTABLISHED 0,"},
		{"get_cm_event:event=REJECTED:reason=28:when=2", "ENOTTY ENOTTY ENOTTY ENOTTY ENOTTY ADDR_RESOLVED 0, ESTABLISHED 0, REJECTED 28,"},
		{"get_cm_event:event=ADDR_ERROR:reason=0xffffff92", "ENOTTY ENOTTY ENOTTY ENOTTY ENOTTY ADDR_ERROR 4294967186, ESTABLISHED 0, ESTABLISHED 0,"},
	} {
		args := []string{"--json"}
		for rule := range strings.FieldsSeq(test.rules) {
			args = append(args, "--inject", rule)
		}
		for _, attached := range []bool{false, true} {
			var said, file string
			if attached {
				said, file = attachFaulty(t, args)
			} else {
				p := onDevice(t, append(args, built(t, "faulty"))...)
				p.Stdin = strings.NewReader("x")
				if err := p.Run(); err != nil {
					t.Fatalf("%v %s", err, p.out.String())
				}
				said, file = p.out.String(), p.file
				_, said, _ = strings.Cut(said, "\n")
			}
			var got, traced []string
			for line := range strings.Lines(said) {
				line = strings.TrimSpace(line)
				if strings.Contains(line, " ") {
					line += ","
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("%s, attached %v (-want +got):\n%s", test.rules, attached, diff)
			}
			for _, e := range readEvents(t, file) {
				switch {
				case e.Verb == "ibv_dealloc_pd":
					traced = append(traced, e.Errno)
				case e.Verb == "rdma_get_cm_event" && event.Find(e.Out, "event") != nil:
					traced = append(traced, event.Find(e.Out, "event").Str)
				default:
					continue
				}
				changed := e.Kind == event.Control && e.Errno != "ENOTTY" || e.Kind == event.Async && (strings.HasSuffix(traced[len(traced)-1], "ERROR") || traced[len(traced)-1] == "REJECTED")
				if changed != (e.Why == "injected") {
					t.Errorf("%s, attached %v: %s says %q", test.rules, attached, traced[len(traced)-1], e.Why)
				}
			}
			var words []string
			for word := range strings.FieldsSeq(said) {
				if strings.ToUpper(word) == word && strings.Trim(word, "0123456789") != "" {
					words = append(words, word)
				}
			}
			if diff := cmp.Diff(words, traced); diff != "" {
				t.Errorf("%s, attached %v (-program +trace):\n%s", test.rules, attached, diff)
			}
		}
	}
}

// attachFaulty attaches to the program before it does anything, and returns what it says.
func attachFaulty(t *testing.T, args []string) (said, file string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), built(t, "faulty"))
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(stdout)
	out.ReadString('\n') // its PID
	p := onDevice(t, append(args, "-p", fmt.Sprint(c.Process.Pid))...)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	// Before the trace says so, the program has a tracer, but doesn't stop yet.
	p.await("it attached", func() bool {
		trace, _ := os.ReadFile(p.file)
		return strings.Contains(string(trace), "attached by ptrace")
	})
	io.WriteString(stdin, "x")
	rest, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("the program: %v", err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("%v: %s", err, p.out.String())
	}
	return string(rest), p.file
}

// TestInjectCompletion: a program's third completion gets a status.
func TestInjectCompletion(t *testing.T) {
	needDevice(t)
	tracee := startPosting(t)
	p := onDevice(t, "--inject", "poll_cq:status=RETRY_EXC_ERR:when=3:object=cq:5", "-p", fmt.Sprint(tracee.Process.Pid))
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.awaitTrace()
	tracee.work("x")
	p.letGo()
	tracee.end()
	var broken []int
	polls := 0
	for _, e := range readEvents(t, p.file) {
		if e.Verb == "ibv_poll_cq" {
			polls++
		}
		if status, n := e.Broken(); n > 0 {
			broken = append(broken, polls)
			if status != "RETRY_EXC_ERR" || e.Why != "injected" {
				t.Errorf("%s: %q", status, e.Why)
			}
		}
	}
	if len(broken) != 1 || broken[0] != 3 {
		t.Errorf("of %d completions, these failed: %v", polls, broken)
	}
}
