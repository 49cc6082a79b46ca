//go:build amd64 || arm64

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// numbers match what differs from run to run: times, process and thread IDs, and durations.
var numbers = regexp.MustCompile(`^\S+ \[\d+(/\d+)?|<[\d.]+ [mµ]?s>$`)

// TestReportIsLive: report prints the same lines from JSON as tracing prints live.
func TestReportIsLive(t *testing.T) {
	for _, args := range [][]string{nil, {"-v", "-y"}, {"--raw"}, {"-e", "failed"}, {"-t", "-T=false"}} {
		dir := t.TempDir()
		live, trace, read := filepath.Join(dir, "live"), filepath.Join(dir, "trace"), filepath.Join(dir, "read")
		for _, command := range [][]string{
			append(append([]string{"--how=ptrace", "-o", live}, args...), built(t, "verbs"), "all"),
			{"--how=ptrace", "--json", "--raw", "-o", trace, built(t, "verbs"), "all"},
			append(append([]string{"report", "-o", read}, args...), trace),
		} {
			if out, err := exec.Command(bin.ibvtrace, command...).CombinedOutput(); err != nil {
				t.Fatalf("%q: %v\n%s", command, err, out)
			}
		}
		lines := func(file string) []string {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for line := range strings.Lines(string(b)) {
				line = numbers.ReplaceAllString(strings.TrimSuffix(line, "\n"), "")
				// Addresses of data differ too.
				out = append(out, regexp.MustCompile(`data=0x[0-9a-f]{8,}`).ReplaceAllString(line, "data"))
			}
			return out
		}
		want, got := lines(live), lines(read)
		if diff := cmp.Diff(want, got); diff != "" || len(want) < 6 {
			t.Errorf("%q: %d lines (-live +report):\n%s", args, len(want), diff)
		}
	}
}

// TestFullDiskSpares: the program's exit status is unchanged if its trace cannot be written.
func TestFullDiskSpares(t *testing.T) {
	for _, args := range [][]string{{"-o", "/dev/full"}, {"--json", "-o", "/dev/full"}, {"-c", "-o", "/dev/full"}, {"--chrome", "/dev/full", "-o", os.DevNull}} {
		command := exec.Command(bin.ibvtrace, append(append([]string{"--how=ptrace"}, args...), "sh", "-c", built(t, "verbs")+" all >/dev/null; exit 7")...)
		out, err := command.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 7 {
			t.Errorf("%q: %v", args, err)
		}
		if want := "ibvtrace: write /dev/full: no space left on device; the rest of /dev/full is lost\n"; string(out) != want {
			t.Errorf("%q: output %q, want %q", args, out, want)
		}
	}
}

// TestReaderGone: a trace goes to a pipe, whose reader exits after the first bytes. The program
// goes on to its end, and report ends.
func TestReaderGone(t *testing.T) {
	dir := t.TempDir()
	trace, fifo := filepath.Join(dir, "trace"), filepath.Join(dir, "fifo")
	program := []string{"sh", "-c", built(t, "verbs") + " signals >/dev/null; exit 7"}
	if err := exec.Command(bin.ibvtrace, append([]string{"--how=ptrace", "--json", "-o", trace}, program...)...).Run(); exitOf(err) != 7 {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		to     string
		args   []string
		status int
	}{
		{"/dev/stdout", append([]string{"--how=ptrace", "-o", "/dev/stdout"}, program...), 7},
		{"/dev/stdout", append([]string{"--how=ptrace", "--json", "-o", "/dev/stdout"}, program...), 7},
		{"/dev/stdout", append([]string{"--how=ptrace", "--chrome", "/dev/stdout", "-o", os.DevNull}, program...), 7},
		{fifo, append([]string{"--how=ptrace", "-o", fifo}, program...), 7},
		{"/dev/stdout", []string{"report", "--json", "-o", "/dev/stdout", trace}, 0},
		{"/dev/stdout", []string{"report", "--chrome", "/dev/stdout", "-o", os.DevNull, trace}, 0},
		{fifo, []string{"report", "-o", fifo, trace}, 0},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		command := exec.CommandContext(t.Context(), bin.ibvtrace, test.args...)
		command.Stdout = w
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if test.to == fifo {
			r.Close()
			if r, err = os.Open(fifo); err != nil {
				t.Fatal(err)
			}
		}
		// The trace is longer than the pipe can hold.
		unix.FcntlInt(r.Fd(), unix.F_SETPIPE_SZ, os.Getpagesize())
		if _, err := r.Read(make([]byte, 1)); err != nil {
			t.Errorf("%q: %v", test.args, err)
		}
		r.Close()
		if err := command.Wait(); exitOf(err) != test.status {
			t.Errorf("%q: %v, want status %d", test.args, err, test.status)
		}
	}
}

