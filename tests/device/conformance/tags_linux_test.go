package conformance

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// A tagPair is a sender, and a receiver whose SRQ matches tags.
type tagPair struct {
	t          *testing.T
	c          *verbs.Device
	pd         *verbs.PD
	mr         *verbs.MR
	sendCQ, cq *verbs.CQ
	srq        *verbs.SRQ
	from, to   *verbs.QP
}

// The parts of the pair's memory.
const (
	tagOut  = 0 // messages to send
	tagHits = 8192
	tagIn   = 32768 // receives, of 8 KiB each

	tagMaximum = 6
	tagRoom    = 8192
)

func newTagPair(t *testing.T) *tagPair {
	t.Helper()
	c := rdmatest.Open(t)
	p := &tagPair{t: t, c: c, pd: rdmatest.Must(c.AllocPD())(t)}
	p.mr = rdmatest.Must(p.pd.AllocMR(128<<10, verbs.MROptions{Access: rdmatest.All}))(t)
	p.sendCQ = rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 64}))(t)
	p.cq = rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 64, Fields: verbs.WCFieldTag}))(t)
	p.srq = rdmatest.Must(p.pd.CreateSRQ(verbs.SRQOptions{MaxWR: 8, MaxSGE: 1, CQ: p.cq, TagMatching: verbs.TagMatching{MaxTags: tagMaximum, MaxOps: 16}}))(t)
	caps := verbs.QPCap{MaxSendWR: 8, MaxSendSGE: 1, MaxRecvWR: 8, MaxRecvSGE: 1}
	p.from = rdmatest.Must(p.pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: p.sendCQ, RecvCQ: p.sendCQ, Cap: caps}))(t)
	p.to = rdmatest.Must(p.pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: p.sendCQ, RecvCQ: p.sendCQ, SRQ: p.srq, Cap: caps}))(t)
	gid := rdmatest.GID(t, c)
	a, b := rdmatest.Must(p.from.Endpoint(gid))(t), rdmatest.Must(p.to.Endpoint(gid))(t)
	o := verbs.ConnectOptions{Access: rdmatest.All &^ verbs.AccessLocalWrite, MTU: verbs.MTU1024}
	rdmatest.Check(t, p.from.Connect(b, o))
	rdmatest.Check(t, p.to.Connect(a, o))
	for i := range 8 {
		rdmatest.Must(p.srq.PostRecv(verbs.RecvWR{WRID: uint64(100 + i), SGL: []verbs.SGE{p.mr.SGE(tagIn+tagRoom*i, tagRoom)}}))(t)
	}
	return p
}

// post posts operations, all of which are accepted.
func (p *tagPair) post(ops ...verbs.TagOp) {
	p.t.Helper()
	if n, err := p.srq.PostTagOps(ops); n != len(ops) || err != nil {
		p.t.Fatalf("posted %d of %d operations: %v", n, len(ops), err)
	}
}

// add adds a tag whose messages go to tagHits, and returns its handle.
func (p *tagPair) add(recv, tag, mask uint64, flags verbs.WCFlags) uint32 {
	p.t.Helper()
	ops := []verbs.TagOp{{WRID: 1, Op: verbs.TagAdd, Flags: verbs.TagSignaled, RecvWRID: recv, Buffer: p.mr.SGE(tagHits, tagRoom), Tag: tag, Mask: mask}}
	p.post(ops...)
	p.completes(verbs.WC{WRID: 1, Opcode: verbs.WCTagAdd, Flags: flags})
	return ops[0].Handle
}

// send sends a message, and waits until it was received.
func (p *tagPair) send(h verbs.TagHeader, data []byte) []byte {
	p.t.Helper()
	message := append(h.Append(nil), data...)
	copy(p.mr.Bytes()[tagOut:], message)
	rdmatest.Must(p.from.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.mr.SGE(tagOut, len(message))}}))(p.t)
	rdmatest.PollOK(p.t, p.sendCQ, 1)
	return message
}

