package efa

import (
	"unsafe"

	"github.com/goverbs/goverbs/internal/inside"
)

// Package efadv calls these methods through package inside.

// Inside returns the driver's report about the device.
func (c *context) Inside() inside.EFADevice {
	return inside.EFADevice{Context: c.limits.context, Device: c.limits.device, MaxInline: int(c.limits.maxInline)}
}

// Inside returns the queues' memory.
func (q *qp) Inside() (m inside.EFAQPMemory) {
	s, r := &q.sq, &q.rq
	m.Sends = inside.EFAQueue{Addr: s.ring, Count: s.mask + 1, Size: s.size, Doorbell: unsafe.Pointer(s.bell), MaxBatch: min(s.batch, s.mask+1)}
	if r.maxSGE > 0 {
		n := r.mask + 1
		m.Recvs = inside.EFAQueue{Addr: unsafe.Pointer(unsafe.SliceData(r.ring)), Count: n, Size: recvDescSize, Doorbell: unsafe.Pointer(r.bell), MaxBatch: n}
	}
	return m
}

// Inside returns the memory of the CQ's rings.
func (q *cq) Inside() inside.EFACQMemory {
	return inside.EFACQMemory{
		Addr: unsafe.Pointer(unsafe.SliceData(q.mem)), Rings: uint32(len(q.rings)), Count: q.mask + 1, Size: cqeSize, Doorbell: unsafe.Pointer(q.bell),
	}
}
