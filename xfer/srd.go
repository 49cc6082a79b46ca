package xfer

import (
	"errors"
	"math/rand/v2"

	"github.com/goverbs/goverbs/verbs"
)

// SRD queue pairs, those of EFA, aren't connected. Each request names its destination by an address
// handle, a number and a key. So a target's key is random, and only its peer is told.
//
// Requests overtake each other, each is carried out once, and a write completes when the peer's device
// has acknowledged it: it has then begun to write to memory. A read that is posted after that is a
// fence, since the device's read of its memory can't pass its writes there.

// An srdInitiator is an SRD queue pair that sends to one of the peer's.
type srdInitiator struct {
	ownQP
	k    *link
	me   verbs.Endpoint
	peer verbs.Endpoint
	ah   *verbs.AH
}

// srdKey returns a key for a queue pair. Bit 31 needs privileges.
func srdKey() uint32 { return rand.Uint32() >> 1 }

func newSRDInitiator(k *link) (initiator, error) {
	r := k.lane.rail
	o := k.lane.options(verbs.SRD)
	o.SignalAll = true
	qp, err := r.pd.CreateQP(o)
	if err != nil {
		return nil, err
	}
	me, err := r.activate(qp)
	if err != nil {
		return nil, errors.Join(err, qp.Close())
	}
	return &srdInitiator{ownQP: ownQP{qp}, k: k, me: me}, nil
}

// activate activates an SRD queue pair.
func (r *rail) activate(qp *verbs.QP) (verbs.Endpoint, error) {
	gid, err := r.gid()
	if err != nil {
		return verbs.Endpoint{}, err
	}
	if err := qp.Activate(verbs.ActivateOptions{Port: r.port, QKey: srdKey()}); err != nil {
		return verbs.Endpoint{}, err
	}
	return qp.Endpoint(gid)
}

func (i *srdInitiator) offer(m *message) error {
	m.Endpoint = &i.me
	return nil
}

func (i *srdInitiator) connect(m *message) error {
	if m.Endpoint == nil {
		return errNoEndpoint
	}
	i.peer = *m.Endpoint
	path, err := i.qp.PathTo(i.peer)
	if err == nil {
		i.ah, err = i.k.lane.rail.pd.CreateAH(path)
	}
	return err
}

func (i *srdInitiator) post(wrs []verbs.SendWR) (int, error) {
	for n := range wrs {
		wrs[n].AH, wrs[n].RemoteQPN, wrs[n].RemoteQKey = i.ah, i.peer.QPN, i.peer.QKey
	}
	return i.ownQP.post(wrs)
}

func (i *srdInitiator) close() error {
	if err := i.qp.Close(); err != nil {
		return err
	}
	return i.ah.Close()
}

// An srdResponder is an SRD queue pair. Its device serves only those of which it has an address handle.
type srdResponder struct {
	receiver
	ah *verbs.AH
}

func newSRDResponder(t *target) responder { return &srdResponder{receiver: receiver{t: t}} }

func (x *srdResponder) open(m, answer *message) error {
	r := x.t.rail
	if m.Endpoint == nil {
		return errNoEndpoint
	}
	o := r.options(verbs.SRD)
	o.SignalAll = true
	var err error
	if x.qp, err = x.t.pd().CreateQP(o); err != nil {
		return err
	}
	me, err := r.activate(x.qp)
	if err != nil {
		return err
	}
	answer.Endpoint = &me
	path, err := x.qp.PathTo(*m.Endpoint)
	if err != nil {
		return err
	}
	if x.ah, err = x.t.pd().CreateAH(path); err != nil {
		return err
	}
	return x.receive()
}

func (x *srdResponder) close() error {
	if err := x.receiver.close(); err != nil {
		return err
	}
	return x.ah.Close()
}
