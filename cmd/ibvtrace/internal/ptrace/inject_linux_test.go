//go:build amd64 || arm64

package ptrace

import (
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// injected returns an Injector for a program that has just begun. Until the test ends it keeps
// its goroutine on one thread, the tracer.
func injected(t *testing.T) *Injector {
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	c := exec.Command("sh", "-c", ":")
	c.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	pid := c.Process.Pid
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil || !ws.Stopped() {
		t.Fatalf("%v, wait status %#x", err, ws)
	}
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD); err != nil {
		t.Fatal(err)
	}
	in, err := InjectAnywhere(pid, func(uint64, ...uint64) bool { return true }, func(unix.WaitStatus) {})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// TestLendToDying: Lend reports that the program has died with the memory.
func TestLendToDying(t *testing.T) {
	in := injected(t)
	lent := false
	err := in.Lend([]byte("data"), func(addr uint64) error {
		var b [4]byte
		lent = ReadMemory(in.TID, addr, b[:]) == nil && string(b[:]) == "data"
		_, err := in.Call(unix.SYS_EXIT_GROUP, 0)
		return err
	})
	if err != ErrDied || !lent {
		t.Errorf("%v, lent: %t", err, lent)
	}
}

// TestLendFiltered: where the program's filters don't let memory be mapped, nothing is lent.
func TestLendFiltered(t *testing.T) {
	asked := 0
	in := &Injector{allows: func(uint64, ...uint64) bool { asked++; return false }}
	err := in.Lend([]byte("data"), func(addr uint64) error {
		t.Errorf("lent at %#x", addr)
		return nil
	})
	if err != ErrFiltered || asked != 1 {
		t.Errorf("%v, after %d questions", err, asked)
	}
}
