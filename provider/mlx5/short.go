package mlx5

import (
	"unsafe"

	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// A shortForm is the encoding of one of the most common operations.
type shortForm struct {
	imm    uint32 // mask of the last word of the control segment
	opcode wqe.Opcode
	length uint8 // number of segments before the data
}

var shortForms = [8]shortForm{
	uapi.IB_UVERBS_WR_RDMA_WRITE:          {opcode: wqe.OpRDMAWrite, length: 2},
	uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM: {opcode: wqe.OpRDMAWriteImm, length: 2, imm: all},
	uapi.IB_UVERBS_WR_SEND:                {opcode: wqe.OpSend, length: 1},
	uapi.IB_UVERBS_WR_SEND_WITH_IMM:       {opcode: wqe.OpSendImm, length: 1, imm: all},
	uapi.IB_UVERBS_WR_RDMA_READ:           {opcode: wqe.OpRDMARead, length: 2},
}

// PostSend takes a short path while the QP is connected and each request has one piece of
// memory. Each request is then one block.
//
// The fences around a doorbell wait for all earlier stores, one at a time. So the number of
// stores, even to the stack, determines the cost of a post. Here and below, no function is
// called between the first request and the doorbell, so that values stay in registers.
func (q *qp) PostSend(wrs []provider.SendWR, more bool) (int, error) {
	s := &q.sq
	if more && !s.delayed {
		s.setMark()
	}
	if s.before == datagram {
		return q.postDatagram(wrs, more)
	}
	posted, next := s.posted, s.next
	if posted-s.seen+uint32(len(wrs)) > s.usual || len(wrs) == 0 {
		return q.postAgain(wrs, more)
	}
	var w *window
	for i := range wrs {
		wr := &wrs[i]
		if wr.Opcode > uapi.IB_UVERBS_WR_RDMA_READ || len(wr.SGL) != 1 || wr.Inline != nil || wr.SGL[0].Length == 0 {
			if i == 0 {
				return s.postInline(wrs, more)
			}
			s.posted, s.next, s.last = posted, next, (next-1)&s.mask
			return s.post(wrs, i, more)
		}
		sge := &wr.SGL[0]
		form := &shortForms[wr.Opcode&7]
		w = s.window(next & s.mask)
		w[0].ControlHead(next, s.heads[wr.Opcode&7], s.flags[wr.Flags&7], wr.Imm&form.imm)
		data := &w[1]
		if form.length == 2 {
			if wr.Nowhere() {
				s.posted, s.next, s.last = posted, next, (next-1)&s.mask
				return s.post(wrs, i, more)
			}
			data.RemoteAddr(wr.Remote.Addr, wr.Remote.RKey)
			data = &w[2]
		}
		data.Data(sge.Length, sge.LKey, sge.Addr)
		posted++
		slot := s.slot(next & s.mask)
		slot.id, slot.posted = wr.WRID, posted
		next++
	}
	s.posted, s.next = posted, next
	if len(wrs) == 1 && !more && !s.delayed {
		if s.blueFlame >= wqe.BlockSize {
			mmio.BlueFlame64(&s.bell, swap32(next&0xffff), unsafe.Pointer(w))
			return 1, nil
		}
		if s.tryBlueFlame(w, 1) {
			return 1, nil
		}
	}
	s.last = (next - 1) & s.mask
	if !more {
		s.ringDoorbell(len(wrs) == 1)
	}
	return len(wrs), nil
}

// postAgain is like PostSend, for a queue that seems full.
//
//go:noinline
func (q *qp) postAgain(wrs []provider.SendWR, more bool) (int, error) {
	if s := &q.sq; len(wrs) == 0 || !s.look(len(wrs)) {
		return s.post(wrs, 0, more)
	}
	return q.PostSend(wrs, more)
}

// shortest has the valid bits of a provider.Short's operation: opcodes up to that of an
// RDMA read, and known flags.
const shortest = uint64(7)<<32 | 7

// remote has the opcodes with a remote address.
const remote = 1<<uapi.IB_UVERBS_WR_RDMA_WRITE | 1<<uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM | 1<<uapi.IB_UVERBS_WR_RDMA_READ

// PostShort does as little as possible per request. It refuses uncommon requests, which
// PostSend then posts. A single request takes no loop: in a loop, the compiler would move
// values from registers to the stack.
func (q *qp) PostShort(list []provider.Short, more bool) bool {
	s := &q.sq
	if len(list) != 1 || more || s.delayed {
		return s.postShorts(list, more)
	}
	wr := &list[0]
	if s.posted-s.seen >= s.usual {
		return s.look(1) && q.PostShort(list, more)
	}
	if wr.Operation&^shortest != 0 || int64(wr.Data) < 1<<32 {
		return false
	}
	op, flags := wr.Operation&7, wr.Operation>>32&7
	next, posted := s.next, s.posted+1
	at := next & s.mask
	w, slot := s.window(at), s.slot(at)
	w[0].ControlHead(next, s.heads[op], s.flags[flags], uint32(wr.Key))
	data := &w[1]
	if remote>>op&1 != 0 {
		data.RemoteAddr(wr.RemoteAddr, uint32(wr.Key>>32))
		data = &w[2]
	}
	data.DataHead(wr.Data, wr.Addr)
	slot.id, slot.posted = wr.WRID, posted
	next++
	s.next, s.posted = next, posted
	if s.blueFlame >= wqe.BlockSize {
		mmio.BlueFlame64(&s.bell, swap32(next&0xffff), unsafe.Pointer(w))
	} else if !s.tryBlueFlame(w, 1) {
		s.last = at
		s.ringDoorbell(true)
	}
	return true
}

// postShorts is like PostShort, for any number of requests.
func (s *sendQueue) postShorts(list []provider.Short, more bool) bool {
	if s.posted-s.seen+uint32(len(list)) > s.usual && !s.look(len(list)) {
		return false
	}
	if more && !s.delayed {
		s.setMark()
	}
	posted, next := s.posted, s.next
	for i := range list {
		wr := &list[i]
		if wr.Operation&^shortest != 0 || int64(wr.Data) < 1<<32 {
			return false
		}
		w := s.window(next & s.mask)
		w[0].ControlHead(next, s.heads[wr.Operation&7], s.flags[wr.Operation>>32&7], uint32(wr.Key))
		data := &w[1]
		if remote>>(wr.Operation&7)&1 != 0 {
			data.RemoteAddr(wr.RemoteAddr, uint32(wr.Key>>32))
			data = &w[2]
		}
		data.DataHead(wr.Data, wr.Addr)
		posted++
		slot := s.slot(next & s.mask)
		slot.id, slot.posted = wr.WRID, posted
		next++
	}
	s.posted, s.next, s.last = posted, next, (next-1)&s.mask
	if !more && len(list) > 0 {
		s.ringDoorbell(len(list) == 1)
	}
	return true
}

// postInline is like PostSend, for one request whose data is copied into the WQE.
func (s *sendQueue) postInline(wrs []provider.SendWR, more bool) (int, error) {
	wr := &wrs[0]
	length, next := len(wr.Inline), s.next
	if len(wrs) > 1 || wr.Opcode >= uapi.IB_UVERBS_WR_RDMA_READ || len(wr.SGL) > 0 ||
		uint(length-1) >= uint(s.maxData) || next&s.mask > s.lastWhole {
		return s.post(wrs, 0, more)
	}
	w := s.window(next & s.mask)
	form := &shortForms[wr.Opcode&7]
	data := &w[1]
	if form.length == 2 {
		if wr.Nowhere() {
			return s.post(wrs, 0, more)
		}
		data.RemoteAddr(wr.Remote.Addr, wr.Remote.RKey)
		data = &w[2]
	}
	data.Inline(length)
	copyBytes(unsafe.Add(unsafe.Pointer(data), wqe.InlineHeader), unsafe.Pointer(unsafe.SliceData(wr.Inline)), length)
	n := uint32(form.length) + uint32(wqe.InlineSegments(length))
	w[0].Control(next, 0, form.opcode, s.qpn|n, 0, s.flags[wr.Flags&7], wr.Imm&form.imm)
	s.note(next, wr.WRID)
	blocks := (n + wqe.BlockSegs - 1) / wqe.BlockSegs
	s.next = next + blocks
	if !more && !s.delayed && n*wqe.SegmentSize <= s.blueFlame {
		if blocks == 2 {
			mmio.BlueFlame128(&s.bell, swap32((next+2)&0xffff), unsafe.Pointer(w))
		} else {
			mmio.BlueFlame(&s.bell, swap32((next+blocks)&0xffff), unsafe.Pointer(w), int(blocks))
		}
	} else if more || s.delayed || !s.tryBlueFlame(w, blocks) {
		s.last = next & s.mask
		if !more {
			s.ringOne(w, n)
		}
	}
	return 1, nil
}

// postDatagram is like PostSend, for one send of a UD QP with one piece of memory.
func (q *qp) postDatagram(wrs []provider.SendWR, more bool) (int, error) {
	s := &q.sq
	next := s.next
	if len(wrs) != 1 || next&s.mask > s.lastWhole {
		return s.post(wrs, 0, more)
	}
	if s.posted-s.seen >= s.usual {
		return q.postAgain(wrs, more)
	}
	wr := &wrs[0]
	if wr.Opcode&^1 != uapi.IB_UVERBS_WR_SEND || wr.Inline != nil || len(wr.SGL) != 1 || wr.SGL[0].Length == 0 {
		return s.post(wrs, 0, more)
	}
	const (
		n      = 1 + wqe.AVSegments + 1
		blocks = (n + wqe.BlockSegs - 1) / wqe.BlockSegs
	)
	w, sge := s.window(next&s.mask), &wr.SGL[0]
	w[0].ControlHead(next, s.heads[wr.Opcode&7], s.flags[wr.Flags&7], wr.Imm&shortForms[wr.Opcode&7].imm)
	wqe.Datagram(w[1:], (*wqe.AV)(&wr.AH.Vector), wqe.QKey(wr.RemoteQKey), wr.RemoteQPN)
	w[n-1].Data(sge.Length, sge.LKey, sge.Addr)
	s.note(next, wr.WRID)
	s.next = next + blocks
	if !more && !s.delayed && n*wqe.SegmentSize <= s.blueFlame {
		mmio.BlueFlame128(&s.bell, swap32((next+blocks)&0xffff), unsafe.Pointer(w))
	} else if more || s.delayed || !s.tryBlueFlame(w, blocks) {
		s.last = next & s.mask
		if !more {
			s.ringOne(w, n)
		}
	}
	return 1, nil
}

// tryBlueFlame copies a WQE to a register that other QPs use, too, if the WQE fits and the register's
// lock is free. Else it returns false, and the caller waits for the lock and rings.
func (s *sendQueue) tryBlueFlame(w *window, blocks uint32) bool {
	return blocks*wqe.BlockSize <= s.sharedFlame &&
		mmio.TryFlame(&s.bell, swap32(s.next&0xffff), unsafe.Pointer(w), int(blocks), s.shared)
}

// ringOne is like ringDoorbell, for a single new request of n segments that doesn't wrap
// around.
func (s *sendQueue) ringOne(w *window, n uint32) {
	s.notify(&w[0], (n+wqe.BlockSegs-1)/wqe.BlockSegs, !s.delayed && n*wqe.SegmentSize <= s.bell.Size)
	s.delayed = false
}

// note fills in the slot of the WQE at next.
func (s *sendQueue) note(next uint32, id uint64) {
	slot, posted := s.slot(next&s.mask), s.posted+1
	slot.id, slot.posted, s.posted = id, posted, posted
}
