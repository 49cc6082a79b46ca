//go:build amd64 || arm64

package tracer

import (
	"encoding/binary"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/internal/tracing/event"
	"github.com/goverbs/goverbs/uapi"
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
		tr.command, tr.stops.Filtered = pid, true
		in, err := tr.InjectAnywhere(tr.Thread(pid, nil))
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

// TestEnterWritten: the command to the connection manager is read from where the arguments of
// write and writev say.
func TestEnterWritten(t *testing.T) {
	tr := newTracer(Options{}, new(events))
	p := tracee.NewProcess(os.Getpid())
	th := &tracee.Thread{TID: os.Getpid(), Proc: p}
	tr.NewFile(p, 5, tracee.File{Kind: tracee.FileCM})
	m, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	const n, iov = 8 + 16, 64 // the command has a header and a body; the struct iovec is behind it
	addr := uint64(uintptr(unsafe.Pointer(&m[0])))
	binary.NativeEndian.PutUint32(m, uapi.RDMA_USER_CM_CMD_LISTEN)
	binary.NativeEndian.PutUint16(m[4:], 8)
	binary.NativeEndian.PutUint32(m[8:], 77)
	binary.NativeEndian.PutUint64(m[iov:], addr)
	binary.NativeEndian.PutUint64(m[iov+8:], n)
	arch := uint32(unix.AUDIT_ARCH_X86_64)
	if runtime.GOARCH == "arm64" {
		arch = unix.AUDIT_ARCH_AARCH64
	}
	for name, info := range map[string]*ptrace.SyscallInfo{
		"write":  {Arch: arch, Nr: unix.SYS_WRITE, Args: [6]uint64{5, addr, n}},
		"writev": {Arch: arch, Nr: unix.SYS_WRITEV, Args: [6]uint64{5, addr + iov, 1}},
	} {
		c := tr.enter(th, info)
		if c == nil || c.Problem != nil || c.Name != "rdma_listen" {
			t.Errorf("%s: %+v", name, c)
		} else if id := tracee.Find(c.Args, "id"); id == nil || id.Num != 77 {
			t.Errorf("%s: arguments %+v", name, c.Args)
		}
	}
	if c := tr.enter(th, &ptrace.SyscallInfo{Arch: arch, Nr: unix.SYS_WRITE, Args: [6]uint64{6, addr, n}}); c != nil {
		t.Errorf("another descriptor: %+v", c)
	}
}
