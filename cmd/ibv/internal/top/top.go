// Package top has the command of ibv that shows the users of devices.
package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/doctor"
	"github.com/goverbs/goverbs/cmd/ibv/internal/sheet"
	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/monitor"
	"github.com/goverbs/goverbs/rdmanl"
)

// options are the command line.
type options struct {
	interval time.Duration
	count    int
	json     bool
}

// Top is the command top.
func Top() *cli.Command {
	o := options{interval: 2 * time.Second}
	return &cli.Command{
		Name:     "top",
		Group:    cli.Look,
		Summary:  "show who uses devices, and what goes through them",
		Forms:    []string{"[OPTION...] [DEVICE]"},
		Operands: 1,
		About: `Show who uses RDMA devices: the ports and what goes through them, and for each process
its queue pairs with their states, completion queues, memory regions and how much memory
they pin, connections, and the operations of its queue pairs if they are counted by
process (ibv stat qp set link DEVICE/PORT auto pid on). Counters that mean trouble are
named while they grow. On a terminal the screen is refreshed, until interrupted.`,
		Options: []cli.Option{
			cli.Opt('i', "interval", "INTERVAL", "how often (default 2s)", cli.Period(&o.interval)),
			cli.Opt('n', "count", "COUNT", "end after this many times", cli.Int(&o.count, 0, math.MaxInt32)),
			cli.Flag('j', "json", "print a JSON array of the processes each time", &o.json),
		},
		Run: func(operands []string) error {
			ctx, stop := cli.Interruptible()
			defer stop()
			return o.run(ctx, strings.Join(operands, ""))
		},
	}
}

// run shows the users of a device, or of all devices if the name is "".
func (o options) run(ctx context.Context, device string) error {
	clear := ""
	if cli.Terminal(os.Stdout) {
		clear = "\x1b[H\x1b[2J"
	}
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	var before *usage
	for n := 0; o.count == 0 || n < o.count; n++ {
		if n > 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
		now, err := readUsage(ctx, device)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if o.json {
			err = sheet.Write(&cli.Stdout, true, false, now.sheets())
		} else {
			_, err = io.WriteString(&cli.Stdout, clear+now.text(before))
		}
		if err != nil {
			return err
		}
		before = now
	}
	return nil
}

// A usage lists the users of the devices at one time.
type usage struct {
	at    time.Time
	ports []portUsage
	users []*user
}

type portUsage struct {
	link     rdmanl.Link
	counters map[string]uint64
}

// A user is a process, or a module of the kernel, on one device.
type user struct {
	device string
	pid    uint32 // 0: the kernel
	comm   string
	qps    int
	states map[ib.QPState]int
	cqs    int
	mrs    int
	srqs   int
	cmIDs  int
	pinned uint64
	counts map[string]uint64 // of its QPs, if they are counted by process
}

// readUsage lists the users of the devices. It leaves out devices that are removed meanwhile.
func readUsage(ctx context.Context, device string) (*usage, error) {
	var devices []rdmanl.Device
	var err error
	if device == "" {
		devices, err = rdmanl.Devices(ctx)
	} else {
		devices = make([]rdmanl.Device, 1)
		devices[0], err = rdmanl.FindDevice(ctx, device)
	}
	if err != nil {
		return nil, err
	}
	u := &usage{at: time.Now()}
	for _, d := range devices {
		if err := u.add(ctx, d); err != nil && !errors.Is(err, rdmanl.ErrNoDevice) {
			return nil, err
		}
	}
	slices.SortStableFunc(u.users, func(a, b *user) int {
		return cmp.Or(cmp.Compare(b.pinned, a.pinned), cmp.Compare(b.qps, a.qps), cmp.Compare(a.pid, b.pid))
	})
	return u, nil
}

// add adds a device's ports and users.
func (u *usage) add(ctx context.Context, d rdmanl.Device) error {
	links, err := rdmanl.Links(ctx, d.Index)
	if err != nil {
		return err
	}
	type key struct {
		pid  uint32
		comm string
	}
	users := make(map[key]*user)
	of := func(o rdmanl.Owner) *user {
		name, _ := o.Comm()
		pid, ok := o.Process() // a process may own objects through several threads
		if !ok {
			pid = o.PID.Or(0)
		}
		k := key{pid, name}
		if users[k] == nil {
			users[k] = &user{device: d.Name, pid: k.pid, comm: name, states: make(map[ib.QPState]int)}
			u.users = append(u.users, users[k])
		}
		return users[k]
	}
	for _, l := range links {
		p := portUsage{l, make(map[string]uint64)}
		all, err := (monitor.Host{}).Counters(ctx, d.Name, int(l.Port))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the device was removed
		}
		if err != nil {
			return err
		}
		for _, c := range all {
			p.counters[c.Name] = c.Value
		}
		u.ports = append(u.ports, p)
	}
	if err := each(ctx, d, rdmanl.QPs, func(q rdmanl.QP) {
		x := of(q.Owner)
		x.qps++
		if s, ok := q.State.Get(); ok {
			x.states[s]++
		}
	}); err != nil {
		return err
	}
	if err := each(ctx, d, rdmanl.MRs, func(m rdmanl.MR) {
		x := of(m.Owner)
		x.mrs++
		x.pinned += m.Length.Or(0)
	}); err != nil {
		return err
	}
	for _, err := range []error{
		each(ctx, d, rdmanl.CQs, func(c rdmanl.CQ) { of(c.Owner).cqs++ }),
		each(ctx, d, rdmanl.SRQs, func(s rdmanl.SRQ) { of(s.Owner).srqs++ }),
		each(ctx, d, rdmanl.CMIDs, func(c rdmanl.CMID) { of(c.Owner).cmIDs++ }),
		each(ctx, d, rdmanl.Contexts, func(c rdmanl.Context) { of(c.Owner) }),
	} {
		if err != nil {
			return err
		}
	}
	for _, l := range links {
		all, err := rdmanl.QPCounters(ctx, d.Index, l.Port)
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
		for _, c := range all {
			if _, ok := c.PID.Get(); !ok {
				continue
			}
			x := of(c.Owner)
			if x.counts == nil {
				x.counts = make(map[string]uint64)
			}
			for _, v := range c.Counters {
				x.counts[v.Name] += v.Value
			}
		}
	}
	return nil
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

