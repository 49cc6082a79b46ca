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

// An Injector has a stopped thread make system calls, and then puts everything back as it
// was. Some things only the traced program itself can do: take a filter, map memory.
type Injector struct {
	TID    int
	allows func(nr uint64, args ...uint64) bool
	died   func(unix.WaitStatus)
	saved  Registers
	mask   uint64 // the signals that were blocked
	at     uint64 // where an instruction calls the kernel
}

var errNotNative = errors.New("the program is not a 64-bit one")

// ErrDied says that the thread died in the middle. Its end is told to who made the Injector,
// or comes by wait4.
var ErrDied = errors.New("the thread died")

// ErrFiltered says that a call was not made.
var ErrFiltered = errors.New("its seccomp filters do not allow it, or can't be read without CAP_SYS_ADMIN")

// Inject makes ready a thread that is at the exit of a system call. It is asked of each
// call whether the thread's own filters allow it, and told if the thread died.
func Inject(tid int, allows func(nr uint64, args ...uint64) bool, died func(unix.WaitStatus)) (*Injector, error) {
	in := &Injector{TID: tid, allows: allows, died: died}
	var err error
	if in.saved, err = GetRegisters(tid); err != nil {
		return nil, err
	}
	if !in.saved.Native() {
		return nil, errNotNative
	}
	in.at = in.saved.PC() - syscallLen
	code := make([]byte, syscallLen)
	if err := ReadMemory(tid, in.at, code); err != nil {
		return nil, err
	}
	if !bytes.Equal(code, syscallCode) {
		return nil, errors.New("not behind a system call")
	}
	return in, in.block()
}

// InjectAnywhere makes ready a thread that is at any stop but a system call's.
func InjectAnywhere(tid int, allows func(nr uint64, args ...uint64) bool, died func(unix.WaitStatus)) (*Injector, error) {
	in := &Injector{TID: tid, allows: allows, died: died}
	var err error
	if in.saved, err = GetRegisters(tid); err != nil {
		return nil, err
	}
	if !in.saved.Native() {
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

// The thread's own signals wait meanwhile.
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

// Call has the thread make a system call, if its own filters let that pass.
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
			// Its end comes by wait4, if it is not left standing here.
			if err := unix.PtraceCont(in.TID, 0); err != nil && err != unix.ESRCH {
				return err
			}
			return ErrDied
		case int(ws)>>16 == 0 && ws.StopSignal() == unix.SIGTRAP|0x80:
			return nil
		case int(ws)>>16 == 0:
			// Not to be blocked, or forced by a fault of ours.
			return fmt.Errorf("signal %v in the middle", ws.StopSignal())
		}
		// A group-stop or the like: it comes again.
	}
}

// Done puts the thread back to where it was.
func (in *Injector) Done() error {
	err := in.saved.Set(in.TID)
	if err2 := in.sigmask(unix.PTRACE_SETSIGMASK, &in.mask); err == nil {
		err = err2
	}
	return err
}

// Lend maps memory with b in it into the program and calls f with its address. A
// place below the stack pointer would not do: there, other goroutines of a Go
// program may have their stacks.
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
