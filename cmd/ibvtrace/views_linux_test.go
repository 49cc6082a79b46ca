//go:build amd64 || arm64

package main

import (
	"errors"
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
			append(append([]string{"-o", live}, args...), built(t, "verbs"), "all"),
			{"--json", "--raw", "-o", trace, built(t, "verbs"), "all"},
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
		command := exec.Command(bin.ibvtrace, append(args, "sh", "-c", built(t, "verbs")+" all >/dev/null; exit 7")...)
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
	if err := exec.Command(bin.ibvtrace, append([]string{"--json", "-o", trace}, program...)...).Run(); exitOf(err) != 7 {
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
		{"/dev/stdout", append([]string{"-o", "/dev/stdout"}, program...), 7},
		{"/dev/stdout", append([]string{"--json", "-o", "/dev/stdout"}, program...), 7},
		{"/dev/stdout", append([]string{"--chrome", "/dev/stdout", "-o", os.DevNull}, program...), 7},
		{fifo, append([]string{"-o", fifo}, program...), 7},
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
