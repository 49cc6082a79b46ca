//go:build amd64 || arm64

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// bin is the folder of the programs that the tests build, and ibvtrace.
var bin struct{ dir, ibvtrace string }

func TestMain(m *testing.M) {
	// In the background of a script, SIGINT is ignored, and so it would be in the programs
	// that are started here. A signal that is caught here is not ignored there.
	for _, sig := range []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGHUP} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	dir, err := os.MkdirTemp("", "ibvtrace")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	bin.dir, bin.ibvtrace = dir, filepath.Join(dir, "ibvtrace")
	status := 1
	if build(bin.ibvtrace, ".") {
		status = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(status)
}

func build(file, pkg string, env ...string) bool {
	cmd := exec.Command("go", "build", "-o", file, pkg)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "build %s: %v\n%s", pkg, err, out)
	}
	return err == nil
}

// built returns a Go program of testdata. It is built the first time.
func built(t *testing.T, name string) string {
	t.Helper()
	file := filepath.Join(bin.dir, name)
	if _, err := os.Stat(file); err != nil && !build(file, "./testdata/"+name) {
		t.Fatal("not built")
	}
	return file
}

// traced is a program under ibvtrace.
type traced struct {
	*exec.Cmd
	t     *testing.T
	file  string // the trace
	out   bytes.Buffer
	stdin io.WriteCloser
}

func ibvtrace(t *testing.T, args ...string) *traced {
	t.Helper()
	p := &traced{t: t, file: filepath.Join(t.TempDir(), "trace")}
	p.Cmd = exec.CommandContext(t.Context(), bin.ibvtrace, append([]string{"--how=ptrace", "-o", p.file}, args...)...)
	p.Stdout, p.Stderr = &p.out, &p.out
	p.WaitDelay = time.Minute
	return p
}

