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

	"github.com/goverbs/goverbs/internal/rdmatest/ownrace"
)

// A Process is a program that a test has started. It doesn't outlive the test.
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

// StartCmd starts a program of which the test has set more than its arguments.
func StartCmd(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	p.stdout.more = make(chan struct{}, 1)
	cmd.Stdout, cmd.Stderr = &p.stdout, &p.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // the state that it leaves says how it ended
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.Signal(os.Kill)
		select {
		case <-p.ended:
		case <-time.After(Patience):
			t.Errorf("killed, it goes on: %v", p) // in a system call that something else has to end
		}
	})
	return p
}

// Command runs a program, its words in a line, that must succeed.
func Command(t testing.TB, line string) {
	t.Helper()
	Start(t, strings.Fields(line)...).Succeeds(t)
}

// PID returns the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends it a signal. One that has ended needs none.
func (p *Process) Signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// Kill ends it as if it had crashed.
func (p *Process) Kill() {
	p.Signal(os.Kill)
	<-p.ended
}

// hangs is how long a test waits for a process. It may have much to do, or wait for
// another one that has.
const hangs = 4 * Patience

// Wait waits for its end, and tells how it ended. A process that hangs is killed.
func (p *Process) Wait() *os.ProcessState {
	select {
	case <-p.ended:
	case <-time.After(hangs):
		p.Kill()
	}
	return p.cmd.ProcessState
}

// Ended tells whether it has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Until waits until something is so, which has to be at the process's end at the latest.
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
			t.Fatalf("waited for in vain: %v", p)
		}
	}
}

// Listening tells whether anybody listens on a TCP port.
func Listening(port int) bool {
	line := regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A `, port))
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if table, err := os.ReadFile(file); err == nil && line.Match(table) {
			return true
		}
	}
	return false
}

// ListeningCM tells whether anybody listens on a port of one of the connection manager's
// port spaces, "TCP" or "UDP".
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

// OK waits for its end, and tells whether it was a good one, or one that rdma-core's
// program has brought on itself.
func (p *Process) OK() bool {
	state := p.Wait()
	_, is := ownrace.Of(p.cmd.Args, state.ExitCode(), p.Said())
	return is || state.Success()
}

// Succeeds waits for its end, which must be OK, and returns what it printed on stdout.
func (p *Process) Succeeds(t testing.TB) string {
	t.Helper()
	if !p.OK() {
		t.Fatal(p)
	}
	return p.stdout.String()
}

// Said returns what it has printed: first on stdout, then on stderr.
func (p *Process) Said() string { return p.Stdout() + p.Stderr() }

// Stdout and Stderr return what it has printed on one of them.
func (p *Process) Stdout() string { return p.stdout.String() }
func (p *Process) Stderr() string { return p.stderr.String() }

// Line returns the next line that it prints on stdout, without its end.
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
			t.Fatalf("no line comes: %v", p)
		}
	}
}

func (p *Process) String() string {
	how := "still runs"
	if p.Ended() {
		how = fmt.Sprintf("ended with %v", p.cmd.ProcessState)
	}
	return fmt.Sprintf("%s %s and said:\n%s", strings.Join(p.cmd.Args, " "), how, p.Said())
}

// An output is what a process prints on one of its streams.
type output struct {
	mu   sync.Mutex
	text []byte
	read int           // how much of text went away as lines
	more chan struct{} // gets something when more has come, unless it is nil
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

// line takes the next line, if it has come whole.
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
