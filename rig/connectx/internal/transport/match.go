package transport

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
)

// Operations in the header of a message to an XRQ (enum ibv_tmh_op).
const (
	headerNoTag = 0
	headerRndv  = 1
	headerFin   = 2
	headerEager = 3

	sizeTMH = 16
	sizeRVH = 16
)

// matched is what became of the current message to an XRQ.
type matched struct {
	cq.Match
	tag  bool        // it matched the tag Index
	rndv *rendezvous // it did, and only says where its data is
}

// rendezvous is a transfer of data that the HCA does itself: it reads from the sender's
// memory, and tells the sender by a message (FIN).
type rendezvous struct {
	index  uint16 // of the tag
	va     uint64
	rkey   uint32
	length int
	buffer segment
	fin    [sizeTMH]byte
	sent   int // WQEs: the read, and the message
}

// match decides by a message's first packet where the message goes: to the buffer of a tag,
// without its header, or as a whole to a receive of the XRQ. It reports false if the packet
// was answered or postponed.
func (q *QP) match(a *arrival) bool {
	x, l := &q.resp, &q.srq.tags
	if len(a.data) < sizeTMH {
		q.refuse(nakInvalidRequest)
		return false
	}
	be := binary.BigEndian
	op, app, tag := a.data[0], be.Uint32(a.data[4:]), be.Uint64(a.data[8:])
	rest := a.data[sizeTMH:]
	if op == headerRndv && len(rest) < sizeRVH {
		q.refuse(nakInvalidRequest)
		return false
	}
	if x.wqe.used { // the packet was postponed
		if x.match.tag {
			a.data = rest
		}
		return true
	}
	if op == headerEager || op == headerRndv {
		if index, ok := l.find(tag); ok {
			x.match = matched{tag: true, Match: cq.Match{Op: cq.MatchConsumedMsg, Index: index, HeaderOp: op, App: app, Tag: tag}}
			t := &l.entries[index]
			x.wqe.used, x.wqe.index, x.wqe.length = true, index, t.buffer.length
			x.wqe.segs = append(x.wqe.segs[:0], t.buffer)
			if op == headerRndv {
				r := &rendezvous{
					index: index, buffer: t.buffer,
					va: be.Uint64(rest), rkey: be.Uint32(rest[8:]), length: int(be.Uint32(rest[12:])),
				}
				r.fin[0] = headerFin
				copy(r.fin[4:], a.data[4:sizeTMH])
				x.match.rndv = r
			}
			a.data = rest
			return true
		}
	}
	if !q.need(a) {
		return false
	}
	if x.match = (matched{}); op == headerEager || op == headerRndv {
		x.match.Op = cq.MatchUnexpected
		l.device++
	} else {
		x.match.Op = cq.MatchNoTag
	}
	return true
}

// startRendezvous begins the transfer that a complete message has announced. Software has
// to fetch what is longer than the tag's buffer.
func (q *QP) startRendezvous(a *arrival) {
	x := &q.resp
	r := x.match.rndv
	x.off = 0
	kind := cq.ResponderSend
	if r.length > r.buffer.length {
		x.match.Op = cq.MatchSoftwareRndv
	} else {
		kind, x.match.Op = cq.NoPacket, cq.MatchConsumed
		q.rendezvous = append(q.rendezvous, r)
		q.e.activate(q)
	}
	q.received(a, kind, 0, nil)
}

// beginRendezvous fills in the next WQE of a transfer.
func (q *QP) beginRendezvous(w *sendWQE) bool {
	for _, r := range q.rendezvous {
		if r.sent > 1 {
			continue
		}
		w.clear()
		w.index, w.fetches = q.sqNext, r // it has no place in the ring
		if r.sent == 0 {
			w.op, w.act = wqeRead, actRead
			w.raddr, w.rkey, w.length = r.va, r.rkey, r.length
			w.segs = append(w.segs, sendSegment{segment: r.buffer})
		} else {
			w.op, w.act, w.length = wqeSend, actSend, sizeTMH
			w.flags = fenceReads
			w.segs = append(w.segs, sendSegment{segment{length: sizeTMH}, r.fin[:]})
		}
		r.sent++
		q.measure(w)
		q.enqueue(w)
		return true
	}
	return false
}

// fetched completes a WQE of a transfer.
func (q *QP) fetched(w *sendWQE) {
	r := w.fetches
	if w.act != actRead {
		q.rendezvous = q.rendezvous[1:]
		return
	}
	q.postMatch(cq.ResponderSend, cq.Match{Op: cq.MatchExpected, Index: r.index}, r.length)
	r.buffer = segment{}
	r.index = noTag
}

// noTag is the index of a transfer whose data is there.
const noTag = 0xffff

// cancelRendezvous ends all transfers.
func (q *QP) cancelRendezvous() {
	all := q.rendezvous
	q.rendezvous = nil
	for _, r := range all {
		if r.index != noTag {
			q.cancelTag(r.index)
		}
	}
}
