package rdmatest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Process is a program that a test has started. It is killed at the end of the test.
type Process struct {
	cmd            *exec.Cmd
	stdout, stderr output
	ended          chan struct{}
}

// Start starts a program.
func Start(t testing.TB, command ...string) *Process {
	t.Helper()
	return StartCmd(t, exec.Command(command[0], command[1:]...))
}

// StartCmd starts a prepared command. If cmd.Stdout is set, the Process's Stdout is empty.
func StartCmd(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	p.stdout.more = make(chan struct{}, 1)
	cmd.Stderr = &p.stderr
	if cmd.Stdout == nil {
		cmd.Stdout = &p.stdout
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // cmd.ProcessState has the result
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.Signal(os.Kill)
		select {
		case <-p.ended:
		case <-time.After(Patience):
			t.Errorf("still running after SIGKILL: %v", p) // in an uninterruptible system call
		}
	})
	return p
}

// Command runs a command line, without a shell. The command must succeed.
func Command(t testing.TB, line string) {
	t.Helper()
	Start(t, strings.Fields(line)...).Succeeds(t)
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal. It does nothing if the process has ended.
func (p *Process) Signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// Kill kills the process, and waits for its end.
func (p *Process) Kill() {
	p.Signal(os.Kill)
	<-p.ended
}

// hangs is the timeout for a process, which may itself wait for another process.
const hangs = 4 * Patience

// Wait waits for the process's end, and returns its state. It kills a process that hangs.
func (p *Process) Wait() *os.ProcessState {
	select {
	case <-p.ended:
	case <-time.After(hangs):
		p.Kill()
	}
	return p.cmd.ProcessState
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Until waits until so returns true. It fails the test if so is still false when the process has ended.
func (p *Process) Until(t testing.TB, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hangs); !so(); {
		select {
		case <-p.ended:
			if !so() {
				t.Fatalf("ended too early: %v", p)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("timed out: %v", p)
		}
	}
}

// Listening reports whether a process listens on a TCP port.
func Listening(port int) bool {
	line := regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A `, port))
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if table, err := os.ReadFile(file); err == nil && line.Match(table) {
			return true
		}
	}
	return false
}

// ListeningCM reports whether a process listens on a port in a port space of the connection
// manager, "TCP" or "UDP".
func ListeningCM(t testing.TB, space string, port uint16) bool {
	t.Helper()
	out, err := exec.Command("rdma", "resource", "show", "cm_id").Output()
	Check(t, err)
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "state LISTEN") && strings.Contains(line, "ps "+space) && strings.Contains(line, fmt.Sprintf(":%d ", port)) {
			return true
		}
	}
	return false
}

// OK waits for the process's end. It reports whether the process succeeded, or failed only by a known
// race in rdma-core's program.
func (p *Process) OK() bool {
	state := p.Wait()
	_, is := ownRace(p.cmd.Args, state.ExitCode(), p.Said())
	return is || state.Success()
}

// Succeeds waits for the process's end, which must be OK, and returns its stdout.
func (p *Process) Succeeds(t testing.TB) string {
	t.Helper()
	if !p.OK() {
		t.Fatal(p)
	}
	return p.stdout.String()
}

// Said returns the output so far, stdout before stderr.
func (p *Process) Said() string { return p.Stdout() + p.Stderr() }

// Stdout returns the output on stdout so far.
func (p *Process) Stdout() string { return p.stdout.String() }

// Stderr returns the output on stderr so far.
func (p *Process) Stderr() string { return p.stderr.String() }

// Line waits for the next line on stdout, and returns it without the newline.
func (p *Process) Line(t testing.TB) string {
	t.Helper()
	for late := time.After(hangs); ; {
		over := p.Ended()
		if line, ok := p.stdout.line(); ok {
			return line
		}
		if over {
			t.Fatalf("no more lines: %v", p)
		}
		select {
		case <-p.stdout.more:
		case <-p.ended:
		case <-late:
			t.Fatalf("timed out waiting for a line: %v", p)
		}
	}
}

func (p *Process) String() string {
	how := "is still running"
	if p.Ended() {
		how = fmt.Sprintf("ended with %v", p.cmd.ProcessState)
	}
	return fmt.Sprintf("%s %s, output:\n%s", strings.Join(p.cmd.Args, " "), how, p.Said())
}

// An output collects the output of a process on one stream.
type output struct {
	mu   sync.Mutex
	text []byte
	read int           // bytes that line has returned
	more chan struct{} // if not nil, receives a value after a Write
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	o.text = append(o.text, b...)
	o.mu.Unlock()
	select {
	case o.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

// line returns the next line, if it is complete.
func (o *output) line() (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	line, _, whole := bytes.Cut(o.text[o.read:], []byte("\n"))
	if !whole {
		return "", false
	}
	o.read += len(line) + 1
	return string(line), true
}
