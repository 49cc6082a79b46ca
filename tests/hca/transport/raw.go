package transport

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/tests/hca/cq"
	"github.com/goverbs/goverbs/tests/hca/fabric"
	"github.com/goverbs/goverbs/tests/hca/mkey"
)

// CreateSQ makes a raw packet send queue.
func (e *Engine) CreateSQ(c SQContext) (sqn uint32, err error) {
	if c.LogSize > maxLogQueue || int(c.Port) > len(e.c.Ports) {
		return 0, ErrBadParam
	}
	if e.c.CQ(c.CQN) == nil {
		return 0, ErrNoRes
	}
	if sqn, err = e.newNumber(); err != nil {
		return 0, err
	}
	q := &QP{e: e, number: sqn, kind: kindSQ}
	q.c = QPContext{Service: Raw, PD: c.PD, LogSQSize: c.LogSize, RQType: NoRQ, RLKey: c.RLKey, UserIndex: c.UserIndex,
		CQNSend: c.CQN, DBRAddr: c.DBRAddr, Buffer: c.Buffer, LogMsgMax: 31, Primary: Path{Port: c.Port}}
	q.setup()
	e.qps[sqn] = q
	return sqn, nil
}

// half finds a queue of a kind.
func (e *Engine) half(n uint32, k kind) *QP {
	if q := e.qps[n]; q != nil && q.kind == k {
		return q
	}
	return nil
}

// modifyHalf changes the state of a queue.
func (e *Engine) modifyHalf(n uint32, k kind, from, to State) error {
	q := e.half(n, k)
	switch {
	case q == nil:
		return ErrNoRes
	case q.c.State != from:
		return ErrBadState
	case to == Err:
		q.toErr()
	case to == Reset:
		q.reset()
	case to == RTS && from != Err:
		q.c.State = RTS
		e.activate(q)
	default:
		return ErrBadState
	}
	return nil
}

// ModifySQ changes its state.
func (e *Engine) ModifySQ(sqn uint32, from, to State) error {
	return e.modifyHalf(sqn, kindSQ, from, to)
}

// QuerySQ returns the live context.
func (e *Engine) QuerySQ(sqn uint32) (SQContext, bool) {
	q := e.half(sqn, kindSQ)
	if q == nil {
		return SQContext{}, false
	}
	c := &q.c
	return SQContext{State: c.State, PD: c.PD, Port: c.Primary.Port, CQN: c.CQNSend, UserIndex: c.UserIndex,
		LogSize: c.LogSQSize, RLKey: c.RLKey, DBRAddr: c.DBRAddr, Buffer: c.Buffer}, true
}

// DestroySQ removes it.
func (e *Engine) DestroySQ(sqn uint32) error { return e.destroyHalf(sqn, kindSQ) }

func (e *Engine) destroyHalf(n uint32, k kind) error {
	q := e.half(n, k)
	if q == nil {
		return ErrNoRes
	}
	e.remove(q)
	return nil
}

// CreateRQ makes a raw packet receive queue.
func (e *Engine) CreateRQ(c RQContext) (rqn uint32, err error) {
	if c.LogSize > maxLogQueue-1 || c.LogStride > 6 {
		return 0, ErrBadParam
	}
	if e.c.CQ(c.CQN) == nil {
		return 0, ErrNoRes
	}
	var s *srq
	if c.RMPN != 0 {
		if s = e.srqs[c.RMPN]; s == nil {
			return 0, ErrNoRes
		}
	}
	if rqn, err = e.newNumber(); err != nil {
		return 0, err
	}
	q := &QP{e: e, number: rqn, kind: kindRQ, srq: s}
	q.c = QPContext{Service: Raw, NoSQ: true, PD: c.PD, RQType: NoRQ, RLKey: c.RLKey, UserIndex: c.UserIndex, CounterSet: c.CounterSet,
		CQNRecv: c.CQN, DBRAddr: c.DBRAddr, Buffer: c.Buffer}
	if s != nil {
		s.users++
	} else {
		q.c.RQType, q.c.LogRQSize, q.c.LogRQStride, q.c.WQSignature = OwnRQ, c.LogSize, c.LogStride, c.WQSignature
	}
	q.setup()
	e.qps[rqn] = q
	return rqn, nil
}

// ModifyRQ changes its state.
func (e *Engine) ModifyRQ(rqn uint32, from, to State) error {
	return e.modifyHalf(rqn, kindRQ, from, to)
}