// text returns the screen's text. before is the previous usage, or nil the first time.
func (u *usage) text(before *usage) string {
	var b strings.Builder
	for _, p := range u.ports {
		fmt.Fprintf(&b, "%s/%d %v", stranger.Text(p.link.Device), p.link.Port, p.link.State.Or(0))
		if netdev, ok := p.link.Netdev.Get(); ok {
			fmt.Fprintf(&b, " %s", stranger.Text(netdev))
		}
		b.WriteString(p.rates(u.at, before))
		b.WriteString("\n")
	}
	b.WriteString("\n")
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "PID\tCOMMAND\tDEVICE\tQP\tSTATES\tCQ\tSRQ\tMR\tPINNED\tCM_ID\tOPS/S\n")
	for _, x := range u.users {
		pid, comm := strconv.Itoa(int(x.pid)), stranger.Text(x.comm)
		if x.pid == 0 {
			pid, comm = "-", "["+comm+"]"
		}
		ops := "-"
		if old := before.find(x); old != nil && x.counts != nil {
			ops = perSecond(sum(x.counts)-sum(old.counts), u.at.Sub(before.at))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%d\t%d\t%d\t%s\t%d\t%s\n", pid, comm, stranger.Text(x.device), x.qps, x.stateList(), x.cqs, x.srqs, x.mrs, size(x.pinned), x.cmIDs, ops)
	}
	table.Flush()
	return b.String()
}

// rates returns the traffic of a port, and its growing error counters.
func (p portUsage) rates(at time.Time, before *usage) string {
	if before == nil {
		return ""
	}
	i := slices.IndexFunc(before.ports, func(o portUsage) bool { return o.link.Index == p.link.Index && o.link.Port == p.link.Port })
	if i < 0 {
		return ""
	}
	old, passed := before.ports[i].counters, at.Sub(before.at)
	grown := func(name string) (n uint64, ok bool) {
		v, ok := p.counters[name]
		o, was := old[name]
		return v - o, ok && was && v >= o
	}
	text := ""
	for _, r := range []struct {
		name, what string
		bytes      bool // the counter has bytes, not packets
	}{
		{"port_xmit_data", "out", true}, {"port_rcv_data", "in", true}, // adapters that have an agent
		{"tx_bytes", "out", true}, {"rx_bytes", "in", true}, // efa
		{"sent_pkts", "out", false}, {"rcvd_pkts", "in", false}, // rxe
	} {
		n, ok := grown(r.name)
		switch {
		case !ok:
		case r.bytes:
			text += fmt.Sprintf("  %s %s/s", r.what, size(uint64(float64(n)/passed.Seconds())))
		default:
			text += fmt.Sprintf("  %s %s packets/s", r.what, perSecond(n, passed))
		}
	}
	var troubles []string
	for name := range p.counters {
		if n, ok := grown(name); ok && n > 0 {
			if k := doctor.Trouble(name); k != nil && !slices.Contains(troubles, k.Title) {
				troubles = append(troubles, k.Title)
			}
		}
	}
	slices.Sort(troubles)
	for _, trouble := range troubles {
		text += "  ! " + trouble
	}
	return text
}

// find returns the same user in another usage, or nil.
func (u *usage) find(x *user) *user {
	if u == nil {
		return nil
	}
	for _, o := range u.users {
		if o.device == x.device && o.pid == x.pid && o.comm == x.comm {
			return o
		}
	}
	return nil
}

func sum(counts map[string]uint64) uint64 {
	n := uint64(0)
	for name, v := range counts {
		if doctor.Trouble(name) == nil {
			n += v
		}
	}
	return n
}

func perSecond(n uint64, passed time.Duration) string {
	return strconv.FormatFloat(float64(n)/passed.Seconds(), 'f', 0, 64)
}

// stateList lists the states of QPs, such as "RTS 3, ERR 1".
func (x *user) stateList() string {
	var list []string
	for s := ib.QPReset; s <= ib.QPErr; s++ {
		if n := x.states[s]; n > 0 {
			list = append(list, fmt.Sprintf("%v %d", s, n))
		}
	}
	if list == nil {
		return "-"
	}
	return strings.Join(list, ", ")
}

// size returns a number of bytes in human-readable form.
func size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	v := float64(n)
	i := 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

// sheets describes the users for --json.
func (u *usage) sheets() []*sheet.Sheet {
	var all []*sheet.Sheet
	for _, x := range u.users {
		s := sheet.New()
		s.Set("ifname", x.device)
		if x.pid != 0 {
			s.Set("pid", x.pid)
		}
		s.Set("comm", x.comm)
		s.Set("qp", x.qps)
		states := s.Part("states")
		for state := ib.QPReset; state <= ib.QPErr; state++ {
			if n := x.states[state]; n > 0 {
				states.Set(state.String(), n)
			}
		}
		s.Set("cq", x.cqs)
		s.Set("srq", x.srqs)
		s.Set("mr", x.mrs)
		s.Set("pinned", x.pinned)
		s.Set("cm_id", x.cmIDs)
		all = append(all, s)
	}
	return all
}
