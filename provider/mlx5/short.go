package mlx5

import (
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// A shortForm is how one of the commonest operations is encoded: with one piece
// of memory, on a connected QP, it fits in one block.
type shortForm struct {
	imm    uint32 // masks the control segment's last word
	opcode wqe.Opcode
	length uint8 // segments
}

var shortForms = [8]shortForm{
	uapi.IB_UVERBS_WR_RDMA_WRITE:          {opcode: wqe.OpRDMAWrite, length: 3},
	uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM: {opcode: wqe.OpRDMAWriteImm, length: 3, imm: all},
	uapi.IB_UVERBS_WR_SEND:                {opcode: wqe.OpSend, length: 2},
	uapi.IB_UVERBS_WR_SEND_WITH_IMM:       {opcode: wqe.OpSendImm, length: 2, imm: all},
	uapi.IB_UVERBS_WR_RDMA_READ:           {opcode: wqe.OpRDMARead, length: 3},
}

// PostSend goes a short way as long as requests have a short form.
//
// The fences around a doorbell wait for all stores before them, one at a time.
// A post's cost is the number of its stores, those to the stack included: here
// nothing is called between the first request and the doorbell, and what a call
// would have to save stays in registers.
func (q *qp) PostSend(wrs []provider.SendWR) (int, error) {
	s := &q.sq
	posted, next := s.posted, s.next
	if !s.short || s.fence != 0 || posted-atomic.LoadUint32(&s.done)+uint32(len(wrs)) > s.limit || len(wrs) == 0 {
		return s.post(wrs, 0)
	}
	var w *window
	for i := range wrs {
		wr := &wrs[i]
		if wr.Opcode > uapi.IB_UVERBS_WR_RDMA_READ || len(wr.SGL) != 1 || wr.Inline != nil || wr.SGL[0].Length == 0 {
			s.posted, s.next, s.last = posted, next, (next-1)&s.mask
			return s.post(wrs, i)
		}
		sge := &wr.SGL[0]
		form := &shortForms[wr.Opcode&7]
		w = s.window(next & s.mask)
		w[0].Control(next, 0, form.opcode, s.qpn|uint32(form.length), 0, s.signal|controlFlags[wr.Flags&7], wr.Imm&form.imm)
		data := &w[1]
		if form.length == 3 {
			data.RemoteAddr(wr.RemoteAddr, wr.RKey)
			data = &w[2]
		}
		data.Data(sge.Length, sge.LKey, sge.Addr)
		posted++
		slot := s.slot(next & s.mask)
		slot.id, slot.posted = wr.WRID, posted
		next++
	}
	s.posted, s.next, s.last = posted, next, (next-1)&s.mask
	if r := s.reg; len(wrs) == 1 && r.shared == nil && r.size >= wqe.BlockSize {
		to := unsafe.Add(r.base, r.offset)
		r.offset ^= r.size
		mmio.BlueFlame(&s.record[sendRecord], swap32(next&0xffff), to, unsafe.Pointer(w), 1)
	} else {
		s.tell(len(wrs) == 1)
	}
	return len(wrs), nil
}
