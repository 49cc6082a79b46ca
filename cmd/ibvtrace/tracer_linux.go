//go:build amd64 || arm64

package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ioctl"
)

// A tracer follows a program, its threads and its children.
type tracer struct {
	command int             // the pid whose end is ours
	threads map[int]*thread // by tid, those that have stopped for something
	emit    func(*verb)
}

// A thread is a traced thread.
type thread struct {
	pid  int   // its process, 0 before it is needed
	verb *verb // the verb it is in, or nil
}

// run waits for stops until no traced thread is left, and returns how the
// command ended.
//
// A ptrace request fails with ESRCH if SIGKILL was faster. That is never an
// error here: the thread's end is on its way to wait4.
func (t *tracer) run() (unix.WaitStatus, error) {
	var end unix.WaitStatus
	for {
		var ws unix.WaitStatus
		tid, err := unix.Wait4(-1, &ws, unix.WALL, nil)
		now := time.Now()
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ECHILD:
			return end, nil
		case err != nil:
			return end, os.NewSyscallError("wait4", err)
		}
		if ws.Stopped() {
			if err := t.stopped(tid, ws, now); err != nil && err != unix.ESRCH {
				return end, fmt.Errorf("thread %d, wait status %#x: %w", tid, uint32(ws), err)
			}
			continue
		}
		if ws.Exited() || ws.Signaled() {
			t.gone(tid)
			if tid == t.command {
				end = ws
			}
		}
	}
}

func (t *tracer) thread(tid int) *thread {
	th := t.threads[tid]
	if th == nil {
		th = new(thread)
		t.threads[tid] = th
	}
	return th
}

// gone forgets a thread. A verb it was in never returned.
func (t *tracer) gone(tid int) {
	if th := t.threads[tid]; th != nil && th.verb != nil {
		t.emit(th.verb)
	}
	delete(t.threads, tid)
}

// stopped handles one stop and sets the thread going again.
func (t *tracer) stopped(tid int, ws unix.WaitStatus, now time.Time) error {
	const syscallStop = unix.SIGTRAP | 0x80
	th := t.thread(tid)
	sig := ws.StopSignal()

	switch event := int(ws) >> 16; event {
	case 0:
		if sig == syscallStop {
			t.leave(th, tid, now)
			sig = 0
		}
		// Else a signal on its way to the thread: pass it on.
	case unix.PTRACE_EVENT_SECCOMP:
		t.enter(th, tid)
		sig = 0
	case unix.PTRACE_EVENT_STOP:
		switch sig {
		case unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
			return listen(tid)
		}
		sig = 0 // a new thread, or the end of a group-stop
	case unix.PTRACE_EVENT_EXEC:
		// All threads are gone, and the one that called exec is now known
		// by its process's id. The kernel reports the end of the others,
		// but not of the one whose id was taken.
		if former, err := unix.PtraceGetEventMsg(tid); err == nil && int(former) != tid {
			t.gone(tid)
			delete(t.threads, int(former))
			th = t.thread(tid)
		}
		sig = 0
	default:
		// Fork, vfork, clone: the child is attached already.
		sig = 0
	}

	if th.verb != nil {
		th.verb.resumed = time.Now()
		return unix.PtraceSyscall(tid, int(sig))
	}
	return unix.PtraceCont(tid, int(sig))
}

// enter reads the verb that a thread is about to call.
func (t *tracer) enter(th *thread, tid int) {
	info, err := getSyscallInfo(tid)
	if err != nil || info.op != unix.PTRACE_SYSCALL_INFO_SECCOMP || !isVerb(info.arch, info.nr, info.args[1]) {
		return // gone, or stopped by a filter of the program's own
	}
	if th.pid == 0 {
		th.pid = threadGroup(tid)
	}
	fd := int(int32(info.args[0]))
	v := &verb{
		start:  time.Now(),
		pid:    th.pid,
		tid:    tid,
		thread: threadName(tid),
		fd:     fd,
		device: device(tid, fd),
	}
	if v.device == "" {
		v.path = fdPath(tid, fd)
	}
	v.call, v.unreadable = ioctl.Decode(info.args[2], memory(tid))
	th.verb = v
}

// leave completes the verb that a thread is in and prints it.
func (t *tracer) leave(th *thread, tid int, now time.Time) {
	v := th.verb
	if v == nil {
		return
	}
	info, err := getSyscallInfo(tid)
	if err != nil || info.op != unix.PTRACE_SYSCALL_INFO_EXIT {
		return
	}
	th.verb = nil
	v.duration = now.Sub(v.resumed)
	v.returned = true
	v.ret = info.result()
	if v.ret < 0 {
		v.errno = unix.Errno(-v.ret)
		v.ret = -1
	}
	if v.call != nil && v.errno == 0 {
		v.call.DecodeResults(memory(tid))
	}
	t.emit(v)
}

// memory returns the function that reads a thread's memory.
func memory(tid int) ioctl.Memory {
	return func(addr uint64, b []byte) error { return readMemory(tid, addr, b) }
}
