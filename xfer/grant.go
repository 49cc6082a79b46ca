package xfer

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// GrantOptions are the arguments of Piece.Grant.
type GrantOptions struct {
	Access  Access           // what peers may do: Read, Write, Atomic
	Allow   func(*Peer) bool // decides about each peer that has the Remote; nil allows all. It must not wait or panic
	Expires time.Time        // when the grant is revoked; the zero Time is never
}

// A Grant is the right of others to use a piece of memory. Its methods are safe for concurrent use.
type Grant struct {
	e      *Engine
	piece  Piece
	o      GrantOptions
	id     uint64
	secret secret
	expiry *time.Timer // or nil

	revoked atomic.Bool // registrations that wait for mu are refused from then on

	// mu also makes Revoke wait for a registration that is being made.
	mu       sync.Mutex
	revoking chan struct{}           // closed when revoked and all peers were asked
	uses     map[*domain][]*verbs.MR // by rail; nil where the rail was lost
	peers    map[*Peer]bool          // that have the keys
}

// Grant allows others to use the piece. It registers nothing before a peer uses it.
func (p Piece) Grant(o GrantOptions) (*Grant, error) {
	switch {
	case p.mem == nil || p.n == 0:
		return nil, invalid("grant of no memory")
	case o.Access == 0 || o.Access&^allAccess != 0:
		return nil, invalid("grant with access %#x", uint8(o.Access))
	case p.mem.readOnly && o.Access != Read:
		return nil, invalid("grant with access %v to memory that is registered read-only", o.Access)
	case o.Access&Atomic != 0 && p.mem.e.atomic < 0:
		return nil, fmt.Errorf("xfer: grant: %w: no device has atomic operations", verbs.ErrNotSupported)
	}
	g := &Grant{e: p.mem.e, piece: p, o: o, revoking: make(chan struct{}), uses: make(map[*domain][]*verbs.MR), peers: make(map[*Peer]bool)}
	m := p.mem
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errClosed
	}
	m.grants[g] = true
	g.e.mu.Lock()
	g.e.lastGrant++
	g.id = g.e.lastGrant
	g.secret = g.e.secretOf(g.id)
	g.e.grants[g.id] = g
	g.e.mu.Unlock()
	if !o.Expires.IsZero() {
		g.mu.Lock() // Revoke may run before AfterFunc has returned
		defer g.mu.Unlock()
		g.expiry = time.AfterFunc(time.Until(o.Expires), func() {
			if err := g.Revoke(g.e.ctx); err != nil {
				g.e.o.Log.Error("xfer: revoke an expired grant", "grant", g.id, "err", err)
				g.mu.Lock()
				g.expiry.Reset(time.Second) // try again
				g.mu.Unlock()
			}
		})
	}
	return g, nil
}

// secretOf returns the secret of a grant, which the engine also knows when the grant is gone.
func (e *Engine) secretOf(grant uint64) (s secret) {
	h := hmac.New(sha256.New, e.key[:])
	h.Write(binary.BigEndian.AppendUint64(nil, grant))
	copy(s[:], h.Sum(nil))
	return s
}

// expired reports whether the grant's time is over.
func (g *Grant) expired() bool { return !g.o.Expires.IsZero() && !time.Now().Before(g.o.Expires) }

// Remote returns what a peer needs to use the memory. It has the grant's secret.
func (g *Grant) Remote() Remote {
	return Remote{engine: g.e.id, grant: g.id, secret: g.secret, access: g.o.Access, n: uint64(g.piece.n)}
}

// grace is how long Revoke waits for peers to stop.
const grace = time.Second

// Revoke takes the right back. It asks the peers that have used it to stop, and waits for them for
// at most a second, or until ctx ends. Then it deregisters the memory in any case: when Revoke
// returns nil, no peer can reach the memory by this grant. If the memory can't be deregistered, it
// returns the error, and may be called again. Revoking a revoked grant does nothing.
func (g *Grant) Revoke(ctx context.Context) error {
	first := g.revoked.CompareAndSwap(false, true)
	g.mu.Lock()
	peers := keys(g.peers)
	g.mu.Unlock()
	if first {
		if g.expiry != nil {
			g.expiry.Stop()
		}
		g.e.mu.Lock()
		delete(g.e.grants, g.id)
		g.e.mu.Unlock()
		g.ask(ctx, peers)
		close(g.revoking)
	}
	<-g.revoking
	g.mu.Lock()
	defer g.mu.Unlock()
	for d := range g.uses {
		if err := g.deregister(d); err != nil {
			return fmt.Errorf("xfer: revoke grant %d: %w", g.id, err)
		}
	}
	for p := range g.peers {
		p.ungrant(g)
	}
	clear(g.peers)
	m := g.piece.mem
	m.mu.Lock()
	delete(m.grants, g)
	m.mu.Unlock()
	return nil
}

