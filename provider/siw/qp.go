package siw

import (
	"fmt"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

type qp struct {
	file *ioctl.File
	init provider.QPInit
	resp *uapi.SiwUrespCreateQp

	number uint32

	sq        queue[uapi.SiwSqe]
	next      uint32   // the position of the next request
	published uint32   // the position of the first unpublished request
	words     []uint32 // the words of the requests from published on: see sendWord
	maxSGE    int
	bell      ioctl.PostSend
	rq        recvQueue
}

func (c *context) NewQP(cmd ioctl.QpCreate, init *provider.QPInit) (provider.QP, error) {
	if init.Cap.MaxSendWr == 0 {
		return nil, fmt.Errorf("%w: a siw QP without a send queue: MaxSendWR must be at least 1", provider.ErrNotSupported)
	}
	if init.Cap.MaxInlineData > maxInline {
		return nil, fmt.Errorf("%w: %d bytes of inline data: siw's maximum is %d", provider.ErrNotSupported, init.Cap.MaxInlineData, maxInline)
	}
	return &qp{file: c.file, init: *init, resp: cmd.Siw().Out()}, nil
}

func (q *qp) Adopt(handle, qpn uint32, granted *uapi.IbUverbsQpCap) (err error) {
	resp := *q.resp
	q.resp, q.number = nil, qpn
	if q.sq, err = mapQueue[uapi.SiwSqe](q.file, resp.SqKey, resp.NumSqe, 0); err != nil {
		return err
	}
	q.words = make([]uint32, resp.NumSqe)
	granted.MaxSendWr, granted.MaxInlineData = resp.NumSqe, maxInline
	q.maxSGE = min(int(granted.MaxSendSge), maxSGE)
	if q.init.SRQ == nil && q.init.Cap.MaxRecvWr > 0 {
		q.rq.maxSGE = min(int(granted.MaxRecvSge), maxSGE)
		if q.rq.queue, err = mapQueue[uapi.SiwRqe](q.file, resp.RqKey, resp.NumRqe, 0); err != nil {
			return err
		}
		granted.MaxRecvWr = resp.NumRqe
	}
	q.bell.Init(handle)
	return nil
}

func (q *qp) ECE() (vendor, options uint32) { return 0, 0 }
func (q *qp) SetECE(uint32) bool            { return false }

func (q *qp) Modify() (cmd ioctl.WriteExModifyQp, ok bool) { return cmd, false }

// Moved does nothing: verbs moves no iWARP QP to RESET.
func (q *qp) Moved(uapi.IbQpState) uint32 { return q.number }

func (q *qp) PostSend(wrs []provider.SendWR, more bool) (n int, err error) {
	for n < len(wrs) {
		if err = q.put(&wrs[n]); err != nil {
			break
		}
		n++
	}
	if !more && q.published != q.next && (n > 0 || err == nil) {
		if bell := q.submit(); bell != nil {
			return n, bell
		}
	}
	return n, err
}

// put writes a request, which submit then publishes.
func (q *qp) put(wr *provider.SendWR) error {
	e := q.sq.elem(q.next)
	if q.next-q.published > q.sq.mask || load(sendWord(e))&valid != 0 {
		return provider.ErrQueueFull
	}
	if len(wr.SGL) > q.maxSGE {
		return provider.ErrTooManySGEs
	}
	if len(wr.Inline) > maxInline {
		return provider.ErrInlineTooBig
	}
	sges := 0
	if len(wr.Inline) == 0 {
		sges = copySGL(&e.Sge, wr.SGL)
	}
	var opcode uapi.SiwOpcode
	switch wr.Opcode {
	case uapi.IB_UVERBS_WR_SEND:
		opcode = uapi.SIW_OP_SEND
	case uapi.IB_UVERBS_WR_SEND_WITH_INV:
		if len(wr.Inline) > 0 {
			return provider.ErrInlineOp
		}
		opcode = uapi.SIW_OP_SEND_REMOTE_INV
		e.Rkey = wr.InvalidateRKey
	case uapi.IB_UVERBS_WR_RDMA_WRITE:
		if wr.Nowhere() {
			return provider.ErrNowhere
		}
		opcode = uapi.SIW_OP_WRITE
		e.Raddr, e.Rkey = wr.Remote.Addr, wr.Remote.RKey
	case uapi.IB_UVERBS_WR_RDMA_READ:
		// An iWARP read has a single piece of memory.
		switch {
		case sges > 1:
			return provider.ErrTooManySGEs
		case wr.Flags&uint32(uapi.IB_SEND_FENCE) != 0:
			return provider.ErrFencedRead
		case sges == 0:
			e.Sge[0] = uapi.SiwSge{}
			sges = 1
		}
		opcode = uapi.SIW_OP_READ
		e.Raddr, e.Rkey = wr.Remote.Addr, wr.Remote.RKey
	case uapi.IB_UVERBS_WR_SEND_WITH_IMM, uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM:
		return provider.ErrNoImmediate
	case uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD,
		uapi.IB_UVERBS_WR_MASKED_ATOMIC_CMP_AND_SWP, uapi.IB_UVERBS_WR_MASKED_ATOMIC_FETCH_AND_ADD, uapi.IB_UVERBS_WR_ATOMIC_WRITE:
		return provider.ErrNoAtomics
	default:
		return provider.ErrOpcode
	}
	e.Id = wr.WRID
	flags := uapi.SiwWqeFlags(0)
	if len(wr.Inline) > 0 {
		flags |= uapi.SIW_WQE_INLINE
		e.Sge[0] = uapi.SiwSge{Length: uint32(copy(inline(e), wr.Inline))}
		sges = 1
	}
	if q.init.SignalAll || wr.Flags&uint32(uapi.IB_SEND_SIGNALED) != 0 {
		flags |= uapi.SIW_WQE_SIGNALLED
	}
	if wr.Flags&uint32(uapi.IB_SEND_SOLICITED) != 0 {
		flags |= uapi.SIW_WQE_SOLICITED
	}
	if wr.Flags&uint32(uapi.IB_SEND_FENCE) != 0 {
		flags |= uapi.SIW_WQE_READ_FENCE
	}
	// The word isn't written to the element yet: when the kernel flushes the queue, it
	// takes any flag for a request.
	q.words[q.next&q.sq.mask] = word(flags|uapi.SIW_WQE_VALID, sges, opcode)
	q.next++
	return nil
}

// submit publishes the requests put since its last call, and rings the doorbell if the kernel
// may have stopped before them.
func (q *qp) submit() error {
	first, n := q.published, q.next-q.published
	for q.published != q.next {
		publish(sendWord(q.sq.elem(q.published)), q.words[q.published&q.sq.mask])
		q.published++
	}
	// If the kernel has yet to take the request before the new ones, it finds them by itself.
	// If they fill the queue, no request precedes them.
	if n <= q.sq.mask && load(sendWord(q.sq.elem(first-1)))&valid != 0 {
		return nil
	}
	return q.file.Doorbell(q.bell.Bytes(), false) // the kernel takes a socket's lock, so it may sleep
}

// TakeBack removes the unpublished requests.
func (q *qp) TakeBack() { q.next = q.published }

func (q *qp) PostRecv(wrs []provider.RecvWR) (int, error) { return q.rq.post(wrs) }

func (q *qp) Release() {
	q.sq.unmap()
	q.rq.unmap()
	q.bell.Release()
}
