package transport_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/loop"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

func count(types []uint8, want uint8) (n int) {
	for _, x := range types {
		if x == want {
			n++
		}
	}
	return n
}

func TestSRQ(t *testing.T) {
	w := loop.New(2, loop.Options{})
	h, g := w.HCAs[0], w.HCAs[1]
	srq := g.NewSRQ(4, transport.SRQContext{})
	send, recv := h.NewCQ(8, cq.Size64), g.NewCQ(8, cq.Size64)
	var from, to []*loop.QP
	for i := range 3 {
		from = append(from, h.NewQP(send, send, transport.QPContext{Service: transport.RC}))
		to = append(to, g.NewQP(recv, recv, transport.QPContext{Service: transport.RC, RQType: transport.SharedRQ, SRQN: srq.Number, UserIndex: uint32(i + 0x70)}))
		loop.Connect(from[i], to[i], nil)
	}
	src, b := h.Alloc(4096)
	dst, d := g.Alloc(1 << 16)
	post := func() uint16 { return srq.Post(loop.Data(nil, dst, 4096, g.Lkey)) }
	for range 15 {
		post()
	}
	if err := g.Engine.ArmSRQ(srq.Number, 10); err != nil {
		t.Fatal(err)
	}
	poll := func(c *loop.CQ) loop.CQE {
		t.Helper()
		var e loop.CQE
		var ok bool
		if !w.Idle(loop.Second, func() bool { e, ok = c.Poll(); return ok }) {
			t.Fatal("no completion")
		}
		return e
	}
	for i := range 300 {
		binary.BigEndian.PutUint32(b, uint32(i))
		from[i%3].PostRing(loop.Data(loop.WQE(loop.Send, loop.Signaled, 0), src, 4, h.Lkey))
		poll(send)
		e := poll(recv)
		if e.Kind() != cq.ResponderSend || e.Index() != uint32(i%3+0x70) || e.QPN() != to[i%3].Number || binary.BigEndian.Uint32(d) != uint32(i) {
			t.Fatalf("message %d: %v, index %#x", i, &e, e.Index())
		}
		switch n := count(events(g), eq.TypeSRQLimit); {
		case i < 5 && n != 0, i >= 5 && n != 1:
			t.Fatalf("after %d messages: %d limit events", i+1, n)
		}
		srq.Return(e.Counter())
		if i >= 9 {
			post()
		}
	}
	// A queue pair in error doesn't consume the SRQ's WQEs.
	if err := g.Engine.ModifyQP(to[0].Number, transport.ToErr, 0, nil); err != nil {
		t.Fatal(err)
	}
	w.Idle(loop.Second, nil)
	if n := count(events(g), eq.TypeLastWQE); n != 1 {
		t.Errorf("%d events of the last WQE, want 1", n)
	}
	from[1].PostRing(loop.Data(loop.WQE(loop.Send, loop.Signaled, 0), src, 4, h.Lkey))
	if e := poll(recv); e.Kind() != cq.ResponderSend {
		t.Error(e.String())
	}
	if err := g.Engine.DestroySRQ(srq.Number); err != transport.ErrBusy {
		t.Errorf("destroyed in use: %v", err)
	}
	for _, q := range to {
		if err := g.Engine.DestroyQP(q.Number); err != nil {
			t.Error(err)
		}
	}
	if err := g.Engine.DestroySRQ(srq.Number); err != nil {
		t.Error(err)
	}
}

// xrc appends the segment that names an SRQ.
func xrc(b []byte, srqn uint32) []byte {
	b = binary.BigEndian.AppendUint32(b, srqn)
	return append(b, make([]byte, 12)...)
}

func TestXRC(t *testing.T) {
	w := loop.New(2, loop.Options{})
	h, g := w.HCAs[0], w.HCAs[1]
	send := h.NewCQ(8, cq.Size64)
	ini := h.NewQP(send, nil, transport.QPContext{Service: transport.XRC, RQType: transport.NoRQ})
	// The SRQ's PD is used, not the target's, whose keys don't exist.
	tgt := g.NewQP(g.NewCQ(4, cq.Size64), nil, transport.QPContext{Service: transport.XRC, RQType: transport.NoRQ, NoSQ: true, XRCD: 5, PD: 0x99})
	loop.Connect(ini, tgt, nil)
	var srqs []*loop.SRQ
	var cqs []*loop.CQ
	for i := range 2 {
		c := g.NewCQ(4, cq.Size64)
		cqs = append(cqs, c)
		srqs = append(srqs, g.NewSRQ(4, transport.SRQContext{XRC: true, XRCD: 5, CQN: c.Number, UserIndex: uint32(0x300 + i)}))
	}
	foreign := g.NewSRQ(4, transport.SRQContext{XRC: true, XRCD: 6, CQN: cqs[0].Number})
	src, b := h.Alloc(1 << 16)
	dst, d := g.Alloc(1 << 16)
	copy(b, "to one of two queues")
	poll := (&pair{T: t, w: w}).one
	for i, s := range []int{0, 1, 1, 0} {
		clear(d)
		x := srqs[s].Post(loop.Data(nil, dst, 10000, g.Lkey))
		ini.PostRing(loop.Data(xrc(loop.WQE(loop.SendImm, loop.Signaled, 5), srqs[s].Number), src, 5000, h.Lkey))
		if e := poll(send); e.Kind() != cq.Requester {
			t.Fatal(e.String())
		}
		e := poll(cqs[s])
		if e.Kind() != cq.ResponderSendImm || e.Index() != uint32(0x300+s) || e.Counter() != x || e.QPN() != tgt.Number || !bytes.Equal(d[:5000], b[:5000]) {
			t.Fatalf("message %d: %v, index %#x", i, &e, e.Index())
		}
	}
	ini.PostRing(loop.Data(loop.Raddr(xrc(loop.WQE(loop.Write, loop.Signaled, 0), srqs[0].Number), dst+8192, g.Lkey), src, 5000, h.Lkey))
	if e := poll(send); e.Kind() != cq.Requester || !bytes.Equal(d[8192:][:5000], b[:5000]) {
		t.Errorf("write: %v", &e)
	}
	ini.PostRing(loop.Data(loop.Raddr(xrc(loop.WQE(loop.Read, loop.Signaled, 0), srqs[0].Number), dst+8192, g.Lkey), src+8192, 5000, h.Lkey))
	if e := poll(send); e.Kind() != cq.Requester || !bytes.Equal(b[8192:][:5000], b[:5000]) {
		t.Errorf("read: %v", &e)
	}
	ini.PostRing(loop.Data(loop.Words(loop.Raddr(xrc(loop.WQE(loop.FA, loop.Signaled, 0), srqs[0].Number), dst, g.Lkey), 1, 0), src, 8, h.Lkey))
	if e := poll(send); e.Kind() != cq.Requester {
		t.Errorf("atomic: %v", &e)
	}
	ini.PostRing(loop.Data(xrc(loop.WQE(loop.Send, loop.Signaled, 5), foreign.Number), src, 5, h.Lkey))
	if e := poll(send); e.Kind() != cq.RequesterError || e.Syndrome() != cq.SyndromeRemoteInvalReq {
		t.Errorf("to an SRQ of another domain: %v", &e)
	}
}
