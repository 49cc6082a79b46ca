package xfer

import (
	"errors"
	"github.com/goverbs/goverbs/verbs"
)

// A transport is a kind of queue pairs between rails. A link has an end of it here, its initiator, and
// one at the peer, the responder of its target. What the one must know of the other is in the request
// for a target and in its answer.
type transport struct {
	name string // in messages

	// ordered: the peer's device carries out the requests of a link in their order, and they complete
	// in it. Then a read right behind a write is its fence.
	ordered bool
	// delivers: a write completes when the peer's device has it. Otherwise each write needs a fence.
	delivers bool
	// signaled: each request needs a completion.
	signaled bool
	// shared: a link borrows a queue pair that others use, too.
	shared bool

	initiator func(k *link) (initiator, error)
	responder func(t *target) responder
}

// The transports of devices.
var (
	overRC = &transport{name: "rc", ordered: true, delivers: true, initiator: newRCInitiator, responder: newRCResponder}

	// A write over iWARP completes when TCP has it. soft-iWARP copies the bytes of signaled requests
	// only: TCP may still send the memory of others when their queue pair is closed.
	overIWARP = &transport{name: "iwarp", ordered: true, signaled: true, initiator: newCMInitiator, responder: newCMResponder}

	overSRD = &transport{name: "srd", delivers: true, signaled: true, initiator: newSRDInitiator, responder: newSRDResponder}
	overDC  = &transport{name: "dc", ordered: true, delivers: true, shared: true, initiator: newDCInitiator, responder: newDCResponder}
)

// An initiator is the end of a link that posts its requests. Its methods other than offer and connect
// are called under the scheduler's lock.
type initiator interface {
	// offer puts what the peer must know into the request for a target.
	offer(request *message) error
	// connect begins what the answer offers. After an error the initiator must be failed and closed.
	connect(answer *message) error
	// ready reports whether requests may be posted. If not, they may be later: see link.lent.
	ready() bool
	post(wrs []verbs.SendWR) (int, error)
	// idle is the news that nothing is in flight.
	idle()

	// fail makes what is in flight complete. The lock is not held.
	fail() error
	// close ends the device's use of memory for the link. The lock is not held.
	close() error
}

// A responder is the end of a target that serves the requests of a link.
type responder interface {
	// open puts what the peer must know into the answer to its request. If it fails, close follows.
	open(request, answer *message) error
	// close closes it. After that no packet has an effect, and all notifications received were counted.
	close() error
}

// An ownQP is what initiators with a queue pair of their own have in common.
type ownQP struct{ qp *verbs.QP }

func (o *ownQP) ready() bool                          { return true }
func (o *ownQP) idle()                                {}
func (o *ownQP) post(wrs []verbs.SendWR) (int, error) { return o.qp.PostSend(wrs...) }
func (o *ownQP) fail() error                          { return failQP(o.qp) }
func (o *ownQP) close() error                         { return o.qp.Close() }

func failQP(qp *verbs.QP) error {
	return qp.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState)
}

// options returns the options of the queue pair of an initiator.
func (l *lane) options(t verbs.QPType) verbs.QPOptions {
	return verbs.QPOptions{Type: t, SendCQ: l.rail.cq, RecvCQ: l.rail.cq, Cap: verbs.QPCap{MaxSendWR: 2 * l.depth, MaxInlineData: noteLen}}
}

// options returns the options of the queue pair of a responder.
func (r *rail) options(t verbs.QPType) verbs.QPOptions {
	return verbs.QPOptions{Type: t, SendCQ: r.cq, RecvCQ: r.cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: receives}}
}

// retries is how often a device repeats a packet that isn't acknowledged. Some take 7 as a wish to try
// for ever.
const retries = 6

// An rcInitiator is an RC queue pair.
type rcInitiator struct {
	ownQP
	k  *link
	me verbs.Endpoint
}

func newRCInitiator(k *link) (initiator, error) {
	r := k.lane.rail
	gid, err := r.gid()
	if err != nil {
		return nil, err
	}
	qp, err := r.pd.CreateQP(k.lane.options(verbs.RC))
	if err != nil {
		return nil, err
	}
	me, err := qp.Endpoint(gid)
	if err != nil {
		return nil, errors.Join(err, qp.Close())
	}
	return &rcInitiator{ownQP{qp}, k, me}, nil
}

func (i *rcInitiator) offer(m *message) error {
	m.Endpoint = &i.me
	return nil
}

func (i *rcInitiator) connect(m *message) error {
	if m.Endpoint == nil {
		return errNoEndpoint
	}
	return i.qp.Connect(*m.Endpoint, verbs.ConnectOptions{AckTimeout: i.k.lane.s.p.e.o.AckTimeout, RetryCount: retries})
}

// An rcResponder is an RC queue pair.
type rcResponder struct{ receiver }

func newRCResponder(t *target) responder { return &rcResponder{receiver{t: t}} }

func (x *rcResponder) open(m, answer *message) error {
	r := x.t.rail
	if m.Endpoint == nil {
		return errNoEndpoint
	}
	gid, err := r.gid()
	if err != nil {
		return err
	}
	if x.qp, err = x.t.pd().CreateQP(r.options(verbs.RC)); err != nil {
		return err
	}
	me, err := x.qp.Endpoint(gid)
	if err != nil {
		return err
	}
	if err := x.receive(); err != nil {
		return err
	}
	answer.Endpoint = &me
	return x.qp.Connect(*m.Endpoint, verbs.ConnectOptions{Access: x.t.access(), AckTimeout: x.t.p.e.o.AckTimeout})
}
