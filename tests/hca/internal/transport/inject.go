package transport

import "github.com/goverbs/goverbs/tests/hca/internal/fabric"

// FaultKind is what goes wrong.
type FaultKind uint8

const (
	FailSend     FaultKind = iota // the n-th send WQE completes with the syndrome
	FailReceive                   // so does the n-th receive WQE, and the other side gets a NAK
	DropPacket                    // the n-th packet is not sent
	DamagePacket                  // the n-th packet has a byte of its headers inverted
)

// Fault is something that goes wrong once in a queue pair.
type Fault struct {
	Kind     FaultKind
	N        int // counted from 1, from when the fault is injected
	Syndrome uint8
	Vendor   uint8
}

// Inject arms a fault.
func (e *Engine) Inject(qpn uint32, f Fault) error {
	q := e.qps[qpn]
	if q == nil {
		return ErrNoRes
	}
	if f.Kind > DamagePacket || f.N < 1 {
		return ErrBadParam
	}
	q.faults = append(q.faults, f)
	return nil
}

// due counts faults of two kinds down and returns the one whose time it is.
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

// injectWQE lets a send WQE fail if that is due.
func (q *QP) injectWQE(w *sendWQE) {
	if len(q.faults) == 0 {
		return
	}
	if f, ok := q.due(FailSend, FailSend); ok {
		w.syndrome, w.vendor = f.Syndrome, f.Vendor
	}
}

// injectReceive lets the receive WQE that was just taken fail if that is due.
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

// injectPacket reports whether a packet may go out.
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
