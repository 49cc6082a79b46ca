package verbs

import "sync/atomic"

// A qpTable finds QPs by their numbers of 24 bits. Lookups take no lock and allocate
// nothing. Its parts are made on demand, and are never freed.
type qpTable [256]atomic.Pointer[qpMiddle]

type (
	qpMiddle [256]atomic.Pointer[qpLeaf]
	qpLeaf   [256]atomic.Pointer[QP]
)

// slot returns the slot of a number, or nil if the number never had one.
func (t *qpTable) slot(num uint32) *atomic.Pointer[QP] {
	if num>>24 != 0 {
		return nil
	}
	middle := t[num>>16].Load()
	if middle == nil {
		return nil
	}
	leaf := middle[num>>8&0xff].Load()
	if leaf == nil {
		return nil
	}
	return &leaf[num&0xff]
}

// enter adds a QP by its number, unless the number is 0, which stands for none.
func (t *qpTable) enter(qp *QP, num uint32) {
	if num == 0 || num>>24 != 0 {
		return
	}
	middle := made(&t[num>>16])
	made(&middle[num>>8&0xff])[num&0xff].Store(qp)
}

// made returns the value that p points to. It makes one if p is nil.
func made[T any](p *atomic.Pointer[T]) *T {
	if p.Load() == nil {
		p.CompareAndSwap(nil, new(T))
	}
	return p.Load()
}

// leave removes a QP. If the kernel has already given the number to another QP, that QP stays.
func (t *qpTable) leave(qp *QP, num uint32) {
	if slot := t.slot(num); slot != nil {
		slot.CompareAndSwap(qp, nil)
	}
}

// QPByNum returns the Device's QP with the number, or nil if there is none. Programs
// with many QPs on a CQ find the QP of a completion by its WC.QPNum. QPByNum is safe for
// concurrent use, takes no lock and allocates nothing.
func (d *Device) QPByNum(num uint32) *QP {
	if d == nil {
		return nil
	}
	if slot := d.qps.slot(num); slot != nil {
		return slot.Load()
	}
	return nil
}
