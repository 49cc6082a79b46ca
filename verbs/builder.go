package verbs

import (
	"slices"
	"unsafe"

	"github.com/goverbs/goverbs/internal/tracing"
	"github.com/goverbs/goverbs/provider"
)

// A SendBuilder builds a batch of work requests: see QP.Sends. Each of its methods adds a
// request, with flags and an ID that the completion returns. Send, RDMAWrite and the other
// methods named after an operation are the fastest way to post a request whose data is one
// piece of memory. Add takes any request.
//
// A SendBuilder is valid only during the call of the function that receives it. It must not
// be used by several goroutines at once.
type SendBuilder struct {
	// The lock of the send queue protects all fields but qp.
	qp *QP
	// Common requests take the short path: short[:n] collects them for the provider. n is
	// noShort if there is no short path, and ended while no batch is being built.
	n     int
	short [shorts]provider.Short

	put   int   // the number of requests passed to the provider
	err   error // why the provider refused one of them
	binds []bound
	noted []SendWR // copies of all requests, while a tracer listens
}

const (
	shorts  = 16
	noShort = shorts + 1
	ended   = shorts + 2
)

// A bound saves a window's key and address before a bind, which may be undone.
type bound struct {
	mw   *MW
	rkey uint32
	addr uint64
}

// Sends calls build, which adds work requests to a batch, and posts them with one doorbell,
// as ibv_wr_start, its companions and ibv_wr_complete do. It returns the number of requests.
// If a request is refused, or build returns an error or panics, Sends posts none
// (ibv_wr_abort).
//
//	n, err := qp.Sends(func(b *verbs.SendBuilder) error {
//		b.RDMAWrite(1, 0, peer, mr.SGE(0, 4096))
//		b.RDMAWrite(2, verbs.SendSignaled, peer.At(4096), mr.SGE(4096, 8))
//		return nil
//	})
//
// While build runs, the batch owns the send queue: other posts wait for its end. So build
// must not post to the QP by other means. QP.Close and a Modify to QPReset return ErrBusy.
//
// If the error matches ErrQueueFull, poll completions first.
func (qp *QP) Sends(build func(*SendBuilder) error) (n int, err error) {
	if qp == nil || qp.dev == nil { // never created
		return 0, errPostClosed
	}
	if !qp.sendMu.tryForBatch() {
		qp.sendMu.waitForBatch()
	}
	b := &qp.batch
	b.n = 0
	if qp.usualOps.Load()&usualShort == 0 || tracing.Switch.On != 0 {
		b.n = noShort
	}
	// open is false after the fast path, which thus skips the stores of end.
	open := true
	defer func() {
		if open {
			b.end()
		}
	}()
	if err := build(b); err != nil {
		return 0, err
	}
	posting()
	if n = b.n; uint(n-1) < shorts && qp.poster.PostShort(b.short[:n], false) {
		if b.put != 0 {
			n += b.put
			b.forget()
		}
		b.n, open = ended, false
		qp.sendMu.Unlock()
		return n, nil
	}
	return b.complete()
}

// complete posts the batch when the fast path of Sends does not.
func (b *SendBuilder) complete() (n int, err error) {
	qp := b.qp
	if uint(b.n-1) < shorts {
		b.flush()
	}
	all := b.put
	if err = b.err; err == nil {
		err = qp.sendable()
	}
	if err != nil {
		b.takeBack()
	} else if n = all; n > 0 {
		if _, bell := qp.prov.PostSend(nil, false); bell != nil {
			err = qp.sendError(true, bell)
		}
	}
	if all > 0 && len(b.noted) == all {
		report(tracing.Built, &qp.object, qp.num.Load(), uint32(qp.typ), unsafe.Pointer(unsafe.SliceData(b.noted)), all, n, err)
	}
	b.n = ended
	return n, err
}

// takeBack removes the batch's requests from the send queue.
func (b *SendBuilder) takeBack() {
	if b.qp.prov != nil {
		b.qp.prov.TakeBack()
	}
	for _, w := range slices.Backward(b.binds) {
		w.mw.ref.RKey.Store(w.rkey)
		w.mw.ref.Addr.Store(w.addr)
	}
}

// end releases the send queue. If the batch was not completed, because build returned an
// error or panicked, it is discarded.
func (b *SendBuilder) end() {
	if b.n != ended {
		b.takeBack()
		b.n = ended
	}
	b.forget()
	b.qp.sendMu.Unlock()
}

// forget resets the fields that only the long path sets.
func (b *SendBuilder) forget() {
	if b.put != 0 {
		b.put, b.err, b.binds, b.noted = 0, nil, nil, nil
	}
}

