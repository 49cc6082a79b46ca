package why

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/mlx5ctx"
	"github.com/goverbs/goverbs/monitor"
	"github.com/goverbs/goverbs/rdmanl"
)

// A view is what the kernel and the devices tell at one time.
type view struct {
	at      time.Time
	devices []*device
	unseen  []string
}

type device struct {
	rdmanl.Device
	mlx5   bool
	mute   bool // its driver tells no sequence numbers, or always the same
	ports  map[uint32]*port
	qps    map[uint32]*qp
	cqs    map[uint32]*cq // by the device's number
	failed error          // it doesn't answer
	blind  bool           // its contexts aren't told
}

type port struct {
	monitor.Port
	counters map[string]uint64
}

// A qp is a queue pair, and what its adapter tells of it, if it does.
type qp struct {
	rdmanl.QP
	dev     *device
	owner   *Process
	wanted  bool
	context *mlx5ctx.QP // of those that are wanted
	peer    netip.Addr  // if it is known
}

// A cq is a completion queue of an mlx5 adapter.
type cq struct {
	mlx5ctx.CQ
	owner  *Process
	record record
}

// A record is a doorbell record: what the program itself has written about its queue.
type record struct {
	known  bool
	polled uint32 // completions, 24 bits
	armed  uint32 // from this completion on, 24 bits
}

// unpolled returns how many completions wait. It is known only with the program's record.
func (c *cq) unpolled() uint32 {
	if !c.record.known {
		return 0
	}
	return (c.Produced - c.record.polled) & (1<<24 - 1)
}

// A look takes views of some devices.
type look struct {
	host      *Host
	device    string // "" for all
	wanted    func(*qp) bool
	processes map[uint32]*Process // by the owner's number, of this view
	pages     map[uint32]*pages   // by process
}

// take takes a view.
func (l *look) take(ctx context.Context) (*view, error) {
	all, err := l.host.Devices(ctx)
	if err != nil {
		return nil, err
	}
	if l.device != "" {
		all = slices.DeleteFunc(all, func(d rdmanl.Device) bool { return d.Name != l.device })
		if len(all) == 0 {
			return nil, fmt.Errorf("%w: %s", rdmanl.ErrNoDevice, l.device)
		}
	}
	v := &view{at: time.Now()}
	l.processes = make(map[uint32]*Process)
	for _, d := range all {
		x, err := l.takeDevice(ctx, v, d)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, rdmanl.ErrNoDevice): // it has gone meanwhile
		case err != nil:
			return nil, err
		default:
			v.devices = append(v.devices, x)
		}
	}
	live := make(map[uint32]bool)
	for _, p := range l.processes {
		live[p.PID] = true
	}
	maps.DeleteFunc(l.pages, func(pid uint32, _ *pages) bool { return !live[pid] })
	return v, nil
}

func (l *look) takeDevice(ctx context.Context, v *view, d rdmanl.Device) (*device, error) {
	x := &device{Device: d, mlx5: strings.HasPrefix(d.Name, "mlx5"), ports: make(map[uint32]*port), qps: make(map[uint32]*qp), cqs: make(map[uint32]*cq)}
	if driver, err := l.host.driver(d.Name); err == nil {
		x.mlx5 = driver == "mlx5_core"
		x.mute = driver == "efa"
	}
	x.mute = x.mute || d.Protocol.Or("") == "iw" // iWARP has none
	for n := uint32(1); n <= d.Ports; n++ {
		p, err := l.host.Port(ctx, d.Name, int(n))
		if err != nil {
			continue // the device has gone, or its state can't be read
		}
		counters, err := l.host.Counters(ctx, p)
		if err != nil {
			v.miss("the counters of %v: %v", p, err)
		}
		x.ports[n] = &port{p, counters}
	}
	qps, err := l.host.QPs(ctx, d.Index)
	if dead(err) {
		x.failed = err
		return x, nil
	}
	if err != nil {
		return nil, err
	}
	any := false
	for _, q := range qps {
		if t, ok := q.Type.Get(); ok && (t == ib.SMI || t == ib.GSI) || q.Subtype.Or("") == "REG_UMR" {
			continue // the kernel's own, for management and memory keys
		}
		y := &qp{QP: q, dev: x, owner: l.owner(&q.Owner)}
		y.wanted = l.wanted == nil || l.wanted(y)
		any = any || y.wanted
		x.qps[q.Number] = y
	}
	if !any {
		return x, nil
	}
	ids, err := l.host.CMIDs(ctx, d.Index)
	if err != nil {
		v.miss("the connections of %s: %v", d.Name, err)
	}
	for _, id := range ids {
		if q := x.qps[id.QPN.Or(0)]; q != nil {
			q.peer = id.Dest.Or(netip.AddrPort{}).Addr()
		}
	}
	if x.mlx5 {
		return x, l.contexts(ctx, v, x)
	}
	return x, nil
}

