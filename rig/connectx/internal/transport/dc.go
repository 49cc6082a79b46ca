package transport

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
)

// DC's wire protocol is not public. Here, an initiator sends a target a connect packet,
// which sets the first sequence number of the following packets. It has a sequence number
// itself and is acknowledged like any other. Then both sides behave like two RC queue
// pairs until the initiator changes to another target.

// dct is a DC target, with a responder for each connected initiator.
type dct struct {
	c        DCTContext
	conns    map[dcPeer]*QP
	draining bool
}

type dcPeer struct {
	lid uint16
	gid fabric.GID
	qpn uint32
}

// maxConns is how many initiators a target remembers.
const maxConns = 4096

// CreateDCT creates a DC target, which is active at once. Its number is from the range of
// queue pairs.
func (e *Engine) CreateDCT(c DCTContext) (dctn uint32, err error) {
	s := e.srqs[c.SRQN]
	if s == nil || e.c.CQ(c.CQN) == nil {
		return 0, ErrNoRes
	}
	if c.MTU < 1 || c.MTU > 5 || int(c.Port) > len(e.c.Ports) {
		return 0, ErrBadParam
	}
	if dctn, err = e.newNumber(); err != nil {
		return 0, err
	}
	q := &QP{e: e, number: dctn, kind: kindDCT, srq: s, dct: &dct{c: c, conns: make(map[dcPeer]*QP)}}
	q.c = QPContext{Service: DCT, State: RTR, NoSQ: true, RQType: SharedRQ, Primary: Path{Port: c.Port, PKeyIndex: c.PKeyIndex}}
	s.users++
	e.qps[dctn] = q
	return dctn, nil
}

// DrainDCT ends a target's connections. The event eq.TypeDCTDrained follows.
func (e *Engine) DrainDCT(dctn uint32) error {
	q := e.target(dctn)
	if q == nil {
		return ErrNoRes
	}
	if q.dct.draining {
		return ErrBadState
	}
	q.dct.draining = true
	for _, c := range q.dct.conns {
		c.toErr()
		c.dead = true
	}
	clear(q.dct.conns)
	e.c.Event(eq.DCT(eq.TypeDCTDrained, dctn))
	return nil
}

func (e *Engine) target(dctn uint32) *QP {
	if q := e.qps[dctn]; q != nil && q.kind == kindDCT {
		return q
	}
	return nil
}

// QueryDCT returns the current context.
func (e *Engine) QueryDCT(dctn uint32) (DCTContext, bool) {
	q := e.target(dctn)
	if q == nil {
		return DCTContext{}, false
	}
	c := q.dct.c
	c.Draining = q.dct.draining
	return c, true
}

// DestroyDCT removes a drained target.
func (e *Engine) DestroyDCT(dctn uint32) error {
	q := e.target(dctn)
	if q == nil {
		return ErrNoRes
	}
	if !q.dct.draining {
		return ErrBadState
	}
	e.remove(q)
	return nil
}

// receiveDCT handles a packet from an initiator.
func (e *Engine) receiveDCT(t *QP, h bth, p *fabric.Packet) {
	r := reader{b: p.Data[sizeBTH:]}
	key := binary.BigEndian.Uint64(r.take(8))
	source := binary.BigEndian.Uint32(r.take(4)) & psnMask
	r.take(4)
	d := t.dct
	if r.bad || h.op&classMask != classDC || d.draining || isAnswer(h.op&opMask) ||
		!samePartition(h.pkey, e.pkey(d.c.Port, d.c.PKeyIndex)) {
		return
	}
	peer := dcPeer{lid: p.SLID, qpn: source}
	if p.HasGRH {
		peer.gid = p.SGID()
	}
	c := d.conns[peer]
	switch h.op & opMask {
	case opConnect:
		if c == nil || c.resp.psn != psnAdd(h.psn, 1) {
			if c == nil && len(d.conns) >= maxConns {
				return
			}
			if c != nil {
				c.toErr()
				c.dead = true
			}
			c = t.connect(peer, h, p)
			d.conns[peer] = c
			c.counters().RxDCTConnect++
			if key != d.c.DCAccessKey {
				d.c.Violations++
				e.c.Event(eq.DCT(eq.TypeDCTKey, t.number))
				c.sendNow(response{what: respAck, psn: h.psn, syndrome: nakRemoteAccess})
				delete(d.conns, peer)
				return
			}
		}
		c.resp.queue.ack(h.psn, 0)
		e.activate(c)
		return
	case opDisconnect:
		if c != nil && c.resp.psn == h.psn {
			delete(d.conns, peer)
			c.toErr()
			c.dead = true
		}
		return
	}
	if c == nil || key != d.c.DCAccessKey {
		return
	}
	c.serve(&arrival{h: h, p: p, r: r})
	if c.c.State == Err {
		c.dead = true
		delete(d.conns, peer)
	}
}

