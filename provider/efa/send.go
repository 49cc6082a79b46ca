package efa

import (
	"unsafe"

	"github.com/goverbs/goverbs/internal/memorder"
	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A sendRing is a send queue. Requests are written to the stage, which is memory of the
// process, and copied to the ring in the device's memory when the doorbell is rung. The device
// takes no more than a batch at a time.
type sendRing struct {
	requests
	ctx   *context
	stage unsafe.Pointer // a copy of the ring
	ring  unsafe.Pointer // n requests of size bytes
	bell  *uint32

	ops    [maxOp + 1]operation // indexed by IB_UVERBS_WR_…
	mask   uint32               // n-1
	digits uint8                // binary digits of mask
	size   uint32               // shortWQE or longWQE
	batch  uint32
	pos    uint32 // position of the next request
	rung   uint32 // position of the first request without a doorbell
	phase  uint32 // phase of the first round

	maxSGE, maxInline   int
	sigAll, inlineWrite bool

	device, bellPage, stageMem []byte
}

// reset empties the queue. The first round continues with the current phase.
func (s *sendRing) reset() {
	s.phase = s.round(s.pos)
	s.pos, s.rung = 0, 0
	s.requests.reset()
}

// round returns the phase at a position.
func (s *sendRing) round(pos uint32) uint32 {
	return (pos>>(s.digits&31) ^ s.phase) & 1
}

func (q *qp) PostSend(wrs []provider.SendWR, more bool) (n int, err error) {
	s := &q.sq
	for n < len(wrs) {
		if err = q.put(&wrs[n]); err != nil {
			break
		}
		n++
	}
	if !more && s.rung != s.pos && (n > 0 || err == nil) {
		s.ringUp()
	}
	return n, err
}

// ringUp copies the requests to the device and rings the doorbell. Usually there is one request.
func (s *sendRing) ringUp() {
	if s.pos-s.rung == 1 {
		offset := uintptr((s.rung & s.mask) * s.size)
		mmio.CopyLocked(unsafe.Add(s.ring, offset), unsafe.Add(s.stage, offset), int(s.size/shortWQE))
		s.rung = s.pos
		memorder.StoreRelease(s.bell, s.rung&0xffff) // CopyLocked has flushed the request
		return
	}
	for s.rung != s.pos {
		end := s.rung + min(s.pos-s.rung, s.batch)
		for s.rung != end {
			at := s.rung & s.mask
			n := min(end-s.rung, s.mask+1-at)
			offset := uintptr(at * s.size)
			mmio.CopyLocked(unsafe.Add(s.ring, offset), unsafe.Add(s.stage, offset), int(n*s.size/shortWQE))
			s.rung += n
		}
		mmio.Publish(s.bell, s.rung&0xffff)
	}
}

// TakeBack removes the requests without a doorbell.
func (q *qp) TakeBack() {
	s := &q.sq
	s.takeBack(s.pos - s.rung)
	s.pos = s.rung
}

// put writes a request to the stage.
func (q *qp) put(wr *provider.SendWR) error {
	s := &q.sq
	const signaled = uint32(uapi.IB_SEND_SIGNALED)
	if wr.Flags != signaled && (wr.Flags != 0 || !s.sigAll) {
		return wrongFlags(wr.Flags)
	}
	if wr.RemoteQPN > 0xffff {
		return provider.ErrRemoteQPN
	}
	if uint32(wr.Opcode) > maxOp || s.ops[wr.Opcode].control == 0 {
		return q.opError(wr.Opcode)
	}
	o := &s.ops[wr.Opcode]
	if wr.Inline != nil && !o.inline {
		return provider.ErrInlineOp
	}
	if !s.room() {
		return provider.ErrQueueFull
	}
	e := (*[longWQE / 8]uint64)(unsafe.Add(s.stage, uintptr(s.pos&s.mask)*uintptr(s.size)))
	*(*[shortWQE / 8]uint64)(unsafe.Pointer(e)) = [shortWQE / 8]uint64{}
	if s.size == longWQE {
		*(*[shortWQE / 8]uint64)(unsafe.Pointer(&e[shortWQE/8])) = [shortWQE / 8]uint64{}
	}
	word0 := o.control | uint64(wr.RemoteQPN)<<destShift | uint64(s.round(s.pos))<<phaseShift
	data := int(o.data) & (longWQE/8 - 1)
	var length uint32
	switch {
	case wr.Inline != nil:
		if len(wr.Inline) > s.maxInline {
			return provider.ErrInlineTooBig
		}
		length = uint32(len(wr.Inline))
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&e[data])), longInline), wr.Inline)
		word0 |= isInline | uint64(length)<<lengthShift
	case len(wr.SGL) > int(o.maxSGE):
		return provider.ErrTooManySGEs
	default:
		word0 |= uint64(len(wr.SGL)) << lengthShift
		for i := range wr.SGL {
			g := &wr.SGL[i]
			at := (data + 2*i) & (longWQE/8 - 1)
			e[at], e[(at+1)&(longWQE/8-1)] = uint64(g.Length)|uint64(g.LKey&keyMask)<<32, g.Addr
			length += g.Length
		}
	}
	if o.data == localDataWord {
		if length > q.ctx.device.MaxRdmaSize {
			return provider.ErrTooLong
		}
		if wr.Nowhere() {
			return provider.ErrNowhere
		}
		e[4], e[5] = uint64(length)|uint64(wr.Remote.RKey)<<32, wr.Remote.Addr
	}
	req, number := s.take()
	req.id, req.length, req.opcode, req.busy = wr.WRID, length, o.completion, true
	e[0] = word0 | uint64(number)
	if e[1] = uint64(uint16(wr.AH.Number)) << ahShift; word0&hasImm != 0 {
		e[1] |= uint64(wr.Imm)
	}
	e[2] = uint64(wr.RemoteQKey)
	s.pos++
	return nil
}

