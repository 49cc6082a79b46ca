package rxe

import (
	"math/bits"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

type qp struct {
	file *ioctl.File
	init provider.QPInit
	resp *uapi.RxeCreateQpResp

	number uint32

	sq        queue
	prod      uint32 // the provider's producer index, which includes requests without a doorbell yet
	unrung    uint64 // the cost of sending the requests after the last doorbell
	maxSGE    int
	maxInline int
	bell      ioctl.PostSend
	rq        recvQueue
}

func (c *context) NewQP(cmd ioctl.QpCreate, init *provider.QPInit) (provider.QP, error) {
	return &qp{file: c.file, init: *init, resp: cmd.Rxe().Out()}, nil
}

func (q *qp) Adopt(handle, qpn uint32, granted *uapi.IbUverbsQpCap) (err error) {
	resp := *q.resp
	q.resp, q.number = nil, qpn
	q.maxSGE, q.maxInline = int(granted.MaxSendSge), int(granted.MaxInlineData)
	payload := max(uintptr(q.maxSGE)*sgeSize, uintptr(q.maxInline))
	if q.sq, err = mapQueue(q.file, resp.SqMi, sendWQESize+payload); err != nil {
		return err
	}
	q.reset()
	if q.init.SRQ == nil {
		if err := q.rq.adopt(q.file, resp.RqMi, granted.MaxRecvSge); err != nil {
			return err
		}
	}
	q.bell.Init(handle)
	return nil
}

func (q *qp) ECE() (vendor, options uint32) { return 0, 0 }
func (q *qp) SetECE(uint32) bool            { return false }

func (q *qp) Modify() (cmd ioctl.WriteExModifyQp, ok bool) { return cmd, false }

// Moved reloads the indices from the rings, which RESET has emptied.
func (q *qp) Moved(to uapi.IbQpState) uint32 {
	if to == uapi.IB_QPS_RESET {
		q.reset()
	}
	return q.number
}

func (q *qp) reset() {
	q.TakeBack()
	if q.rq.mem != nil {
		q.rq.prod = q.rq.producer() & q.rq.mask
	}
}

func (q *qp) PostSend(wrs []provider.SendWR, more bool) (n int, err error) {
	for n < len(wrs) {
		if err = q.put(&wrs[n]); err != nil {
			break
		}
		n++
	}
	if !more && (n > 0 || err == nil && q.prod != q.sq.producer()) {
		if bell := q.ringDoorbell(); bell != nil {
			return n, bell
		}
	}
	return n, err
}

func (q *qp) put(wr *provider.SendWR) error {
	next := (q.prod + 1) & q.sq.mask
	if cons := q.sq.consumer(); cons == next || cons > q.sq.mask {
		return q.sq.refusal(cons)
	}
	if len(wr.SGL) > q.maxSGE {
		return provider.ErrTooManySGEs
	}
	if len(wr.Inline) > q.maxInline {
		return provider.ErrInlineTooBig
	}
	w := q.sq.sendWQE(q.prod)
	*w = uapi.RxeSendWqe{}
	w.Wr.WrId = wr.WRID
	w.Wr.Opcode = uint32(wr.Opcode)
	w.Wr.SendFlags = wr.Flags
	if wr.Inline != nil {
		w.Wr.SendFlags |= uint32(uapi.IB_SEND_INLINE)
		n := uint32(copy(sendInline(w, len(wr.Inline)), wr.Inline))
		w.Dma = uapi.RxeDmaInfo{Length: n, Resid: n}
	} else {
		w.Dma = copySGL(sendSGEs(w, len(wr.SGL)), wr.SGL)
	}
	w.Iova = wr.Remote.Addr

	switch wr.Opcode {
	case uapi.IB_UVERBS_WR_SEND, uapi.IB_UVERBS_WR_SEND_WITH_IMM:
		if q.init.Type == uapi.IB_UVERBS_QPT_UD {
			ud := w.Wr.Wr.Ud()
			ud.RemoteQpn, ud.RemoteQkey = wr.RemoteQPN, wr.RemoteQKey
			ud.AhNum = wr.AH.Number
		}
		*w.Wr.Ex.ImmData() = bits.ReverseBytes32(wr.Imm)
	case uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM:
		*w.Wr.Ex.ImmData() = bits.ReverseBytes32(wr.Imm)
		fallthrough
	case uapi.IB_UVERBS_WR_RDMA_WRITE, uapi.IB_UVERBS_WR_RDMA_READ, uapi.IB_UVERBS_WR_ATOMIC_WRITE:
		if wr.Nowhere() {
			return provider.ErrNowhere
		}
		r := w.Wr.Wr.Rdma()
		r.RemoteAddr, r.Rkey = wr.Remote.Addr, wr.Remote.RKey
	case uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD:
		a := w.Wr.Wr.Atomic()
		a.RemoteAddr, a.Rkey = wr.Remote.Addr, wr.Remote.RKey
		a.CompareAdd, a.Swap = wr.Compare, wr.Swap
		if wr.Opcode == uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD {
			a.CompareAdd, a.Swap = wr.Add, 0
		}
	case uapi.IB_UVERBS_WR_SEND_WITH_INV, uapi.IB_UVERBS_WR_LOCAL_INV:
		if wr.Opcode == uapi.IB_UVERBS_WR_LOCAL_INV && q.init.Type == uapi.IB_UVERBS_QPT_UC {
			return provider.ErrOpcode // the driver supports it on RC only
		}
		*w.Wr.Ex.InvalidateRkey() = wr.InvalidateRKey
	case uapi.IB_UVERBS_WR_BIND_MW:
		m := w.Wr.Wr.Mw()
		m.Addr, m.Length, m.Access = wr.Bind.Addr, wr.Bind.Length, wr.Bind.Access
		if wr.Bind.MR != nil {
			m.MrLkey = wr.Bind.MR.LKey
		}
		m.MwRkey, m.Rkey = wr.MW.Rebind(wr), wr.NewRKey
	case uapi.IB_UVERBS_WR_FLUSH:
		f := w.Wr.Wr.Flush()
		f.RemoteAddr, f.Rkey = wr.Remote.Addr, wr.Remote.RKey
		f.Type, f.Level = wr.FlushType, wr.FlushLevel
		w.Dma.Length, w.Dma.Resid = wr.FlushLength, wr.FlushLength
	default:
		return provider.ErrOpcode
	}
	q.prod = next
	q.unrung += requestCost + uint64(w.Dma.Length)
	return nil
}

// On Linux 6.1 a doorbell sends up to 1,024 packets in the thread that rings it. On 6.12 a
// kernel thread sends them. A doorbell sleeps on neither, and it is brief if it sends
// little. The cost is counted in bytes, with a surcharge for each request.
//
// briefCost is the cost of one request with 64 KiB, the longest message of package rsocket. A
// doorbell that isn't brief wakes the scheduler's monitor, which then runs every 20 µs for a
// while. In the emulated guests of the tests, that slowed transfers of 64 KiB by half.
const (
	requestCost = 1 << 10
	briefCost   = requestCost + 64<<10
)

func (q *qp) ringDoorbell() error {
	brief := q.brief()
	q.unrung = 0
	q.sq.setProducer(q.prod)
	return q.file.Doorbell(q.bell.Bytes(), brief)
}

func (q *qp) brief() bool { return q.unrung <= briefCost }

// TakeBack returns to the last published producer index.
func (q *qp) TakeBack() { q.prod, q.unrung = q.sq.producer()&q.sq.mask, 0 }

func (q *qp) PostRecv(wrs []provider.RecvWR) (int, error) { return q.rq.post(wrs) }

func (q *qp) Release() {
	q.sq.unmap()
	q.rq.unmap()
	q.bell.Release()
}
