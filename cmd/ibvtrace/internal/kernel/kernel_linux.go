//go:build amd64 || arm64

package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/bpf"
)

// A Scope says whose system calls are watched. The zero Scope is that of processes that are
// named with [Watcher.Add], and their descendants.
type Scope struct {
	All    bool
	Cgroup string // the folder of a cgroup: those in it and below it
}

// A Watcher watches system calls.
type Watcher struct {
	// Missing are the modules that are not loaded. What they would do is not seen.
	Missing []string

	source
	processes *bpf.Memory
	buffers   *bpf.Map
	lost      *bpf.Memory
	ring      *bpf.Ring
	programs  []*bpf.Program
	links     []*bpf.Link
	start     time.Time // when the monotonic clock was 0
}

type cgroup struct {
	level int // below the root
	id    uint64
}

const (
	pids      = 4 << 20 // process IDs are below PID_MAX_LIMIT
	ringBytes = 8 << 20
	btfFile   = "/sys/kernel/btf/vmlinux"

	// hostPIDs is the inode of the initial PID namespace, PROC_PID_INIT_INO.
	hostPIDs = 0xeffffffc
)

// Watch starts watching. It takes the capabilities CAP_BPF and CAP_PERFMON.
func Watch(s Scope) (*Watcher, error) {
	w := &Watcher{source: source{all: s.All || s.Cgroup != "", self: os.Getpid()}}
	if err := w.open(s); err != nil {
		w.Close()
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			err = fmt.Errorf("%w: it takes CAP_BPF and CAP_PERFMON, as root has them", err)
		}
		return nil, fmt.Errorf("watch in the kernel: %w", err)
	}
	return w, nil
}

func (w *Watcher) open(s Scope) (err error) {
	var own unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &own); err != nil {
		return os.NewSyscallError("stat", err)
	}
	if own.Ino != hostPIDs {
		return errors.New("this is not the host's PID namespace, whose numbers the kernel would tell")
	}
	if s.Cgroup != "" {
		if w.cgroup, err = cgroupAt(s.Cgroup); err != nil {
			return err
		}
	}
	info, err := os.ReadFile(btfFile)
	if err != nil {
		return fmt.Errorf("the kernel has no type information: %w", err)
	}
	types, err := bpf.ParseBTF(info)
	if err != nil {
		return err
	}
	if w.offsets, err = types.Offsets(fields...); err != nil {
		return err
	}
	if err := w.makeMaps(); err != nil {
		return err
	}
	w.start = bootTime()
	if err := w.tracepoint("sched_process_fork", w.forks()); err != nil {
		return err
	}
	if err := w.tracepoint("sched_process_exit", w.exits()); err != nil {
		return err
	}
	modules := make(map[string]*module)
	trampolines := true
	for i := range points {
		x := &points[i]
		if slices.Contains(w.Missing, x.module) {
			continue
		}
		if trampolines && !x.waits {
			m := modules[x.module]
			if m == nil {
				m = findModule(types, x.module)
				defer m.close()
				modules[x.module] = m
			}
			err := w.trace(x, m)
			if err == nil {
				continue
			}
			// A function may be in another module. Any other reason holds for all: the processor has
			// none, or this user may not see the modules' type information.
			trampolines = errors.Is(err, fs.ErrNotExist)
		}
		err := w.probe(x)
		if errors.Is(err, fs.ErrNotExist) {
			if _, absent := os.Stat("/sys/module/" + x.module); absent != nil {
				w.Missing = append(w.Missing, x.module)
				continue
			}
		}
		if err != nil {
			return err
		}
	}
	if slices.Contains(w.Missing, uverbs) {
		return errors.New("the module ib_uverbs is not loaded: there is no RDMA device")
	}
	return nil
}

// A module is the type information of a module. If that is a part of the kernel, it has none of its
// own.
type module struct {
	types *bpf.BTF
	info  *bpf.Module // nil: the kernel's
	err   error
}

func findModule(kernel *bpf.BTF, name string) *module {
	b, err := os.ReadFile("/sys/kernel/btf/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return &module{types: kernel}
	}
	m := &module{err: err}
	if m.err == nil {
		m.types, m.err = kernel.Module(b)
	}
	if m.err == nil {
		m.info, m.err = bpf.OpenModule(name)
	}
	return m
}

func (m *module) close() {
	if m.info != nil {
		m.info.Close()
	}
}

func (w *Watcher) makeMaps() (err error) {
	if w.processes, err = bpf.NewMemory(pids); err != nil {
		return err
	}
	if w.buffers, err = bpf.NewMap(bpf.PerCPUArray, 4, recordBytes+dataBytes, 1); err != nil {
		return err
	}
	if w.lost, err = bpf.NewMemory(8); err != nil {
		return err
	}
	if w.ring, err = bpf.NewRing(ringBytes); err != nil {
		return err
	}
	s := &w.source
	s.processes, s.buffers, s.lost, s.ring = w.processes.FD(), w.buffers.FD(), w.lost.FD(), w.ring.FD()
	return nil
}

func (w *Watcher) load(kind int, name string, a *bpf.Asm) (*bpf.Program, error) {
	p, err := bpf.Load(kind, name, a)
	if err == nil {
		w.programs = append(w.programs, p)
	}
	return p, err
}

