package top

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/doctor"
	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/monitor"
	"github.com/goverbs/goverbs/rdmanl"
)

// A reading lists the users of the devices at one time. It is the object that --json prints, with
// iproute2's names where it has some.
type reading struct {
	Time    time.Time `json:"time"`
	Host    string    `json:"host"`
	Devices []*device `json:"devices"`
}

type device struct {
	Name  string  `json:"ifname"`
	Ports []*port `json:"ports"`
	Users []*user `json:"users"`
	index uint32
}

type port struct {
	Number   uint32    `json:"port"`
	State    string    `json:"state"`
	Netdev   string    `json:"netdev,omitempty"`
	Rates    []*rate   `json:"rates"`    // since the reading before
	Troubles []trouble `json:"troubles"` // the same
	counters map[string]uint64
}

// A rate is what goes through a port in a direction.
type rate struct {
	Way       string    `json:"way"`  // out, in
	Unit      string    `json:"unit"` // bytes, packets
	PerSecond float64   `json:"per_second"`
	past      []float64 // the newest last
}

// A trouble is a counter that means trouble, and grows.
type trouble struct {
	What      string  `json:"what"`
	Finding   string  `json:"finding"` // of doctor
	Counter   string  `json:"counter"`
	Value     uint64  `json:"value"`
	PerSecond float64 `json:"per_second"`
}

// A user is a process, or a module of the kernel, on one device.
type user struct {
	PID     uint32   `json:"pid,omitempty"` // 0: the kernel, or a process that isn't visible here
	Comm    string   `json:"comm,omitempty"`
	Command string   `json:"command,omitempty"` // with its arguments
	QPs     []qp     `json:"qps"`
	CQs     int      `json:"cq"`
	SRQs    int      `json:"srq"`
	MRs     int      `json:"mr"`
	CMIDs   int      `json:"cm_id"`
	Pinned  uint64   `json:"pinned"`                          // bytes
	Ops     *float64 `json:"operations_per_second,omitempty"` // of its QPs, if they are counted by process
	counts  map[string]uint64
}

type qp struct {
	Number uint32 `json:"lqpn"`
	Type   string `json:"type"`
	State  string `json:"state"`
	Remote uint32 `json:"rqpn,omitempty"`
	Source string `json:"src-addr,omitempty"` // if the connection manager connects it
	Dest   string `json:"dst-addr,omitempty"`
	state  ib.QPState
}

// history is how many rates are kept for the screen.
const history = 120