// next returns the next completion of the SRQ.
func (p *tagPair) next() verbs.WCEx {
	p.t.Helper()
	var wc [1]verbs.WCEx
	for deadline := time.Now().Add(rdmatest.Patience); ; {
		if n := rdmatest.Must(p.cq.PollEx(wc[:]))(p.t); n == 1 {
			return wc[0]
		}
		if time.Now().After(deadline) {
			p.t.Fatal("no completion")
		}
	}
}

// completes checks the next completion's status, opcode, request, flags and length.
func (p *tagPair) completes(want verbs.WC) verbs.WCEx {
	p.t.Helper()
	wc := p.next()
	if wc.Status != want.Status || wc.Opcode != want.Opcode || wc.WRID != want.WRID || wc.Flags != want.Flags || wc.ByteLen != want.ByteLen {
		p.t.Fatalf("completed: %v, %v, request %d, flags %v, %d bytes; want %v, %v, request %d, flags %v, %d bytes",
			wc.Status, wc.Opcode, wc.WRID, wc.Flags, wc.ByteLen, want.Status, want.Opcode, want.WRID, want.Flags, want.ByteLen)
	}
	return wc
}

// receives checks that the next completion is of a receive with the whole message.
func (p *tagPair) receives(op verbs.WCOpcode, message []byte) {
	p.t.Helper()
	wc := p.next()
	if wc.Status != verbs.WCSuccess || wc.Opcode != op || wc.Flags != 0 || wc.WRID < 100 || int(wc.ByteLen) != len(message) || wc.Tag != 0 || wc.TagContext != 0 {
		p.t.Fatalf("received %+v", wc)
	}
	at := tagIn + tagRoom*int(wc.WRID-100)
	if got := p.mr.Bytes()[at:][:len(message)]; !bytes.Equal(got, message) {
		p.t.Fatalf("received %.40x, want %.40x", got, message)
	}
	rdmatest.Must(p.srq.PostRecv(verbs.RecvWR{WRID: wc.WRID, SGL: []verbs.SGE{p.mr.SGE(at, tagRoom)}}))(p.t)
}

// hit checks that the buffer of the tags contains only the data.
func (p *tagPair) hit(data []byte) {
	p.t.Helper()
	want := make([]byte, tagRoom)
	copy(want, data)
	if !bytes.Equal(p.mr.Bytes()[tagHits:][:tagRoom], want) {
		p.t.Fatalf("a tag's buffer has %.40x, want %.40x", p.mr.Bytes()[tagHits:], want)
	}
}

const tagHit = verbs.WCTagMatched | verbs.WCTagData

// matches sends a message that matches a tag, and checks that it arrives in the tag's buffer.
func (p *tagPair) matches(recv, tag uint64, n int) {
	p.t.Helper()
	data := rdmatest.Pattern(n, int(tag))
	clear(p.mr.Bytes()[tagHits:][:tagRoom])
	p.send(verbs.TagHeader{Op: verbs.TagHeaderEager, Context: 77, Tag: tag}, data)
	if wc := p.completes(verbs.WC{WRID: recv, Opcode: verbs.WCTagRecv, Flags: tagHit, ByteLen: uint32(n)}); wc.Tag != tag || wc.TagContext != 77 {
		p.t.Fatalf("matched tag %#x, %d; want %#x, 77", wc.Tag, wc.TagContext, tag)
	}
	p.hit(data)
}

// onTags reports whether the device matches tags: mlx5 with InfiniBand ports. Other devices
// must refuse.
func onTags(t *testing.T) bool {
	t.Helper()
	if rdmatest.KindOf() == rdmatest.MLX5 && !rdmatest.RoCE {
		return true
	}
	c := rdmatest.Open(t)
	pd := rdmatest.Must(c.AllocPD())(t)
	cq := rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 16}))(t)
	if _, err := pd.CreateSRQ(verbs.SRQOptions{MaxWR: 8, MaxSGE: 1, CQ: cq, TagMatching: verbs.TagMatching{MaxTags: 4, MaxOps: 4}}); !errors.Is(err, verbs.ErrNotSupported) {
		t.Errorf("%v", err)
	}
	return false
}

