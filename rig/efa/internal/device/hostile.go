package device

import (
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/rig/efa/internal/wire"
)

// A Lie is told about the N-th command of an opcode from now on: it is refused with the status,
// and not executed.
type Lie struct {
	Opcode         uint8
	N              int
	Status         uint8
	ExtendedStatus uint16
}

// Lie adds a lie.
func (d *Device) Lie(l Lie) error {
	if l.N < 1 || l.Status == uint8(success) {
		return fmt.Errorf("the lie %+v is not possible", l)
	}
	d.lies = append(d.lies, &l)
	return nil
}

// lied returns the lie to be told about a command, if there is one.
func (d *Device) lied(opcode uint8) *Lie {
	for i, l := range d.lies {
		if l.Opcode != opcode {
			continue
		}
		if l.N--; l.N == 0 {
			d.lies = slices.Delete(d.lies, i, i+1)
			return l
		}
	}
	return nil
}

// A FaultKind says where a Fault happens.
type FaultKind string

// The kinds of faults.
const (
	FaultSend    FaultKind = "send"    // a completion of the send queue has another status
	FaultReceive FaultKind = "receive" // one of the receive queue
	FaultEvent   FaultKind = "event"   // an event of the receive queue's CQ gets lost
)

// A Fault happens once in a QP: to the N-th completion or event from now on.
type Fault struct {
	Kind   FaultKind
	N      int
	Status wire.Status
}

// Inject adds a fault to a QP.
func (d *Device) Inject(qpn uint32, f Fault) error {
	q, err := d.named(qpn)
	if err != nil {
		return err
	}
	if f.N < 1 || f.Kind != FaultSend && f.Kind != FaultReceive && f.Kind != FaultEvent {
		return fmt.Errorf("the fault %+v is not possible", f)
	}
	if f.Kind == FaultEvent {
		q.receiveCQ.faults = append(q.receiveCQ.faults, &f)
	} else {
		q.faults = append(q.faults, &f)
	}
	return nil
}

// named returns the QP with a number.
func (d *Device) named(qpn uint32) (*qp, error) {
	if q := d.qps.get(qpn % maxQP); q != nil && uint32(q.number) == qpn {
		return q, nil
	}
	return nil, fmt.Errorf("there is no QP %#x", qpn)
}

// happens counts a completion or event, and returns the fault that it suffers.
func happens(list *[]*Fault, kind FaultKind) *Fault {
	for i, f := range *list {
		if f.Kind != kind {
			continue
		}
		if f.N--; f.N == 0 {
			*list = slices.Delete(*list, i, i+1)
			return f
		}
	}
	return nil
}

// Forge writes these bytes as one more completion to the CQ of a QP's send or receive queue.
// The phase is right.
func (d *Device) Forge(qpn uint32, receive bool, cqe []byte) error {
	q, err := d.named(qpn)
	if err != nil {
		return err
	}
	to, sub := q.sendCQ, q.sendSub
	if receive {
		to, sub = q.receiveCQ, q.receiveSub
	}
	if len(cqe) == 0 || len(cqe) > to.entry {
		return fmt.Errorf("a completion of %d bytes; the CQ's have %d", len(cqe), to.entry)
	}
	b := make([]byte, to.entry)
	copy(b, cqe)
	d.deliver(to, sub, b)
	return nil
}