// exitOf returns the exit status that an error of exec reports, and -1 for any other.
func exitOf(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// TestInterrupted: the summary is printed if SIGINT ends the program.
func TestInterrupted(t *testing.T) {
	p := ibvtrace(t, "-c", "sh", "-c", built(t, "verbs")+" all >/dev/null; echo $$; read x")
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal
	_, next := p.start()
	p.Process.Signal(unix.SIGINT)
	if line := next(); line != "" {
		t.Errorf("the program said %q", line)
	}
	err := p.Wait()
	if s := p.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGINT {
		t.Errorf("ended with %v", err)
	}
	table, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  verb\n", "ibv_create_qp\n", "ibv_dealloc_pd\n"} {
		if !strings.Contains(string(table), want) {
			t.Errorf("no %q in the summary:\n%s", want, table)
		}
	}
}

// TestPipe: a command reads the trace, to its end. ^C does not end it, ibvtrace's status is the
// program's, and a command that exits early does not disturb the program.
func TestPipe(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "verbs")
	program := []string{"sh", "-c", built(t, "verbs") + " all >/dev/null; exit 7"}
	run := func(status int, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), bin.ibvtrace, args...)
		out, err := c.CombinedOutput()
		if exitOf(err) != status {
			t.Errorf("%q: %v %s", args, err, out)
		}
		return string(out)
	}
	if out := run(7, append([]string{"--how=ptrace", "-o", "|grep -c create_qp; cat >/dev/null"}, program...)...); out != "1\n" {
		t.Errorf("the command says %q", out)
	}
	if out := run(7, append([]string{"--how=ptrace", "-o", "|exit 3"}, program...)...); out != "" {
		t.Errorf("a command that reads nothing: %q", out)
	}
	run(7, append([]string{"--how=ptrace", "--json", "-o", "|cat >" + file}, program...)...)
	if n := len(readEvents(t, file)); n < 6 {
		t.Errorf("%d events", n)
	}
	if out := run(0, "report", "-e", "create_qp", "-o", "|cat; : .gz", file); strings.Count(out, "\n") != 1 {
		t.Errorf("report: %q", out)
	}

	p := ibvtrace(t, "-c", "-o", "|cat >"+file, "sh", "-c", built(t, "verbs")+" all >/dev/null; echo $$; read x")
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal
	_, next := p.start()
	if err := unix.Kill(-p.Process.Pid, unix.SIGINT); err != nil { // to the command, too
		t.Fatal(err)
	}
	next()
	p.Wait()
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "ibv_create_qp") {
		t.Errorf("after ^C: %v %q", err, text)
	}
}

// TestAttachToGone: of several processes, one that has ended is named, and the others are traced.
func TestAttachToGone(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	tracee := &traced{Cmd: exec.CommandContext(t.Context(), "sh", "-c", "echo $$; read x"), t: t}
	pid, _ := tracee.start()
	for _, list := range []string{"%d,%d", "%[2]d %[1]d"} {
		p := ibvtrace(t, "-p", fmt.Sprintf(list, gone.Process.Pid, pid))
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		p.awaitTraced(pid)
		p.letGo()
		if text, err := os.ReadFile(p.file); err != nil || !strings.Contains(string(text), fmt.Sprintf("--- there is no process %d ---", gone.Process.Pid)) {
			t.Errorf("%v %q", err, text)
		}
	}
	tracee.stdin.Close()
	if err := tracee.Wait(); exitOf(err) != 1 {
		t.Errorf("the program: %v", err)
	}
	out, err := exec.Command(bin.ibvtrace, "--how=ptrace", "-p", fmt.Sprintf("%d,%[1]d", gone.Process.Pid)).CombinedOutput()
	if want := fmt.Sprintf("attach to %d: no such process\n", gone.Process.Pid); exitOf(err) != 1 || !strings.HasSuffix(string(out), want) {
		t.Errorf("%v %q, want %q", err, out, want)
	}
}
