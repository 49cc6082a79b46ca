package xfer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/verbs"
)

// A rail is a port of a device. One goroutine polls the completions of all its queue pairs.
type rail struct {
	e     *Engine
	index int
	name  string
	info  *verbs.DeviceInfo
	dev   *verbs.Device
	port  int

	transports []*transport
	cm         cmListener
	dc         *dcRail // nil without DC

	atomic bool // the device has atomic operations
	maxCQE int
	pd     *verbs.PD // of the engine's own memory, and of the queue pairs that use it
	cq     *verbs.CQ

	up      atomic.Bool   // the port is active
	changes atomic.Uint32 // of up, or of the port's addresses
	gone    atomic.Bool   // the device was removed, or can't be polled
	telling sync.Mutex    // held to change these

	polling sync.Mutex // held to take completions, except by poll while nobody else may
	spins   bool       // help may take them
	helped  bool       // help takes them
	idle    int64      // when there were none first, or 0
	wcs     [64]verbs.WC

	mu       sync.Mutex
	ends     map[uint32]completer
	lastEnd  uint32
	reserved int // completions that the queue pairs can have

	running sync.WaitGroup // its goroutines
}

// A completer takes completions of a queue pair, in their order. The upper half of their WRIDs is its number on
// the rail, which no other completer gets, so that a completion never reaches the wrong one.
type completer interface{ complete(wcs []verbs.WC) }

func openRail(e *Engine, info *verbs.DeviceInfo, port, index int) (*rail, error) {
	dev, err := info.Open()
	if err != nil {
		return nil, err
	}
	r := &rail{e: e, index: index, name: fmt.Sprintf("%s/%d", info.Name(), port), info: info, dev: dev, port: port, ends: make(map[uint32]completer)}
	if err := r.open(); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	r.running.Go(r.poll)
	r.running.Go(r.watch)
	if r.dc != nil {
		for c := range r.dc.pools {
			r.running.Go(r.dc.pools[c].lend)
		}
	}
	return r, nil
}

func (r *rail) open() error {
	device, err := r.dev.QueryDevice()
	if err != nil {
		return err
	}
	r.atomic, r.maxCQE = device.AtomicCap != verbs.AtomicNone, device.MaxCQE
	attr, err := r.dev.QueryPort(r.port)
	if err != nil {
		return err
	}
	if attr.State != verbs.PortActive {
		return fmt.Errorf("the port is %v", attr.State)
	}
	r.up.Store(true)
	if _, err = r.gid(); err != nil {
		return err
	}
	if r.pd, err = r.dev.AllocPD(); err != nil {
		return err
	}
	cqes := 1024
	if r.info.Transport() != verbs.TransportIB { // iWARP's and EFA's drivers can't resize a CQ
		cqes = 1 << 15
	}
	if r.cq, err = r.dev.CreateCQ(verbs.CQOptions{MaxCQE: min(cqes, r.maxCQE)}); err != nil {
		return err
	}
	return r.findTransports()
}

// findTransports tries which transports the device has.
func (r *rail) findTransports() error {
	try := verbs.RC
	switch r.info.Transport() {
	case verbs.TransportIWARP:
		r.transports = []*transport{overIWARP}
		_, err := r.addr()
		return err
	case verbs.TransportIB:
		r.transports = []*transport{overRC}
	default:
		r.transports, try = []*transport{overSRD}, verbs.SRD
		// EFA's first devices have no RDMA writes.
		mr, err := r.pd.AllocMR(noteLen, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite})
		if err != nil {
			return err
		}
		if err := mr.Close(); err != nil {
			return err
		}
	}
	o := r.options(try)
	o.SignalAll = try == verbs.SRD
	qp, err := r.pd.CreateQP(o)
	if err == nil {
		err = qp.Close()
	}
	if err != nil || try != verbs.RC {
		return err
	}
	if r.dc, err = newDCRail(r); err == nil {
		r.transports = append(r.transports, overDC)
	}
	return nil
}

// names returns the names of the rail's transports.
func (r *rail) names() (names []string) {
	for _, t := range r.transports {
		names = append(names, t.name)
	}
	return names
}

// transport returns one of the rail's transports by its name, or nil.
func (r *rail) transport(name string) *transport {
	for _, t := range r.transports {
		if t.name == name {
			return t
		}
	}
	return nil
}

// common returns the transport for a link to a peer's rail, or nil. DC is for many peers.
func (r *rail) common(theirs []string) (best *transport) {
	for _, t := range r.transports {
		if slices.Contains(theirs, t.name) && (best == nil || t.shared && r.e.many()) {
			best = t
		}
	}
	return best
}

// gid returns the GID for a new queue pair. It changes with the port's addresses.
func (r *rail) gid() (verbs.GIDEntry, error) {
	return r.dev.FindGID(verbs.GIDSelector{Port: r.port})
}

// close closes the device and all that is on it.
func (r *rail) close() error {
	if err := r.cm.close(); err != nil {
		return err
	}
	if err := r.dev.Close(); err != nil {
		return err // its goroutines go on
	}
	r.running.Wait()
	return nil
}

