package transport

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
)

// tagList is an XRQ's list of tags. Software chooses their indices: each append names that
// of the next.
type tagList struct {
	entries  []tagEntry
	order    []uint16 // of the tags in the list, the first appended first
	next     uint16
	software uint16 // the number of unexpected messages that software has handled
	device   uint16 // the number of those that there were
}

// tagEntry is a tag with its buffer. While software has yet to handle an unexpected
// message, new tags wait: the message may be meant for one of them.
type tagEntry struct {
	listed    bool
	waits     bool
	tag, mask uint64
	buffer    segment
}

// Operations of a WQE on the list.
const (
	tagsNop    = 0
	tagsAppend = 1
	tagsRemove = 2

	tagsCount  = 1 << 6 // the WQE has software's count of unexpected messages
	tagsReport = 1 << 7 // it requests a completion

	sizeTagsWQE = 32
)

// changeTags executes a WQE on the list of the queue pair's XRQ.
func (q *QP) changeTags(w *sendWQE) {
	if len(w.raw) < 16+sizeTagsWQE {
		w.fail(cq.SyndromeLocalQPOp, vendorSegment)
		return
	}
	seg, l := w.raw[16:], &q.srq.tags
	be := binary.BigEndian
	op, flags, index := seg[0]>>4, seg[1], be.Uint16(seg[2:])
	m := cq.Match{Success: true}
	if op != tagsNop && int(index) >= len(l.entries) {
		q.e.violation("WQE %d of QP %#x names tag %d, and there are %d", w.index, q.number, index, len(l.entries))
		w.fail(cq.SyndromeLocalQPOp, vendorSegment)
		return
	}
	if flags&tagsCount != 0 {
		l.software = be.Uint16(seg[6:])
		l.sync()
	}
	switch op {
	case tagsNop:
		m.Op = cq.MatchNop
	case tagsAppend:
		m.Op, m.Index = cq.MatchAppend, l.next
		rest := seg[sizeTagsWQE:]
		if len(rest) < 16 {
			w.fail(cq.SyndromeLocalQPOp, vendorSegment)
			return
		}
		t := &l.entries[l.next]
		if t.listed {
			q.e.violation("WQE %d of QP %#x appends tag %d, which is in the list", w.index, q.number, l.next)
			w.fail(cq.SyndromeLocalQPOp, vendorSegment)
			return
		}
		*t = tagEntry{
			listed: true, waits: l.software != l.device,
			tag: be.Uint64(seg[16:]), mask: be.Uint64(seg[24:]),
		}
		if n, key := be.Uint32(rest), be.Uint32(rest[4:]); n != 0 || key != mkey.InvalidLkey {
			t.buffer = segment{int(n & (1<<31 - 1)), key, be.Uint64(rest[8:])}
		}
		l.order = append(l.order, l.next)
		l.next = index
	case tagsRemove:
		m.Op, m.Index = cq.MatchRemove, index
		m.Success = l.remove(index)
	default:
		w.fail(cq.SyndromeLocalQPOp, vendorOpcode)
		return
	}
	if flags&tagsReport != 0 {
		m.Phase = l.device
		q.postMatch(cq.NoPacket, m, 0)
	}
}

// sync lets the tags that wait match, if software has handled all unexpected messages.
func (l *tagList) sync() {
	if l.software != l.device {
		return
	}
	for _, i := range l.order {
		l.entries[i].waits = false
	}
}

func (l *tagList) remove(index uint16) bool {
	for i, at := range l.order {
		if at == index {
			l.order = append(l.order[:i], l.order[i+1:]...)
			l.entries[index].listed = false
			return true
		}
	}
	return false
}

// find removes the first tag that a message matches.
func (l *tagList) find(tag uint64) (index uint16, ok bool) {
	for _, i := range l.order {
		if t := &l.entries[i]; !t.waits && (t.tag^tag)&t.mask == 0 {
			l.remove(i)
			return i, true
		}
	}
	return 0, false
}

// postMatch posts a completion of the queue pair's XRQ.
func (q *QP) postMatch(kind cq.Kind, m cq.Match, n int) {
	cqn, index := q.recvTarget()
	q.postTo(cqn, &cq.Completion{Kind: kind, QPN: q.number, UserIndex: index, ByteCount: uint32(n), Match: m})
}

// cancelTag ends a tag whose message matched but will never be complete.
func (q *QP) cancelTag(index uint16) {
	q.postMatch(cq.ResponderSend, cq.Match{Op: cq.MatchCanceled, Index: index}, 0)
}
