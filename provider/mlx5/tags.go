package mlx5

import (
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/memorder"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// A tagList is the provider's record of an SRQ's list of tags. The adapter appends a tag at
// the index that the previous append has named, so the free indices form a list. Its last
// index stays free.
//
// The SRQ's lock protects all fields.
type tagList struct {
	tags        []tag
	first, last uint16 // of the free tags

	// Operations are posted on this queue pair. They complete in order.
	qp         *qp
	ops        []tagOp // ring of the operations that will have a CQE
	begun, end uint32  // positions in ops; they increase without wrapping

	unexpected uint32 // messages that matched no tag
	handled    uint32 // how many of them the program has handled, by its last report
}

type tag struct {
	id      uint64 // of the receive
	awaits  uint32 // number of CQEs to come: of operations, and of its message; 0 for a free tag
	next    uint16 // the next free tag
	handled uint16 // the list's count when the tag was added
}

// A tagOp is a posted operation.
type tagOp struct {
	id     uint64
	tag    int32 // -1 for a sync
	posted uint32
	silent bool // the program requested no completion
}

// maxUnhandled is the number of unhandled unexpected messages from which completions ask
// for a sync, as in rdma-core.
const maxUnhandled = 0x3fff

func newTagList(n int) *tagList {
	l := &tagList{tags: make([]tag, n+1), last: uint16(n)}
	for i := range l.tags {
		l.tags[i].next = uint16(i + 1)
	}
	return l
}

func (s *srq) Operate(p provider.QP) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tags.qp = p.(*qp)
	s.tags.ops = make([]tagOp, len(s.tags.qp.sq.slots))
}

func (s *srq) PostTagOps(ops []provider.TagOp) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n < len(ops) {
		if err = s.tags.post(&ops[n]); err != nil {
			break
		}
		n++
	}
	if n > 0 {
		s.tags.qp.sq.ringDoorbell(n == 1)
	}
	return n, err
}

// post encodes an operation, in one block.
func (l *tagList) post(o *provider.TagOp) error {
	q := &l.qp.sq
	if q.posted-atomic.LoadUint32(&q.done) == q.limit {
		return provider.ErrQueueFull
	}
	var flags uint8
	count := l.handled
	if o.Flags&provider.TagCount != 0 {
		flags, count = wqe.TagsCount, o.Unexpected
	}
	if o.Flags&provider.TagSignaled != 0 {
		flags |= wqe.TagsReport
	}
	at := q.next & q.mask
	w := q.ring[at*wqe.BlockSegs:][:wqe.BlockSegs]
	op := tagOp{id: o.WRID, tag: -1}
	length := uint32(3)
	handled := uint16(0)
	if flags&wqe.TagsCount != 0 {
		handled = uint16(count)
	}
	switch o.Op {
	case provider.TagAdd:
		if l.first == l.last {
			return provider.ErrTagsFull
		}
		if o.Buffer.Length > provider.MaxMessage {
			return provider.ErrRecvTooLong
		}
		o.Handle, op.tag = uint32(l.first), int32(l.first)
		t := &l.tags[l.first]
		l.first = t.next
		*t = tag{id: o.RecvWRID, awaits: 1, handled: uint16(count)}
		w[1].TagOp(wqe.TagsAppend, flags, l.first, handled)
		w[2].Tag(o.Tag, o.Mask)
		if o.Buffer.Length > 0 {
			w[3].Data(o.Buffer.Length, o.Buffer.LKey, o.Buffer.Addr)
		} else {
			w[3].End()
		}
		length = 4
	case provider.TagDelete:
		if o.Handle >= uint32(len(l.tags)) || l.tags[o.Handle].awaits == 0 {
			return provider.ErrNoTag
		}
		// Only the CQE reports whether a message has already matched.
		op.tag, op.silent = int32(o.Handle), flags&wqe.TagsReport == 0
		flags |= wqe.TagsReport
		w[1].TagOp(wqe.TagsRemove, flags, uint16(o.Handle), handled)
		w[2] = wqe.Segment{}
	case provider.TagSync:
		w[1].TagOp(wqe.TagsNop, flags, 0, handled)
		w[2] = wqe.Segment{}
	default:
		return provider.ErrOpcode
	}
	l.handled = count
	w[0].Control(q.next, 0, wqe.OpTags, q.qpn|length, 0, 0, 0)
	q.note(q.next, o.WRID)
	q.last = at
	q.next++
	if flags&wqe.TagsReport != 0 {
		op.posted = q.posted
		if op.tag >= 0 {
			l.tags[op.tag].awaits++
		}
		l.ops[l.end%uint32(len(l.ops))] = op
		l.end++
	}
	return nil
}

