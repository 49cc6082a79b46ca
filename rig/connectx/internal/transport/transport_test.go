package transport_test

import (
	"bytes"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/loop"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// pair has two connected queue pairs of two HCAs, and a buffer on each side.
type pair struct {
	*testing.T
	w     *loop.World
	a, b  *loop.QP
	aAddr uint64
	bAddr uint64
	aBuf  []byte
	bBuf  []byte

	timeouts uint32 // expected
}

const bufSize = 2 << 20

func newPair(t *testing.T, service transport.Service, o loop.Options, change func(q *loop.QP, c *transport.QPContext)) *pair {
	t.Helper()
	p := &pair{T: t, w: loop.New(2, o)}
	make1 := func(h *loop.HCA) *loop.QP {
		return h.NewQP(h.NewCQ(8, cq.Size64), h.NewCQ(8, cq.Size64), transport.QPContext{Service: service})
	}
	p.a, p.b = make1(p.w.HCAs[0]), make1(p.w.HCAs[1])
	p.aAddr, p.aBuf = p.a.H.Alloc(bufSize)
	p.bAddr, p.bBuf = p.b.H.Alloc(bufSize)
	for i := range p.aBuf {
		p.aBuf[i] = byte(i*7 + i>>8)
	}
	loop.Connect(p.a, p.b, change)
	return p
}

// one waits for a completion.
func (p *pair) one(c *loop.CQ) loop.CQE {
	p.Helper()
	var e loop.CQE
	var ok bool
	if !p.w.Idle(100*loop.Second, func() bool { e, ok = c.Poll(); return ok }) {
		p.Fatal("no completion")
	}
	return e
}

func (p *pair) want(c *loop.CQ, kind cq.Kind, syndrome uint8, counter uint16) loop.CQE {
	p.Helper()
	e := p.one(c)
	if e.Kind() != kind || e.Counter() != counter || kind >= cq.RequesterError && e.Syndrome() != syndrome {
		p.Fatalf("%v; want kind %d, syndrome %#x, WQE %d", &e, kind, syndrome, counter)
	}
	return e
}

func (p *pair) quiet() {
	p.Helper()
	if n := p.a.H.Engine.Counters(0).LocalAckTimeout + p.b.H.Engine.Counters(0).LocalAckTimeout; n != p.timeouts {
		p.Errorf("%d timeouts, want %d", n, p.timeouts)
	}
	p.w.Idle(loop.Second, nil)
	for _, c := range []*loop.CQ{p.a.Send, p.a.Recv, p.b.Send, p.b.Recv} {
		if e, ok := c.Poll(); ok {
			p.Errorf("unexpected completion: %v", &e)
		}
	}
}

var sizes = []int{1, 3, 31, 64, 1023, 1024, 1025, 4096, 65536, 1<<20 + 5}

func TestSend(t *testing.T) {
	for _, service := range []transport.Service{transport.RC, transport.UC} {
		p := newPair(t, service, loop.Options{}, nil)
		for i, n := range append([]int{0}, sizes...) {
			clear(p.bBuf)
			// Scattered over two segments.
			p.b.PostRecv(loop.Data(loop.Data(nil, p.bAddr, n/3+1, p.b.H.Lkey), p.bAddr+uint64(n/3)+1, n, p.b.H.Lkey))
			w := loop.WQE(loop.Send, loop.Signaled|loop.Solicited, 0)
			if n > 0 {
				w = loop.Data(w, p.aAddr, n, p.a.H.Lkey)
			}
			x := p.a.PostRing(w)
			if e := p.want(p.b.Recv, cq.ResponderSend, 0, uint16(i)); e.Length() != n || !e.Solicited() || e.QPN() != p.b.Number {
				t.Errorf("%d bytes: %v", n, &e)
			}
			if e := p.want(p.a.Send, cq.Requester, 0, x); e.Opcode() != loop.Send || e.QPN() != p.a.Number {
				t.Errorf("%d bytes: %v", n, &e)
			}
			if !bytes.Equal(p.aBuf[:n], p.bBuf[:n]) || p.bBuf[n] != 0 {
				t.Errorf("%d bytes: content differs", n)
			}
		}
		p.quiet()
	}
}

func TestWriteAndRead(t *testing.T) {
	p := newPair(t, transport.RC, loop.Options{}, nil)
	for _, n := range sizes {
		clear(p.bBuf)
		w := loop.Raddr(loop.WQE(loop.Write, loop.Signaled, 0), p.bAddr, p.b.H.Lkey)
		x := p.a.PostRing(loop.Data(w, p.aAddr, n, p.a.H.Lkey))
		p.want(p.a.Send, cq.Requester, 0, x)
		if !bytes.Equal(p.aBuf[:n], p.bBuf[:n]) || p.bBuf[n] != 0 {
			t.Errorf("write of %d bytes: content differs", n)
		}
		r := loop.Raddr(loop.WQE(loop.Read, loop.Signaled, 0), p.bAddr, p.b.H.Lkey)
		x = p.a.PostRing(loop.Data(r, p.aAddr+1<<20, min(n, 1<<20), p.a.H.Lkey))
		if e := p.want(p.a.Send, cq.Requester, 0, x); e.Length() != min(n, 1<<20) {
			t.Errorf("read: %v", &e)
		}
		if m := min(n, 1<<20); !bytes.Equal(p.bBuf[:m], p.aBuf[1<<20:][:m]) {
			t.Errorf("read of %d bytes: content differs", n)
		}
		p.b.PostRecv(nil)
		w = loop.Raddr(loop.WQE(loop.WriteImm, loop.Signaled, 0x01020304), p.bAddr+5, p.b.H.Lkey)
		x = p.a.PostRing(loop.Data(w, p.aAddr, n, p.a.H.Lkey))
		if e := p.one(p.b.Recv); e.Kind() != cq.ResponderWriteImm || e.Imm() != 0x01020304 || e.Length() != n {
			t.Errorf("write with immediate: %v", &e)
		}
		p.want(p.a.Send, cq.Requester, 0, x)
		if !bytes.Equal(p.aBuf[:n], p.bBuf[5:][:n]) {
			t.Errorf("write with immediate of %d bytes: content differs", n)
		}
	}
	p.quiet()
}

func TestInlineWrapsTheRing(t *testing.T) {
	p := newPair(t, transport.RC, loop.Options{}, nil)
	for i := range 200 {
		n := i * 4 % 300
		p.b.PostRecv(loop.Data(nil, p.bAddr, 4096, p.b.H.Lkey))
		x := p.a.PostRing(loop.Inline(loop.WQE(loop.SendImm, loop.Signaled, uint32(i)), p.aBuf[i:i+n]))
		if e := p.one(p.b.Recv); e.Imm() != uint32(i) || e.Length() != n || !bytes.Equal(p.bBuf[:n], p.aBuf[i:i+n]) {
			t.Fatalf("message %d: %v", i, &e)
		}
		p.want(p.a.Send, cq.Requester, 0, x)
	}
}

func TestDatagram(t *testing.T) {
	p := newPair(t, transport.UD, loop.Options{}, func(q *loop.QP, c *transport.QPContext) { c.MTU, c.LogMsgMax = 5, 12 })
	gid := p.b.H.Port.GID()
	for i, dgid := range []fabric.GID{{}, gid} {
		for _, n := range []int{0, 1, 100, 4096} {
			p.b.PostRecv(loop.Data(nil, p.bAddr, 40+4096, p.b.H.Lkey))
			w := loop.AV(loop.WQE(loop.SendImm, loop.Signaled, 7), 0x1234<<32, p.b.Number, p.b.H.Port.LID(), dgid)
			if n > 0 {
				w = loop.Data(w, p.aAddr, n, p.a.H.Lkey)
			}
			x := p.a.PostRing(w)
			p.want(p.a.Send, cq.Requester, 0, x)
			e := p.one(p.b.Recv)
			if e.Length() != 40+n || e.Imm() != 7 || e.RemoteQPN() != p.a.Number || e.GRH() != (i == 1) || e.SLID() != p.a.H.Port.LID() {
				t.Errorf("%d bytes: %v", n, &e)
			}
			if !bytes.Equal(p.bBuf[40:40+n], p.aBuf[:n]) {
				t.Errorf("%d bytes: content differs", n)
			}
			if i == 1 && (fabric.GID(p.bBuf[24:40]) != gid || p.bBuf[0]>>4 != 6) {
				t.Errorf("GRH % x", p.bBuf[:40])
			}
		}
	}
	// A wrong Q_Key is dropped silently.
	p.b.PostRecv(loop.Data(nil, p.bAddr, 4136, p.b.H.Lkey))
	x := p.a.PostRing(loop.Data(loop.AV(loop.WQE(loop.Send, loop.Signaled, 0), 0x1235<<32, p.b.Number, p.b.H.Port.LID(), fabric.GID{}), p.aAddr, 4, p.a.H.Lkey))
	p.want(p.a.Send, cq.Requester, 0, x)
	p.quiet()
}
