package xfer

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// A target serves a link of a peer's. It belongs to the peer's domain, so that its device lets the peer
// reach what the peer was granted, and nothing else. It never sends. It receives notifications.
type target struct {
	p     *Peer
	rail  *rail
	kind  *transport
	token token     // begins each notification
	mr    *verbs.MR // which the peer may read from, as a fence; receivers have their memory here
	end   responder // nil before it is made
}

// A token is a random number that names a target, and that nobody but its peer is told.
type token [8]byte

func newToken() (t token) {
	rand.Read(t[:])
	return t
}

const (
	receives = 32
	noteLen  = 24 // of a notification: the target's token; its number, counted from 1 on for each direction; its tag
)

var errNoEndpoint = fmt.Errorf("%w: no endpoint", verbs.ErrInvalid)

// openTarget serves a peer's request for a target.
func (p *Peer) openTarget(m *message) (*message, error) {
	if m.Rail >= len(p.e.rails) {
		return nil, fmt.Errorf("%w: there is no rail %d", verbs.ErrInvalid, m.Rail)
	}
	r := p.e.rails[m.Rail]
	kind := r.transport(m.Transport)
	switch {
	case r.lost() || !r.up.Load():
		return nil, errDown
	case kind == nil:
		return nil, fmt.Errorf("%w: %s has no transport %q", verbs.ErrInvalid, r.name, m.Transport)
	}
	maxTargets := 4 * max(len(p.e.rails), len(p.rails)) // twice as many as there are lanes
	p.mu.Lock()
	_, used := p.targets[m.Link]
	n := len(p.targets)
	if n < maxTargets && !used {
		p.targets[m.Link] = nil // until it is open
	}
	p.mu.Unlock()
	if n >= maxTargets || used {
		return nil, fmt.Errorf("%w: link %d, with %d in use", verbs.ErrInvalid, m.Link, n)
	}
	t := &target{p: p, rail: r, kind: kind, token: newToken()}
	answer := &message{Token: t.token[:]}
	err := t.open(m, answer)
	p.mu.Lock()
	if p.targets[m.Link] = t; err != nil {
		delete(p.targets, m.Link)
	}
	p.mu.Unlock()
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return answer, nil
}

func (t *target) open(m, answer *message) (err error) {
	if t.mr, err = t.pd().AllocMR(noteLen*receives, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteRead}); err != nil {
		return err
	}
	answer.Address, answer.Keys = t.mr.Addr(), []uint32{t.mr.RKey()}
	t.end = t.kind.responder(t)
	return t.end.open(m, answer)
}

// pd returns the protection domain of what the peer uses on the rail.
func (t *target) pd() *verbs.PD { return t.p.domain.pds[t.rail.index] }

// access returns what the peer may do with what it was granted.
func (t *target) access() verbs.AccessFlags {
	access := verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	if t.rail.index == t.p.e.atomic {
		access |= verbs.AccessRemoteAtomic
	}
	return access
}

// note takes a notification.
func (t *target) note(b []byte) {
	if len(b) != noteLen || !bytes.Equal(b[:8], t.token[:]) {
		return // of somebody else
	}
	if err := t.p.notified(binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:]), false); err != nil {
		t.p.end(err)
	}
}

// closeTarget serves a peer's request to close a target. From its answer on, no packet of the link
// has an effect here.
func (p *Peer) closeTarget(number uint32) (*message, error) {
	p.mu.Lock()
	t := p.targets[number]
	if t != nil { // else it may be opened just now
		delete(p.targets, number)
	}
	p.mu.Unlock()
	if t == nil {
		return nil, fmt.Errorf("%w: there is no link %d", verbs.ErrInvalid, number)
	}
	return new(message), t.close()
}

func (t *target) close() error {
	if t.end != nil {
		if err := t.end.close(); err != nil {
			return err
		}
	}
	return t.mr.Close()
}

// A receiver is the queue pair of a responder that has its own receives.
type receiver struct {
	t  *target
	qp *verbs.QP
	wr uint32 // on the rail: see completer

	mu      sync.Mutex
	ring    *verbs.RecvRing
	posted  int           // receives
	closing bool          // no receive is posted any more
	drained chan struct{} // closed when no receive is posted
}

// receive posts the receives.
func (v *receiver) receive() (err error) {
	if v.wr, err = v.t.rail.enter(v, receives+1); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ring, err = verbs.NewRecvRing(v.qp, v.t.mr, noteLen, wrid(v.wr, 0)); err != nil {
		return err
	}
	v.posted, v.drained = receives, make(chan struct{})
	return nil
}

// complete takes notifications.
func (v *receiver) complete(wcs []verbs.WC) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range wcs {
		wc := &wcs[i]
		v.t.note(v.ring.Bytes(wc))
		if v.closing || wc.Status != verbs.WCSuccess || v.ring.Repost(wc) != nil {
			if v.posted--; v.posted == 0 {
				close(v.drained)
			}
		}
	}
}

// drain makes the queue pair fail, and waits until all that it has received has been counted.
func (v *receiver) drain() {
	// A receive that was posted after the queue pair had failed may stay there, so there are none from
	// here on, and Modify flushes the others, even if the queue pair has failed before.
	v.mu.Lock()
	v.closing = true
	wait := v.posted > 0
	v.mu.Unlock()
	if err := failQP(v.qp); err == nil && wait && !v.t.rail.lost() {
		waitFor(v.drained, drainTime)
	}
}

// left is called when the queue pair is closed.
func (v *receiver) left() {
	if v.wr != 0 {
		v.t.rail.leave(v.wr, receives+1)
	}
}

func (v *receiver) close() error {
	if v.qp == nil {
		return nil
	}
	v.drain()
	if err := v.qp.Close(); err != nil {
		return err
	}
	v.left()
	return nil
}
