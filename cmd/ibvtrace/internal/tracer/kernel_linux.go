//go:build amd64 || arm64

package tracer

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/attach"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/calls"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/kernel"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/internal/tracing/event"
	"github.com/goverbs/goverbs/ioctl"
)

// A watching traces what package kernel sees. It has neither stops nor probes.
type watching struct {
	*tracee.Set
	calls    *calls.Decoder
	files    map[uint64]*tracee.File // open files by their addresses in the kernel
	known    map[*tracee.File]bool   // the files in files
	calling  map[int]*calling        // by thread
	sink     event.Sink
	sinkErr  error
	lost     uint64
	self     *tracee.Process // of the notes about ibvtrace
	endless  bool            // no end of a process ends the trace
	quit     atomic.Bool
	leftover atomic.Bool // the command has ended
}

// A calling is a call that has not returned.
type calling struct {
	call   *tracee.Call
	thread *tracee.Thread
	kind   kernel.Kind
	began  time.Time
	addr   uint64
}

func newWatching(raw bool, sink event.Sink) *watching {
	t := &watching{
		Set: tracee.NewSet(), sink: sink, self: tracee.NewProcess(os.Getpid()),
		files: make(map[uint64]*tracee.File), known: make(map[*tracee.File]bool), calling: make(map[int]*calling),
	}
	t.calls = calls.NewDecoder(t.Set, unstopped{}, unstopped{}, raw)
	return t
}

// unstopped implements the interfaces of package calls for programs that don't stop.
type unstopped struct{}

func (unstopped) Opened(*tracee.Thread, int, *tracee.File) {}
func (unstopped) Watch(*tracee.Thread, int, *tracee.File)  {}
func (unstopped) Succeeded(*tracee.Thread, *tracee.Call)   {}
func (unstopped) Destroyed(pid int, user uint64)           {}

// runKernel is Run with BPF.
func runKernel(o Options, sink event.Sink, w *kernel.Watcher) (Ending, error) {
	t := newWatching(o.Raw, sink)
	t.endless = o.All || o.Cgroup != ""
	signals := make(chan os.Signal, 16)
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTERM} {
		if !signal.Ignored(s) || len(o.Command) == 0 && s == unix.SIGINT {
			signal.Notify(signals, s)
		}
	}
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // the summary is still to be written
	stop := func() {
		t.quit.Store(true)
		w.Wake()
	}
	head := "seen in the kernel, without stops; not seen: posts and polls, verbs by write(2)"
	if len(w.Missing) > 0 {
		head += "; not loaded: " + strings.Join(w.Missing, ", ")
	}
	t.Note(t.self, head)
	if o.All || o.Cgroup != "" {
		t.listBefore(o.Cgroup)
	}
	if err := attachAll(t.Set, o.PIDs, func(pid int) error { return t.attach(w, pid) }); err != nil {
		return Ending{}, err
	}
	var status unix.WaitStatus
	ended := make(chan struct{})
	if len(o.Command) > 0 {
		pid, pidfd, err := t.launch(w, o.Command)
		if err != nil {
			return Ending{}, err
		}
		go func() {
			for {
				if _, err := unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
					break
				}
			}
			close(ended)
			t.leftover.Store(true)
			w.Wake()
		}()
		go forwardOrStop(signals, pidfd, stop)
		unix.Kill(pid, unix.SIGCONT)
	} else {
		go func() {
			<-signals
			stop()
		}()
	}
	t.show()
	err := t.run(w)
	w.Detach(t.handle)
	for _, tid := range slices.Sorted(maps.Keys(t.calling)) {
		t.abandon(tid)
	}
	t.noteLost(w)
	t.show()
	if err == nil {
		err = t.sinkErr
	}
	select {
	case <-ended:
		return Ending{status, true}, err
	default:
		return Ending{}, err // there is none, or it goes on
	}
}