// QueryRQ returns the live context.
func (e *Engine) QueryRQ(rqn uint32) (RQContext, bool) {
	q := e.half(rqn, kindRQ)
	if q == nil {
		return RQContext{}, false
	}
	c := &q.c
	x := RQContext{State: c.State, PD: c.PD, CQN: c.CQNRecv, UserIndex: c.UserIndex, CounterSet: c.CounterSet, LogSize: c.LogRQSize,
		LogStride: c.LogRQStride, WQSignature: c.WQSignature, RLKey: c.RLKey, DBRAddr: c.DBRAddr, Buffer: c.Buffer}
	if q.srq != nil {
		x.RMPN = q.srq.number
	}
	return x, true
}

// DestroyRQ removes it.
func (e *Engine) DestroyRQ(rqn uint32) error { return e.destroyHalf(rqn, kindRQ) }

// receiveFrame gives an Ethernet frame to the queues that steering names.
func (e *Engine) receiveFrame(port uint8, p *fabric.Packet) {
	if e.c.Steer == nil {
		return
	}
	e.steered = e.c.Steer(e.steered[:0], port, p.Data)
	for _, n := range e.steered {
		if q := e.half(n, kindRQ); q != nil && q.c.State == RTS {
			q.receiveFrame(p)
		}
	}
}

// Checks of a received frame in its completion.
const (
	frameL2 = 1
	frameL3 = 2
	frameL4 = 4
)

func (q *QP) receiveFrame(p *fabric.Packet) {
	x := &q.resp
	if !q.needDatagram() {
		return
	}
	if len(p.Data) > x.wqe.length {
		q.breakDown(cq.SyndromeLocalLength, vendorLength, nakInvalidRequest)
		return
	}
	a := arrival{p: p}
	if f := q.e.scatter(x.wqe.segs, 0, p.Data, q.c.PD, q.localKey(&a)); f != mkey.FaultNone {
		q.breakDown(cq.SyndromeLocalProt, vendorKey+uint8(f), nakRemoteOperation)
		return
	}
	c := cq.Completion{Kind: cq.ResponderSend, QPN: q.number, WQECounter: x.wqe.index, ByteCount: uint32(len(p.Data)), Packet: true}
	c.HdsIPExt, c.L4L3Type = inspect(p.Data)
	var cqn uint32
	cqn, c.UserIndex = q.recvTarget()
	x.wqe.used = false
	q.postTo(cqn, &c)
}

// sendFrame sends an Ethernet frame, or the many that segmentation makes.
func (q *QP) sendFrame(w *sendWQE) {
	port := q.e.port(q.c.Primary.Port)
	header := w.frame
	step := w.length
	if w.op == wqeLSO {
		step = w.mss
	}
	for i, off := 0, 0; ; i, off = i+1, off+step {
		n := min(step, w.length-off)
		p := fabric.NewPacket()
		p.Ethernet = true
		p.Data = append(p.Data, header...)
		var f mkey.Fault
		if p.Data, f = q.gather(p.Data, w, off, n); f != mkey.FaultNone {
			p.Free()
			q.localFault(w, f)
			return
		}
		if w.op == wqeLSO {
			segmentTCP(p.Data, off, i, off+n == w.length)
		}
		checksum(p.Data, w.checks)
		q.transmit(port, p)
		if off+n >= w.length {
			break
		}
	}
	q.advance()
	q.req.acked = w.last()
	q.complete()
}

// parseFrame reads the Ethernet segment.
func (w *sendWQE) parseFrame(r *reader) {
	b := r.take(16)
	w.checks = b[4]
	w.mss = int(binary.BigEndian.Uint16(b[6:]))
	n := int(binary.BigEndian.Uint16(b[12:]))
	if n <= 2 {
		w.frame = b[14 : 14+n]
		return
	}
	more := (n - 2 + 15) &^ 15
	at := len(w.raw) - len(r.b) - 2
	r.drop(more)
	if !r.bad {
		w.frame = w.raw[at : at+n]
	}
}

// drop is take without looking.
func (r *reader) drop(n int) {
	if len(r.b) < n {
		r.bad = true
		r.b = nil
		return
	}
	r.b = r.b[n:]
}

// measureFrame checks the frame's length.
func (w *sendWQE) measureFrame() {
	w.packets = 1
	n := w.length
	if w.op == wqeLSO {
		if w.mss == 0 || w.length > 1<<18 {
			w.fail(cq.SyndromeLocalLength, vendorLength)
			return
		}
		n = min(n, w.mss)
	}
	if len(w.frame)+n > fabric.MaxPacket || len(w.frame)+w.length < 14 {
		w.fail(cq.SyndromeLocalLength, vendorLength)
	}
}
