package transport

import "github.com/goverbs/goverbs/rig/connectx/internal/fabric"

// FaultKind is the kind of a fault.
type FaultKind uint8

const (
	FailSend     FaultKind = iota // the n-th send WQE completes with the syndrome
	FailReceive                   // the n-th receive WQE does, and the requester gets a NAK
	DropPacket                    // the n-th packet is not sent
	DamagePacket                  // the n-th packet has a byte of its headers inverted
)

// Fault is a single fault of a queue pair.
type Fault struct {
	Kind     FaultKind
	N        int // counted from 1, since the injection
	Syndrome uint8
	Vendor   uint8
}

// Inject arms a fault. The number 1 stands for the queue pair that sends the driver's management
// datagrams.
func (e *Engine) Inject(qpn uint32, f Fault) error {
	q := e.qps[qpn]
	if qpn == 1 {
		q = e.gsi()
	}
	if q == nil {
		return ErrNoRes
	}
	if f.Kind > DamagePacket || f.N < 1 {
		return ErrBadParam
	}
	q.faults = append(q.faults, f)
	return nil
}

// gsi returns the queue pair that sends as QP1 of the first port: one of the driver's for that
// purpose, or QP1 itself.
func (e *Engine) gsi() *QP {
	for _, q := range e.qps {
		if q.c.DethSQPN == 1 && q.c.Primary.Port <= 1 {
			return q
		}
	}
	return e.special[specialKey(1, true)]
}

// due counts down the faults of two kinds, and returns one that is due.
func (q *QP) due(a, b FaultKind) (f Fault, ok bool) {
	for i := 0; i < len(q.faults); i++ {
		x := &q.faults[i]
		if x.Kind != a && x.Kind != b {
			continue
		}
		if x.N--; x.N == 0 && !ok {
			f, ok = *x, true
			q.faults = append(q.faults[:i], q.faults[i+1:]...)
			i--
		}
	}
	return f, ok
}

// injectWQE fails a send WQE if a fault is due.
func (q *QP) injectWQE(w *sendWQE) {
	if len(q.faults) == 0 {
		return
	}
	if f, ok := q.due(FailSend, FailSend); ok {
		w.syndrome, w.vendor = f.Syndrome, f.Vendor
	}
}

// injectReceive fails the receive WQE that was just consumed if a fault is due.
func (q *QP) injectReceive() bool {
	if len(q.faults) == 0 {
		return false
	}
	f, ok := q.due(FailReceive, FailReceive)
	if ok {
		q.breakDown(f.Syndrome, f.Vendor, nakRemoteOperation)
	}
	return ok
}

// injectPacket reports whether a packet may be sent.
func (q *QP) injectPacket(p *fabric.Packet) bool {
	if len(q.faults) == 0 {
		return true
	}
	f, ok := q.due(DropPacket, DamagePacket)
	if ok && f.Kind == DamagePacket && len(p.Data) > sizeBTH {
		p.Data[sizeBTH] ^= 0xff
	}
	return !ok || f.Kind == DamagePacket
}
