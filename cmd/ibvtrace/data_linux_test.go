//go:build amd64

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

// asDevice returns a command that makes ibvtrace take /dev/null for a uverbs file and /dev/zero
// for the connection manager, by mounting a /sys/dev/char that says so, and runs the command that follows. Users other than
// root mount it in a user namespace.
func asDevice() []string {
	c := []string{"unshare", "--mount"}
	if os.Getuid() != 0 {
		c = append(c, "--map-root-user")
	}
	return append(c, "sh", "-ec",
		`mount -t tmpfs none /sys/dev/char; mkdir /sys/dev/char/1:3; echo rxe0 >/sys/dev/char/1:3/ibdev; ln -s x/rdma_cm /sys/dev/char/1:5; exec "$0" "$@"`)
}

// needDevice checks that asDevice works. If not, it fails the test of root, and skips that of
// other users, to whom the system may forbid user namespaces.
func needDevice(t *testing.T) {
	t.Helper()
	c := append(asDevice(), "true")
	if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
		say := t.Fatalf
		if os.Getuid() != 0 {
			say = t.Skipf
		}
		say("mount /sys/dev/char: %v %s: run this test as root", err, out)
	}
}

// onDevice traces a program by ptrace, with /dev/null as an RDMA device.
func onDevice(t *testing.T, args ...string) *traced {
	p := ibvtrace(t)
	all := append(append(asDevice(), bin.ibvtrace, "--how=ptrace", "--json", "-o", p.file), args...)
	p.Cmd = exec.CommandContext(t.Context(), all[0], all[1:]...)
	p.Stdout, p.Stderr = &p.out, &p.out
	return p
}

// A posting is testdata/c/poster.c, a program that posts and polls with its own functions.
type posting struct {
	*exec.Cmd
	t     *testing.T
	stdin io.WriteCloser
	lines *bufio.Scanner
}

const rounds = 200

func startPosting(t *testing.T) *posting {
	t.Helper()
	p := &posting{Cmd: exec.CommandContext(t.Context(), compiled(t, "poster"), fmt.Sprint(rounds)), t: t}
	var err error
	if p.stdin, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(stdout)
	p.says(fmt.Sprint(p.Process.Pid))
	return p
}

func (p *posting) says(want string) {
	p.t.Helper()
	if !p.lines.Scan() || p.lines.Text() != want {
		p.t.Fatalf("the program says %q, want %q", p.lines.Text(), want)
	}
}

// work makes the program post and poll on two threads. how is the byte it reads, see
// poster.c.
func (p *posting) work(how string) {
	p.t.Helper()
	fmt.Fprint(p.stdin, how)
	const n = 2 * rounds
	p.says(fmt.Sprint(n, n, n, n, 2*n))
}

func (p *posting) end() {
	p.t.Helper()
	p.stdin.Close()
	if err := p.Wait(); err != nil {
		p.t.Error(err)
	}
}

// attachData traces the program's posts and polls, and returns once ibvtrace has attached.
func (p *posting) attachData() *traced {
	p.t.Helper()
	tracer := onDevice(p.t, "--data", "-p", fmt.Sprint(p.Process.Pid))
	if err := tracer.Start(); err != nil {
		p.t.Fatal(err)
	}
	tracer.awaitTrace()
	return tracer
}

// TestProbes attaches to a program that posts and polls on two threads, and detaches. Each
// call must be traced and reach its function. After detaching, calls work as before.
func TestProbes(t *testing.T) {
	needDevice(t)
	tracee := startPosting(t)
	tracee.work("x")
	for range 2 {
		p := tracee.attachData()
		tracee.work("x")
		p.letGo()
		tracee.work("x")
		checkPosted(t, p.file)
	}
	tracee.end()
}

// TestProbesSandboxed: posts and polls are not traced if the program has a seccomp filter
// that kills it for a probe's system call. With another filter, they are.
func TestProbesSandboxed(t *testing.T) {
	needDevice(t)
	refused := func(t *testing.T, file string) {
		t.Helper()
		n := 0
		for _, e := range readEvents(t, file) {
			if strings.Contains(e.Why, "posting and polling are not traced") {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d notes say that posting and polling are not traced, want 1", n)
		}
	}
	t.Run("before", func(t *testing.T) {
		tracee := startPosting(t)
		tracee.work("g")
		p := tracee.attachData()
		tracee.work("x")
		p.letGo()
		refused(t, p.file)
		tracee.end()
	})
	t.Run("while traced", func(t *testing.T) {
		tracee := startPosting(t)
		p := tracee.attachData()
		tracee.work("x")
		tracee.work("g")
		tracee.work("x")
		p.letGo()
		refused(t, p.file)
		tracee.end()
	})
	t.Run("of something else", func(t *testing.T) {
		tracee := startPosting(t)
		tracee.work("r")
		p := tracee.attachData()
		tracee.work("r")
		p.letGo()
		checkPosted(t, p.file)
		tracee.end()
	})
}

// checkPosted checks the trace of one call of work.
func checkPosted(t *testing.T, file string) {
	t.Helper()
	count := make(map[string]int)
	for _, e := range readEvents(t, file) {
		if e.Kind != event.Data {
			var n int // polls after the last one that found a completion
			if _, err := fmt.Sscanf(e.Why, "polled an empty CQ %d time", &n); err == nil {
				count["empty polls"] += n
			}
			continue
		}
		s := fmt.Sprintf("%s %d %s", e.Verb, e.Ret, e.Errno)
		for _, name := range []string{"qp", "srq", "cq", "solicited_only", "num_entries"} {
			if v := event.Find(e.Args, name); v != nil {
				s += fmt.Sprintf(" %s=%d", name, v.Num)
			}
		}
		if v := event.Find(e.Args, "wr"); v != nil && len(v.Elems) == 1 {
			s += fmt.Sprintf(" wr_id=%d length=%d", event.Find(v.Elems[0].Fields, "wr_id").Num, event.Find(v.Elems[0].Fields, "length").Num)
		}
		if v := event.Find(e.Out, "wc"); v != nil && len(v.Elems) == 1 {
			s += fmt.Sprintf(" of wr_id=%d bytes=%d", event.Find(v.Elems[0].Fields, "wr_id").Num, event.Find(v.Elems[0].Fields, "byte_len").Num)
		}
		count[strings.Join(strings.Fields(s), " ")]++
		if v := event.Find(e.Out, "empty_polls"); v != nil {
			count["empty polls"] += int(v.Num)
		}
	}
	want := map[string]int{
		"ibv_post_send -1 ENOMEM qp=7 wr_id=13 length=64":      2,
		"ibv_post_send 0 qp=7 wr_id=12 length=64":              2*rounds - 2,
		"ibv_post_recv 0 qp=7 wr_id=11 length=64":              2 * rounds,
		"ibv_post_srq_recv 0 srq=6 wr_id=11 length=64":         2 * rounds,
		"ibv_req_notify_cq 0 cq=5 solicited_only=1":            2 * rounds,
		"ibv_poll_cq 1 cq=5 num_entries=4 of wr_id=5 bytes=64": 2 * rounds,
		"empty polls": 2 * rounds,
	}
	if diff := cmp.Diff(want, count); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
}
