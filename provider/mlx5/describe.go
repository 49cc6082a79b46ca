package mlx5

import (
	"unsafe"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// Package mlx5dv calls these methods through package driverapi.

// UseDEVX requests a context that may send commands to the firmware.
func (c *context) UseDEVX() {
	c.devx = true
	c.req.Flags |= uint32(uapi.MLX5_IB_ALLOC_UCTX_DEVX)
}

// DEVX reports whether the context may send commands to the firmware.
func (c *context) DEVX() bool { return c.devx }

// UseRegisters sets the number of registers for one QP each.
func (c *context) UseRegisters(n int) { c.uars.maxDedicated = n }

// Describe returns the queues' memory.
func (q *qp) Describe() driverapi.MLX5QP {
	x := driverapi.MLX5QP{
		Record: unsafe.Pointer(q.record), Recvs: ringStart(q.rq.ring), Sends: ringStart(q.sq.ring),
		SendBlocks: uint32(len(q.sq.ring) / wqe.BlockSegs), Receives: uint32(len(q.rq.ids)), Index: q.resource.number,
	}
	if x.Receives > 0 {
		x.ReceiveSize = 1 << q.rq.shift
	}
	if r := q.reg; r != nil {
		x.Register, x.RegisterSize, x.UAR = r.base, r.size, r.page
	}
	return x
}

// Describe returns the CQ's memory. From then on the program polls the ring directly.
func (q *cq) Describe() driverapi.MLX5CQ {
	q.external.Store(true)
	return driverapi.MLX5CQ{
		Record: unsafe.Pointer(q.record), CQEs: unsafe.Pointer(unsafe.SliceData(q.ring)),
		Count: q.mask + 1, Size: q.stride * wqe.CQESize, Number: q.number,
		ArmRegister: unsafe.Pointer(q.ctx.uars.arm()), ConsumerNext: q.next,
	}
}

// Describe returns the SRQ's memory.
func (s *srq) Describe() driverapi.MLX5SRQ {
	s.mu.Lock()
	defer s.mu.Unlock()
	return driverapi.MLX5SRQ{
		Record: unsafe.Pointer(s.record), WQEs: ringStart(s.ring),
		Count: uint32(len(s.ids)), Size: wqe.SegmentSize << s.shift, Head: uint32(s.head), Tail: uint32(s.tail), Number: s.number,
	}
}

// ringStart returns the start of a ring, or nil if there is no ring.
func ringStart(ring []wqe.Segment) unsafe.Pointer {
	if len(ring) == 0 {
		return nil
	}
	return unsafe.Pointer(unsafe.SliceData(ring))
}
