//go:build amd64 || arm64

package bpf

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Types of programs.
const (
	Kprobe        = unix.BPF_PROG_TYPE_KPROBE
	RawTracepoint = unix.BPF_PROG_TYPE_RAW_TRACEPOINT
)

// A Program is a program in the kernel.
type Program struct{ fd int }

// license is this module's, in words that the kernel takes as compatible with its own. Most of
// its functions are for such programs only.
const license = "Dual MIT/GPL\x00"

const (
	nameBytes = 16
	logBytes  = 1 << 20
	logShown  = 2000
)

// A Function is a function of the kernel, or of a module, whose calls programs see by trampolines.
type Function struct {
	ID     uint32  // in its type information
	Module *Module // nil: of the kernel itself
}

// A target is a type of program, and what it is for.
type target struct{ kind, attach, function, module uint32 }

// Load assembles a program and loads it.
func Load(kind int, name string, a *Asm) (*Program, error) {
	return load(target{kind: uint32(kind)}, name, a)
}

// LoadTraced loads a program that runs when the kernel enters a function or, with returns, leaves it.
// The context is the function's arguments and, with returns, its result, of 8 bytes each.
func LoadTraced(f Function, returns bool, name string, a *Asm) (*Program, error) {
	t := target{kind: unix.BPF_PROG_TYPE_TRACING, attach: unix.BPF_TRACE_FENTRY, function: f.ID}
	if returns {
		t.attach = unix.BPF_TRACE_FEXIT
	}
	if f.Module != nil {
		t.module = uint32(f.Module.fd)
	}
	return load(t, name, a)
}

func load(t target, name string, a *Asm) (*Program, error) {
	code, err := a.Program()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p, err := loadCode(t, name, code, nil)
	if err == nil {
		return p, nil
	}
	if errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("bpf: load %s: %w", name, err)
	}
	log := make([]byte, logBytes) // making a log takes time
	if p, err := loadCode(t, name, code, log); err == nil {
		return p, nil
	}
	log, _, _ = bytes.Cut(log, []byte{0})
	return nil, fmt.Errorf("bpf: load %s: %w\n%s", name, err, log[max(0, len(log)-logShown):])
}

func loadCode(t target, name string, code, log []byte) (*Program, error) {
	attr := struct {
		kind, insns       uint32
		code, license     *byte
		logLevel, logSize uint32
		log               *byte
		kernel, flags     uint32
		name              [nameBytes]byte
		_                 uint32
		attach            uint32
		_                 [36]byte
		function, module  uint32
		_                 uint32
	}{
		kind: t.kind, insns: uint32(len(code) / insnBytes),
		code: unsafe.SliceData(code), license: unsafe.SliceData([]byte(license)),
		attach: t.attach, function: t.function, module: t.module,
	}
	copy(attr.name[:nameBytes-1], name)
	if len(log) > 0 {
		attr.logLevel, attr.logSize, attr.log = 1, uint32(len(log)), unsafe.SliceData(log)
	}
	fd, err := call(unix.BPF_PROG_LOAD, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	if err != nil {
		return nil, err
	}
	return &Program{fd}, nil
}

// Close drops this process's reference to the program. It stays where it is attached.
func (p *Program) Close() error { return os.NewSyscallError("close", unix.Close(p.fd)) }

// A Link is a program's place in the kernel.
type Link struct{ fd int }

// Close detaches the program. When it returns, the program may still run on other processors.
func (l *Link) Close() error { return os.NewSyscallError("close", unix.Close(l.fd)) }

// AttachTracepoint makes a raw tracepoint of the kernel run the program.
func (p *Program) AttachTracepoint(name string) (*Link, error) {
	l, err := p.open(unsafe.SliceData(append([]byte(name), 0)))
	if err != nil {
		return nil, fmt.Errorf("bpf: attach to the tracepoint %s: %w", name, err)
	}
	return l, nil
}

// AttachTraced makes the function that the program was loaded for run it.
func (p *Program) AttachTraced() (*Link, error) {
	l, err := p.open(nil)
	if err != nil {
		return nil, fmt.Errorf("bpf: attach to a function: %w", err)
	}
	return l, nil
}

func (p *Program) open(tracepoint *byte) (*Link, error) {
	attr := struct {
		name *byte
		fd   uint32
		_    uint32
	}{name: tracepoint, fd: uint32(p.fd)}
	fd, err := call(unix.BPF_RAW_TRACEPOINT_OPEN, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	if err != nil {
		return nil, err
	}
	return &Link{fd}, nil
}

const kprobeDir = "/sys/bus/event_source/devices/kprobe/"

// AttachFunction makes a function of the kernel or of a module run the program: when it is
// called, or when it returns. The error is ENOENT if there is no such function.
func (p *Program) AttachFunction(name string, returns bool) (*Link, error) {
	l, err := p.attachFunction(name, returns)
	if err != nil {
		return nil, fmt.Errorf("bpf: attach to the function %s: %w", name, err)
	}
	return l, nil
}

func (p *Program) attachFunction(name string, returns bool) (*Link, error) {
	kind, err := os.ReadFile(kprobeDir + "type")
	if err != nil {
		return nil, fmt.Errorf("%w: the kernel has no kprobes: %v", unix.ENOTSUP, err)
	}
	number, err := strconv.ParseUint(strings.TrimSpace(string(kind)), 10, 32)
	if err != nil {
		return nil, err
	}
	words, err := unix.BytePtrFromString(name)
	if err != nil {
		return nil, err
	}
	var pin runtime.Pinner
	pin.Pin(words)
	defer pin.Unpin()
	attr := unix.PerfEventAttr{
		Type: uint32(number), Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Ext1: uint64(uintptr(unsafe.Pointer(words))), // the function's name; Ext2 is an offset in it
		Bits: unix.PerfBitDisabled,
	}
	if returns {
		attr.Config = 1 // as format/retprobe says
	}
	// The program runs on all processors, whatever the event's.
	fd, err := unix.PerfEventOpen(&attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, p.fd); err != nil {
		unix.Close(fd)
		return nil, err
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &Link{fd}, nil
}
