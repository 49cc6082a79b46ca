//go:build amd64 || arm64

package trace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Some things only the traced program itself can do: take a filter, map memory.
// An injector has a stopped thread make system calls and then puts everything back
// as it was.
type injector struct {
	t     *tracer
	tid   int
	proc  *process
	saved registers
	mask  uint64 // the signals that were blocked
	at    uint64 // where an instruction calls the kernel
}

var errNotNative = errors.New("the program is not a 64-bit one")

// errDied says that the thread died in the middle. Its end comes by run.
var errDied = errors.New("the thread died")

// inject makes ready a thread that is at the exit of a system call.
func (t *tracer) inject(tid int) (*injector, error) {
	in := &injector{t: t, tid: tid, proc: t.threads[tid].proc}
	var err error
	if in.saved, err = getRegisters(tid); err != nil {
		return nil, err
	}
	if !in.saved.native() {
		return nil, errNotNative
	}
	in.at = in.saved.pc() - syscallLen
	code := make([]byte, syscallLen)
	if err := readMemory(tid, in.at, code); err != nil {
		return nil, err
	}
	if !bytes.Equal(code, syscallCode) {
		return nil, errors.New("not behind a system call")
	}
	return in, in.block()
}

// injectAnywhere makes ready a thread that is at any stop but a system call's.
func (t *tracer) injectAnywhere(tid int) (*injector, error) {
	th := t.threads[tid]
	th.keepWhole()
	in := &injector{t: t, tid: tid, proc: th.proc}
	var err error
	if in.saved, err = getRegisters(tid); err != nil {
		return nil, err
	}
	if !in.saved.native() {
		return nil, errNotNative
	}
	if in.at, err = findSyscall(tid); err != nil {
		return nil, err
	}
	in.saved.restart()
	return in, in.block()
}

// findSyscall finds an instruction that calls the kernel, in the part of it that
// every program has mapped.
func findSyscall(tid int) (uint64, error) {
	maps, err := mappings(tid)
	if err != nil {
		return 0, err
	}
	for _, m := range maps {
		if m.path != "[vdso]" || m.end-m.start > 1<<20 {
			continue
		}
		b := make([]byte, m.end-m.start)
		if err := readMemory(tid, m.start, b); err != nil {
			return 0, err
		}
		if i := bytes.Index(b, syscallCode); i >= 0 {
			return m.start + uint64(i), nil
		}
	}
	return 0, errors.New("no system call instruction found")
}

// The thread's own signals wait meanwhile.
func (in *injector) block() error {
	if err := in.sigmask(unix.PTRACE_GETSIGMASK, &in.mask); err != nil {
		return err
	}
	all := ^uint64(0)
	return in.sigmask(unix.PTRACE_SETSIGMASK, &all)
}

func (in *injector) sigmask(request int, mask *uint64) error {
	return ptrace(request, in.tid, unsafe.Sizeof(*mask), uintptr(unsafe.Pointer(mask)))
}

// call has the thread make a system call, if its own filters let that pass.
func (in *injector) call(nr uint64, args ...uint64) (uint64, error) {
	if !in.proc.allows(nr, args...) {
		return 0, errFiltered
	}
	regs := in.saved
	var a [6]uint64
	copy(a[:], args)
	regs.setCall(in.at, nr, a)
	if err := regs.set(in.tid); err != nil {
		return 0, err
	}
	for range 2 { // its entry and its exit
		if err := in.step(); err != nil {
			return 0, err
		}
	}
	after, err := getRegisters(in.tid)
	if err != nil {
		return 0, err
	}
	r := after.result()
	if int64(r) < 0 && int64(r) > -4096 {
		return 0, unix.Errno(-int64(r))
	}
	return r, nil
}

// step lets the thread run to its next system call stop.
func (in *injector) step() error {
	for {
		if err := unix.PtraceSyscall(in.tid, 0); err != nil {
			return err
		}
		var ws unix.WaitStatus
		for {
			_, err := unix.Wait4(in.tid, &ws, unix.WALL, nil)
			if err == nil {
				break
			}
			if err != unix.EINTR {
				return os.NewSyscallError("wait4", err)
			}
		}
		switch {
		case !ws.Stopped():
			in.t.waited = append(in.t.waited, waited{in.tid, ws})
			return errDied
		case int(ws)>>16 == unix.PTRACE_EVENT_EXIT:
			// Its end comes by run, if it is not left standing here.
			if err := unix.PtraceCont(in.tid, 0); err != nil && err != unix.ESRCH {
				return err
			}
			return errDied
		case int(ws)>>16 == 0 && ws.StopSignal() == unix.SIGTRAP|0x80:
			return nil
		case int(ws)>>16 == 0:
			// Not to be blocked, or forced by a fault of ours.
			return fmt.Errorf("signal %v in the middle", ws.StopSignal())
		}
		// A group-stop or the like: it comes again.
	}
}

// done puts the thread back to where it was.
func (in *injector) done() error {
	err := in.saved.set(in.tid)
	if err2 := in.sigmask(unix.PTRACE_SETSIGMASK, &in.mask); err == nil {
		err = err2
	}
	return err
}

// lend maps memory with b in it into the program and calls f with its address. A
// place below the stack pointer would not do: there, other goroutines of a Go
// program may have their stacks.
func (in *injector) lend(b []byte, f func(addr uint64) error) error {
	size := (uint64(len(b)) + 4095) &^ 4095
	addr, err := in.call(unix.SYS_MMAP, 0, size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uint64(0), 0)
	if err != nil {
		return err
	}
	if err = writeMemory(in.tid, addr, b); err == nil {
		err = f(addr)
	}
	if err == errDied {
		return err
	}
	if _, err2 := in.call(unix.SYS_MUNMAP, addr, size); err == nil {
		err = err2
	}
	return err
}

// patience is how long a thread that was told to stop may take to do so.
const patience = 2 * time.Second
