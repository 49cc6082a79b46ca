//go:build amd64 || arm64

package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/recorder"
)

// A program may have seccomp filters of its own. What these do not let pass may kill it,
// so no such call is made in its place: it then stops at every system call instead.
// Filters are read when they are installed, or on attaching, which takes
// CAP_SYS_ADMIN. One that could not be read lets nothing pass.

// errFiltered says that a call was not made.
var errFiltered = errors.New("its seccomp filters do not allow it, or can't be read without CAP_SYS_ADMIN")

// allows reports whether the process's own filters let a system call pass.
func (p *process) allows(nr uint64, args ...uint64) bool {
	d := seccompData{nr: uint32(nr), arch: abis[0].arch}
	copy(d.args[:], args)
	for _, f := range p.own {
		action, ok := f.run(&d)
		action &= unix.SECCOMP_RET_ACTION_FULL
		if !ok || action != unix.SECCOMP_RET_ALLOW && action != unix.SECCOMP_RET_LOG {
			return false
		}
	}
	return true
}

// enterSeccomp looks at a call by which a program limits what it may call, in all threads
// or in one.
func (t *tracer) enterSeccomp(th *thread, strict, all bool, addr uint64, wide bool) *call {
	p := th.proc
	// From its entry on, as other threads get the filter before its exit is seen.
	p.endRecording()
	f := new(program)
	if !strict {
		*f = readProgram(th.tid, addr, wide)
	}
	p.own = append(p.own, f)
	if *f != nil {
		t.checkData(p) // one that can't be read is refused, most likely
	}
	if all {
		t.leaveInserts(th)
		t.awaitRestarts(th)
	}
	return &call{silent: true, finish: func(t *tracer, _ *thread, c *call) {
		if c.errno == 0 {
			t.checkData(p)
			return
		}
		if i := slices.Index(p.own, f); i >= 0 {
			p.own = slices.Delete(p.own, i, i+1)
		}
	}}
}

// maxInstructions is the kernel's BPF_MAXINSNS.
const maxInstructions = 4096

// readProgram reads a struct sock_fprog and the filter that it points at, nil: it could not
// be read.
func readProgram(tid int, addr uint64, wide bool) program {
	var b [16]byte
	head := b[:8]
	if wide {
		head = b[:]
	}
	if readMemory(tid, addr, head) != nil {
		return nil
	}
	at := uint64(binary.NativeEndian.Uint32(b[4:]))
	if wide {
		at = binary.NativeEndian.Uint64(b[8:])
	}
	n := binary.NativeEndian.Uint16(b[:])
	if n == 0 || n > maxInstructions {
		return nil
	}
	code := make([]byte, 8*int(n))
	if readMemory(tid, at, code) != nil {
		return nil
	}
	p := make(program, n)
	for i := range p {
		c := code[8*i:]
		p[i] = unix.SockFilter{Code: binary.NativeEndian.Uint16(c), Jt: c[2], Jf: c[3], K: binary.NativeEndian.Uint32(c[4:])}
	}
	return p
}

// readOwn learns which filters a process has that is attached to. Those of its threads that
// stopped can be read.
func (t *tracer) readOwn(p *process) {
	p.own = nil
	for tid, th := range t.threads {
		if th.proc != p {
			continue
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
		if err != nil || statusNumber(string(status), "Seccomp:") == 0 {
			continue
		}
		filters, err := installed(tid)
		if err != nil {
			filters = []*program{new(program)}
		}
		for _, f := range filters {
			if !slices.ContainsFunc(p.own, func(g *program) bool { return slices.Equal(*f, *g) }) {
				p.own = append(p.own, f)
			}
		}
	}
}

// installed returns the filters of a stopped thread.
func installed(tid int) ([]*program, error) {
	var all []*program
	for {
		index := uintptr(len(all))
		get := func(to unsafe.Pointer) (uintptr, unix.Errno) {
			n, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SECCOMP_GET_FILTER, uintptr(tid), index, uintptr(to), 0, 0)
			return n, errno
		}
		n, errno := get(nil)
		if errno == unix.ENOENT {
			return all, nil
		}
		if errno != 0 {
			return nil, errno
		}
		// The number stays: filters do not change.
		p := make(program, n)
		if _, errno := get(unsafe.Pointer(unsafe.SliceData(p))); errno != 0 {
			return nil, errno
		}
		all = append(all, &p)
	}
}

// checkFilters compares the number of filters that a new process has with that of those
// that are known: its parent may not be the one it looks to be.
func (t *tracer) checkFilters(p *process, has int) {
	known := len(p.own)
	if t.command != 0 {
		known += t.inherited + p.given
	}
	if has > known {
		p.own = append(p.own, new(program))
		p.all = true
	}
}

// statusNumber returns a number from what is in /proc/TID/status, 0: it is not there.
func statusNumber(status, name string) int {
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(v))
			return n
		}
	}
	return 0
}

// leaveInserts lets the other threads of a process leave what was put into it, a recorder
// or a probe, that they are in. One that stays for long, in a verb, is not waited for.
func (t *tracer) leaveInserts(th *thread) {
	p := th.proc
	if p.recording == nil && p.data == nil {
		return
	}
	for end := time.Now().Add(patience / 10); time.Now().Before(end) && t.stopOthers(th); {
		inside := false
		t.waited = slices.DeleteFunc(t.waited, func(w waited) bool {
			other := t.threads[w.tid]
			interruption := int(w.ws)>>16 == unix.PTRACE_EVENT_STOP && w.ws.StopSignal() == unix.SIGTRAP
			if other == nil || other.proc != p || !interruption || !other.inInsert() {
				return false
			}
			inside = true
			t.resume(other, 0) // fails only if the thread is gone
			return true
		})
		if !inside {
			return
		}
		time.Sleep(200 * time.Microsecond) // else they would stop where they are
	}
}

// inInsert reports whether a stopped thread is in a recorder, in a probe, or in a function
// from which it returns to one.
func (th *thread) inInsert() bool {
	if len(th.posts.calls) > 0 {
		return true
	}
	regs, err := getRegisters(th.tid)
	if err != nil {
		return false
	}
	r, d := th.proc.recording, th.proc.data
	return r != nil && regs.pc()-r.code < recorder.CodeBytes || d != nil && d.isProbe(regs.pc())
}

// awaitRestarts waits until the other threads of a process that stops interrupted have gone
// on: a filter that all threads get finds none about to make restart_syscall.
func (t *tracer) awaitRestarts(th *thread) {
	for end := time.Now().Add(patience / 10); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		runs := false
		for tid, other := range t.threads {
			if other.proc == th.proc && other.running && other.interrupted != 0 {
				now, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", tid))
				runs = runs || err == nil && string(now) == "running\n"
			}
		}
		if !runs {
			return
		}
	}
}

// keepWhole has a thread that a stop interrupted make its system call again, from its
// beginning, where it may not make the one that goes on with it, restart_syscall.
func (th *thread) keepWhole() {
	regs, err := getRegisters(th.tid)
	if err != nil {
		return
	}
	nr, ok := regs.restarts()
	if !ok {
		return
	}
	if nr != unix.SYS_RESTART_SYSCALL {
		th.interrupted = nr
	}
	if th.interrupted != 0 && !th.proc.allows(unix.SYS_RESTART_SYSCALL) {
		regs.again(th.interrupted)
		regs.set(th.tid) // fails only if the thread is gone
	}
}