func (w *Watcher) tracepoint(name string, a *bpf.Asm) error {
	p, err := w.load(bpf.RawTracepoint, strings.TrimPrefix(name, "sched_"), a)
	if err != nil {
		return err
	}
	l, err := p.AttachTracepoint(name)
	if err == nil {
		w.links = append(w.links, l)
	}
	return err
}

// trace attaches the programs of a point to trampolines, or none of them: first that at the return,
// which ignores calls whose entry was not seen. The error is ENOENT if there is no such function.
func (w *Watcher) trace(x *point, m *module) error {
	if m.err != nil {
		return m.err
	}
	id, err := m.types.Function(x.function)
	if err != nil {
		return err
	}
	links := len(w.links)
	for _, side := range x.sides(&w.source, true) {
		var p *bpf.Program
		var l *bpf.Link
		if p, err = bpf.LoadTraced(bpf.Function{ID: id, Module: m.info}, side.returns, side.name, side.code); err == nil {
			w.programs = append(w.programs, p)
			l, err = p.AttachTraced()
		}
		if err != nil {
			for _, l := range w.links[links:] {
				l.Close()
			}
			w.links = w.links[:links]
			return err
		}
		w.links = append(w.links, l)
	}
	return nil
}

// probe attaches the programs of a point by kprobes, in the same order.
func (w *Watcher) probe(x *point) error {
	for _, side := range x.sides(&w.source, false) {
		p, err := w.load(bpf.Kprobe, side.name, side.code)
		if err != nil {
			return err
		}
		l, err := p.AttachFunction(x.function, side.returns)
		if err != nil {
			return err
		}
		w.links = append(w.links, l)
	}
	return nil
}

// A side is a function's return or entry.
type side struct {
	returns bool
	name    string
	code    *bpf.Asm
}

func (x *point) sides(s *source, trampoline bool) []side {
	name := strings.TrimPrefix(x.function, "ib_uverbs_")
	entry := side{false, "e_" + name, s.enters(x, trampoline)}
	if x.returns == nil {
		return []side{entry}
	}
	return []side{{true, "r_" + name, s.returned(x, trampoline)}, entry}
}

// Add watches a process and the children that it will have.
func (w *Watcher) Add(pid int) error {
	if pid < 0 || pid >= pids {
		return unix.ESRCH
	}
	w.processes.Bytes[pid] = 1
	return nil
}

// Wait waits for records and calls f with each. After Wake, it may return without any. One
// goroutine may call Wait, Drain and Detach.
func (w *Watcher) Wait(f func(*Record)) error { return w.ring.Wait(w.each(f)) }

// Wake makes Wait return. Any goroutine may call it.
func (w *Watcher) Wake() error { return w.ring.Wake() }

// Drain calls f with the records that there are by now.
func (w *Watcher) Drain(f func(*Record)) { w.ring.Drain(w.each(f)) }

// Detach ends the watching, and calls f with the records that are left.
func (w *Watcher) Detach(f func(*Record)) {
	w.unlink()
	w.Drain(f)
}

// unlink detaches the programs in the reverse order: those at returns last, or returns of calls whose
// entries were seen would be missing.
func (w *Watcher) unlink() {
	for _, l := range slices.Backward(w.links) {
		l.Close()
	}
	w.links = nil
}

func (w *Watcher) each(f func(*Record)) func([]byte) {
	return func(b []byte) {
		if r, err := parse(b, w.start); err == nil {
			f(r)
		}
	}
}

// Lost returns the number of records that had no room in the ring.
func (w *Watcher) Lost() uint64 { return w.lost.Count() }

// Close removes everything from the kernel.
func (w *Watcher) Close() {
	w.unlink()
	for _, p := range w.programs {
		p.Close()
	}
	if w.buffers != nil {
		w.buffers.Close()
	}
	for _, m := range []*bpf.Memory{w.processes, w.lost} {
		if m != nil {
			m.Close()
		}
	}
	if w.ring != nil {
		w.ring.Close()
	}
}

// bootTime returns the time of day when the monotonic clock was 0. If the former is set later,
// the times of records go on as if it had not been, so durations are right.
func bootTime() time.Time {
	var t unix.Timespec
	now := time.Now()
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return now
	}
	return now.Round(0).Add(-time.Duration(t.Nano()))
}

// cgroupAt returns the cgroup whose folder has a name.
func cgroupAt(name string) (*cgroup, error) {
	fail := func(err error) (*cgroup, error) { return nil, fmt.Errorf("the cgroup %s: %w", name, err) }
	path, err := filepath.Abs(name)
	if err != nil {
		return fail(err)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return fail(err)
	}
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := unix.Statfs(path, &fs); err != nil {
		return fail(err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return fail(errors.New("not a folder of cgroup v2"))
	}
	if err := unix.Stat(path, &st); err != nil {
		return fail(err)
	}
	c := &cgroup{id: st.Ino} // the ID of a cgroup is its folder's inode
	for ; ; c.level++ {
		up := filepath.Dir(path)
		if err := unix.Statfs(up, &fs); err != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC || up == path {
			break
		}
		path = up
	}
	return c, nil
}