// lines returns the trace without times and durations.
func (p *traced) lines() []string {
	p.t.Helper()
	trace, err := os.ReadFile(p.file)
	if err != nil {
		p.t.Fatal(err)
	}
	form := regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d{6} (\[.*) <\d+(?:\.\d+)? (?:µs|ms|s)>$`)
	var out []string
	for line := range strings.Lines(string(trace)) {
		m := form.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			p.t.Fatalf("line without the form of a verb: %q", line)
		}
		out = append(out, m[1])
	}
	return out
}

// byThread groups lines by "[pid/tid name]": lines of different threads have no order.
func byThread(lines []string) map[string][]string {
	m := make(map[string][]string)
	for _, l := range lines {
		who, verb, _ := strings.Cut(l, "] ")
		m[who] = append(m[who], verb)
	}
	return m
}

// TestVerbs compares the trace with the lines that the traced program prints.
func TestVerbs(t *testing.T) {
	for _, mode := range []string{"all", "threads", "children", "untraced", "exec", "signals"} {
		t.Run(mode, func(t *testing.T) {
			p := ibvtrace(t, built(t, "verbs"), mode)
			if err := p.Run(); err != nil {
				t.Fatalf("%v\n%s", err, p.out.String())
			}
			want := strings.Split(strings.TrimSuffix(p.out.String(), "\n"), "\n")
			if len(want) < 6 {
				t.Fatalf("the program called only %d verbs: %q", len(want), want)
			}
			if diff := cmp.Diff(byThread(want), byThread(p.lines())); diff != "" {
				t.Errorf("trace differs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestVerbsOf32Bit traces a 32-bit program.
func TestVerbsOf32Bit(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles Go's library for another architecture")
	}
	arch := map[string]string{"amd64": "386", "arm64": "arm"}[runtime.GOARCH]
	file := filepath.Join(t.TempDir(), "verbs32")
	if !build(file, "./testdata/verbs", "GOARCH="+arch) {
		t.Fatal("not built")
	}
	if err := exec.Command(file, "all").Run(); errors.Is(err, unix.ENOEXEC) {
		t.Skipf("this kernel does not run %s programs", arch)
	}
	for _, mode := range []string{"all", "untraced"} {
		p := ibvtrace(t, file, mode)
		if err := p.Run(); err != nil {
			t.Fatalf("%v\n%s", err, p.out.String())
		}
		want := strings.Split(strings.TrimSuffix(p.out.String(), "\n"), "\n")
		if diff := cmp.Diff(want, p.lines()); diff != "" || len(want) < 6 {
			t.Errorf("%s: trace differs (-want +got):\n%s", mode, diff)
		}
	}
}

func TestJSON(t *testing.T) {
	p := ibvtrace(t, "--json", built(t, "verbs"), "all")
	if err := p.Run(); err != nil {
		t.Fatalf("%v\n%s", err, p.out.String())
	}
	var verbs []string
	for _, v := range readEvents(t, p.file) {
		if v.Time.IsZero() || v.PID == 0 || v.TID == 0 || v.Comm == "" || v.Device != "" || v.Path != "/dev/null" ||
			len(v.Out) != 0 || !v.Returned || v.Ret != -1 || v.Errno != "ENOTTY" || !v.Timed {
			t.Errorf("wrong event: %+v", v)
		}
		verbs = append(verbs, v.Verb)
		if v.Verb == "ibv_create_qp" {
			want := map[string]uint64{"pd": 3, "send_cq": 5, "recv_cq": 6, "cap.max_send_wr": 16, "cap.max_inline_data": 64}
			for name, n := range want {
				if got := event.Find(v.Args, name); got == nil || got.Num != n {
					t.Errorf("create_qp's %s is %v, want %d", name, got, n)
				}
			}
			if v.Driver != "RXE" || v.Object != "QP" || v.Method != "UVERBS_METHOD_QP_CREATE" {
				t.Errorf("create_qp is %s %s %s", v.Driver, v.Object, v.Method)
			}
		}
	}
	want := []string{"ibv_dealloc_pd", "ibv_create_cq", "ibv_create_qp", "ibv_modify_qp", "ibv_object_0x3333_method_0x2", "rdma_verbs_ioctl"}
	if diff := cmp.Diff(want, verbs); diff != "" {
		t.Errorf("verbs differ (-want +got):\n%s", diff)
	}
}

// TestTransparent runs shell scripts with and without ibvtrace. Output and wait status must
// be the same.
func TestTransparent(t *testing.T) {
	for _, script := range []string{
		"exit 0",
		"exit 3",
		"exit 255",
		"cat; echo out; echo err >&2",
		"kill -TERM $$",
		"kill -KILL $$",
		"kill -SEGV $$",
		"kill -ABRT $$",
		"kill -QUIT $$",
		"kill -PIPE $$",
		"kill -RTMIN $$",
		"trap 'echo caught; exit 4' USR1; kill -USR1 $$; sleep 10",
		"trap '' TERM; kill -TERM $$; echo ignored",
		"(exit 5) & wait $!",
		"true | cat | (exit 6)",
		"echo $0 $PPID | sed 's/ .*//'",
		"env | sort",
		"ls /proc/self/fd",
		"grep -E 'Sig(Ign|Cgt|Blk)|NoNewPrivs' /proc/self/status",
		"ulimit -n; ulimit -c; umask",
		"ls /nosuch",
		"exec /nosuch",
	} {
		run := func(c *exec.Cmd) (string, syscall.WaitStatus) {
			var out bytes.Buffer
			c.Stdin = strings.NewReader("input\n")
			c.Stdout, c.Stderr = &out, &out
			var exit *exec.ExitError
			if err := c.Run(); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			return out.String(), c.ProcessState.Sys().(syscall.WaitStatus)
		}
		wantOut, want := run(exec.Command("sh", "-c", script))
		gotOut, got := run(ibvtrace(t, "--", "sh", "-c", script).Cmd)
		if got != want && (!want.CoreDump() || got.Signal() != want.Signal()) {
			t.Errorf("%s: wait status %#x, want %#x", script, got, want)
		}
		if diff := cmp.Diff(wantOut, gotOut); diff != "" {
			t.Errorf("%s: output differs (-want +got):\n%s", script, diff)
		}
	}
}

// start starts the program and waits for its first line, its PID. next returns the next line.
func (p *traced) start() (pid int, next func() string) {
	p.t.Helper()
	p.Stdout = nil
	out, err := p.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if p.stdin, err = p.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		p.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	next = func() string {
		lines.Scan()
		return lines.Text()
	}
	if _, err := fmt.Sscan(next(), &pid); err != nil {
		p.t.Fatal(err)
	}
	return pid, next
}

// hang is how long a test waits before it gives up.
const hang = 5 * time.Minute

// await waits until is returns true. It fails the test if ibvtrace ends before.
func (p *traced) await(what string, is func() bool) {
	p.t.Helper()
	for end := time.Now().Add(hang); !is(); time.Sleep(time.Millisecond) {
		if exited(p.Process.Pid) {
			if is() {
				return
			}
			p.Wait()
			p.t.Fatalf("ibvtrace ended before %s: %s", what, p.out.String())
		}
		if time.Now().After(end) {
			p.t.Fatalf("after %v, still not true: %s", hang, what)
		}
	}
}

// exited reports whether a process has ended.
func exited(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err != nil || strings.Contains(string(status), "State:\tZ")
}

// awaitEnd waits for the end of a process that is not a child of this one.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(hang); !exited(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("process %d is alive after %v", pid, hang)
		}
	}
}

// awaitTrace waits until the trace is not empty, which means that ibvtrace has attached.
func (p *traced) awaitTrace() {
	p.t.Helper()
	p.await("there was a trace", func() bool {
		st, err := os.Stat(p.file)
		return err == nil && st.Size() > 0
	})
}

// letGo makes ibvtrace detach, and waits for its end.
func (p *traced) letGo() {
	p.t.Helper()
	p.Process.Signal(unix.SIGINT)
	if err := p.Wait(); err != nil {
		p.t.Fatalf("%v\n%s", err, p.out.String())
	}
}

// awaitTraced waits until all threads of a process are traced.
func (p *traced) awaitTraced(pid int) {
	p.t.Helper()
	p.await("it attached", func() bool {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil || len(files) == 0 {
			p.t.Fatal("the program has ended")
		}
		return !slices.ContainsFunc(files, func(file string) bool {
			status, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(status), "TracerPid:\t0\n")
		})
	})
}

// TestStopAndContinue checks that job-control signals stop a traced program, and that it stays
// stopped until SIGCONT.
func TestStopAndContinue(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} {
		t.Run(unix.SignalName(sig), func(t *testing.T) { stopAndContinue(t, sig) })
	}
}

func stopAndContinue(t *testing.T, sig unix.Signal) {
	// A child keeps stopping for the tracer. When it is answered, the tracer has handled
	// the program's stop too.
	dir := t.TempDir()
	var busy [2]*os.File
	for i, name := range []string{"in", "out"} {
		name = filepath.Join(dir, name)
		if err := unix.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
		var err error
		if busy[i], err = os.OpenFile(name, os.O_RDWR, 0); err != nil {
			t.Fatal(err)
		}
		defer busy[i].Close()
	}
	p := ibvtrace(t, "sh", "-c", "cd "+dir+`
		while read line; do exec 3<>/dev/null; echo $line; done <in >out &
		echo $$
		while read line; do echo $line; done
		kill $!
		exit 7`)
	// Most of these signals do not stop a process of an orphaned process group.
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pid, next := p.start()
	fmt.Fprintln(p.stdin, "one")
	if got := next(); got != "one" {
		t.Fatalf("before the stop: %q", got)
	}
	unix.Kill(pid, sig)
	// 't' is a ptrace stop, such as that at a signal's delivery.
	stopped := func() bool { s := state(t, pid); return s == "T" || s == "t" }
	p.await("the program stopped", stopped)
	fmt.Fprintln(p.stdin, "two")
	answers := bufio.NewScanner(busy[1])
	for i := range 20 {
		fmt.Fprintln(busy[0], i)
		if !answers.Scan() || answers.Text() != fmt.Sprint(i) {
			t.Fatalf("the child says %q, want %d", answers.Text(), i)
		}
		// Between the signal's delivery and the stop that follows it, the program runs for a moment.
		p.await("the program stayed stopped", stopped)
	}
	unix.Kill(pid, unix.SIGCONT)
	if got := next(); got != "two" {
		t.Errorf("after SIGCONT: %q", got)
	}
	p.stdin.Close()
	var exit *exec.ExitError
	if err := p.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("end: %v, want exit status 7", err)
	}
}

func state(t *testing.T, pid int) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^State:\s+(\S)`).FindSubmatch(status)
	return string(m[1])
}

