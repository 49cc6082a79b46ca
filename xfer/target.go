package xfer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// A target is a queue pair that serves a link of a peer's. It belongs to the peer's domain, so that
// its device lets the peer reach what the peer was granted, and nothing else. It never sends. It
// receives notifications, in memory that the peer may read from, as a fence.
type target struct {
	p    *Peer
	rail *rail
	wr   uint32 // on the rail: see completer
	qp   *verbs.QP
	mr   *verbs.MR
	ring *verbs.RecvRing

	mu       sync.Mutex
	received uint64
	posted   int           // receives
	closing  bool          // no receive is posted any more
	drained  chan struct{} // closed when no receive is posted
}

const (
	receives = 32
	noteLen  = 16 // of a notification: its number, counted from 1 on for each direction, and its tag
)

// openTarget serves a peer's request for a target.
func (p *Peer) openTarget(m *message) (*message, error) {
	if m.Rail >= len(p.e.rails) {
		return nil, fmt.Errorf("%w: there is no rail %d", verbs.ErrInvalid, m.Rail)
	}
	r := p.e.rails[m.Rail]
	if r.lost() || !r.up.Load() {
		return nil, errDown
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
	t := &target{p: p, rail: r, drained: make(chan struct{})}
	me, err := t.open(m.Endpoint)
	p.mu.Lock()
	if p.targets[m.Link] = t; err != nil {
		delete(p.targets, m.Link)
	}
	p.mu.Unlock()
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return &message{Endpoint: me, Address: t.mr.Addr(), Keys: []uint32{t.mr.RKey()}}, nil
}

func (t *target) open(peer *verbs.Endpoint) (*verbs.Endpoint, error) {
	pd := t.p.domain.pds[t.rail.index]
	var err error
	if t.mr, err = pd.AllocMR(noteLen*receives, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteRead}); err != nil {
		return nil, err
	}
	qp, err := pd.CreateQP(verbs.QPOptions{
		Type: verbs.RC, SendCQ: t.rail.cq, RecvCQ: t.rail.cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: receives},
	})
	if err != nil {
		return nil, err
	}
	t.qp = qp
	if t.wr, err = t.rail.enter(t, receives+1); err != nil {
		return nil, err
	}
	gid, err := t.rail.gid()
	if err != nil {
		return nil, err
	}
	me, err := qp.Endpoint(gid)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ring, err = verbs.NewRecvRing(qp, t.mr, noteLen, wrid(t.wr, 0)); err != nil {
		return nil, err
	}
	t.posted = receives
	access := verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	if t.rail.index == t.p.e.atomic {
		access |= verbs.AccessRemoteAtomic
	}
	return &me, qp.Connect(*peer, verbs.ConnectOptions{Access: access, AckTimeout: t.p.e.o.AckTimeout})
}

// complete takes a notification.
func (t *target) complete(wc *verbs.WC) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b := t.ring.Bytes(wc); len(b) == noteLen {
		t.received++
		if err := t.p.notified(binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), false); err != nil {
			t.p.end(err)
		}
	} else if wc.Status == verbs.WCSuccess {
		t.p.end(fmt.Errorf("a notification of %d bytes", wc.ByteLen))
	}
	if t.closing || wc.Status != verbs.WCSuccess || t.ring.Repost(wc) != nil {
		if t.posted--; t.posted == 0 {
			close(t.drained)
		}
	}
}

// closeTarget serves a peer's request to close a target. From its answer on, no packet of the link
// has an effect here. The answer has the number of notifications received.
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
	if err := t.close(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return &message{Count: t.received}, nil
}

// close closes the queue pair, once all that it has received has been counted.
func (t *target) close() error {
	// A receive that was posted after the queue pair had failed may stay there, so there are none from
	// here on, and Modify flushes the others, even if the queue pair has failed before.
	t.mu.Lock()
	t.closing = true
	wait := t.posted > 0
	t.mu.Unlock()
	err := t.qp.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState)
	if err == nil && wait && !t.rail.lost() {
		wait := time.NewTimer(drainTime)
		select {
		case <-t.drained:
		case <-wait.C:
		}
		wait.Stop()
	}
	if err := t.qp.Close(); err != nil {
		return err
	}
	if t.wr != 0 {
		t.rail.leave(t.wr, receives+1)
	}
	return t.mr.Close()
}