// contexts adds what an mlx5 adapter tells of its objects.
func (l *look) contexts(ctx context.Context, v *view, x *device) error {
	raws, err := l.host.Raws(ctx, x.Index, rdmanl.RawQP)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case dead(err):
		x.failed = err
		return nil
	default:
		x.blind = true
		why := err.Error()
		if errors.Is(err, syscall.EPERM) {
			why = "this needs CAP_NET_ADMIN"
		} else if errors.Is(err, errors.ErrUnsupported) {
			why = "its firmware or its driver doesn't dump them"
		}
		v.miss("what %s itself knows of its queues: %s", x.Name, why)
		return nil
	}
	owners := make(map[uint32]bool)
	for _, raw := range raws {
		c, err := mlx5ctx.QPFromDump(raw)
		q := x.qps[c.Number]
		if err != nil || q == nil || !q.wanted {
			continue // it is another kind of object, or it was destroyed meanwhile
		}
		q.context, owners[q.owner.PID] = &c, true
		if a := c.Path.DGID.Addr(); !q.peer.IsValid() && (c.Path.GRH || c.Path.DLID == 0) && !a.IsUnspecified() {
			q.peer = a.Unmap()
		}
	}
	// The kernel's number of a CQ isn't the adapter's. Only the order tells whose it is.
	cqs, err := l.host.CQs(ctx, x.Index)
	if err == nil {
		raws, err = l.host.Raws(ctx, x.Index, rdmanl.RawCQ)
	}
	var again []rdmanl.CQ
	if err == nil {
		again, err = l.host.CQs(ctx, x.Index)
	}
	same := func(a, b rdmanl.CQ) bool { return a.ID == b.ID }
	switch {
	case err != nil:
		v.miss("the completion queues of %s: %v", x.Name, err)
		return nil
	case len(raws) != len(cqs) || !slices.EqualFunc(cqs, again, same):
		v.miss("the completion queues of %s, because some came or went meanwhile", x.Name)
		return nil
	}
	recorded := make(map[uint32][]*cq) // by process
	for i, raw := range raws {
		c, err := mlx5ctx.CQFromDump(raw)
		owner := l.owner(&cqs[i].Owner)
		if err != nil || owner.PID == 0 || !owners[owner.PID] {
			continue
		}
		y := &cq{CQ: c, owner: owner}
		if c.Unpolled() > 0 && c.Record != 0 {
			recorded[owner.PID] = append(recorded[owner.PID], y)
		}
		x.cqs[c.Number] = y
	}
	for pid, cqs := range recorded {
		l.records(pid, cqs)
	}
	return nil
}

// owner returns the owner of an object.
func (l *look) owner(o *rdmanl.Owner) *Process {
	pid, ok := o.PID.Get()
	if !ok {
		return l.host.Process(o)
	}
	if l.processes[pid] == nil {
		l.processes[pid] = l.host.Process(o)
	}
	return l.processes[pid]
}

// dead reports whether an error says that a device doesn't answer. mlx5_core returns ENOLINK for commands after
// an internal error, and in older kernels EIO.
func dead(err error) bool {
	return errors.Is(err, syscall.ENOLINK) || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ETIMEDOUT)
}

// miss records what couldn't be seen, once.
func (v *view) miss(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(v.unseen, text) {
		v.unseen = append(v.unseen, text)
	}
}

// A Looker looks at all queue pairs again and again. One goroutine at a time may use it.
type Looker struct {
	look   look
	before *view
}

// NewLooker returns a Looker that hasn't looked yet.
func NewLooker(h *Host) *Looker { return &Looker{look: look{host: h}} }

// Look looks, and compares with the look before. The first time it returns nil.
func (l *Looker) Look(ctx context.Context) (*Report, error) {
	after, err := l.look.take(ctx)
	if err != nil {
		return nil, err
	}
	before := l.before
	if l.before = after; before == nil {
		return nil, nil
	}
	return compare(l.look.host, before, after), nil
}

func (v *view) find(name string) *device {
	for _, d := range v.devices {
		if d.Name == name {
			return d
		}
	}
	return nil
}
