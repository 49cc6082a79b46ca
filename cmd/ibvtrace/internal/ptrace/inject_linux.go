//go:build amd64 || arm64

package ptrace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An Injector makes a stopped thread execute system calls, and then restores the thread's
// state. It is for operations that only the traced program itself can do, such as
// installing a seccomp filter or mapping memory.
type Injector struct {
	TID    int
	allows func(nr uint64, args ...uint64) bool
	died   func(unix.WaitStatus)
	saved  Registers
	mask   uint64 // the thread's signal mask
	at     uint64 // the address of a system call instruction
}

var errNotNative = errors.New("not a 64-bit program")

// ErrDied is returned if the thread died during an injected system call. Its wait status is
// passed to died (see [Inject]), or comes from wait4.
var ErrDied = errors.New("the thread died")

// ErrFiltered is returned if a system call was not made because of the program's filters.
var ErrFiltered = errors.New("its seccomp filters do not allow it, or can't be read without CAP_SYS_ADMIN")

// newInjector returns an Injector with the thread's registers, but without the address of a
// system call instruction.
func newInjector(tid int, allows func(nr uint64, args ...uint64) bool, died func(unix.WaitStatus)) (*Injector, error) {
	saved, err := GetRegisters(tid)
	if err != nil {
		return nil, err
	}
	if !saved.Native() {
		return nil, errNotNative
	}
	return &Injector{TID: tid, allows: allows, died: died, saved: saved}, nil
}

// Inject prepares a thread that is at a syscall-exit stop. allows reports whether the
// program's own filters allow a system call. died is called if the thread dies.
func Inject(tid int, allows func(nr uint64, args ...uint64) bool, died func(unix.WaitStatus)) (*Injector, error) {
	in, err := newInjector(tid, allows, died)
	if err != nil {
		return nil, err
	}
	in.at = in.saved.PC() - syscallLen
	code := make([]byte, syscallLen)
	if err := ReadMemory(tid, in.at, code); err != nil {
		return nil, err
	}
	if !bytes.Equal(code, syscallCode) {
		return nil, errors.New("not at the exit of a system call")
	}
	return in, in.block()
}

// InjectAnywhere prepares a thread that is at any stop except a syscall stop.
func InjectAnywhere(tid int, allows func(nr uint64, args ...uint64) bool, died func(unix.WaitStatus)) (*Injector, error) {
	in, err := newInjector(tid, allows, died)
	if err != nil {
		return nil, err
	}
	if in.at, err = findSyscall(tid); err != nil {
		return nil, err
	}
	in.saved.restart()
	return in, in.block()
}

// findSyscall returns the address of a system call instruction in the vDSO, which every
// program has mapped.
func findSyscall(tid int) (uint64, error) {
	maps, err := Mappings(tid)
	if err != nil {
		return 0, err
	}
	for _, m := range maps {
		if m.Path != "[vdso]" || m.End-m.Start > 1<<20 {
			continue
		}
		b := make([]byte, m.End-m.Start)
		if err := ReadMemory(tid, m.Start, b); err != nil {
			return 0, err
		}
		if i := bytes.Index(b, syscallCode); i >= 0 {
			return m.Start + uint64(i), nil
		}
	}
	return 0, errors.New("no system call instruction found")
}

// block blocks all signals of the thread until Done.
func (in *Injector) block() error {
	if err := in.sigmask(unix.PTRACE_GETSIGMASK, &in.mask); err != nil {
		return err
	}
	all := ^uint64(0)
	return in.sigmask(unix.PTRACE_SETSIGMASK, &all)
}

func (in *Injector) sigmask(request int, mask *uint64) error {
	return ptrace(request, in.TID, unsafe.Sizeof(*mask), uintptr(unsafe.Pointer(mask)))
}

// Call makes the thread execute a system call, if the program's own filters allow it.
func (in *Injector) Call(nr uint64, args ...uint64) (uint64, error) {
	if !in.allows(nr, args...) {
		return 0, ErrFiltered
	}
	regs := in.saved
	var a [6]uint64
	copy(a[:], args)
	regs.setCall(in.at, nr, a)
	if err := regs.Set(in.TID); err != nil {
		return 0, err
	}
	for range 2 { // its entry and its exit
		if err := in.step(); err != nil {
			return 0, err
		}
	}
	after, err := GetRegisters(in.TID)
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
func (in *Injector) step() error {
	for {
		if err := unix.PtraceSyscall(in.TID, 0); err != nil {
			return err
		}
		var ws unix.WaitStatus
		for {
			_, err := unix.Wait4(in.TID, &ws, unix.WALL, nil)
			if err == nil {
				break
			}
			if err != unix.EINTR {
				return os.NewSyscallError("wait4", err)
			}
		}
		switch {
		case !ws.Stopped():
			in.died(ws)
			return ErrDied
		case int(ws)>>16 == unix.PTRACE_EVENT_EXIT:
			// The thread must continue from this stop, so that wait4 reports its end.
			if err := unix.PtraceCont(in.TID, 0); err != nil && err != unix.ESRCH {
				return err
			}
			return ErrDied
		case int(ws)>>16 == 0 && ws.StopSignal() == unix.SIGTRAP|0x80:
			return nil
		case int(ws)>>16 == 0:
			// A signal that can't be blocked, or that a fault of the injected call forced.
			return fmt.Errorf("signal %v during an injected system call", ws.StopSignal())
		}
		// Another stop, such as a group-stop, which repeats.
	}
}

// Done restores the thread's registers and signal mask.
func (in *Injector) Done() error {
	err := in.saved.Set(in.TID)
	if err2 := in.sigmask(unix.PTRACE_SETSIGMASK, &in.mask); err == nil {
		err = err2
	}
	return err
}

// Lend maps memory that contains b into the program, calls f with its address, and unmaps
// it. Memory below the stack pointer is no alternative: in a Go program it may be the stack
// of another goroutine.
func (in *Injector) Lend(b []byte, f func(addr uint64) error) error {
	size := (uint64(len(b)) + 4095) &^ 4095
	addr, err := in.Call(unix.SYS_MMAP, 0, size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uint64(0), 0)
	if err != nil {
		return err
	}
	if err = WriteMemory(in.TID, addr, b); err == nil {
		err = f(addr)
	}
	if err == ErrDied {
		return err
	}
	if _, err2 := in.Call(unix.SYS_MUNMAP, addr, size); err == nil {
		err = err2
	}
	return err
}