// launch starts the command, which waits for SIGCONT, and watches it.
func (t *watching) launch(w *kernel.Watcher, command []string) (pid, pidfd int, err error) {
	if pid, err = start(command, false); err != nil {
		return 0, 0, err
	}
	if pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
		err = os.NewSyscallError("pidfd_open", err)
	} else {
		err = w.Add(pid)
	}
	if err != nil {
		unix.Kill(pid, unix.SIGKILL)
		return 0, 0, err
	}
	t.process(pid)
	return pid, pidfd, nil
}

// attach watches a process that runs, and lists what it has.
func (t *watching) attach(w *kernel.Watcher, pid int) error {
	if unix.Kill(pid, 0) == unix.ESRCH {
		return unix.ESRCH
	}
	pid, _, _ = ptrace.ProcessOf(pid) // it may be the ID of a thread
	if err := w.Add(pid); err != nil {
		return err
	}
	if unix.Kill(pid, 0) == unix.ESRCH { // its end was not seen
		return unix.ESRCH
	}
	attach.New(t.Set, nil).OpenBefore(t.process(pid))
	return nil
}

// listBefore lists what processes have that run, all or those in a cgroup.
func (t *watching) listBefore(cgroup string) {
	for _, pid := range running(cgroup) {
		p := t.process(pid)
		attach.New(t.Set, nil).OpenBefore(p)
		if pid == t.self.PID || len(p.FDs) == 0 {
			delete(t.Processes, pid)
		}
	}
}

// running returns the processes that run, or those in a cgroup and below it.
func running(cgroup string) []int {
	var pids []int
	if cgroup == "" {
		entries, _ := os.ReadDir("/proc")
		for _, e := range entries {
			if pid, err := strconv.Atoi(e.Name()); err == nil {
				pids = append(pids, pid)
			}
		}
		return pids
	}
	filepath.WalkDir(cgroup, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Name() == "cgroup.procs" {
			list, _ := os.ReadFile(path)
			for word := range strings.FieldsSeq(string(list)) {
				if pid, err := strconv.Atoi(word); err == nil {
					pids = append(pids, pid)
				}
			}
		}
		return nil // a cgroup may go meanwhile
	})
	return pids
}

// forwardOrStop forwards signals to the command as long as it runs. Later ones end the trace.
func forwardOrStop(signals <-chan os.Signal, pidfd int, stop func()) {
	for s := range signals {
		sig := s.(unix.Signal)
		err := unix.PidfdSendSignal(pidfd, 0, nil, 0)
		if err == nil && (sig == unix.SIGTERM || !inForeground()) {
			err = unix.PidfdSendSignal(pidfd, sig, nil, 0)
		}
		if err == unix.ESRCH {
			stop()
		}
	}
}

// run handles records until no process is left, or until quit.
func (t *watching) run(w *kernel.Watcher) error {
	for !t.quit.Load() {
		if t.leftover.Load() || t.lost > 0 {
			w.Drain(t.handle)
			t.sweep()
		}
		if !t.endless && len(t.Processes) == 0 {
			break
		}
		t.show()
		if err := w.Wait(t.handle); err != nil {
			return err
		}
		t.noteLost(w)
	}
	return nil
}

// sweep forgets processes that have ended, whose records may have been lost.
func (t *watching) sweep() {
	for pid, p := range t.Processes {
		if unix.Kill(pid, 0) == unix.ESRCH {
			t.forget(p)
		}
	}
}

// noteLost says how many records were lost since it was last called.
func (t *watching) noteLost(w *kernel.Watcher) {
	if n := w.Lost(); n > t.lost {
		t.Note(t.self, tracee.Plural(n-t.lost, "record")+" lost: more verbs than ibvtrace could read")
		t.lost = n
	}
}

func (t *watching) show() {
	if t.sinkErr != nil {
		t.Done = nil
		return
	}
	t.sinkErr = t.Show(t.sink)
}

