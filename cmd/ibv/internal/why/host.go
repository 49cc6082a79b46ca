package why

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/doctor"
	"github.com/goverbs/goverbs/monitor"
	"github.com/goverbs/goverbs/rdmanl"
)

// A Host is where facts come from: files below a root directory, and the kernel.
type Host struct {
	Root string
	Kernel
}

// A Kernel answers what is not in files.
type Kernel interface {
	Devices(ctx context.Context) ([]rdmanl.Device, error)
	QPs(ctx context.Context, dev uint32) ([]rdmanl.QP, error)
	CQs(ctx context.Context, dev uint32) ([]rdmanl.CQ, error)
	CMIDs(ctx context.Context, dev uint32) ([]rdmanl.CMID, error)
	// Raws returns the device's own descriptions of objects.
	Raws(ctx context.Context, dev uint32, kind rdmanl.RawKind) ([][]byte, error)
	Port(ctx context.Context, device string, port int) (monitor.Port, error)
	// Counters returns the counters of a port, and those of its network interface.
	Counters(ctx context.Context, p monitor.Port) (map[string]uint64, error)
}

// This returns the host that the program runs on.
func This() *Host { return &Host{"/", kernel{}} }

type kernel struct{}

func (kernel) Devices(ctx context.Context) ([]rdmanl.Device, error) { return rdmanl.Devices(ctx) }

func (kernel) QPs(ctx context.Context, dev uint32) ([]rdmanl.QP, error) {
	return rdmanl.QPs(ctx, dev, rdmanl.DetailCommon)
}

func (kernel) CQs(ctx context.Context, dev uint32) ([]rdmanl.CQ, error) {
	return rdmanl.CQs(ctx, dev, rdmanl.DetailCommon)
}

func (kernel) CMIDs(ctx context.Context, dev uint32) ([]rdmanl.CMID, error) {
	return rdmanl.CMIDs(ctx, dev, rdmanl.DetailCommon)
}

func (kernel) Raws(ctx context.Context, dev uint32, kind rdmanl.RawKind) ([][]byte, error) {
	return rdmanl.Raws(ctx, dev, kind)
}

func (kernel) Port(ctx context.Context, device string, port int) (monitor.Port, error) {
	return monitor.Host{}.Port(ctx, device, port)
}

func (kernel) Counters(ctx context.Context, p monitor.Port) (map[string]uint64, error) {
	all := make(map[string]uint64)
	if h := doctor.This(); h != nil && p.Netdev != "" {
		for name, v := range h.Stats(p.Netdev) {
			if doctor.Trouble(name) != nil {
				all[name] = v
			}
		}
	}
	counters, err := monitor.Host{}.Counters(ctx, p.Device, p.Number)
	for _, c := range counters {
		all[c.Name] = c.Value
	}
	return all, err
}

// read returns a file's text without surrounding space, or "" if it can't be read.
func (h *Host) read(path ...string) string {
	b, _ := os.ReadFile(filepath.Join(append([]string{h.Root}, path...)...))
	return strings.TrimSpace(string(b))
}

// A Process is an owner of objects.
type Process struct {
	PID       uint32 `json:"pid,omitempty"` // 0: the kernel
	Comm      string `json:"comm,omitempty"`
	State     string `json:"state,omitempty"`     // as ps has it, such as "S"
	Cgroup    string `json:"cgroup,omitempty"`    // its path
	Container string `json:"container,omitempty"` // the ID
	// Waits has the kernel's functions that its threads sleep in, as far as they can be read.
	Waits []string `json:"waits,omitempty"`
}

// stopped reports whether a signal or a debugger has stopped the process.
func (p *Process) stopped() bool { return p.State == "T" || p.State == "t" }

// waits reports whether a thread sleeps in a kernel's function.
func (p *Process) waits(function string) bool {
	return slices.ContainsFunc(p.Waits, func(w string) bool { return strings.HasPrefix(w, function) })
}

// mostThreads limits how many threads are looked at.
const mostThreads = 64

// Process returns what /proc tells of an owner.
func (h *Host) Process(o *rdmanl.Owner) *Process {
	if module, ok := o.Kernel.Get(); ok {
		return &Process{Comm: module}
	}
	thread := strconv.FormatUint(uint64(o.PID.Or(0)), 10)
	p := &Process{PID: o.PID.Or(0)}
	for line := range strings.Lines(h.read("proc", thread, "status")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		switch name {
		case "Name":
			p.Comm = value
		case "State":
			p.State, _, _ = strings.Cut(value, " ")
		case "Tgid":
			if n, err := strconv.ParseUint(value, 10, 32); err == nil {
				p.PID = uint32(n)
			}
		}
	}
	pid := strconv.FormatUint(uint64(p.PID), 10)
	if comm := h.read("proc", pid, "comm"); comm != "" {
		p.Comm = comm // the process's, not the thread's
	}
	for line := range strings.Lines(h.read("proc", pid, "cgroup")) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok && path != "/" {
			p.Cgroup = path
		}
	}
	p.Container = ContainerOf(p.Cgroup)
	threads, _ := os.ReadDir(filepath.Join(h.Root, "proc", pid, "task"))
	for i, t := range threads {
		if i == mostThreads {
			break
		}
		if w := h.read("proc", pid, "task", t.Name(), "wchan"); w != "" && w != "0" && !slices.Contains(p.Waits, w) {
			p.Waits = append(p.Waits, w)
		}
	}
	return p
}

// ContainerOf returns the ID of the container whose cgroup this is, or "". A runtime's cgroup has
// the ID of 64 digits in its name. Of containers in a container it is the outermost, which those
// within can't choose.
func ContainerOf(cgroup string) string {
	const digits = 64
	parts := strings.FieldsFunc(cgroup, func(r rune) bool { return r == '/' || r == '-' || r == '.' || r == ':' })
	for _, p := range parts {
		if len(p) == digits && strings.Trim(p, "0123456789abcdef") == "" {
			return p
		}
	}
	return ""
}
