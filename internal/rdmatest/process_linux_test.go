package rdmatest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestProcess: output is available while the process runs, and its status after its end.
func TestProcess(t *testing.T) {
	cmd := exec.Command("sh", "-c", "echo ready; read word; echo got $word; printf rest; echo trouble >&2; exit 3")
	in := Must(cmd.StdinPipe())(t)
	p := StartCmd(t, cmd)
	if line := p.Line(t); line != "ready" {
		t.Errorf("the first line is %q", line)
	}
	if p.Ended() {
		t.Errorf("ended too early: %v", p)
	}
	Must(in.Write([]byte("this\n")))(t)
	p.Until(t, func() bool { return strings.Contains(p.Stdout(), "got") })
	if line := p.Line(t); line != "got this" {
		t.Errorf("the second line is %q", line)
	}
	if status := p.Wait().ExitCode(); status != 3 || p.OK() || !p.Ended() {
		t.Errorf("status %d: %v", status, p)
	}
	if p.Stdout() != "ready\ngot this\nrest" || p.Stderr() != "trouble\n" || p.Said() != p.Stdout()+p.Stderr() {
		t.Errorf("stdout %q, stderr %q", p.Stdout(), p.Stderr())
	}
	if s := p.String(); !strings.Contains(s, "exit status 3") || !strings.Contains(s, "trouble") {
		t.Errorf("String returns %q", s)
	}
}

// TestProcessKilled: a killed process has ended, and has not succeeded.
func TestProcessKilled(t *testing.T) {
	p := Start(t, "sleep", "1000")
	p.Kill()
	if !p.Ended() || p.OK() || p.Wait().ExitCode() != -1 {
		t.Error(p)
	}
	if err := p.cmd.Process.Signal(os.Interrupt); err == nil {
		t.Errorf("still running after Kill: %v", p)
	}
}

// TestProcessEndsWithTest: a process doesn't outlive its test.
func TestProcessEndsWithTest(t *testing.T) {
	var p *Process
	t.Run("test", func(t *testing.T) { p = Start(t, "sleep", "1000") })
	if !p.Ended() {
		t.Error(p)
	}
}
