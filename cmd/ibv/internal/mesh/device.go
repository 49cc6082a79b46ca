package mesh

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/histogram"
	"github.com/goverbs/goverbs/cmd/ibv/internal/perftest"
	"github.com/goverbs/goverbs/verbs"
)

// devices implements meter with the rails of this host.
type devices struct {
	all     []*port
	gid     int // index, or -1
	current *link
}

// A port is a rail.
type port struct {
	dev  *verbs.Device
	attr *verbs.PortAttr
	gid  verbs.GIDEntry
}

// A link is the queue pair to a peer.
type link struct {
	cq   *verbs.CQ
	qp   *verbs.QP
	mr   *verbs.MR
	size int
	peer *verbs.Remote // nil: not connected
	all  []io.Closer
}

const (
	depth     = 64      // writes in flight, at most
	inFlight  = 1 << 20 // bytes in flight, which fill a link of 400 Gb/s and 20 µs
	readBytes = 8
	portIndex = 1
)

// openDevices opens devices by name, or the first one with an active port.
func openDevices(names []string, gid int) (*devices, error) {
	d := &devices{gid: gid}
	if len(names) == 0 {
		list, err := verbs.Devices()
		if err != nil {
			return nil, err
		}
		why := errors.New("this host has no RDMA device")
		for _, info := range list {
			p, err := d.openPort(info.Name())
			if err == nil {
				d.all = []*port{p}
				return d, nil
			}
			why = err
		}
		return nil, why
	}
	for _, name := range names {
		p, err := d.openPort(name)
		if err != nil {
			return nil, errors.Join(err, d.end())
		}
		d.all = append(d.all, p)
	}
	return d, nil
}

func (d *devices) openPort(name string) (p *port, err error) {
	dev, err := verbs.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			dev.Close()
		}
	}()
	attr, err := dev.QueryPort(portIndex)
	if err != nil {
		return nil, err
	}
	if attr.State != verbs.PortActive {
		return nil, fmt.Errorf("port %d of %s is %v", portIndex, name, attr.State)
	}
	gid, err := d.choose(dev)
	return &port{dev, attr, gid}, err
}

// choose returns the GID to use: the requested GID, or the GID with the widest reach.
func (d *devices) choose(dev *verbs.Device) (verbs.GIDEntry, error) {
	if d.gid >= 0 {
		return dev.QueryGID(portIndex, d.gid)
	}
	return dev.FindGID(verbs.GIDSelector{Port: portIndex})
}

func (d *devices) end() (err error) {
	err = d.close()
	for _, p := range d.all {
		err = errors.Join(err, p.dev.Close())
	}
	return err
}

func (d *devices) rails() (all []Rail) {
	for _, p := range d.all {
		all = append(all, Rail{
			Device: p.dev.Info().Name(), Link: p.attr.LinkLayer.String(),
			Gbits: perftest.LaneGbits(p.attr.ActiveSpeed) * float64(p.attr.ActiveWidth.Lanes()),
		})
	}
	return all
}

// open creates a queue pair. This side writes the memory's first half, the peer the second half.
func (d *devices) open(rail, size int) (_ *endpoint, err error) {
	if err := d.close(); err != nil {
		return nil, err
	}
	if rail < 0 || rail >= len(d.all) {
		return nil, fmt.Errorf("there is no rail %d", rail)
	}
	p, l := d.all[rail], &link{size: size}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	pd, err := p.dev.AllocPD()
	if err != nil {
		return nil, err
	}
	l.all = append(l.all, pd)
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead
	if l.mr, err = pd.AllocMR(2*size, verbs.MROptions{Access: access}); err != nil {
		return nil, err
	}
	l.all = append(l.all, l.mr)
	if l.cq, err = p.dev.CreateCQ(verbs.CQOptions{MaxCQE: depth + 1, SingleOwner: true}); err != nil {
		return nil, err
	}
	l.all = append(l.all, l.cq)
	l.qp, err = pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: l.cq, RecvCQ: l.cq, SingleOwner: true,
		Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return nil, err
	}
	l.all = append(l.all, l.qp)
	e, err := l.qp.Endpoint(p.gid)
	if err != nil {
		return nil, err
	}
	d.current = l
	return &endpoint{e, l.mr.Addr() + uint64(size), l.mr.RKey()}, nil
}

