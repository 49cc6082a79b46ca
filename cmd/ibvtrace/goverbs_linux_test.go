//go:build amd64 || arm64

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

// TestTold attaches to a program that tells of what it posts and polls, as those on
// this project's library do.
func TestTold(t *testing.T) {
	program := filepath.Join(t.TempDir(), "teller")
	if !build(program, "./testdata/teller") {
		t.Fatal("not built")
	}
	tracee := exec.CommandContext(t.Context(), program)
	out, err := tracee.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tracee.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	says := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("the program says %q, want %q", lines.Text(), want)
		}
	}
	says(fmt.Sprint(tracee.Process.Pid))
	p := ibvtrace(t, "--json", "--data", "-p", fmt.Sprint(tracee.Process.Pid))
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	says("told")
	p.Process.Signal(unix.SIGINT)
	if err := p.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, p.out.String())
	}
	says("let go")
	if err := tracee.Wait(); err != nil {
		t.Error(err)
	}

	f, err := os.Open(p.file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var got []string
	for r := event.NewReader(f); ; {
		e, err := r.Read()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if e.Kind != event.Data {
			got = append(got, e.Why)
			continue
		}
		s := fmt.Sprintf("%s %d %s", e.Verb, e.Ret, e.Errno)
		for _, name := range []string{"cq", "qp", "solicited_only", "num_entries"} {
			if v := event.Find(e.Args, name); v != nil {
				s += fmt.Sprintf(" %s=%d", name, v.Num)
			}
		}
		if v := event.Find(e.Args, "wr"); v != nil {
			s += fmt.Sprintf(" %d requests", len(v.Elems))
		}
		if v := event.Find(e.Out, "wc"); v != nil {
			for _, x := range v.Elems {
				s += fmt.Sprintf(" %s %s %d bytes", event.Find(x.Fields, "status").Str, event.Find(x.Fields, "opcode").Str, event.Find(x.Fields, "byte_len").Num)
			}
		}
		for _, name := range []string{"empty_polls", "bad_wr"} {
			if v := event.Find(e.Out, name); v != nil {
				s += fmt.Sprintf(" %s=%d", name, v.Num)
			}
		}
		got = append(got, strings.Join(strings.Fields(s), " "))
	}
	want := []string{
		"ibv_req_notify_cq 0 cq=9 solicited_only=1",
		"ibv_poll_cq 2 cq=9 num_entries=4 SUCCESS RECV 64 bytes SUCCESS RECV 32 bytes empty_polls=5",
		"ibv_poll_cq 1 cq=9 num_entries=4 SUCCESS RECV 16 bytes",
		"ibv_poll_cq -1 EINVAL cq=9 num_entries=4 empty_polls=3",
		"ibv_req_notify_cq -1 EINVAL cq=9 solicited_only=0",
		"ibv_post_recv -1 ENOMEM qp=3 3 requests bad_wr=1",
		"polled in vain 2 times",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
}