// wrongFlags returns the error for a request's flags.
func wrongFlags(flags uint32) error {
	if flags&^uint32(uapi.IB_SEND_SIGNALED) != 0 {
		return provider.ErrSendFlags
	}
	return provider.ErrUnsignaled
}

// An operation has the common properties of a queue pair's requests of one kind.
type operation struct {
	control    uint64 // word 0: the device's number of the operation, and bits; 0 if the QP lacks the operation
	completion uint8
	data       uint8 // dataWord or localDataWord
	maxSGE     uint8
	inline     bool
}

// maxOp is the largest opcode of EFA's operations.
const maxOp = uint32(uapi.IB_UVERBS_WR_RDMA_READ)

// operations returns the QP's operations.
func (q *qp) operations() (ops [maxOp + 1]operation) {
	send := operation{control | opSend<<opShift, uint8(uapi.IB_UVERBS_WC_SEND), dataWord, uint8(q.sq.maxSGE), true}
	ops[uapi.IB_UVERBS_WR_SEND] = send
	send.control |= hasImm
	ops[uapi.IB_UVERBS_WR_SEND_WITH_IMM] = send
	local := uint8(q.ctx.readSGEs)
	if q.srd && q.ctx.has(uapi.EFA_QUERY_DEVICE_CAPS_RDMA_READ) {
		ops[uapi.IB_UVERBS_WR_RDMA_READ] = operation{control | opRead<<opShift, uint8(uapi.IB_UVERBS_WC_RDMA_READ), localDataWord, local, false}
	}
	if q.srd && q.ctx.has(uapi.EFA_QUERY_DEVICE_CAPS_RDMA_WRITE) {
		write := operation{control | opWrite<<opShift, uint8(uapi.IB_UVERBS_WC_RDMA_WRITE), localDataWord, local, q.sq.inlineWrite}
		ops[uapi.IB_UVERBS_WR_RDMA_WRITE] = write
		write.control |= hasImm
		ops[uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM] = write
	}
	return ops
}

// opError returns the error for an operation that the QP lacks.
func (q *qp) opError(op uapi.IbUverbsWrOpcode) error {
	switch op {
	case uapi.IB_UVERBS_WR_RDMA_READ, uapi.IB_UVERBS_WR_RDMA_WRITE, uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM:
		if q.srd {
			return provider.ErrNoRDMA
		}
	}
	return provider.ErrOpcode
}
