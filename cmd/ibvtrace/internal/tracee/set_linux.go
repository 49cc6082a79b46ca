//go:build amd64 || arm64

package tracee

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
)

// A Set is the programs that are traced: their threads and processes, what these have
// done, and what stops of theirs are to be handled.
type Set struct {
	Threads   map[int]*Thread // by tid
	Processes map[int]*Process
	files     int // that have been seen
	snapshot  snapshot
	Now       time.Time // of the last stop: to ask for it takes long on some machines
	Done      []*Call   // that are not shown yet
	Waited    []Waited  // stops to be handled
}

// NewSet returns one that is empty.
func NewSet() *Set {
	return &Set{Threads: make(map[int]*Thread), Processes: make(map[int]*Process)}
}

// A Waited is what wait4 has said of a thread.
type Waited struct {
	TID    int
	Status unix.WaitStatus
}

// Abandon prints a call that will not be seen to return.
func (t *Set) Abandon(th *Thread) {
	if c := th.Call; c != nil {
		th.Call = nil
		if !c.Silent {
			t.Emit(c)
		}
	}
}

// Emit has a call shown once the thread that made it runs again.
func (t *Set) Emit(c *Call) { t.Done = append(t.Done, c) }

// Inject makes ready to call something in the place of a thread that is at the exit of a
// system call.
func (t *Set) Inject(th *Thread) (*ptrace.Injector, error) {
	return ptrace.Inject(th.TID, th.Proc.Allows, t.diedAt(th.TID))
}

// InjectAnywhere makes ready one that is at any stop but a system call's.
func (t *Set) InjectAnywhere(th *Thread) (*ptrace.Injector, error) {
	th.KeepWhole()
	return ptrace.InjectAnywhere(th.TID, th.Proc.Allows, t.diedAt(th.TID))
}

func (t *Set) diedAt(tid int) func(unix.WaitStatus) {
	return func(ws unix.WaitStatus) { t.Waited = append(t.Waited, Waited{tid, ws}) }
}

// StopOthers stops the other threads of a thread's process, and reports whether it
// could: one that waits for its child after vfork does not stop. What they stopped for
// is handled later.
func (t *Set) StopOthers(th *Thread) bool {
	for tid, other := range t.Threads {
		if other.Proc == th.Proc && other.Running {
			ptrace.Interrupt(tid)
		}
	}
	for end := time.Now().Add(Patience / 10); ; time.Sleep(100 * time.Microsecond) {
		running := false
		for tid, other := range t.Threads {
			if other.Proc != th.Proc || !other.Running {
				continue
			}
			var ws unix.WaitStatus
			got, err := unix.Wait4(tid, &ws, unix.WALL|unix.WNOHANG, nil)
			if err != nil || got == 0 {
				running = true
				continue
			}
			other.Running = false
			t.Waited = append(t.Waited, Waited{tid, ws})
		}
		if !running {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// Patience is how long a thread that was told to stop may take to do so.
const Patience = 2 * time.Second

// Resume sets a thread going to the next stop that matters.
func (*Set) Resume(th *Thread, sig unix.Signal) error {
	th.Running = true
	if th.Call != nil {
		th.Call.Resumed = time.Now()
	}
	if th.Call != nil || th.Proc.All || th.Deciding != nil || th.Entered {
		return unix.PtraceSyscall(th.TID, int(sig))
	}
	return unix.PtraceCont(th.TID, int(sig))
}