// TestTagMatch: messages go to the buffers of the first tags that match.
func TestTagMatch(t *testing.T) {
	if !onTags(t) {
		return
	}
	p := newTagPair(t)
	p.add(10, 5, ^uint64(0), 0)
	p.add(11, 6, ^uint64(0), 0)
	p.add(12, 6, ^uint64(0), 0)
	p.add(13, 0xab00, 0xff00, 0)
	p.matches(11, 6, 100)
	p.matches(12, 6, 1)
	p.matches(13, 0x77ab33, 5000)
	p.matches(10, 5, 0)
	// More messages than tags, so that each tag is reused.
	for i := range 3 * tagMaximum {
		p.add(uint64(i), uint64(i), ^uint64(0), 0)
		p.matches(uint64(i), uint64(i), 10*i)
	}
}

// TestTagUnexpected: messages that match nothing go to receives, and new tags wait for a sync.
func TestTagUnexpected(t *testing.T) {
	if !onTags(t) {
		return
	}
	p := newTagPair(t)
	eager := verbs.TagHeader{Op: verbs.TagHeaderEager, Tag: 9}
	p.receives(verbs.WCNoTag, p.send(verbs.TagHeader{Tag: 9}, []byte("without a tag")))
	p.add(10, 8, ^uint64(0), 0)
	p.receives(verbs.WCTagRecv, p.send(eager, rdmatest.Pattern(3000, 1)))
	p.matches(10, 8, 20) // it was in the list before
	p.add(11, 9, ^uint64(0), verbs.WCTagSyncNeeded)
	p.receives(verbs.WCTagRecv, p.send(eager, []byte("the tag waits")))
	p.post(verbs.TagOp{WRID: 3, Op: verbs.TagSync, Flags: verbs.TagSignaled | verbs.TagCount, Unexpected: 1})
	p.completes(verbs.WC{WRID: 3, Opcode: verbs.WCTagSync})
	p.receives(verbs.WCTagRecv, p.send(eager, []byte("it still waits")))
	p.post(verbs.TagOp{WRID: 4, Op: verbs.TagSync, Flags: verbs.TagSignaled | verbs.TagCount, Unexpected: 3})
	p.completes(verbs.WC{WRID: 4, Opcode: verbs.WCTagSync})
	p.matches(11, 9, 30)
	// An operation that adds a tag can also report the count.
	p.receives(verbs.WCTagRecv, p.send(eager, nil))
	p.post(verbs.TagOp{WRID: 5, Op: verbs.TagAdd, Flags: verbs.TagSignaled | verbs.TagCount, Unexpected: 4, RecvWRID: 12, Buffer: p.mr.SGE(tagHits, tagRoom), Tag: 9, Mask: 0xff})
	p.completes(verbs.WC{WRID: 5, Opcode: verbs.WCTagAdd})
	p.matches(12, 9, 40)
	if h, rest, ok := verbs.ParseTagHeader(append(eager.Append(nil), 1, 2)); !ok || h != eager || !bytes.Equal(rest, []byte{1, 2}) {
		t.Errorf("parsed %+v, %v, %v", h, rest, ok)
	}
}

