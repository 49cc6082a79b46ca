package verbs

import (
	"slices"
	"unsafe"

	"github.com/goverbs/goverbs/internal/tracing"
	"github.com/goverbs/goverbs/provider"
)

// A SendBuilder builds a batch of work requests in the send queue, and posts them
// with one doorbell, like ibv_wr_start and its companions. QP.StartSends begins a
// batch, and Complete or Abort ends it. In between, the batch owns the send queue:
// other posts wait for its end, and QP.Close and a Modify to QPReset return ErrBusy.
//
// WRID and Flags apply to the requests that begin after they are set. The methods
// named after operations begin a request, and the Set methods set its parameters:
//
//	b := qp.StartSends()
//	b.WRID, b.Flags = 1, verbs.SendSignaled
//	b.RDMAWrite(rkey, addr)
//	b.SetSGE(mr.SGE(0, 64))
//	…
//	n, err := b.Complete()
//
// Inline data and lists of SGEs must not change until Complete. A SendBuilder is for
// one batch: calls after Complete or Abort have no effect, also on other batches. It
// must not be copied, nor used by several goroutines at once. The zero SendBuilder
// acts like one whose batch has ended.
type SendBuilder struct {
	WRID  uint64
	Flags SendFlags

	_     noCopy
	batch *batch // nil after the end
}

// noCopy makes go vet report copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// A batch is the current batch of a QP's SendBuilders. The lock of the send queue
// protects it.
type batch struct {
	// Requests of the usual kinds take the short path: short[:n] has those that the
	// provider doesn't have yet. Before the first request of another kind, they are
	// put into the send queue. From then on wr holds the current request.
	n     int
	short [shorts + 1]provider.Short

	qp    *QP
	wr    [1]SendWR // the current request, without its one SGE
	sge   [1]SGE    // for wr.SGL
	put   int       // the number of requests before it
	err   error     // why the provider doesn't have all of them
	binds []bound
	noted []SendWR // copies of all, while a tracer listens
}

// Special values of batch.n. They are larger than every number of short requests.
const (
	shorts   = 16
	building = shorts + 1 // wr is a request that the provider doesn't have yet
	none     = shorts + 2 // no request has begun
)

// A bound is a window and its key before a bind that may be undone.
type bound struct {
	mw   *MW
	rkey uint32
}

// StartSends begins a batch (ibv_wr_start). It waits until nobody else posts to the
// send queue.
func (qp *QP) StartSends() SendBuilder {
	if qp == nil {
		return SendBuilder{} // its Complete returns an error
	}
	qp.sendMu.lockForBatch()
	a := &qp.batch
	a.n = 0
	if qp.usualOps.Load()&usualShort == 0 || tracing.Switch.On != 0 {
		a.n = none
	}
	return SendBuilder{batch: a}
}

// Complete posts the requests (ibv_wr_complete) and returns their number. If one of
// them is refused, it posts none.
//
// errors.Is(err, ErrQueueFull) says that completions must be polled first.
func (b *SendBuilder) Complete() (n int, err error) {
	a := b.batch
	if a == nil {
		return 0, errPostClosed
	}
	b.batch = nil
	posting()
	if a.n == 1 && a.put == 0 && a.qp.poster.PostShort(a.short[:1], false) {
		a.qp.sendMu.Unlock()
		return 1, nil
	}
	return a.complete()
}

// complete is Complete without the short path.
func (a *batch) complete() (n int, err error) {
	if list := a.n; uint(list-1) < shorts {
		if a.qp.poster.PostShort(a.short[:list], false) {
			n = a.put + list
			a.put = 0
			a.qp.sendMu.Unlock()
			return n, nil
		}
		a.last() // which is then the one to be shown
	}
	var wrs []SendWR
	if a.n == building {
		wrs = a.wr[:]
		a.ready()
	}
	all := a.put + len(wrs)
	if err = a.err; err == nil {
		if n, err = a.qp.postSend(wrs, false); n == len(wrs) {
			n = all
		}
	}
	if err != nil && n == 0 {
		a.takeBack()
	}
	if qp := a.qp; all > 0 && len(a.noted) == all {
		tell(tracing.Built, &qp.object, qp.num.Load(), uint32(qp.typ), unsafe.Pointer(unsafe.SliceData(a.noted)), all, n, err)
	}
	a.end()
	return n, err
}

// Abort discards the requests (ibv_wr_abort). After Complete it does nothing, so it
// may be deferred.
func (b *SendBuilder) Abort() {
	if a := b.batch; a != nil {
		b.batch = nil
		a.takeBack()
		a.end()
	}
}