// TestForwardedSignals sends signals to ibvtrace, which has no terminal here.
func TestForwardedSignals(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGHUP} {
		p := ibvtrace(t, "sh", "-c", "trap 'echo caught; exit 9' TERM INT QUIT HUP; echo $$; while :; do read x; done")
		p.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		_, next := p.start()
		p.Process.Signal(sig)
		p.stdin.Close()
		if got := next(); got != "caught" {
			t.Errorf("%v: got %q", sig, got)
		}
		var exit *exec.ExitError
		if err := p.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 9 {
			t.Errorf("%v: end: %v, want exit status 9", sig, err)
		}
	}
}

// TestKilled checks that neither a program nor its child outlives the tracer: without it, their
// opens would fail.
func TestKilled(t *testing.T) {
	p := ibvtrace(t, "sh", "-c", "sleep 3600 & echo $$; echo $!; read x")
	pid, next := p.start()
	var child int
	if _, err := fmt.Sscan(next(), &child); err != nil {
		t.Fatal(err)
	}
	p.Process.Kill()
	p.Wait()
	awaitEnd(t, pid)
	awaitEnd(t, child)
}

// TestLeavesNothing checks that a program has no seccomp filter of ibvtrace, and can open files,
// after ibvtrace detached or was killed.
func TestLeavesNothing(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGKILL} {
		tracee := &traced{Cmd: exec.CommandContext(t.Context(), "sh", "-c", "echo $$; while read file; do exec 3<>$file && echo opened; done"), t: t}
		pid, next := tracee.start()
		open := func() {
			t.Helper()
			fmt.Fprintln(tracee.stdin, "/dev/null")
			if got := next(); got != "opened" {
				t.Fatalf("%v: the program says %q", sig, got)
			}
		}
		p := ibvtrace(t, "-p", fmt.Sprint(pid))
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		p.awaitTraced(pid)
		open()
		p.Process.Signal(sig)
		p.Wait()
		open()
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil || !strings.Contains(string(status), "Seccomp:\t0\n") || !strings.Contains(string(status), "TracerPid:\t0\n") {
			t.Errorf("after %v: %v\n%s", sig, err, status)
		}
		tracee.stdin.Close()
		if err := tracee.Wait(); err != nil {
			t.Errorf("after %v: %v", sig, err)
		}
	}
}

func TestCommandLine(t *testing.T) {
	for _, test := range []struct {
		args   []string
		status int
		output string // a part of it
	}{
		{[]string{"-h"}, 0, "Usage: ibvtrace"},
		{nil, 1, "no COMMAND given"},
		{[]string{"-o", "/nosuch/file", "true"}, 1, "/nosuch/file"},
		{[]string{"/nosuch"}, 127, "/nosuch"},
		{[]string{"--how=ptrace", "nosuch"}, 127, "nosuch"},
		{[]string{"--nosuch", "true"}, 1, "-nosuch"},
		{[]string{"/etc/passwd"}, 126, "permission denied"},
	} {
		out, err := exec.Command(bin.ibvtrace, test.args...).CombinedOutput()
		status := 0
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			status = exit.ExitCode()
		}
		if status != test.status || !strings.Contains(string(out), test.output) {
			t.Errorf("%q: status %d, output %q", test.args, status, out)
		}
	}
}