// connect creates the responder for an initiator.
func (t *QP) connect(peer dcPeer, h bth, p *fabric.Packet) *QP {
	d := &t.dct.c
	c := &QP{e: t.e, number: t.number, kind: kindConn, srq: t.srq, dct: t.dct}
	c.c = QPContext{
		State: RTR, Service: DCT, PD: d.PD, MTU: d.MTU, LogMsgMax: 31, NoSQ: true, RQType: SharedRQ, RLKey: d.RLKey,
		UserIndex: d.UserIndex, CounterSet: d.CounterSet, RemoteQPN: peer.qpn,
		Primary:   Path{Port: d.Port, PKeyIndex: d.PKeyIndex, DLID: p.SLID, SL: p.SL},
		LogRRAMax: 7, MinRNRNak: d.MinRNRNak, AtomicMode: d.AtomicMode, RRE: d.RRE, RWE: d.RWE, RAE: d.RAE,
		CQNRecv: d.CQN, CSRes: d.CSRes,
	}
	if p.HasGRH {
		path := &c.c.Primary
		path.GRH, path.DGID, path.HopLimit, path.TClass, path.FlowLabel = true, p.SGID(), d.HopLimit, d.TClass, d.FlowLabel
		path.SGIDIndex, path.MAC, path.Priority = d.SGIDIndex, p.Link.Source, d.Priority
	}
	c.est = true
	c.setMTU()
	c.resp.psn = psnAdd(h.psn, 1)
	return c
}

// beginDC enqueues an initiator's WQE. If its target differs from the last one, it first
// waits until everything to the last target is complete, and enqueues a connection before
// the WQE.
func (q *QP) beginDC(w *sendWQE) bool {
	r := &q.req
	if r.connected && r.peer == w.dest {
		q.enqueue(w)
		return true
	}
	if r.head != r.tail {
		// Fetch it again when the others are complete.
		q.sqNext = w.index
		return false
	}
	if r.connected {
		q.disconnect()
	}
	// The connection's entry comes first, so the two are swapped.
	next := r.at(r.tail + 1)
	*next, *w = *w, *next
	w.clear()
	w.act, w.packets, w.dest, w.index, w.bbs = actConnect, 1, next.dest, next.index, next.bbs
	w.op, w.stream = next.op, next.stream
	r.peer, r.connected = next.dest, true
	q.enqueue(w)
	q.enqueue(next)
	return true
}

// sendConnect sends the packet that opens a connection.
func (q *QP) sendConnect(w *sendWQE) {
	port, p := q.request(w, bth{op: opConnect, psn: w.first, ackReq: true})
	q.advance()
	q.transmit(port, p)
	q.sent()
}

// disconnect ends the connection at the target. If the packet is lost, the next connection
// replaces it.
func (q *QP) disconnect() {
	w := sendWQE{dest: q.req.peer}
	port, p := q.request(&w, bth{op: opDisconnect, psn: q.req.next})
	q.transmit(port, p)
}
