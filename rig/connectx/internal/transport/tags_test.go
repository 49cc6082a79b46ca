package transport_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/loop"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// tagOp is a WQE that changes a list of tags.
func tagOp(op, flags byte, index, count uint16, tag uint64) []byte {
	b := loop.WQE(0x28, 0, 0)
	b = append(b, op<<4, flags)
	b = binary.BigEndian.AppendUint16(b, index)
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint16(b, count)
	return loop.Words(b, 0, tag, ^uint64(0))
}

func tmh(op byte, tag uint64) []byte {
	return loop.Words([]byte{op, 0, 0, 0, 0, 0, 0, 9}, tag)
}

func TestTags(t *testing.T) {
	const count, report = 1 << 6, 1 << 7
	const nop, add, remove = 0, 1, 2
	const rndv, eager = 1, 3
	w := loop.New(2, loop.Options{})
	h, g := w.HCAs[0], w.HCAs[1]
	send, list := h.NewCQ(6, cq.Size64), g.NewCQ(6, cq.Size64)
	srq := g.NewSRQ(4, transport.SRQContext{TM: true, LogTags: 3, CQN: list.Number, UserIndex: 0x55})
	tagged := transport.QPContext{Service: transport.RC, RQType: transport.SharedRQ, SRQN: srq.Number}
	from, to := h.NewQP(send, send, transport.QPContext{Service: transport.RC}), g.NewQP(g.NewCQ(4, cq.Size64), g.NewCQ(4, cq.Size64), tagged)
	ops, other := g.NewQP(list, list, tagged), g.NewQP(list, list, tagged)
	loop.Connect(from, to, nil)
	loop.Connect(ops, other, nil)
	src, b := h.Alloc(1 << 16)
	dst, d := g.Alloc(1 << 16)
	poll := (&pair{T: t, w: w}).one
	reports := func(kind cq.Kind, op cq.MatchOp, index uint16) loop.CQE {
		t.Helper()
		e := poll(list)
		if e.Kind() != kind || e.Index() != 0x55 || e.Raw[40] != 1 || cq.MatchOp(e.Raw[41]) != op || binary.BigEndian.Uint16(e.Raw[42:]) != index {
			t.Fatalf("%v of %#x, %x; want %v, %d of tag %d", e.Kind(), e.Index(), e.Raw[40:44], kind, op, index)
		}
		return e
	}
	appends := func(next uint16, tag uint64, n int) {
		ops.PostRing(loop.Data(tagOp(add, report, next, 0, tag), dst, n, g.Lkey))
	}
	message := func(m []byte) {
		copy(b, m)
		from.PostRing(loop.Data(loop.WQE(loop.Send, loop.Signaled, 0), src, len(m), h.Lkey))
	}
	for i := range 4 {
		srq.Post(loop.Data(nil, dst+uint64(8192*(i+1)), 8192, g.Lkey))
		appends(uint16(i+1), uint64(i), 5000)
		if e := reports(cq.NoPacket, cq.MatchAppend, uint16(i)); e.Raw[0] != 0x80 {
			t.Errorf("%x", e.Raw)
		}
	}
	data := bytes.Repeat([]byte("data"), 1000)
	message(append(tmh(eager, 2), data...))
	poll(send)
	e := reports(cq.ResponderSend, cq.MatchConsumedMsg, 2)
	if e.Length() != len(data) || !bytes.Equal(e.Raw[:16], tmh(eager, 2)) || !bytes.Equal(d[:len(data)], data) || d[len(data)] != 0 {
		t.Errorf("matched: %d, %x", e.Length(), e.Raw[:16])
	}
	// Unexpected: it goes to a receive, and tags that are added wait.
	message(append(tmh(eager, 2), data...))
	poll(send)
	if e = reports(cq.ResponderSend, cq.MatchUnexpected, 0); e.Length() != 16+len(data) || !bytes.Equal(d[8192:][:16], tmh(eager, 2)) {
		t.Errorf("unexpected: %d, %x", e.Length(), d[8192:][:16])
	}
	appends(5, 7, 100)
	if e = reports(cq.NoPacket, cq.MatchAppend, 4); binary.BigEndian.Uint16(e.Raw[4:]) != 1 {
		t.Errorf("phase %x", e.Raw[:8])
	}
	message(tmh(eager, 7))
	poll(send)
	reports(cq.ResponderSend, cq.MatchUnexpected, 0)
	ops.PostRing(tagOp(nop, count|report, 0, 2, 0))
	reports(cq.NoPacket, cq.MatchNop, 0)
	if c, _ := g.Engine.QuerySRQ(srq.Number); c.NextTag != 5 || c.SoftwarePhase != 2 || c.DevicePhase != 2 {
		t.Errorf("next %d, phases %d and %d", c.NextTag, c.SoftwarePhase, c.DevicePhase)
	}
	message(tmh(eager, 7))
	poll(send)
	reports(cq.ResponderSend, cq.MatchConsumedMsg, 4)
	for _, success := range []byte{0x80, 0} {
		ops.PostRing(tagOp(remove, report, 3, 0, 0))
		if e = reports(cq.NoPacket, cq.MatchRemove, 3); e.Raw[0] != success {
			t.Errorf("removed: %x", e.Raw[0])
		}
	}
	// A rendezvous reads, and sends FIN.
	fin, f := h.Alloc(64)
	from.PostRecv(loop.Data(nil, fin, 64, h.Lkey))
	clear(d[:5000])
	copy(b[4096:], data)
	message(loop.Words(tmh(rndv, 1), src+4096, uint64(h.Lkey)<<32|uint64(len(data))))
	reports(cq.NoPacket, cq.MatchConsumed, 1)
	if e = reports(cq.ResponderSend, cq.MatchExpected, 1); e.Length() != len(data) || !bytes.Equal(d[:len(data)], data) {
		t.Errorf("rendezvous: %d", e.Length())
	}
	poll(send)
	if e = poll(send); e.Kind() != cq.ResponderSend || !bytes.Equal(f[:16], tmh(2, 1)) {
		t.Errorf("FIN: %v, %x", &e, f[:16])
	}
	// What doesn't fit ends the queue pair, and the tag.
	message(append(tmh(eager, 0), make([]byte, 5001)...))
	if e = poll(send); e.Kind() != cq.RequesterError {
		t.Error(e.String())
	}
	reports(cq.ResponderSend, cq.MatchCanceled, 0)
	if to.State() != transport.Err {
		t.Errorf("state %v", to.State())
	}
}
