//go:build amd64 || arm64

package tracer

import (
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/event"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
)

// events is a sink that keeps all events.
type events []*event.Event

func (s *events) Event(e *event.Event) error { *s = append(*s, e); return nil }

func (s *events) Close() error { return nil }

// TestUnfinished checks that a verb whose thread died is shown once.
func TestUnfinished(t *testing.T) {
	var got events
	p := tracee.NewProcess(4)
	p.Threads = 2
	th := &tracee.Thread{TID: 5, Proc: p, Call: &tracee.Call{PID: 4, TID: 5, FD: 3, Path: "x", Name: "rdma_verbs_ioctl", Problem: unix.EFAULT}}
	tr := newTracer(Options{}, &got)
	tr.Threads[5], tr.Processes[4] = th, p
	tr.Ended(5, 0)
	tr.Ended(5, 0)
	tr.show()
	tr.show()
	if len(got) != 1 || got[0].Returned || got[0].TID != 5 || got[0].Path != "x" || got[0].Problem == "" {
		t.Errorf("shown: %+v", got)
	}
}

// TestDeathInInjectedCall: run returns the status of a command that ends during an injected
// system call.
func TestDeathInInjectedCall(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, test := range []struct {
		name string
		nr   uint64
		arg  func(pid int) []uint64
		want unix.WaitStatus
	}{
		{"exit", unix.SYS_EXIT_GROUP, func(int) []uint64 { return []uint64{3} }, 3 << 8},
		{"kill", unix.SYS_KILL, func(pid int) []uint64 { return []uint64{uint64(pid), uint64(unix.SIGKILL)} }, unix.WaitStatus(unix.SIGKILL)},
	} {
		c := exec.Command("sh", "-c", ":")
		c.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		pid := c.Process.Pid
		var ws unix.WaitStatus
		if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil || !ws.Stopped() {
			t.Fatalf("%v, wait status %#x", err, ws)
		}
		if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD); err != nil {
			t.Fatal(err)
		}
		tr := newTracer(Options{}, new(events))
		tr.command = pid
		in, err := tr.InjectAnywhere(tr.Thread(pid))
		if err == nil {
			_, err = in.Call(test.nr, test.arg(pid)...)
		}
		if err != ptrace.ErrDied {
			t.Errorf("%s: %v", test.name, err)
			c.Process.Kill()
		}
		if end, err := tr.run(); err != nil || end != test.want {
			t.Errorf("%s: wait status %#x, %v, want %#x", test.name, uint32(end), err, uint32(test.want))
		}
	}
}