// TestTagDelete deletes tags, before and after a message matched.
func TestTagDelete(t *testing.T) {
	if !onTags(t) {
		return
	}
	p := newTagPair(t)
	first, second, third := p.add(10, 1, ^uint64(0), 0), p.add(11, 2, ^uint64(0), 0), p.add(12, 3, ^uint64(0), 0)
	p.post(verbs.TagOp{WRID: 7, Op: verbs.TagDelete, Flags: verbs.TagSignaled, Handle: second})
	p.completes(verbs.WC{WRID: 7, Opcode: verbs.WCTagDelete})
	p.receives(verbs.WCTagRecv, p.send(verbs.TagHeader{Op: verbs.TagHeaderEager, Tag: 2}, []byte("deleted")))
	p.post(verbs.TagOp{Op: verbs.TagSync, Flags: verbs.TagCount, Unexpected: 1})

	p.send(verbs.TagHeader{Op: verbs.TagHeaderEager, Tag: 1}, []byte("faster"))
	p.post(verbs.TagOp{WRID: 8, Op: verbs.TagDelete, Flags: verbs.TagSignaled, Handle: first})
	p.completes(verbs.WC{WRID: 10, Opcode: verbs.WCTagRecv, Flags: tagHit, ByteLen: 6})
	p.completes(verbs.WC{WRID: 8, Opcode: verbs.WCTagDelete, Status: verbs.WCTagErr, Flags: verbs.WCTagSyncNeeded}) // since it was added
	for _, handle := range []uint32{first, second, 1000} {
		if n, err := p.srq.PostTagOps([]verbs.TagOp{{Op: verbs.TagDelete, Handle: handle}}); n != 0 || !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("deleted tag %d, which is not in the list: %d, %v", handle, n, err)
		}
	}
	// A deletion without a completion.
	p.post(verbs.TagOp{Op: verbs.TagDelete, Handle: third}, verbs.TagOp{WRID: 9, Op: verbs.TagSync, Flags: verbs.TagSignaled})
	p.completes(verbs.WC{WRID: 9, Opcode: verbs.WCTagSync})

	// All tags are free again.
	for i := range tagMaximum {
		p.add(uint64(i), uint64(i), ^uint64(0), 0)
	}
	if _, err := p.srq.PostTagOps([]verbs.TagOp{{Op: verbs.TagAdd}}); !errors.Is(err, verbs.ErrQueueFull) {
		t.Errorf("one tag more than the list holds: %v", err)
	}
	for i := range tagMaximum {
		p.matches(uint64(i), uint64(i), 64)
	}
}

// TestTagRendezvous: the device reads the data itself, and notifies the sender.
func TestTagRendezvous(t *testing.T) {
	if !onTags(t) {
		return
	}
	p := newTagPair(t)
	const from, fin = tagIn - 16384, tagIn - 64
	for i, n := range []int{1, 5000} {
		h := verbs.TagHeader{Op: verbs.TagHeaderRendezvous, Context: 3, Tag: uint64(20 + i)}
		source := verbs.TagSource{Remote: p.mr.Remote().At(from), Length: uint32(n)}
		rdmatest.Fill(p.mr.Bytes()[from:][:n], i)
		clear(p.mr.Bytes()[tagHits:][:tagRoom])
		rdmatest.Must(p.from.PostRecv(verbs.RecvWR{WRID: 50, SGL: []verbs.SGE{p.mr.SGE(fin, 64)}}))(t)
		p.add(10, h.Tag, ^uint64(0), 0)
		message := append(source.Append(h.Append(nil)), "and more"...)
		copy(p.mr.Bytes()[tagOut:], message)
		rdmatest.Must(p.from.PostSend(verbs.SendWR{WRID: 51, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.mr.SGE(tagOut, len(message))}}))(t)
		if wc := p.completes(verbs.WC{WRID: 10, Opcode: verbs.WCTagRecv, Flags: verbs.WCTagMatched}); wc.Tag != h.Tag || wc.TagContext != 3 {
			t.Errorf("matched %#x, %d", wc.Tag, wc.TagContext)
		}
		p.completes(verbs.WC{WRID: 10, Opcode: verbs.WCTagRecv, Flags: verbs.WCTagData, ByteLen: uint32(n)})
		p.hit(rdmatest.Pattern(n, i))
		sent, received := false, false
		for _, wc := range rdmatest.PollOK(t, p.sendCQ, 2) {
			sent = sent || wc.WRID == 51 && wc.Opcode == verbs.WCSend
			received = received || wc.WRID == 50 && wc.Opcode == verbs.WCRecv && wc.ByteLen == verbs.TagHeaderSize
		}
		if !sent || !received {
			t.Errorf("sent: %v, told: %v", sent, received)
		}
		h.Op = verbs.TagHeaderFinish
		if got, _, _ := verbs.ParseTagHeader(p.mr.Bytes()[fin:][:16]); got != h {
			t.Errorf("the sender got %+v, want %+v", got, h)
		}
	}
	// The device leaves a message that is longer than the buffer to the program.
	p.add(10, 30, ^uint64(0), 0)
	source := verbs.TagSource{Remote: p.mr.Remote().At(from), Length: tagRoom + 1}
	p.send(verbs.TagHeader{Op: verbs.TagHeaderRendezvous, Tag: 30}, source.Append(nil))
	if wc := p.next(); wc.WRID != 10 || wc.Status != verbs.WCTagIncomplete {
		t.Errorf("%+v", wc)
	}
	// It also leaves a message that matches no tag.
	p.receives(verbs.WCTagRecv, p.send(verbs.TagHeader{Op: verbs.TagHeaderRendezvous, Tag: 31}, source.Append(nil)))
}

