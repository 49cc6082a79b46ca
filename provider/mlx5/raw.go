package mlx5

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// segmentsAt is the offset of the number of segments in a WQE.
const segmentsAt = 7

// PostRaw posts a WQE that the program has encoded, for package mlx5dv. It fills in the WQE's
// number, the QP's number, the signature, and a fence if a UMR precedes the WQE.
func (q *qp) PostRaw(id uint64, b []byte) error {
	s := &q.sq
	n := uint32(len(b) / wqe.SegmentSize)
	if len(b)%wqe.SegmentSize != 0 || n == 0 || n > uint32(s.maxSegments) || n != uint32(b[segmentsAt]&0x3f) {
		return provider.ErrWQE
	}
	if s.posted-atomic.LoadUint32(&s.done) >= s.limit {
		return provider.ErrQueueFull
	}
	at := s.next & s.mask
	w := s.window(at)
	if at > s.lastWhole {
		w = s.spare
		*w = window{}
	}
	for i := range n {
		part := b[i*wqe.SegmentSize:]
		w[i&(maxSegments-1)] = wqe.Segment{binary.NativeEndian.Uint64(part), binary.NativeEndian.Uint64(part[8:])}
	}
	op, _ := w[0].ControlOf()
	flags := w[0].Flags()
	if opcode := wqe.Opcode(op); s.fence != 0 || opcode == wqe.OpUMR {
		flags = s.fenced(flags, opcode)
	}
	w[0].Own(s.next, s.qpn|n, flags)
	if s.signed {
		wqe.Sign(w[:n])
	}
	if at > s.lastWhole {
		s.join(at, n)
	}
	s.posted++
	s.slots[at] = slot{id: id, posted: s.posted, opcode: uint32(uapi.IB_WC_LOCAL_INV)}
	s.last = at
	s.next += (n + wqe.BlockSegs - 1) / wqe.BlockSegs
	s.ringDoorbell(true)
	return nil
}
