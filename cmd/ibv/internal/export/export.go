// Package export has the command of ibv that serves the figures of devices to Prometheus.
//
// export.go collects them, names.go has the names of counters, pods.go finds the pods of processes, text.go
// writes the formats, serve.go answers requests, and web.go reads the configuration of TLS.
package export

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/why"
	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/monitor"
	"github.com/goverbs/goverbs/rdmanl"
)

// An exporter collects figures. It is safe for concurrent use.
type exporter struct {
	source source
	root   string // of /run
	prefix string
	most   int // processes with figures of their own
	report func(format string, args ...any)
	watch  func(context.Context, rdmanl.WatchOptions) (*rdmanl.Watcher, error)

	mu     sync.Mutex
	told   map[string]map[string]bool // what failed the last time, by kind
	links  map[link]int               // how often links have changed
	looked *why.Report
	at     time.Time // of looked
}

// A link is a port, and a state that its link has entered.
type link struct {
	device string
	port   uint32
	state  ib.PortState
}

// A source is where figures come from.
type source interface {
	Devices(ctx context.Context) ([]rdmanl.Device, error)
	Ports(ctx context.Context) ([]monitor.Port, error)
	Counters(ctx context.Context, device string, port int) ([]monitor.Counter, error)
	Counts(ctx context.Context, dev uint32) ([]rdmanl.Count, error)
	QPs(ctx context.Context, dev uint32) ([]rdmanl.QP, error)
	MRs(ctx context.Context, dev uint32) ([]rdmanl.MR, error)
	Process(o *rdmanl.Owner) *why.Process
}

type system struct{ *why.Host }

func (system) Ports(ctx context.Context) ([]monitor.Port, error) { return monitor.Host{}.Ports(ctx) }

func (system) Counters(ctx context.Context, device string, port int) ([]monitor.Counter, error) {
	return monitor.Host{}.Counters(ctx, device, port)
}

func (system) Counts(ctx context.Context, dev uint32) ([]rdmanl.Count, error) {
	return rdmanl.Counts(ctx, dev)
}

func (system) MRs(ctx context.Context, dev uint32) ([]rdmanl.MR, error) {
	return rdmanl.MRs(ctx, dev, rdmanl.DetailCommon)
}