// takeBack removes the batch's requests from the send queue.
func (a *batch) takeBack() {
	if a.qp.prov != nil {
		a.qp.prov.TakeBack()
	}
	for _, w := range slices.Backward(a.binds) {
		w.mw.ref.RKey.Store(w.rkey)
	}
}

// end releases the send queue.
func (a *batch) end() {
	a.wr[0] = SendWR{}
	a.put, a.err, a.binds, a.noted = 0, nil, nil, nil
	a.qp.sendMu.Unlock()
}

// flush puts the short requests into the send queue. If the provider refuses them as
// short requests, it puts them as ordinary ones.
func (a *batch) flush() {
	if a.n > shorts {
		return
	}
	list := a.short[:a.n]
	a.n = 0
	if len(list) == 0 || a.qp.poster.PostShort(list, true) {
		a.put += len(list)
		return
	}
	for i := range list {
		a.lengthen(&list[i])
		a.next()
	}
}

// lengthen converts a short request into wr.
func (a *batch) lengthen(s *provider.Short) {
	a.wr[0] = SendWR{
		WRID: s.WRID, Opcode: Opcode(uint32(s.Operation)), Flags: SendFlags(s.Operation >> 32),
		Remote: Remote{Addr: s.RemoteAddr, RKey: uint32(s.Key >> 32)}, Imm: uint32(s.Key),
	}
	a.short[building-1].Addr, a.short[building-1].Data = s.Addr, s.Data
}

// next puts the request in wr into the send queue.
func (a *batch) next() {
	a.ready()
	if a.err == nil {
		_, a.err = a.qp.postSend(a.wr[:], true)
	}
	a.put++
	a.n = none
}

// ready completes wr.
func (a *batch) ready() {
	wr := &a.wr[0]
	s := &a.short[building-1]
	if a.sge[0] = (SGE{Addr: s.Addr, Length: uint32(s.Data >> 32), LKey: uint32(s.Data)}); a.sge[0].Length != 0 {
		wr.SGL = a.sge[:]
	}
	if wr.Opcode == OpBindMW && wr.MW != nil {
		a.binds = append(a.binds, bound{wr.MW, wr.MW.RKey()})
	}
	if tracing.Switch.On != 0 {
		a.noted = append(a.noted, *wr)
		a.noted[len(a.noted)-1].SGL = slices.Clone(wr.SGL)
	}
}

// begin begins a request.
func (b *SendBuilder) begin(op Opcode) *SendWR {
	a := b.batch
	if a == nil {
		return new(SendWR)
	}
	a.proceed()
	a.n = building
	a.wr[0] = SendWR{WRID: b.WRID, Opcode: op, Flags: b.Flags}
	a.short[building-1].Data = 0
	return &a.wr[0]
}

// proceed puts the previous request into the queue, and reports whether the next one
// may be short.
func (a *batch) proceed() bool {
	if a.n == building {
		a.next()
	}
	a.flush()
	return a.n == 0
}

// quick begins a request of a usual kind.
func (b *SendBuilder) quick(op Opcode, rkey uint32, addr uint64, imm uint32) {
	a := b.batch
	if a == nil {
		return
	}
	n := a.n
	if n >= shorts {
		if !a.proceed() {
			wr := b.begin(op)
			wr.Remote, wr.Imm = Remote{addr, rkey}, imm
			return
		}
		n = 0
	}
	s := &a.short[n]
	a.n = n + 1
	s.WRID, s.Operation = b.WRID, uint64(op)|uint64(b.Flags)<<32
	s.RemoteAddr, s.Key = addr, uint64(rkey)<<32|uint64(imm)
	s.Data = 0
}

const noRequest = "verbs: a SendBuilder's Set method before the first operation"

// last returns the current request.
func (b *SendBuilder) last() *SendWR {
	if b.batch == nil {
		return new(SendWR)
	}
	return b.batch.last()
}

func (a *batch) last() *SendWR {
	if i := a.n - 1; uint(i) < shorts {
		s := a.short[i]
		a.n = i
		a.flush()
		a.lengthen(&s)
		a.n = building
	}
	if a.n != building {
		panic(noRequest)
	}
	return &a.wr[0]
}

// Send begins a send (ibv_wr_send).
func (b *SendBuilder) Send() { b.quick(OpSend, 0, 0, 0) }

// SendImm begins a send with immediate (ibv_wr_send_imm).
func (b *SendBuilder) SendImm(imm uint32) { b.quick(OpSendImm, 0, 0, imm) }

// SendInv begins a send that invalidates one of the peer's keys (ibv_wr_send_inv).
func (b *SendBuilder) SendInv(rkey uint32) { b.begin(OpSendInv).InvalidateRKey = rkey }