// flush puts the short requests into the send queue: as ordinary requests, if the provider
// refuses them as short ones.
func (b *SendBuilder) flush() {
	list := b.short[:b.n]
	b.n = 0
	if b.qp.poster.PostShort(list, true) {
		b.put += len(list)
		return
	}
	for i := range list {
		s := &list[i]
		wr := SendWR{
			WRID: s.WRID, Opcode: Opcode(uint32(s.Operation)), Flags: SendFlags(s.Operation >> 32),
			Remote: Remote{s.RemoteAddr, uint32(s.Key >> 32)}, Imm: uint32(s.Key),
		}
		sge := [1]SGE{{s.Addr, uint32(s.Data >> 32), uint32(s.Data)}}
		if sge[0].Length != 0 {
			wr.SGL = as[SGE](sge[:])
		}
		b.add(&wr)
	}
}

// add puts a request into the send queue.
func (b *SendBuilder) add(one *SendWR) {
	wrs := as[SendWR](unsafe.Slice(one, 1))
	wr := &wrs[0]
	if wr.Opcode == OpBindMW && wr.MW != nil {
		b.binds = append(b.binds, bound{wr.MW, wr.MW.RKey(), wr.MW.ref.Addr.Load()})
	}
	if tracing.Switch.On != 0 {
		b.noted = append(b.noted, *wr)
		last := &b.noted[len(b.noted)-1]
		last.SGL, last.Inline = slices.Clone(wr.SGL), slices.Clone(wr.Inline)
	}
	if b.err == nil {
		_, b.err = b.qp.postSend(wrs, true)
	}
	b.put++
}

// addUsual adds a request of a usual kind. The opcode and the immediate are one argument, so
// that all arguments fit in registers.
func (b *SendBuilder) addUsual(op opImm, wrid uint64, flags SendFlags, remote Remote, sge SGE) {
	n := uint(b.n)
	if n >= shorts {
		if !b.reserveShort() {
			b.addLong(op, wrid, flags, remote, sge)
			return
		}
		n = 0
	}
	s := &b.short[n]
	b.n = int(n + 1)
	s.WRID, s.Operation = wrid, uint64(uint32(op))|uint64(flags)<<32
	s.RemoteAddr, s.Key = remote.Addr, uint64(remote.RKey)<<32|uint64(op>>32)
	s.Addr, s.Data = sge.Addr, uint64(sge.Length)<<32|uint64(sge.LKey)
}

// An opImm has an Opcode in the lower half, and an immediate in the upper half.
type opImm uint64

// reserveShort makes room for short requests. It reports whether the next one may be short.
func (b *SendBuilder) reserveShort() bool {
	if b.n != shorts {
		return false
	}
	b.flush()
	return true
}

// addLong is like addUsual, but skips the short path.
func (b *SendBuilder) addLong(op opImm, wrid uint64, flags SendFlags, remote Remote, sge SGE) {
	data := [1]SGE{sge}
	wr := SendWR{WRID: wrid, Opcode: Opcode(uint32(op)), Flags: flags, Remote: remote, Imm: uint32(op >> 32)}
	if sge.Length != 0 {
		wr.SGL = as[SGE](data[:])
	}
	b.Add(wr)
}

// Add adds any request that PostSend takes.
func (b *SendBuilder) Add(wr SendWR) {
	if b.n == ended || b.qp == nil {
		return
	}
	if b.n != noShort && b.n > 0 {
		b.flush()
	}
	b.add(&wr)
}

// Send adds a send (ibv_wr_send).
func (b *SendBuilder) Send(wrid uint64, flags SendFlags, data SGE) {
	b.addUsual(opImm(OpSend), wrid, flags, Remote{}, data)
}

// SendImm adds a send with immediate (ibv_wr_send_imm).
func (b *SendBuilder) SendImm(wrid uint64, flags SendFlags, imm uint32, data SGE) {
	b.addUsual(opImm(OpSendImm)|opImm(imm)<<32, wrid, flags, Remote{}, data)
}

// RDMAWrite adds a write (ibv_wr_rdma_write).
func (b *SendBuilder) RDMAWrite(wrid uint64, flags SendFlags, to Remote, data SGE) {
	b.addUsual(opImm(OpRDMAWrite), wrid, flags, to, data)
}

// RDMAWriteImm adds a write with immediate (ibv_wr_rdma_write_imm).
func (b *SendBuilder) RDMAWriteImm(wrid uint64, flags SendFlags, to Remote, imm uint32, data SGE) {
	b.addUsual(opImm(OpRDMAWriteImm)|opImm(imm)<<32, wrid, flags, to, data)
}

// RDMARead adds a read into data (ibv_wr_rdma_read).
func (b *SendBuilder) RDMARead(wrid uint64, flags SendFlags, from Remote, data SGE) {
	if b.qp.typ == RC {
		b.addUsual(opImm(OpRDMARead), wrid, flags, from, data)
	} else {
		b.addLong(opImm(OpRDMARead), wrid, flags, from, data)
	}
}