var errNotOpen = errors.New("there is no connected queue pair")

// Retries end after a second on rxe, and after at most four with adapters, which may wait four
// times as long. With 7, rxe would retry for ever, and never notice that a peer has died.
const (
	ackTimeout = 100 * time.Millisecond
	retries    = 6
)

func (d *devices) connect(peer *endpoint) error {
	l := d.current
	if l == nil {
		return errNotOpen
	}
	err := l.qp.Connect(peer.Endpoint, verbs.ConnectOptions{Access: verbs.AccessRemoteWrite | verbs.AccessRemoteRead, AckTimeout: ackTimeout, RetryCount: retries})
	if err == nil {
		l.peer = &verbs.Remote{Addr: peer.Addr, RKey: peer.RKey}
	}
	return err
}

// connected returns the queue pair to a peer.
func (d *devices) connected() (*link, error) {
	if d.current == nil || d.current.peer == nil {
		return nil, errNotOpen
	}
	return d.current, nil
}

func (d *devices) close() (err error) {
	if d.current != nil {
		err = d.current.close()
		d.current = nil
	}
	return err
}

func (l *link) close() (err error) {
	for _, c := range slices.Backward(l.all) {
		err = errors.Join(err, c.Close())
	}
	return err
}

// Numbers of reads in a latency test. The first reads only warm the caches.
const (
	warmUp    = 10
	mostReads = 2000
)

// latency measures reads, one after the other.
func (d *devices) latency(limit time.Duration) (*Latency, error) {
	l, err := d.connected()
	if err != nil {
		return nil, err
	}
	h := new(histogram.Histogram)
	wr := verbs.SendWR{Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{l.mr.SGE(0, readBytes)}, Remote: *l.peer}
	wcs := make([]verbs.WC, 1)
	begin := time.Now()
	for i := 0; i < warmUp+mostReads && (i <= 2*warmUp || time.Since(begin) < limit); i++ {
		start := time.Now()
		if _, err := l.qp.PostSend(wr); err != nil {
			return nil, err
		}
		if _, err := l.poll(wcs); err != nil {
			return nil, err
		}
		if i >= warmUp {
			h.Add(int64(time.Since(start)))
		}
	}
	oneWay := func(q float64) float64 { return float64(h.Quantile(q)) / 2e3 }
	return &Latency{oneWay(0.5), oneWay(0.99)}, nil
}

// idle is the limit of the wait for a completion. The queue pair's own retries end sooner.
const idle = 5 * time.Second

// poll waits for completions.
func (l *link) poll(wcs []verbs.WC) (int, error) {
	begin := time.Now()
	for tries := 1; ; tries++ {
		n, err := l.cq.Poll(wcs)
		if err != nil {
			return 0, err
		}
		for i := range wcs[:n] {
			if err := wcs[i].Err(); err != nil {
				return 0, err
			}
		}
		if n > 0 {
			return n, nil
		}
		if tries%1024 == 0 && time.Since(begin) > idle {
			return 0, fmt.Errorf("nothing has completed for %v", idle)
		}
	}
}

// bandwidth measures writes to the peer.
func (d *devices) bandwidth(limit time.Duration) (float64, error) {
	l, err := d.connected()
	if err != nil {
		return 0, err
	}
	wr := verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{l.mr.SGE(0, l.size)}, Remote: *l.peer}
	wcs := make([]verbs.WC, 16)
	most := min(max(inFlight/l.size, 2), depth)
	posted, done := 0, 0
	begin := time.Now()
	more := func() bool { return posted < 2 || time.Since(begin) < limit }
	for more() || done < posted {
		for posted-done < most && more() {
			if _, err := l.qp.PostSend(wr); err != nil {
				return 0, err
			}
			posted++
		}
		n, err := l.poll(wcs)
		if err != nil {
			return 0, err
		}
		done += n
	}
	return float64(done) * float64(l.size) * 8 / float64(time.Since(begin).Nanoseconds()), nil
}
