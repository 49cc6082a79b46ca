package xfer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// The connection manager connects the queue pairs of iWARP. A target's answer has the address at which
// its rail listens. The link's initiator connects to it, and says the target's token.

// A cmInitiator is a queue pair that the connection manager connects.
type cmInitiator struct {
	ownQP
	k  *link
	id *rdmacm.SyncID // closes the queue pair
}

func newCMInitiator(k *link) (initiator, error) { return &cmInitiator{k: k}, nil }

func (i *cmInitiator) offer(*message) error { return nil }

func (i *cmInitiator) connect(m *message) error {
	l := i.k.lane
	ctx, cancel := context.WithTimeout(l.s.p.ctx, l.s.p.e.o.Patience)
	defer cancel()
	to, err := netip.ParseAddrPort(m.Listens)
	if err != nil {
		return fmt.Errorf("the peer's answer has no address: %w", err)
	}
	from, err := l.rail.addr()
	if err != nil {
		return err
	}
	if i.id, err = rdmacm.CreateSyncID(rdmacm.PortSpaceTCP); err != nil {
		return err
	}
	if err := i.id.ResolveAddr(ctx, netip.AddrPortFrom(from, 0), to, l.s.p.e.o.Patience); err != nil {
		return err
	}
	if err := i.id.ResolveRoute(ctx, l.s.p.e.o.Patience); err != nil {
		return err
	}
	if i.qp, err = i.id.CreateQP(l.rail.pd, l.options(verbs.RC)); err != nil {
		return err
	}
	_, err = i.id.Connect(ctx, &rdmacm.ConnParam{PrivateData: m.Token, RetryCount: retries})
	return err
}

func (i *cmInitiator) close() error { return i.id.Close() }

// A cmResponder is a queue pair that is made when its initiator connects.
type cmResponder struct {
	receiver
	id *rdmacm.SyncID // closes the queue pair; nil before it connects
}

func newCMResponder(t *target) responder { return &cmResponder{receiver: receiver{t: t}} }

func (x *cmResponder) open(_, answer *message) error {
	at, err := x.t.rail.listen()
	if err != nil {
		return err
	}
	answer.Listens = at.String()
	x.t.rail.expect(x)
	return nil
}

// accept makes the queue pair, and accepts its initiator.
func (x *cmResponder) accept(ctx context.Context, id *rdmacm.SyncID) (err error) {
	r := x.t.rail
	x.id = id
	if x.qp, err = id.CreateQP(x.t.pd(), r.options(verbs.RC)); err != nil {
		return err
	}
	if err := x.receive(); err != nil {
		return err
	}
	return id.Accept(ctx, &rdmacm.ConnParam{RetryCount: retries})
}

func (x *cmResponder) close() error {
	x.t.rail.forget(x) // it is not being accepted from here on
	if x.id == nil {
		return nil
	}
	if x.qp != nil {
		x.drain()
	}
	if err := x.id.Close(); err != nil {
		return err
	}
	x.left()
	return nil
}

// A cmListener takes the initiators of peers on a rail.
type cmListener struct {
	mu       sync.Mutex
	id       *rdmacm.SyncID // nil before the first target
	addr     netip.Addr     // that it listens on
	closed   bool
	expected map[token]*expected
	running  sync.WaitGroup // its goroutines
}

// An expected is a target whose initiator has not connected yet, or is being accepted.
type expected struct {
	x      *cmResponder
	cancel context.CancelFunc // not nil while it is being accepted
	over   chan struct{}      // closed after that
}

// addr returns the address of the rail's network interface.
func (r *rail) addr() (netip.Addr, error) {
	if r.info.Transport() != verbs.TransportIWARP {
		gid, err := r.gid()
		return gid.GID.Addr().Unmap(), err
	}
	for _, want4 := range []bool{true, false} {
		for _, name := range r.info.NetDevs() {
			dev, err := net.InterfaceByName(name)
			if err != nil {
				continue
			}
			addrs, _ := dev.Addrs()
			for _, a := range addrs {
				if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() == want4 && !p.Addr().IsLinkLocalUnicast() {
					return p.Addr(), nil
				}
			}
		}
	}
	return netip.Addr{}, fmt.Errorf("the network interfaces %q have no address", r.info.NetDevs())
}

// listen listens on the rail's present address, unless it does so.
func (r *rail) listen() (netip.AddrPort, error) {
	addr, err := r.addr()
	if err != nil {
		return netip.AddrPort{}, err
	}
	c := &r.cm
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return netip.AddrPort{}, errClosed
	case c.id != nil && c.addr == addr:
		return c.id.LocalAddr(), nil
	}
	if err := c.id.Close(); err != nil {
		return netip.AddrPort{}, err
	}
	c.id = nil
	id, err := rdmacm.CreateSyncID(rdmacm.PortSpaceTCP)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if err = id.Bind(netip.AddrPortFrom(addr, 0)); err == nil {
		err = id.Listen(maxOpening)
	}
	if err != nil {
		return netip.AddrPort{}, errors.Join(err, id.Close())
	}
	c.id, c.addr = id, addr
	c.running.Go(func() { r.serve(id) })
	return id.LocalAddr(), nil
}

// serve accepts initiators until the listener is closed.
func (r *rail) serve(id *rdmacm.SyncID) {
	for {
		ev, err := id.Request(r.e.ctx)
		switch {
		case err == nil:
			r.request(ev)
		case errors.Is(err, rdmacm.ErrClosed) || r.e.ctx.Err() != nil:
			return
		default:
			r.e.o.Log.Warn("xfer: accept a queue pair", "rail", r.name, "err", err)
			select {
			case <-r.e.ctx.Done():
			case <-time.After(newsPause):
			}
		}
	}
}

// request accepts an initiator that says the token of a target, and rejects others.
func (r *rail) request(ev *rdmacm.Event) {
	var t token
	copy(t[:], ev.Conn.PrivateData)
	c := &r.cm
	c.mu.Lock()
	w := c.expected[t]
	if w == nil || w.cancel != nil || c.closed {
		c.mu.Unlock()
		ev.SyncID.Reject(nil)
		ev.SyncID.Close()
		return
	}
	ctx, cancel := context.WithTimeout(r.e.ctx, r.e.o.Patience)
	w.cancel = cancel
	c.running.Go(func() {
		defer close(w.over)
		defer cancel()
		if err := w.x.accept(ctx, ev.SyncID); err != nil {
			r.e.o.Log.Info("xfer: accept a queue pair", "peer", w.x.t.p.Addr(), "rail", r.name, "err", err)
		}
	})
	c.mu.Unlock()
}

// expect waits for a target's initiator.
func (r *rail) expect(x *cmResponder) {
	r.cm.mu.Lock()
	defer r.cm.mu.Unlock()
	if r.cm.expected == nil {
		r.cm.expected = make(map[token]*expected)
	}
	r.cm.expected[x.t.token] = &expected{x: x, over: make(chan struct{})}
}

// forget ends the wait for a target's initiator.
func (r *rail) forget(x *cmResponder) {
	r.cm.mu.Lock()
	w := r.cm.expected[x.t.token]
	delete(r.cm.expected, x.t.token)
	r.cm.mu.Unlock()
	if w != nil && w.cancel != nil {
		w.cancel()
		<-w.over
	}
}

// close ends the listener and its goroutines. All targets are closed.
func (c *cmListener) close() error {
	c.mu.Lock()
	c.closed = true
	id := c.id
	c.mu.Unlock()
	err := id.Close()
	c.running.Wait()
	return err
}
