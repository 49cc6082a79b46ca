package verbs

import (
	"unsafe"

	"github.com/goverbs/goverbs/provider"
)

// A SendBuilder makes work requests one after the other, and posts them all
// with one doorbell: what ibv_wr_start and its likes do. QP.StartSends begins,
// Complete or Abort ends, and in between the send queue is the builder's alone.
//
// WRID and Flags are those of the requests from then on. A method that names an
// operation begins a request, the Set methods say what it is about:
//
//	b := qp.StartSends()
//	b.WRID, b.Flags = 1, verbs.SendSignaled
//	b.RDMAWrite(rkey, addr)
//	b.SetSGE(mr.SGE(0, 64))
//	…
//	n, err := b.Complete()
//
// Inline data and lists of SGEs must stay as they are until Complete, which
// copies them. A SendBuilder must not be used by several goroutines at a time.
type SendBuilder struct {
	WRID  uint64
	Flags SendFlags

	qp   *QP
	wrs  []SendWR
	sges []SGE // one for each, of SetSGE
}

// StartSends begins to build requests (ibv_wr_start). It waits until nobody
// else posts to the send queue.
func (qp *QP) StartSends() *SendBuilder {
	if qp == nil {
		return new(SendBuilder) // Complete refuses
	}
	if !qp.sendMu.try() {
		qp.sendMu.wait()
	}
	b := &qp.builder
	b.qp, b.wrs, b.WRID, b.Flags = qp, b.wrs[:0], 0, 0
	return b
}

// Complete posts the requests (ibv_wr_complete), and returns how many were
// posted, as PostSend does.
func (b *SendBuilder) Complete() (n int, err error) {
	qp := b.qp
	if qp == nil {
		return 0, errPostClosed
	}
	posting()
	if ops := qp.usualOps.Load(); ops != 0 && len(b.wrs) > 0 && usual(ops, b.wrs) && !qp.ctx.removal.gone.Load() {
		if n, err = qp.prov.PostSend(as[provider.SendWR](b.wrs)); err != nil {
			err = sendError(n == len(b.wrs), err)
		}
	} else {
		n, err = qp.postSend(b.wrs)
	}
	if tracing.on != 0 {
		tell(traceBuilt, &qp.object, qp.num.Load(), uint32(qp.typ), unsafe.Pointer(unsafe.SliceData(b.wrs)), len(b.wrs), n, err)
	}
	b.qp = nil
	qp.sendMu.Unlock()
	return n, err
}

// Abort forgets the requests (ibv_wr_abort).
func (b *SendBuilder) Abort() {
	if qp := b.qp; qp != nil {
		b.qp = nil
		qp.sendMu.Unlock()
	}
}

// next begins a request. Of those that were built in its place before, it
// clears what operations look at unasked: the data.
func (b *SendBuilder) next(op Opcode) *SendWR {
	n := len(b.wrs)
	if n == cap(b.wrs) {
		b.grow()
	}
	b.wrs = b.wrs[:n+1]
	wr := &b.wrs[n]
	wr.WRID, wr.Opcode, wr.Flags = b.WRID, op, b.Flags
	if wr.Inline != nil {
		wr.Inline = nil
	}
	if len(wr.SGL) != 0 {
		wr.SGL = wr.SGL[:0]
	}
	return wr
}

func (b *SendBuilder) grow() {
	n := max(16, 2*cap(b.wrs))
	b.wrs = append(make([]SendWR, 0, n), b.wrs...)
	b.sges = append(make([]SGE, 0, n), b.sges...)[:n]
}

// last returns the request that was begun last.
func (b *SendBuilder) last() *SendWR {
	if len(b.wrs) == 0 {
		panic("verbs: a SendBuilder's Set method before the first operation")
	}
	return &b.wrs[len(b.wrs)-1]
}

// Send begins a send (ibv_wr_send).
func (b *SendBuilder) Send() { b.next(OpSend) }

// SendImm begins a send with immediate (ibv_wr_send_imm).
func (b *SendBuilder) SendImm(imm uint32) { b.next(OpSendImm).Imm = imm }

// SendInv begins a send that invalidates a key of the peer's (ibv_wr_send_inv).
func (b *SendBuilder) SendInv(rkey uint32) { b.next(OpSendInv).InvalidateRKey = rkey }