// TestTagLimits: wrong operations are refused, and leave nothing behind.
func TestTagLimits(t *testing.T) {
	if !onTags(t) {
		return
	}
	p := newTagPair(t)
	tm := rdmatest.Must(p.c.QueryDevice())(t).TM
	if tm.MaxNumTags < tagMaximum || tm.MaxOps < 16 || tm.MaxSGE != 1 || tm.Flags != verbs.TMCapRC || tm.MaxRndvHdrSize == 0 {
		t.Errorf("%+v", tm)
	}
	for _, o := range []verbs.SRQOptions{
		{MaxWR: 8, TagMatching: verbs.TagMatching{MaxTags: 1, MaxOps: 1}},
		{MaxWR: 8, CQ: p.cq, TagMatching: verbs.TagMatching{MaxTags: int(tm.MaxNumTags) + 1, MaxOps: 1}},
		{MaxWR: 8, CQ: p.cq, TagMatching: verbs.TagMatching{MaxTags: 1}},
		{MaxWR: 8, CQ: p.cq, TagMatching: verbs.TagMatching{MaxOps: 1}},
		{MaxWR: 8, CQ: p.cq, TagMatching: verbs.TagMatching{MaxTags: 1, MaxOps: int(tm.MaxOps) + 1}},
	} {
		if srq, err := p.pd.CreateSRQ(o); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
			srq.Close()
		}
	}
	for _, op := range []verbs.TagOp{{Op: 3}, {Op: verbs.TagSync, Flags: 4}} {
		if n, err := p.srq.PostTagOps([]verbs.TagOp{{Op: verbs.TagSync, Flags: verbs.TagSignaled, WRID: 2}, op}); n != 1 || err == nil {
			t.Errorf("%+v: %d, %v", op, n, err)
		}
		p.completes(verbs.WC{WRID: 2, Opcode: verbs.WCTagSync})
	}
	// The queue of operations fills up, and completions free it.
	full := 0
	for range 1000 {
		if _, err := p.srq.PostTagOps([]verbs.TagOp{{Op: verbs.TagSync, Flags: verbs.TagSignaled, WRID: uint64(full)}}); err != nil {
			if !errors.Is(err, verbs.ErrQueueFull) {
				t.Fatal(err)
			}
			break
		}
		full++
	}
	if full < 16 || full == 1000 {
		t.Errorf("%d operations fit", full)
	}
	for i := range full {
		p.completes(verbs.WC{WRID: uint64(i), Opcode: verbs.WCTagSync})
	}
	ops := []verbs.TagOp{
		{Op: verbs.TagAdd, Buffer: p.mr.SGE(tagHits, 8), Tag: 1, Mask: 1}, {Op: verbs.TagSync, Flags: verbs.TagSignaled},
	}
	var wc [4]verbs.WCEx
	allocs := testing.AllocsPerRun(20, func() {
		p.post(ops...)
		p.post(verbs.TagOp{Op: verbs.TagDelete, Handle: ops[0].Handle, Flags: verbs.TagSignaled})
		for n := 0; n < 2; {
			m, err := p.cq.PollEx(wc[:])
			if err != nil {
				t.Fatal(err)
			}
			n += m
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	// An SRQ in use remains usable after a refused Close.
	if err := p.srq.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("closed an SRQ with a QP: %v", err)
	}
	p.add(10, 1, 1, 0)
	p.matches(10, 1, 10)
	if attr, err := p.srq.Query(); err != nil || attr.MaxWR < 8 {
		t.Errorf("%+v, %v", attr, err)
	}
	rdmatest.Check(t, p.srq.SetLimit(2))
	rdmatest.Check(t, p.to.Close())
	rdmatest.Check(t, p.srq.Close())
	if _, err := p.srq.PostTagOps([]verbs.TagOp{{Op: verbs.TagSync}}); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("posted to a closed SRQ: %v", err)
	}
}