// read lists the users of a device, or of all if the name is "". It leaves out devices that are removed
// meanwhile.
func read(ctx context.Context, name string) (*reading, error) {
	var devices []rdmanl.Device
	var err error
	if name == "" {
		devices, err = rdmanl.Devices(ctx)
	} else {
		devices = make([]rdmanl.Device, 1)
		devices[0], err = rdmanl.FindDevice(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	r := &reading{Time: time.Now(), Devices: []*device{}}
	r.Host, _ = os.Hostname()
	for _, d := range devices {
		x, err := readDevice(ctx, d)
		switch {
		case err == nil:
			r.Devices = append(r.Devices, x)
		case !errors.Is(err, rdmanl.ErrNoDevice) && !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return r, nil
}

func readDevice(ctx context.Context, d rdmanl.Device) (*device, error) {
	x := &device{Name: d.Name, index: d.Index, Users: []*user{}}
	links, err := rdmanl.Links(ctx, d.Index)
	if err != nil {
		return nil, err
	}
	of := x.owners()
	for _, l := range links {
		p := &port{Number: l.Port, State: fmt.Sprint(l.State.Or(0)), Netdev: l.Netdev.Or(""), Rates: []*rate{}, Troubles: []trouble{}, counters: make(map[string]uint64)}
		x.Ports = append(x.Ports, p)
		counters, err := (monitor.Host{}).Counters(ctx, d.Name, int(l.Port))
		if err != nil {
			return nil, err
		}
		for _, c := range counters {
			p.counters[c.Name] = c.Value
		}
		counted, err := rdmanl.QPCounters(ctx, d.Index, l.Port)
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return nil, err
		}
		for _, c := range counted {
			if _, ok := c.PID.Get(); !ok {
				continue
			}
			u := of(c.Owner)
			if u.counts == nil {
				u.counts = make(map[string]uint64)
			}
			for _, v := range c.Counters {
				u.counts[v.Name] += v.Value
			}
		}
	}
	ids := make(map[uint32]rdmanl.CMID)
	for _, err := range []error{
		each(ctx, d, rdmanl.CMIDs, func(c rdmanl.CMID) {
			of(c.Owner).CMIDs++
			if n, ok := c.QPN.Get(); ok {
				ids[n] = c
			}
		}),
		each(ctx, d, rdmanl.QPs, func(q rdmanl.QP) {
			u, state := of(q.Owner), q.State.Or(ib.QPReset)
			u.QPs = append(u.QPs, qp{q.Number, fmt.Sprint(q.Type.Or(0)), state.String(), q.RemoteQPN.Or(0), address(ids[q.Number].Source), address(ids[q.Number].Dest), state})
		}),
		each(ctx, d, rdmanl.MRs, func(m rdmanl.MR) {
			u := of(m.Owner)
			u.MRs++
			u.Pinned += m.Length.Or(0)
		}),
		each(ctx, d, rdmanl.CQs, func(c rdmanl.CQ) { of(c.Owner).CQs++ }),
		each(ctx, d, rdmanl.SRQs, func(s rdmanl.SRQ) { of(s.Owner).SRQs++ }),
		each(ctx, d, rdmanl.Contexts, func(c rdmanl.Context) { of(c.Owner) }),
	} {
		if err != nil {
			return nil, err
		}
	}
	return x, nil
}

// each calls see with the objects of one kind on a device. If the kernel can't list them, there are
// none.
func each[T any](ctx context.Context, d rdmanl.Device, list func(context.Context, uint32, rdmanl.Detail) ([]T, error), see func(T)) error {
	all, err := list(ctx, d.Index, rdmanl.DetailCommon)
	for _, o := range all {
		see(o)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

func address(a rdmanl.Optional[netip.AddrPort]) string {
	if a, ok := a.Get(); ok {
		return a.String()
	}
	return ""
}

// owners returns a function that finds the device's user that owns an object, and adds it if it is new.
func (d *device) owners() func(rdmanl.Owner) *user {
	type key struct {
		pid    uint32
		kernel string
	}
	processes := make(map[uint32]uint32) // of threads: a process may own objects through several
	users := make(map[key]*user)
	return func(o rdmanl.Owner) *user {
		thread := o.PID.Or(0)
		if _, ok := processes[thread]; !ok {
			processes[thread] = thread
			if pid, ok := o.Process(); ok {
				processes[thread] = pid
			}
		}
		k := key{processes[thread], o.Kernel.Or("")}
		if users[k] == nil {
			u := &user{PID: k.pid, QPs: []qp{}}
			u.Comm, _ = o.Comm()
			arguments, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", k.pid)) // the kernel has none
			u.Command = string(bytes.TrimSpace(bytes.ReplaceAll(arguments, []byte{0}, []byte{' '})))
			users[k] = u
			d.Users = append(d.Users, u)
		}
		return users[k]
	}
}

// flows are the counters of what goes through a port. Of those with the same way and unit, the first
// one that a port has is shown.
var flows = []struct{ counter, way, unit string }{
	{"port_xmit_data", "out", "bytes"}, {"port_rcv_data", "in", "bytes"}, // adapters that have an agent
	{"tx_bytes", "out", "bytes"}, {"rx_bytes", "in", "bytes"}, // efa
	{"port_xmit_packets", "out", "packets"}, {"port_rcv_packets", "in", "packets"},
	{"tx_pkts", "out", "packets"}, {"rx_pkts", "in", "packets"}, // efa
	{"sent_pkts", "out", "packets"}, {"rcvd_pkts", "in", "packets"}, // rxe
}

// since computes what has changed since the reading before, which may be nil.
func (r *reading) since(before *reading) {
	if before == nil {
		return
	}
	seconds := r.Time.Sub(before.Time).Seconds()
	for _, d := range r.Devices {
		was := find(before.Devices, func(o *device) bool { return o.Name == d.Name && o.index == d.index })
		if was == nil {
			continue
		}
		for _, p := range d.Ports {
			if old := find(was.Ports, func(o *port) bool { return o.Number == p.Number }); old != nil {
				p.since(old, seconds)
			}
		}
		for _, u := range d.Users {
			old := find(was.Users, func(o *user) bool { return o.PID == u.PID && o.Comm == u.Comm })
			if old == nil || u.counts == nil {
				continue
			}
			if n, o := operations(u.counts), operations(old.counts); n >= o {
				perSecond := float64(n-o) / seconds
				u.Ops = &perSecond
			}
		}
	}
}

func (p *port) since(old *port, seconds float64) {
	perSecond := func(name string) (v float64, ok bool) {
		n, ok := p.counters[name]
		o, was := old.counters[name]
		return float64(n-o) / seconds, ok && was && n >= o
	}
	for _, f := range flows {
		same := func(r *rate) bool { return r.Way == f.way && r.Unit == f.unit }
		if v, ok := perSecond(f.counter); ok && find(p.Rates, same) == nil {
			r := &rate{Way: f.way, Unit: f.unit, PerSecond: v, past: []float64{v}}
			if before := find(old.Rates, same); before != nil {
				r.past = append(slices.Clone(before.past[max(0, len(before.past)-history+1):]), v)
			}
			p.Rates = append(p.Rates, r)
		}
	}
	for name, value := range p.counters {
		k := doctor.Trouble(name)
		if v, ok := perSecond(name); ok && v > 0 && k != nil {
			p.Troubles = append(p.Troubles, trouble{k.Title, k.ID, name, value, v})
		}
	}
	slices.SortFunc(p.Troubles, func(a, b trouble) int { return strings.Compare(a.What+a.Counter, b.What+b.Counter) })
}

// operations adds up the counters of QPs that count no troubles.
func operations(counts map[string]uint64) (n uint64) {
	for name, v := range counts {
		if doctor.Trouble(name) == nil {
			n += v
		}
	}
	return n
}

// find returns the first element of which is is true, or nil.
func find[T any](all []*T, is func(*T) bool) *T {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i]
	}
	return nil
}