// SendTSO begins a raw packet that is cut into segments (ibv_wr_send_tso).
func (b *SendBuilder) SendTSO(header []byte, mss uint16) {
	wr := b.next(OpTSO)
	wr.Header, wr.MSS = header, mss
}

func (b *SendBuilder) remote(op Opcode, rkey uint32, addr uint64) *SendWR {
	wr := b.next(op)
	wr.RKey, wr.RemoteAddr = rkey, addr
	return wr
}

// RDMAWrite begins a write (ibv_wr_rdma_write).
func (b *SendBuilder) RDMAWrite(rkey uint32, addr uint64) { b.remote(OpRDMAWrite, rkey, addr) }

// RDMAWriteImm begins a write with immediate (ibv_wr_rdma_write_imm).
func (b *SendBuilder) RDMAWriteImm(rkey uint32, addr uint64, imm uint32) {
	b.remote(OpRDMAWriteImm, rkey, addr).Imm = imm
}

// RDMARead begins a read (ibv_wr_rdma_read).
func (b *SendBuilder) RDMARead(rkey uint32, addr uint64) { b.remote(OpRDMARead, rkey, addr) }

// CompareSwap begins a compare and swap (ibv_wr_atomic_cmp_swp).
func (b *SendBuilder) CompareSwap(rkey uint32, addr, compare, swap uint64) {
	wr := b.remote(OpCompareSwap, rkey, addr)
	wr.Compare, wr.Swap = compare, swap
}

// FetchAdd begins a fetch and add (ibv_wr_atomic_fetch_add).
func (b *SendBuilder) FetchAdd(rkey uint32, addr, add uint64) {
	b.remote(OpFetchAdd, rkey, addr).Add = add
}

// AtomicWrite begins a write of 8 bytes that is seen whole (ibv_wr_atomic_write);
// SetInlineData gives them.
func (b *SendBuilder) AtomicWrite(rkey uint32, addr uint64) { b.remote(OpAtomicWrite, rkey, addr) }

// Flush makes earlier writes visible (ibv_wr_flush).
func (b *SendBuilder) Flush(rkey uint32, addr uint64, length uint32, typ FlushType, level FlushLevel) {
	wr := b.remote(OpFlush, rkey, addr)
	wr.FlushLength, wr.FlushType, wr.FlushLevel = length, typ, level
}

// BindMW binds a type 2 window (ibv_wr_bind_mw).
func (b *SendBuilder) BindMW(mw *MW, rkey uint32, bind MWBindInfo) {
	wr := b.next(OpBindMW)
	wr.MW, wr.NewRKey, wr.Bind = mw, rkey, bind
}

// LocalInv invalidates a key of one's own (ibv_wr_local_inv).
func (b *SendBuilder) LocalInv(rkey uint32) { b.next(OpLocalInv).InvalidateRKey = rkey }

// SetSGE makes one piece of memory the data (ibv_wr_set_sge).
func (b *SendBuilder) SetSGE(sge SGE) {
	wr, n := b.last(), len(b.wrs)
	b.sges[n-1] = sge
	wr.SGL = b.sges[n-1 : n : n]
}

// SetSGEList makes several pieces the data (ibv_wr_set_sge_list).
func (b *SendBuilder) SetSGEList(sgl []SGE) { b.last().SGL = sgl }

// SetInlineData makes a copy the data (ibv_wr_set_inline_data).
func (b *SendBuilder) SetInlineData(data []byte) { b.last().Inline = data }

// SetUDAddr says where a datagram goes (ibv_wr_set_ud_addr).
func (b *SendBuilder) SetUDAddr(ah *AH, qpn, qkey uint32) {
	wr := b.last()
	wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, qpn, qkey
}

// SetXRCSRQN says which SRQ the message is for (ibv_wr_set_xrc_srqn).
func (b *SendBuilder) SetXRCSRQN(srqn uint32) { b.last().RemoteSRQN = srqn }

// SetDCAddr says which DCT the request goes to (mlx5dv_wr_set_dc_addr).
func (b *SendBuilder) SetDCAddr(ah *AH, dctn uint32, key uint64) {
	wr := b.last()
	wr.AH, wr.RemoteQPN, wr.DCKey = ah, dctn, key
}