// ask asks peers to stop, and waits until they have. It doesn't wait for those that were asked before, about
// another grant, and have not answered in time: they would cost each Revoke its grace.
func (g *Grant) ask(ctx context.Context, peers []*Peer) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	var all sync.WaitGroup
	for _, p := range peers {
		answered := make(chan struct{})
		wait := !p.late.Load()
		go func() {
			defer close(answered)
			if _, err := p.call(p.ctx, &message{Kind: revoke, Grant: g.id}); err == nil {
				p.late.Store(false)
			}
		}()
		if !wait {
			continue
		}
		all.Go(func() {
			select {
			case <-answered:
			case <-ctx.Done():
				p.late.Store(true)
				g.e.o.Log.Info("xfer: a peer didn't stop in time", "peer", p.Addr(), "grant", g.id)
			}
		})
	}
	all.Wait()
}

// deregister ends the use in a domain. The caller holds g.mu.
func (g *Grant) deregister(d *domain) error {
	var errs []error
	for _, mr := range g.uses[d] {
		errs = append(errs, mr.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	delete(g.uses, d)
	return nil
}

// forget ends a peer's use, when the peer is gone, and its queue pairs.
func (g *Grant) forget(p *Peer) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.peers, p)
	if p.domain == g.e.shared {
		return nil
	}
	return g.deregister(p.domain)
}

// attach gives a peer the keys for a grant, if it may have them.
func (e *Engine) attach(p *Peer, m *message) (*message, error) {
	e.mu.Lock()
	g := e.grants[m.Grant]
	made := m.Grant != 0 && m.Grant <= e.lastGrant
	e.mu.Unlock()
	secret := e.secretOf(m.Grant)
	switch {
	case !made || subtle.ConstantTimeCompare(secret[:], m.Secret) == 0:
		return nil, fmt.Errorf("%w: there is no such grant", ErrDenied)
	case g == nil || g.expired():
		return nil, ErrRevoked
	case g.o.Allow != nil && !g.o.Allow(p):
		return nil, fmt.Errorf("%w: the grant is not for this peer", ErrDenied)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.revoked.Load() {
		return nil, ErrRevoked
	}
	mrs := g.uses[p.domain]
	if mrs == nil {
		var err error
		if mrs, err = g.register(p.domain); err != nil {
			return nil, err
		}
		g.uses[p.domain] = mrs
	}
	if !p.granted(g) {
		return nil, ErrPeerLost
	}
	g.peers[p] = true
	reply := &message{Length: uint64(g.piece.n), Access: g.o.Access, Keys: make([]uint32, len(mrs))}
	for i, mr := range mrs {
		if mr != nil {
			reply.Address, reply.Keys[i] = mr.Addr(), mr.RKey()
		}
	}
	return reply, nil
}

// register registers the piece in a domain.
func (g *Grant) register(d *domain) ([]*verbs.MR, error) {
	access := verbs.AccessFlags(0)
	if g.o.Access&Read != 0 {
		access |= verbs.AccessRemoteRead
	}
	if g.o.Access&Write != 0 {
		access |= verbs.AccessRemoteWrite | verbs.AccessLocalWrite
	}
	mrs := make([]*verbs.MR, len(d.pds))
	for i, pd := range d.pds {
		access := access
		if g.o.Access&Atomic != 0 && i == g.e.atomic {
			access |= verbs.AccessRemoteAtomic | verbs.AccessLocalWrite
		}
		mr, err := g.piece.mem.registerOn(pd, g.piece.off, g.piece.n, access)
		if err != nil && !g.e.rails[i].lostBy(err) {
			for _, mr := range mrs {
				mr.Close()
			}
			return nil, err
		}
		mrs[i] = mr
	}
	return mrs, nil
}

// A domain has a protection domain on each rail, for the queue pairs of a peer and for what it was
// granted. With SharedKeys, all peers have one.
type domain struct {
	pds []*verbs.PD

	mu sync.Mutex
	dc map[*rail]*dcReceiver
}

func (e *Engine) newDomain() (*domain, error) {
	d := &domain{pds: make([]*verbs.PD, len(e.rails)), dc: make(map[*rail]*dcReceiver)}
	for i, r := range e.rails {
		pd, err := r.dev.AllocPD()
		if err != nil && !r.lostBy(err) {
			return nil, errors.Join(err, d.close())
		}
		d.pds[i] = pd
	}
	return d, nil
}

func (d *domain) close() error {
	var errs []error
	for _, x := range d.dc {
		errs = append(errs, x.close())
	}
	for _, pd := range d.pds {
		errs = append(errs, pd.Close())
	}
	return errors.Join(errs...)
}
