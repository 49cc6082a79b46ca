//go:build amd64 || arm64

package tracee

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
)

// A Set has the traced threads and processes, their finished calls, and their stops that are
// still to be handled.
type Set struct {
	Threads   map[int]*Thread // by thread ID
	Processes map[int]*Process
	files     int // number of files seen
	snapshot  snapshot
	Now       time.Time // of the last stop; reading the clock is slow on some machines
	Done      []*Call   // calls to be shown
	Waited    []Waited  // stops to be handled
	failures  int       // see Guard

	// Completed, if not nil, is called before n completions, of libibverbs' layout, are read.
	Completed func(th *Thread, c *Call, addr, n uint64)
}

// NewSet returns an empty Set.
func NewSet() *Set {
	return &Set{Threads: make(map[int]*Thread), Processes: make(map[int]*Process)}
}

// A Waited is a result of wait4.
type Waited struct {
	TID    int
	Status unix.WaitStatus
}

// Abandon emits the thread's current call, whose return will not be traced.
func (t *Set) Abandon(th *Thread) {
	if c := th.Call; c != nil {
		th.Call = nil
		if !c.Silent {
			t.Emit(c)
		}
	}
}

// Emit adds a call to those to be shown when its thread runs again.
func (t *Set) Emit(c *Call) { t.Done = append(t.Done, c) }

// Inject returns an injector for a thread at a syscall-exit stop.
func (t *Set) Inject(th *Thread) (*ptrace.Injector, error) {
	return ptrace.Inject(th.TID, th.Proc.Allows, t.diedAt(th.TID))
}

// InjectAnywhere returns an injector for a thread at any stop except a syscall stop.
func (t *Set) InjectAnywhere(th *Thread) (*ptrace.Injector, error) {
	th.RestartFromBeginning()
	return ptrace.InjectAnywhere(th.TID, th.Proc.Allows, t.diedAt(th.TID))
}

func (t *Set) diedAt(tid int) func(unix.WaitStatus) {
	return func(ws unix.WaitStatus) { t.Waited = append(t.Waited, Waited{tid, ws}) }
}

// StopOthers stops the other threads of a thread's process, and reports whether all have
// stopped: a thread in vfork does not. Their stops are handled later.
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

// Patience is how long to wait for a thread to stop.
const Patience = 2 * time.Second

// Resume resumes a thread, and delivers a signal if sig is not 0. It runs to the next system
// call stop if one is needed, else to the next stop of another kind.
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
