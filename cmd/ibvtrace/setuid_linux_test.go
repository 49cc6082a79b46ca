//go:build amd64 || arm64

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestSetuid traces a set-user-ID program. It runs with the rights of its file's owner only if
// the tracing user has them. Otherwise a note says that they are missing.
func TestSetuid(t *testing.T) {
	// Other users can't enter the folders of t.TempDir.
	dir, err := os.MkdirTemp("/tmp", "setuid")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for file, mode := range map[string]os.FileMode{bin.ibvtrace: 0o755, built(t, "verbs"): 0o755 | os.ModeSetuid} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(name, b, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	me := uint32(os.Getuid())
	users := []uint32{me}
	if me == 0 {
		const nobody = 65534
		users = append(users, nobody)
	}
	for _, user := range users {
		file := filepath.Join(dir, fmt.Sprint("trace", user))
		var out, trouble bytes.Buffer
		c := exec.CommandContext(t.Context(), filepath.Join(dir, "ibvtrace"), "--how=ptrace", "-o", file, filepath.Join(dir, "verbs"), "all")
		c.Stdout, c.Stderr = &out, &trouble
		if user != me {
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		}
		if err := c.Run(); err != nil {
			t.Fatalf("as user %d: %v\n%s", user, err, trouble.String())
		}
		trace, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var notes, verbs []string
		for line := range strings.Lines(string(trace)) {
			_, what, _ := strings.Cut(strings.TrimSpace(line), "] ")
			if strings.HasPrefix(what, "---") {
				notes = append(notes, what)
			} else {
				verbs = append(verbs, what[:strings.LastIndex(what, " <")])
			}
		}
		var printed []string
		for line := range strings.Lines(out.String()) {
			_, verb, _ := strings.Cut(strings.TrimSpace(line), "] ")
			printed = append(printed, verb)
		}
		if diff := cmp.Diff(printed, verbs); diff != "" || len(verbs) < 6 {
			t.Errorf("as user %d: verbs (-program +trace):\n%s", user, diff)
		}
		var want []string
		if user != me {
			want = []string{"--- runs without the privileges of user 0, which its set-user-ID file grants: the tracer lacks them ---"}
		}
		if diff := cmp.Diff(want, notes); diff != "" {
			t.Errorf("as user %d: notes (-want +got):\n%s", user, diff)
		}
	}
}

// TestAttachToTraced: attaching to a traced program fails with the reason, and the program
// continues.
func TestAttachToTraced(t *testing.T) {
	first := ibvtrace(t, "sh", "-c", "echo $$; read x; exit 5")
	pid, _ := first.start()
	out, err := exec.Command(bin.ibvtrace, "--how=ptrace", "-p", fmt.Sprint(pid)).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "is already being traced") {
		t.Errorf("%v: %s", err, out)
	}
	if unix.Kill(pid, 0) != nil {
		t.Error("the program has ended")
	}
	first.stdin.Close()
	if err := first.Wait(); first.ProcessState.ExitCode() != 5 {
		t.Errorf("the program: %v", err)
	}
}