// SendTSO begins a raw packet that the device splits into segments
// (ibv_wr_send_tso).
func (b *SendBuilder) SendTSO(header []byte, mss uint16) {
	wr := b.begin(OpTSO)
	wr.Header, wr.MSS = header, mss
}

func (b *SendBuilder) remote(op Opcode, rkey uint32, addr uint64) *SendWR {
	wr := b.begin(op)
	wr.Remote = Remote{addr, rkey}
	return wr
}

// RDMAWrite begins a write (ibv_wr_rdma_write).
func (b *SendBuilder) RDMAWrite(rkey uint32, addr uint64) { b.quick(OpRDMAWrite, rkey, addr, 0) }

// RDMAWriteImm begins a write with immediate (ibv_wr_rdma_write_imm).
func (b *SendBuilder) RDMAWriteImm(rkey uint32, addr uint64, imm uint32) {
	b.quick(OpRDMAWriteImm, rkey, addr, imm)
}

// RDMARead begins a read (ibv_wr_rdma_read).
func (b *SendBuilder) RDMARead(rkey uint32, addr uint64) {
	if a := b.batch; a != nil && a.qp.typ == RC {
		b.quick(OpRDMARead, rkey, addr, 0)
	} else {
		b.remote(OpRDMARead, rkey, addr)
	}
}

// CompareSwap begins a compare and swap (ibv_wr_atomic_cmp_swp).
func (b *SendBuilder) CompareSwap(rkey uint32, addr, compare, swap uint64) {
	wr := b.remote(OpCompareSwap, rkey, addr)
	wr.Compare, wr.Swap = compare, swap
}

// FetchAdd begins a fetch and add (ibv_wr_atomic_fetch_add).
func (b *SendBuilder) FetchAdd(rkey uint32, addr, add uint64) {
	b.remote(OpFetchAdd, rkey, addr).Add = add
}

// AtomicWrite begins an atomic write of 8 bytes (ibv_wr_atomic_write). SetInlineData
// sets the bytes.
func (b *SendBuilder) AtomicWrite(rkey uint32, addr uint64) { b.remote(OpAtomicWrite, rkey, addr) }

// Flush makes earlier writes visible (ibv_wr_flush).
func (b *SendBuilder) Flush(rkey uint32, addr uint64, length uint32, typ FlushType, level FlushLevel) {
	wr := b.remote(OpFlush, rkey, addr)
	wr.FlushLength, wr.FlushType, wr.FlushLevel = length, typ, level
}

// BindMW binds a type 2 window (ibv_wr_bind_mw).
func (b *SendBuilder) BindMW(mw *MW, rkey uint32, bind MWBindInfo) {
	wr := b.begin(OpBindMW)
	wr.MW, wr.NewRKey, wr.Bind = mw, rkey, bind
}

// LocalInv invalidates a local key (ibv_wr_local_inv).
func (b *SendBuilder) LocalInv(rkey uint32) { b.begin(OpLocalInv).InvalidateRKey = rkey }

// SetSGE sets the data to one piece of memory (ibv_wr_set_sge).
func (b *SendBuilder) SetSGE(sge SGE) {
	a := b.batch
	if a == nil {
		return
	}
	i := a.n - 1
	if uint(i) >= uint(len(a.short)) {
		panic(noRequest)
	}
	s := &a.short[i]
	s.Addr, s.Data = sge.Addr, uint64(sge.Length)<<32|uint64(sge.LKey)
}

// SetSGEList sets the data to several pieces of memory (ibv_wr_set_sge_list).
func (b *SendBuilder) SetSGEList(sgl []SGE) {
	b.last().SGL = sgl
	if a := b.batch; a != nil {
		a.short[building-1].Data = 0
	}
}

// SetInlineData sets the data to inline data (ibv_wr_set_inline_data).
func (b *SendBuilder) SetInlineData(data []byte) { b.last().Inline = data }

// SetUDAddr sets a datagram's destination (ibv_wr_set_ud_addr).
func (b *SendBuilder) SetUDAddr(ah *AH, qpn, qkey uint32) {
	wr := b.last()
	wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, qpn, qkey
}

// SetXRCSRQN sets the peer's SRQ (ibv_wr_set_xrc_srqn). Every operation needs it.
func (b *SendBuilder) SetXRCSRQN(srqn uint32) { b.last().RemoteSRQN = srqn }

// SetDCAddr sets the destination DCT (mlx5dv_wr_set_dc_addr).
func (b *SendBuilder) SetDCAddr(ah *AH, dctn uint32, key uint64) {
	wr := b.last()
	wr.AH, wr.RemoteQPN, wr.DCKey = ah, dctn, key
}
