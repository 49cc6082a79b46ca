package efa

import (
	"unsafe"

	"github.com/goverbs/goverbs/internal/driverapi"
)

// Package efadv calls these methods through package driverapi.

// Describe returns the driver's report about the device.
func (c *context) Describe() driverapi.EFADevice {
	return driverapi.EFADevice{Context: c.limits.context, Device: c.limits.device, MaxInline: int(c.limits.maxInline)}
}

// Describe returns the queues' memory.
func (q *qp) Describe() (m driverapi.EFAQPMemory) {
	s, r := &q.sq, &q.rq
	m.Sends = driverapi.EFAQueue{Addr: s.ring, Count: s.mask + 1, Size: s.size, Doorbell: unsafe.Pointer(s.bell), MaxBatch: min(s.batch, s.mask+1)}
	if r.maxSGE > 0 {
		n := r.mask + 1
		m.Recvs = driverapi.EFAQueue{Addr: unsafe.Pointer(unsafe.SliceData(r.ring)), Count: n, Size: recvDescSize, Doorbell: unsafe.Pointer(r.bell), MaxBatch: n}
	}
	return m
}

// Describe returns the memory of the CQ's rings.
func (q *cq) Describe() driverapi.EFACQMemory {
	return driverapi.EFACQMemory{
		Addr: unsafe.Pointer(unsafe.SliceData(q.mem)), Rings: uint32(len(q.rings)), Count: q.mask + 1, Size: cqeSize, Doorbell: unsafe.Pointer(q.bell),
	}
}
