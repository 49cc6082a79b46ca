package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// A tracer is the tracer (ptrace) of a program and of its children. A thread marks points of
// a batch by sending itself SIGUSR1: before it prepares the batch, at its beginning and at
// its end. From the first mark to the last, the process's other threads are stopped.
// Otherwise they would give the thread work: Go's monitor asks a goroutine that has run for
// long to yield. It may already have asked, so a program in Go yields after the first mark.
type tracer struct {
	frozen map[int]bool
	steps  []int // of each batch
}

// trace runs a command that waits for a line of input before it does anything. It returns
// the number of instructions of each batch.
func trace(cmd *exec.Cmd) ([]int, error) {
	runtime.LockOSThread() // ptrace needs it
	defer runtime.UnlockOSThread()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := seize(cmd.Process.Pid); err != nil {
		cmd.Process.Kill()
		return nil, errors.Join(fmt.Errorf("ptrace: %w", err), cmd.Wait())
	}
	fmt.Fprintln(in)
	in.Close()
	t := tracer{frozen: make(map[int]bool)}
	status, err := t.run(cmd.Process.Pid)
	if err != nil {
		cmd.Process.Kill()
		reap()
	} else if status != 0 {
		err = fmt.Errorf("exit status %d", status)
	}
	cmd.Wait() // its status is taken; this waits for its output
	return t.steps, err
}

// reap waits for the end of all traced threads. Before that, the process's end can't be
// waited for.
func reap() {
	for {
		if _, err := unix.Wait4(-1, nil, unix.WALL, nil); err != nil && err != unix.EINTR {
			return
		}
	}
}

// seize makes the calling thread the tracer of a process and its children.
func seize(pid int) error {
	if err := unix.PtraceSeize(pid); err != nil {
		return err
	}
	if err := stop(pid); err != nil { // options are those of a stopped process
		return err
	}
	const options = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_EXITKILL
	if err := unix.PtraceSetOptions(pid, options); err != nil {
		return err
	}
	return unix.PtraceCont(pid, 0)
}

// stop stops a thread.
func stop(tid int) error {
	if err := unix.PtraceInterrupt(tid); err != nil {
		return err
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(tid, &ws, unix.WALL, nil); err != nil {
		return err
	}
	if !ws.Stopped() || ws>>16 != unix.PTRACE_EVENT_STOP {
		return fmt.Errorf("thread %d has status %#x", tid, ws)
	}
	return nil
}

// run lets all threads run until the first process has ended, and counts batches.
func (t *tracer) run(first int) (status int, err error) {
	for {
		var ws unix.WaitStatus
		tid, err := unix.Wait4(-1, &ws, unix.WALL, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, fmt.Errorf("wait: %w", err)
		case ws.Exited() || ws.Signaled():
			if tid == first {
				return ws.ExitStatus(), nil
			}
		case marks(ws):
			prepared := len(t.frozen) > 0
			if err := t.freeze(tid); err != nil {
				return 0, err
			}
			if prepared {
				if err := t.batch(tid); err != nil {
					return 0, err
				}
			}
			_ = unix.PtraceCont(tid, 0)
		default:
			resume(tid, ws)
		}
	}
}

// marks reports whether a thread has stopped because it sent itself SIGUSR1.
func marks(ws unix.WaitStatus) bool {
	return ws.Stopped() && ws.StopSignal() == unix.SIGUSR1 && ws>>16 == 0
}

// resume lets a stopped thread continue, with the signal that stopped it, if any.
func resume(tid int, ws unix.WaitStatus) {
	signal := 0
	if ws>>16 == 0 {
		signal = int(ws.StopSignal())
	}
	_ = unix.PtraceCont(tid, signal) // it may have been killed
}

// freeze stops all other threads of the process of a stopped thread.
func (t *tracer) freeze(tid int) error {
	t.frozen[tid] = true
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", tid))
	if err != nil {
		return err
	}
	for _, task := range tasks {
		other, err := strconv.Atoi(task.Name())
		if err != nil || t.frozen[other] {
			continue
		}
		if err := stop(other); err != nil {
			return err
		}
		t.frozen[other] = true
	}
	return nil
}

// batch counts the instructions of a thread until its next mark. It then lets the other
// threads continue.
func (t *tracer) batch(tid int) error {
	for n := 0; ; n++ {
		if err := unix.PtraceSingleStep(tid); err != nil {
			return fmt.Errorf("step: %w", err)
		}
		ws, err := t.stepped(tid)
		if err != nil {
			return fmt.Errorf("wait for a step: %w", err)
		}
		if !ws.Stopped() {
			return fmt.Errorf("the program ended within a batch: %#x", ws)
		}
		if marks(ws) {
			t.steps = append(t.steps, n)
			break
		}
	}
	for other := range t.frozen {
		if other != tid {
			_ = unix.PtraceCont(other, 0)
		}
	}
	clear(t.frozen)
	return nil
}

// stepped waits for a thread's next stop. If its process ends, a process's first thread is the last
// that can be waited for.
func (t *tracer) stepped(tid int) (ws unix.WaitStatus, err error) {
	for {
		got, err := unix.Wait4(-1, &ws, unix.WALL, nil)
		if err != nil || got == tid {
			return ws, err
		}
		if !t.frozen[got] {
			resume(got, ws)
		}
	}
}
