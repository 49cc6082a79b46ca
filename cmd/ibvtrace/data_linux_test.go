//go:build amd64

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/event"
)

// asDevice makes /dev/null a uverbs file for the command that follows: what it is, is
// looked up in sysfs.
var asDevice = []string{"unshare", "--mount", "sh", "-ec",
	`mount -t tmpfs none /sys/dev/char; mkdir /sys/dev/char/1:3; echo rxe0 >/sys/dev/char/1:3/ibdev; exec "$0" "$@"`}

// needDevice skips a test where asDevice can't do that: users may not everywhere.
func needDevice(t *testing.T) {
	t.Helper()
	if out, err := exec.Command(asDevice[0], append(asDevice[1:len(asDevice):len(asDevice)], "true")...).CombinedOutput(); err != nil {
		t.Skipf("only who may mount can say what /dev/null is: %v %s", err, out)
	}
}

// TestProbes attaches to a program that posts and polls on two threads, by functions of
// its own, and lets go of it: each call must have been traced, and have reached the
// function, and after that the functions are called as before.
func TestProbes(t *testing.T) {
	needDevice(t)
	program := filepath.Join(t.TempDir(), "poster")
	if out, err := exec.Command("gcc", "-O2", "-o", program, "testdata/c/poster.c", "-lpthread").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	const rounds = 200
	tracee := exec.CommandContext(t.Context(), program, fmt.Sprint(rounds))
	stdin, err := tracee.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := tracee.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tracee.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	says := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("the program says %q, want %q", lines.Text(), want)
		}
	}
	says(fmt.Sprint(tracee.Process.Pid))
	work := func() {
		t.Helper()
		fmt.Fprint(stdin, "x")
		const n = 2 * rounds // on two threads
		says(fmt.Sprint(n, n, n, n, 2*n))
	}
	work()
	for range 2 {
		p := ibvtrace(t)
		args := append(append([]string(nil), asDevice...), bin.ibvtrace, "--json", "--data", "-o", p.file, "-p", fmt.Sprint(tracee.Process.Pid))
		p.Cmd = exec.CommandContext(t.Context(), args[0], args[1:]...)
		p.Stdout, p.Stderr = &p.out, &p.out
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		for state(t, p.Process.Pid) != "Z" { // until it has attached, which is when it writes
			if st, err := os.Stat(p.file); err == nil && st.Size() > 0 {
				break
			}
		}
		work()
		p.Process.Signal(unix.SIGINT)
		if err := p.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, p.out.String())
		}
		work()
		count := make(map[string]int)
		for _, e := range readEvents(t, p.file) {
			if e.Kind != event.Data {
				var n int // at the end, those that came after the last that found something
				if _, err := fmt.Sscanf(e.Why, "polled in vain %d time", &n); err == nil {
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
	stdin.Close()
	if err := tracee.Wait(); err != nil {
		t.Error(err)
	}
}

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
