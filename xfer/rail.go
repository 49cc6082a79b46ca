package xfer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// A rail is a port of a device. One goroutine polls the completions of all its queue pairs.
type rail struct {
	e     *Engine
	index int
	name  string
	dev   *verbs.Device
	port  int

	atomic bool // the device has atomic operations
	maxCQE int
	pd     *verbs.PD // of the engine's own memory, and of the queue pairs that use it
	cq     *verbs.CQ

	up      atomic.Bool   // the port is active
	changes atomic.Uint32 // of up
	gone    atomic.Bool   // the device was removed, or can't be polled
	telling sync.Mutex    // held to change up

	mu       sync.Mutex
	ends     map[uint32]completer
	lastEnd  uint32
	reserved int // completions that the queue pairs can have

	running sync.WaitGroup // its goroutines
}

// A completer takes the completions of a queue pair. The upper half of their WRIDs is its number on
// the rail, which no other completer gets, so that a completion never reaches the wrong one.
type completer interface{ complete(wc *verbs.WC) }

func openRail(e *Engine, info *verbs.DeviceInfo, port, index int) (*rail, error) {
	dev, err := info.Open()
	if err != nil {
		return nil, err
	}
	r := &rail{e: e, index: index, name: fmt.Sprintf("%s/%d", info.Name(), port), dev: dev, port: port, ends: make(map[uint32]completer)}
	if err := r.open(); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	r.running.Go(r.poll)
	r.running.Go(r.watch)
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
	if r.cq, err = r.dev.CreateCQ(verbs.CQOptions{MaxCQE: 1024}); err != nil {
		return err
	}
	// Devices without reliable connections, such as EFA, refuse this.
	qp, err := r.pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: r.cq, RecvCQ: r.cq, Cap: verbs.QPCap{MaxSendWR: 1}})
	if err != nil {
		return err
	}
	return qp.Close()
}

// gid returns the GID for a new queue pair. It changes with the port's addresses.
func (r *rail) gid() (verbs.GIDEntry, error) {
	return r.dev.FindGID(verbs.GIDSelector{Port: r.port})
}

// close closes the device and all that is on it.
func (r *rail) close() error {
	if err := r.dev.Close(); err != nil {
		return err // its goroutines go on
	}
	r.running.Wait()
	return nil
}

// lost reports whether the device is gone.
func (r *rail) lost() bool { return r.gone.Load() }

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
	wcs := make([]verbs.WC, 64)
	spin := r.e.o.Spin
	for wc, err := range r.cq.All(context.Background()) {
		if err != nil {
			var odd *verbs.CQEError
			if errors.As(err, &odd) {
				continue
			}
			r.failed(err)
			return
		}
		wcs[0] = wc
		r.completed(wcs[:1])
		for last := time.Now(); ; {
			n, err := r.cq.Poll(wcs)
			if err != nil {
				break // All returns it
			}
			if n > 0 {
				r.completed(wcs[:n])
				if spin > 0 {
					last = time.Now()
				}
				continue
			}
			if spin == 0 || time.Since(last) > spin {
				break
			}
			runtime.Gosched()
		}
	}
}

func (r *rail) completed(wcs []verbs.WC) {
	for i := range wcs {
		r.mu.Lock()
		c := r.ends[uint32(wcs[i].WRID>>32)]
		r.mu.Unlock()
		if c != nil {
			c.complete(&wcs[i])
		}
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
	r.changes.Add(1)
	r.e.o.Log.Info("xfer: rail", "rail", r.name, "up", up)
	for _, p := range r.e.Peers() {
		p.railChanged(r, up)
	}
}