// lost reports whether the device is gone.
func (r *rail) lost() bool { return r.gone.Load() }

// lostBy reports whether the device is gone. An error of one of its verbs may say so before its
// events do.
func (r *rail) lostBy(err error) bool {
	if errors.Is(err, verbs.ErrDeviceRemoved) && !r.lost() {
		r.failed(err)
	}
	return r.lost()
}

// enter gives a completer its number, and makes room in the CQ for its completions.
func (r *rail) enter(c completer, completions int) (uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if need := r.reserved + completions; need > r.cq.MaxCQE() {
		if err := r.cq.Resize(max(need, min(2*need, r.maxCQE))); err != nil {
			return 0, err
		}
	}
	r.reserved += completions
	for r.lastEnd++; r.lastEnd == 0 || r.ends[r.lastEnd] != nil; r.lastEnd++ {
	}
	r.ends[r.lastEnd] = c
	return r.lastEnd, nil
}

// leave takes a completer's number back. Its queue pair is closed.
func (r *rail) leave(number uint32, completions int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ends, number)
	r.reserved -= completions
}

// wrid returns the ID of a completer's request.
func wrid(number, request uint32) uint64 { return uint64(number)<<32 | uint64(request) }

// poll takes completions until the device is closed.
func (r *rail) poll() {
	for wc, err := range r.cq.All(context.Background()) {
		if err != nil {
			var odd *verbs.CQEError
			if errors.As(err, &odd) {
				continue
			}
			r.failed(err)
			return
		}
		r.wcs[0] = wc
		r.completed(r.wcs[:1])
		r.spin()
	}
}

// spin takes completions until there were none for Options.Spin, or an error, which All returns.
func (r *rail) spin() {
	r.polling.Lock()
	defer r.polling.Unlock()
	limit := int64(r.e.o.Spin)
	r.spins, r.idle = true, 0
	for {
		n, err := r.take()
		if err != nil || n == 0 && limit == 0 {
			break
		}
		if n > 0 {
			continue
		}
		now := r.e.timeNow()
		if r.idle == 0 {
			r.idle = now
		}
		if now-r.idle > limit {
			break
		}
		r.polling.Unlock()
		runtime.Gosched()
		r.polling.Lock()
	}
	r.spins = false
}

// take takes completions. The caller holds the lock polling.
func (r *rail) take() (int, error) {
	n, err := r.cq.Poll(r.wcs[:])
	if n > 0 {
		r.idle = 0
		r.completed(r.wcs[:n])
	}
	return n, err
}

// help takes completions on a goroutine of the program's, which saves it two switches to the rail's. It does
// so only while that spins: completions must be taken in their order.
func (r *rail) help() {
	if !r.polling.TryLock() {
		return
	}
	if r.spins {
		r.helped = true
		r.take()
		r.helped = false
	}
	r.polling.Unlock()
}

func (r *rail) completed(wcs []verbs.WC) {
	for len(wcs) > 0 {
		number, n := uint32(wcs[0].WRID>>32), 1
		for n < len(wcs) && uint32(wcs[n].WRID>>32) == number {
			n++
		}
		r.mu.Lock()
		c := r.ends[number]
		r.mu.Unlock()
		if c != nil {
			c.complete(wcs[:n])
		}
		wcs = wcs[n:]
	}
}

// failed gives the rail up for good.
func (r *rail) failed(err error) {
	r.gone.Store(true)
	r.setUp(false)
	if !errors.Is(err, verbs.ErrClosed) {
		r.e.o.Log.Error("xfer: rail lost", "rail", r.name, "err", err)
	}
}

// watch follows the state of the port until the device is closed.
func (r *rail) watch() {
	for ev, err := range r.dev.Events(context.Background()) {
		switch {
		case err != nil:
			r.failed(err)
			return
		case ev.Type == verbs.EventDeviceFatal:
			r.failed(verbs.ErrDeviceRemoved)
		case ev.Port != r.port:
		case ev.Type == verbs.EventPortErr || ev.Type == verbs.EventPortActive:
			// The event may be old: the port tells its state.
			attr, err := r.dev.QueryPort(r.port)
			r.setUp(err == nil && attr.State == verbs.PortActive)
		case ev.Type == verbs.EventGIDChange:
			r.moved()
		}
	}
}

// setUp notes the port's state, and tells the peers. A rail that is given up stays down.
func (r *rail) setUp(up bool) {
	r.telling.Lock()
	defer r.telling.Unlock()
	up = up && !r.lost()
	if r.up.Swap(up) == up {
		return
	}
	r.e.o.Log.Info("xfer: rail", "rail", r.name, "up", up)
	r.tell(up)
}

// moved notes that the port's addresses have changed: those that had no way may have one now. A port
// often comes up before its addresses.
func (r *rail) moved() {
	r.telling.Lock()
	defer r.telling.Unlock()
	if r.up.Load() {
		r.tell(true)
	}
}

// tell tells the peers of the port's state.
func (r *rail) tell(up bool) {
	r.changes.Add(1)
	for _, p := range r.e.Peers() {
		p.railChanged(r, up)
	}
}