// maxWaiting bounds the calls that are to be shown.
const maxWaiting = 256

// handle handles a record.
func (t *watching) handle(r *kernel.Record) {
	if !t.Broken() {
		t.Guard(func() { t.record(r) })
	}
	if len(t.Done) >= maxWaiting {
		t.show()
	}
}

func (t *watching) record(r *kernel.Record) {
	t.Now = r.Time
	switch {
	case r.Kind == kernel.Fork:
		child := tracee.NewProcess(int(r.Result))
		child.Inherit(t.process(r.PID))
		t.Processes[child.PID] = child
	case r.Kind == kernel.Exit:
		if p := t.Processes[r.PID]; p != nil {
			t.abandonAll(p)
			t.NoteExit(p, unix.WaitStatus(r.Result))
			t.forget(p)
		}
	case r.Kind == kernel.Release:
		t.released(r)
	case r.Returns:
		t.returned(r)
	default:
		t.entered(r)
	}
}

func (t *watching) process(pid int) *tracee.Process {
	p := t.Processes[pid]
	if p == nil {
		p = tracee.NewProcess(pid)
		t.Processes[pid] = p
	}
	return p
}

// forget forgets a process, which has ended.
func (t *watching) forget(p *tracee.Process) {
	t.abandonAll(p)
	p.Gone()
	delete(t.Processes, p.PID)
}

func (t *watching) abandonAll(p *tracee.Process) {
	for _, tid := range slices.Sorted(maps.Keys(t.calling)) {
		if t.calling[tid].thread.Proc == p {
			t.abandon(tid)
		}
	}
}

// abandon emits a thread's call, whose return will not be seen.
func (t *watching) abandon(tid int) {
	c := t.calling[tid].call
	delete(t.calling, tid)
	t.Emit(c)
}

var errUnseen = errors.New("its return was not seen")

// entered handles the entry of a call.
func (t *watching) entered(r *kernel.Record) {
	if old := t.calling[r.TID]; old != nil {
		if old.call.Problem == nil {
			old.call.Problem = errUnseen
		}
		t.abandon(r.TID)
	}
	th := &tracee.Thread{TID: r.TID, Proc: t.process(r.PID), Comm: r.Comm, Replayed: r.Read}
	var c *tracee.Call
	err := t.Guard(func() { c = t.enter(th, r) })
	if err != nil {
		c = t.Undecoded(th, r.Call, r.Args, err)
	}
	if c != nil {
		t.calling[r.TID] = &calling{c, th, r.Kind, r.Time, r.Addr}
	}
}

// enter decodes a call at its entry. It returns nil if it is not to be shown.
func (t *watching) enter(th *tracee.Thread, r *kernel.Record) *tracee.Call {
	if r.Kind == kernel.Open || r.Kind == kernel.OpenCM {
		return t.open(th, r)
	}
	// The descriptor may have come by any way: the file counts.
	if f := t.file(th.Proc, r); th.Proc.FDs[r.FD] != f {
		th.Proc.SetFD(r.FD, f)
	}
	switch r.Kind {
	case kernel.Ioctl:
		return t.calls.EnterIoctl(th, r.FD, r.Args[2])
	case kernel.Map:
		return t.calls.EnterMmap(th, r.Args)
	case kernel.Command:
		return t.calls.EnterWrite(th, r.FD, r.Args[1], r.Args[2])
	}
	return t.calls.EnterRead(th, r.FD, r.Args[1], r.Args[2])
}

// open returns the call that opens a file. Its descriptor is not known yet.
func (t *watching) open(th *tracee.Thread, r *kernel.Record) *tracee.Call {
	f, addr := fileOf(th.Proc, r), r.File
	c := t.NewCall(th, tracee.KindOpen, "open")
	if c.Path = f.Device; f.Kind == tracee.FileCM {
		c.Path = "rdma_cm"
	}
	c.Finish = func(th *tracee.Thread, c *tracee.Call) {
		if c.Errno == 0 {
			c.File = t.opened(th.Proc, addr, -1, f)
		}
	}
	return c
}