// follow counts the events of links until ctx ends. A kernel without RDMA may have it later, when a driver is loaded.
func (e *exporter) follow(ctx context.Context, pause time.Duration) {
	for ctx.Err() == nil {
		if err := e.count(ctx); ctx.Err() == nil {
			e.tell("events", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// count counts the events of links until it fails.
func (e *exporter) count(ctx context.Context) error {
	w, err := e.watch(ctx, rdmanl.WatchOptions{})
	if err != nil {
		return err
	}
	defer w.Close()
	e.tell("events")
	for {
		event, err := w.Next(ctx)
		switch {
		case errors.Is(err, syscall.ENOBUFS): // some are lost
		case err != nil:
			return err
		case event.Kind == rdmanl.EventPortState:
			e.mu.Lock()
			e.links[link{event.Device.Or(""), event.Port.Or(0), event.State.Or(0)}]++
			e.mu.Unlock()
		}
	}
}

// tell reports what has failed in a look, a collection or a watch. What the last one has said, of any kind, isn't said
// again: a device may be missing for days.
func (e *exporter) tell(kind string, errs ...error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := make(map[string]bool)
	for _, texts := range e.told {
		maps.Copy(known, texts)
	}
	now := make(map[string]bool)
	for _, err := range errs {
		if err == nil {
			continue
		}
		text := err.Error()
		if now[text] = true; !known[text] {
			known[text] = true
			e.report("%v", err)
		}
	}
	if e.told == nil {
		e.told = make(map[string]map[string]bool)
	}
	e.told[kind] = now
}

// lookOnce looks for stuck queue pairs.
func (e *exporter) lookOnce(ctx context.Context, l *why.Looker) {
	r, err := l.Look(ctx)
	if ctx.Err() != nil {
		return
	}
	e.tell("look", err)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.looked, e.at = r, time.Now()
}

// collect returns all figures. What fails is left out and, when it is new, reported.
func (e *exporter) collect(ctx context.Context) *page {
	begin := time.Now()
	p := &page{prefix: e.prefix, families: make(map[string]*family)}
	e.ports(ctx, p)
	devices, err := e.source.Devices(ctx)
	if err != nil {
		p.failed = append(p.failed, err)
	}
	for _, d := range devices {
		p.add("info", gauge, "A device.", 1, "device", d.Name, "firmware_version", d.Firmware.Or(""), "protocol", d.Protocol.Or(""), "node_guid", d.NodeGUID.Or(ib.GUID{}).String())
		counts, err := e.source.Counts(ctx, d.Index)
		if err != nil {
			p.failed = append(p.failed, err)
		}
		for _, c := range counts {
			p.add("objects", gauge, "Objects that exist on a device.", float64(c.Now), "device", d.Name, "type", c.Name)
		}
	}
	e.users(ctx, p, devices)
	e.tell("collect", p.failed...)
	e.stuck(p)
	p.add("export_scrape_duration_seconds", gauge, "How long it took to collect all this.", time.Since(begin).Seconds())
	return p
}

func (e *exporter) ports(ctx context.Context, p *page) {
	ports, err := e.source.Ports(ctx)
	if err != nil {
		p.failed = append(p.failed, err)
	}
	for _, x := range ports {
		labels := []string{"device", x.Device, "port", strconv.Itoa(x.Number)}
		p.add("port_info", gauge, "A port.", 1, append(labels[:4:4], "link_layer", x.LinkLayer.String(), "netdev", x.Netdev, "width", x.Width.String())...)
		p.add("state_id", gauge, "The state of a port (0: no change, 1: down, 2: init, 3: armed, 4: active, 5: active defer).", float64(x.State), labels...)
		p.add("physical_state_id", gauge, "The physical state of a port (1: sleep, 2: polling, 3: disabled, 4: training, 5: link up, 6: error recovery).", float64(x.PhysState), labels...)
		const bits = 8
		p.add("rate_bytes_per_second", gauge, "The highest rate of a port.", float64(x.Rate/bits), labels...)
		if x.MTU != 0 {
			p.add("port_mtu_bytes", gauge, "The largest payload of a RoCE packet.", float64(x.MTU.Bytes()), labels...)
		}
		counters, err := e.source.Counters(ctx, x.Device, x.Number)
		if err != nil {
			p.failed = append(p.failed, err) // the device may have gone
		}
		p.counters(counters, labels)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range slices.SortedFunc(maps.Keys(e.links), func(a, b link) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.port, b.port), cmp.Compare(a.state, b.state))
	}) {
		p.add("port_link_events_total", counter, "How often a link has entered a state.", float64(e.links[l]), "device", l.device, "port", strconv.Itoa(int(l.port)), "state", l.state.String())
	}
}

// A user is a process with objects.
type user struct {
	process *why.Process
	devices map[string]*use
	pinned  uint64
}

// A use is what a process has on a device.
type use struct {
	states map[string]int // queue pairs
	mrs    int
	pinned uint64
}

func (u *user) on(device string) *use {
	if u.devices[device] == nil {
		u.devices[device] = &use{states: make(map[string]int)}
	}
	return u.devices[device]
}

// users adds what processes have. The number of processes with labels of their own is limited: those that pin the
// most memory.
func (e *exporter) users(ctx context.Context, p *page, devices []rdmanl.Device) {
	threads := make(map[uint32]*why.Process) // by the number that owns
	users := make(map[uint32]*user)          // by process; 0: the kernel
	of := func(o *rdmanl.Owner) *user {
		id := o.PID.Or(0)
		if id == 0 {
			if users[0] == nil {
				users[0] = &user{process: &why.Process{Comm: "kernel"}, devices: make(map[string]*use)}
			}
			return users[0]
		}
		if threads[id] == nil {
			threads[id] = e.source.Process(o)
		}
		x := threads[id]
		if users[x.PID] == nil {
			users[x.PID] = &user{process: x, devices: make(map[string]*use)}
		}
		return users[x.PID]
	}
	for _, d := range devices {
		qps, err := e.source.QPs(ctx, d.Index)
		if err != nil {
			p.failed = append(p.failed, err)
		}
		for _, q := range qps {
			of(&q.Owner).on(d.Name).states[q.State.Or(0).String()]++
		}
		mrs, err := e.source.MRs(ctx, d.Index)
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			p.failed = append(p.failed, err)
		}
		for _, m := range mrs {
			u := of(&m.Owner)
			x := u.on(d.Name)
			x.mrs++
			x.pinned += m.Length.Or(0)
			u.pinned += m.Length.Or(0)
		}
	}
	all := slices.SortedFunc(maps.Values(users), func(a, b *user) int {
		return cmp.Or(cmp.Compare(b.pinned, a.pinned), cmp.Compare(a.process.PID, b.process.PID))
	})
	p.add("processes", gauge, "Processes, and the kernel, with queue pairs or memory regions.", float64(len(all)))
	for _, u := range all[:min(len(all), e.most)] {
		x := u.process
		who := []string{"pid", strconv.Itoa(int(x.PID)), "comm", x.Comm}
		if x.PID != 0 {
			k := podOf(e.root, x.Cgroup, x.Container)
			p.add("process_info", gauge, "A process. Labels that aren't known are empty.", 1,
				append(who[:4:4], "cgroup", x.Cgroup, "container", x.Container, "namespace", k.namespace, "pod", k.name, "pod_uid", k.uid)...)
		}
		for _, name := range slices.Sorted(maps.Keys(u.devices)) {
			d := u.devices[name]
			labels := append([]string{"device", name}, who...)
			for _, s := range slices.Sorted(maps.Keys(d.states)) {
				p.add("process_queue_pairs", gauge, "Queue pairs of a process.", float64(d.states[s]), append(labels[:6:6], "state", s)...)
			}
			p.add("process_memory_regions", gauge, "Memory regions of a process.", float64(d.mrs), labels...)
			p.add("process_registered_bytes", gauge, "Memory that a process has registered; what overlaps counts twice.", float64(d.pinned), labels...)
		}
	}
}

// stuck adds what the last look has found.
func (e *exporter) stuck(p *page) {
	e.mu.Lock()
	r, at := e.looked, e.at
	e.mu.Unlock()
	if r == nil {
		return
	}
	p.add("look_timestamp_seconds", gauge, "When stuck queue pairs were last looked for.", float64(at.Unix()))
	conditions := make(map[[2]string]int)
	for _, u := range r.Users {
		for c, n := range u.QPs {
			conditions[[2]string{u.Device, c}] += n
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(conditions), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		p.add("queue_pairs", gauge, "Queue pairs by what they do: see 'ibv why'.", float64(conditions[k]), "device", k[0], "condition", k[1])
	}
	type place struct {
		device, reason, comm string
		pid                  uint32
	}
	places := make(map[place]int)
	for _, f := range r.Findings {
		k := place{device: f.Device, reason: f.ID}
		if f.Process != nil {
			k.pid, k.comm = f.Process.PID, f.Process.Comm
		}
		places[k] += max(len(f.QPs), 1)
	}
	sorted := slices.SortedFunc(maps.Keys(places), func(a, b place) int {
		return cmp.Or(cmp.Compare(places[b], places[a]), cmp.Compare(a.device, b.device), cmp.Compare(a.reason, b.reason), cmp.Compare(a.pid, b.pid))
	})
	for _, k := range sorted[:min(len(sorted), e.most)] {
		pid := ""
		if k.pid != 0 {
			pid = strconv.Itoa(int(k.pid))
		}
		p.add("stuck_queue_pairs", gauge, "Queue pairs that are stuck, by the finding of 'ibv why'; where a device doesn't tell which, those that may be.", float64(places[k]),
			"device", k.device, "reason", k.reason, "pid", pid, "comm", k.comm)
	}
}