// free counts a CQE about a tag. The last CQE frees the tag.
func (l *tagList) free(index uint16) {
	t := &l.tags[index]
	if t.awaits == 0 {
		return // a CQE too many
	}
	if t.awaits--; t.awaits == 0 {
		l.tags[l.last].next = index
		l.last = index
	}
}

// tagged handles a CQE about tags.
func (s *srq) tagged(e *wqe.CQE, tail wqe.Tail, w *provider.WC, f *freed) outcome {
	event, index := e.TagEvent()
	switch event {
	case wqe.TagUnexpected, wqe.TagNone:
		return s.unmatched(e, tail, event, w, f)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.tags
	switch event {
	case wqe.TagAppended, wqe.TagRemoved, wqe.TagSynced:
		return l.operated(e, event, w)
	case wqe.TagConsumed, wqe.TagExpected, wqe.TagConsumedHeader, wqe.TagConsumedMessage, wqe.TagFetch, wqe.TagCanceled:
	default:
		return unknownKind
	}
	if int(index) >= len(l.tags) || l.tags[index].awaits == 0 {
		return unknownRequest
	}
	t := &l.tags[index]
	*w = provider.WC{WRID: t.id, QPNum: e.QPN(), Opcode: provider.WCTagRecv, ByteLen: e.ByteCount()}
	switch event {
	case wqe.TagConsumed, wqe.TagConsumedHeader:
		w.Flags = provider.WCTagMatched
	case wqe.TagExpected:
		w.Flags = provider.WCTagData
	default:
		w.Flags = provider.WCTagMatched | provider.WCTagData
	}
	switch event {
	case wqe.TagConsumedHeader, wqe.TagFetch, wqe.TagCanceled:
		w.Status = uint32(uapi.IBV_WC_TM_RNDV_INCOMPLETE)
	}
	if event != wqe.TagConsumed && event != wqe.TagConsumedHeader {
		l.free(index)
	}
	return reported
}

// operated handles the CQE of an operation.
func (l *tagList) operated(e *wqe.CQE, event wqe.TagEvent, w *provider.WC) outcome {
	if l.begun == l.end {
		return unknownRequest
	}
	op := &l.ops[l.begun%uint32(len(l.ops))]
	l.begun++
	memorder.StoreRelease(&l.qp.sq.done, op.posted)
	*w = provider.WC{WRID: op.id, QPNum: e.QPN(), Opcode: provider.WCTagSync}
	ok, count := e.TagResult()
	switch event {
	case wqe.TagAppended:
		w.Opcode = provider.WCTagAdd
	case wqe.TagRemoved:
		w.Opcode = provider.WCTagDelete
		if !ok {
			w.Status = uint32(uapi.IBV_WC_TM_ERR)
		}
	}
	if op.tag >= 0 {
		index := uint16(op.tag)
		if count != l.tags[index].handled {
			w.Flags = provider.WCTagSyncNeeded
		}
		l.free(index)
		// No message can match a removed tag.
		if event == wqe.TagRemoved && ok {
			l.free(index)
		}
	}
	if op.silent {
		return internal
	}
	return reported
}

// unmatched handles the CQE of a message in a receive: it matched no tag, or has none.
func (s *srq) unmatched(e *wqe.CQE, tail wqe.Tail, event wqe.TagEvent, w *provider.WC, f *freed) outcome {
	at := tail.Counter()
	if int(at) >= len(s.ids) {
		return unknownRequest
	}
	*w = provider.WC{WRID: s.ids[at], QPNum: e.QPN(), Opcode: provider.WCNoTag, ByteLen: e.ByteCount()}
	if event == wqe.TagUnexpected {
		w.Opcode = provider.WCTagRecv
		s.mu.Lock()
		l := s.tags
		if l.unexpected++; l.unexpected-l.handled > maxUnhandled {
			w.Flags = provider.WCTagSyncNeeded
		}
		s.mu.Unlock()
	}
	switch tail.Opcode() {
	case wqe.CQEResponderImm:
		w.Flags, w.Ex = w.Flags|uint32(uapi.IB_WC_WITH_IMM), e.Imm()
	case wqe.CQEResponderInv:
		w.Flags, w.Ex = w.Flags|uint32(uapi.IB_WC_WITH_INVALIDATE), e.Key()
	}
	f.add(s, at)
	return reported
}