// opened adds an open file.
func (t *watching) opened(p *tracee.Process, addr uint64, fd int, f tracee.File) *tracee.File {
	made := t.NewFile(p, fd, f)
	t.files[addr], t.known[made] = made, true
	return made
}

// file returns the file of a record.
func (t *watching) file(p *tracee.Process, r *kernel.Record) *tracee.File {
	f := t.files[r.File]
	if f != nil && (f.Kind == fileKinds[r.Kind] || f.Kind == tracee.FileEvents) {
		return f
	}
	now := fileOf(p, r)
	// A file that was open before, or that a verb has just returned, is known by descriptor.
	if f = p.FDs[r.FD]; f != nil && !t.known[f] && sameFile(f, &now) {
		t.files[r.File], t.known[f] = f, true
		return f
	}
	return t.opened(p, r.File, r.FD, now)
}

// fileKinds has the kinds of the files that records are about.
var fileKinds = map[kernel.Kind]tracee.FileKind{
	kernel.Open: tracee.FileUverbs, kernel.Ioctl: tracee.FileUverbs, kernel.Map: tracee.FileUverbs,
	kernel.OpenCM: tracee.FileCM, kernel.Command: tracee.FileCM,
	kernel.Channel: tracee.FileChannel, kernel.Async: tracee.FileAsync,
}

// fileOf returns what a record tells about its file.
func fileOf(p *tracee.Process, r *kernel.Record) tracee.File {
	f := tracee.File{Kind: fileKinds[r.Kind]}
	switch f.Kind {
	case tracee.FileUverbs:
		f = tracee.DeviceFile(r.Device)
		f.Kind = tracee.FileUverbs // also if the device has been removed
	case tracee.FileChannel, tracee.FileAsync:
		f.Parent = p.OnlyUverbs()
	}
	return f
}

func sameFile(f, now *tracee.File) bool {
	switch now.Kind {
	case tracee.FileUverbs:
		return f.Kind == tracee.FileUverbs && f.Device == now.Device
	case tracee.FileChannel, tracee.FileAsync:
		return f.Kind == now.Kind || f.Kind == tracee.FileEvents
	}
	return f.Kind == now.Kind
}

// returned handles the return of a call. If its entry was not seen, nothing is known of it.
func (t *watching) returned(r *kernel.Record) {
	x := t.calling[r.TID]
	if x == nil || x.kind != r.Kind {
		return
	}
	delete(t.calling, r.TID)
	x.thread.Replayed = r.Read
	x.call.Resumed = x.began
	result := r.Result
	if r.Kind == kernel.Map && result == 0 {
		result = int64(x.addr)
	}
	t.Complete(x.thread, x.call, result)
	x.call.Said = x.call.Event() // now, since later calls may destroy the objects that it names
}

// released handles the end of a file. Only those that a close has ended are shown: the end of a
// process closes them all.
func (t *watching) released(r *kernel.Record) {
	f, p := t.files[r.File], t.Processes[r.PID]
	if f == nil && p != nil && r.FD >= 0 && !t.known[p.FDs[r.FD]] {
		f = p.FDs[r.FD] // open before, and not used since
	}
	if f == nil {
		return
	}
	delete(t.files, r.File)
	delete(t.known, f)
	for _, p := range t.Processes {
		for fd, g := range p.FDs {
			if g == f {
				p.SetFD(fd, nil)
			}
		}
	}
	if p == nil || r.FD < 0 {
		return
	}
	c := t.NewCall(&tracee.Thread{TID: r.TID, Proc: p, Comm: r.Comm}, tracee.KindClose, "close")
	c.FD, c.File, c.Returned = r.FD, f, true
	c.Args = []ioctl.NamedValue{tracee.Descriptor("fd", r.FD)}
	t.Emit(c)
}
