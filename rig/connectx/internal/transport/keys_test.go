package transport_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/loop"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// bind returns the UMR that binds a type 2 window to memory, as libmlx5 builds it: an
// inline KLM, and the mask of the changed fields.
func bind(index uint32, key byte, qpn uint32, parent uint32, addr uint64, n uint32, rights byte) []byte {
	const (
		inlineFlag  = 1 << 7
		checkQPN    = 1 << 2
		maskLen     = 1 << 0
		maskStart   = 1 << 6
		maskQPN     = 1 << 14
		maskKey     = 1 << 13
		maskRights  = 1<<17 | 1<<18 | 1<<19 | 1<<20 | 1<<21
		maskFree    = 1 << 29
		rightsShift = 2
	)
	b := loop.WQE(loop.UMR, loop.Signaled, index<<8)
	ctrl := make([]byte, 48)
	ctrl[0] = inlineFlag | checkQPN
	binary.BigEndian.PutUint16(ctrl[4:], 4)
	binary.BigEndian.PutUint64(ctrl[8:], maskLen|maskStart|maskQPN|maskKey|maskRights|maskFree)
	m := make([]byte, 64)
	m[2] = rights | 1<<7
	binary.BigEndian.PutUint32(m[4:], qpn<<8|uint32(key))
	binary.BigEndian.PutUint64(m[16:], addr)
	binary.BigEndian.PutUint64(m[24:], uint64(n))
	b = append(append(b, ctrl...), m...)
	klm := binary.BigEndian.AppendUint32(nil, n)
	klm = binary.BigEndian.AppendUint32(klm, parent)
	klm = binary.BigEndian.AppendUint64(klm, addr)
	return append(b, append(klm, make([]byte, 48)...)...)
}

func TestWindow(t *testing.T) {
	p := newPair(t, transport.RC, loop.Options{}, nil)
	h := p.b.H
	window := h.Key(mkey.Context{Mode: mkey.KLM, Free: true, UMREnabled: true, RemoteInvalidate: true, PD: loop.PD, QPN: mkey.AnyQP, Octowords: 4}) >> 8
	x := p.b.PostRing(bind(window, 0x42, p.b.Number, h.Lkey, p.bAddr+4096, 4096, 0x3c))
	if e := p.want(p.b.Send, cq.Requester, 0, x); e.Opcode() != loop.UMR {
		t.Error(e.String())
	}
	rkey := window<<8 | 0x42
	write := func(addr uint64, n int) uint16 {
		return p.a.PostRing(loop.Data(loop.Raddr(loop.WQE(loop.Write, loop.Signaled, 0), addr, rkey), p.aAddr, n, p.a.H.Lkey))
	}
	p.want(p.a.Send, cq.Requester, 0, write(p.bAddr+4096, 4096))
	if !bytes.Equal(p.bBuf[4096:8192], p.aBuf[:4096]) {
		t.Error("content differs")
	}
	// The peer invalidates it.
	p.b.PostRecv(nil)
	x = p.a.PostRing(loop.WQE(loop.SendInv, loop.Signaled, rkey))
	p.want(p.a.Send, cq.Requester, 0, x)
	if e := p.want(p.b.Recv, cq.ResponderSendInv, 0, 0); e.Imm() != rkey {
		t.Errorf("invalidated %#x, want %#x", e.Imm(), rkey)
	}
	p.want(p.a.Send, cq.RequesterError, cq.SyndromeRemoteAccess, write(p.bAddr+4096, 1))
	if n := count(events(h), eq.TypeQPAccess); n != 1 {
		t.Errorf("%d access events, want 1", n)
	}
}

func TestWindowBounds(t *testing.T) {
	p := newPair(t, transport.RC, loop.Options{}, nil)
	h := p.b.H
	window := h.Key(mkey.Context{Mode: mkey.KLM, Free: true, UMREnabled: true, PD: loop.PD, QPN: mkey.AnyQP, Octowords: 4}) >> 8
	p.want(p.b.Send, cq.Requester, 0, p.b.PostRing(bind(window, 1, p.b.Number, h.Lkey, p.bAddr, 100, 0x3c)))
	x := p.a.PostRing(loop.Data(loop.Raddr(loop.WQE(loop.Write, loop.Signaled, 0), p.bAddr+1, window<<8|1), p.aAddr, 100, p.a.H.Lkey))
	p.want(p.a.Send, cq.RequesterError, cq.SyndromeRemoteAccess, x)
}

func TestScatterToCQE(t *testing.T) {
	for _, c := range []struct {
		size     cq.Size
		req, res uint8
		room     int
	}{{cq.Size64, 0x11, 1, 32}, {cq.Size128, 0x22, 2, 64}, {cq.Size64, 0, 0, 0}} {
		w := loop.New(2, loop.Options{})
		h, g := w.HCAs[0], w.HCAs[1]
		p := &pair{T: t, w: w}
		p.a = h.NewQP(h.NewCQ(6, c.size), h.NewCQ(6, c.size), transport.QPContext{Service: transport.RC, CSReq: c.req, CSRes: c.res})
		p.b = g.NewQP(g.NewCQ(6, c.size), g.NewCQ(6, c.size), transport.QPContext{Service: transport.RC, CSReq: c.req, CSRes: c.res})
		loop.Connect(p.a, p.b, nil)
		src, a := h.Alloc(8192)
		dst, b := g.Alloc(8192)
		for i := range a {
			a[i], b[i] = byte(i+1), byte(i+100)
		}
		where := func(e loop.CQE, memory []byte, n int) []byte {
			switch e.Format() {
			case 1:
				return e.Raw[:n]
			case 2:
				return e.Large[:n]
			}
			return memory[:n]
		}
		for _, n := range []int{1, 8, 31, 32, 33, 64, 65, 2000} {
			p.b.PostRecv(loop.Data(nil, dst+4096, 4096, g.Lkey))
			p.a.PostRing(loop.Data(loop.WQE(loop.Send, loop.Signaled, 0), src, n, h.Lkey))
			e := p.one(p.b.Recv)
			if (e.Format() != 0) != (n <= c.room) || e.Length() != n || !bytes.Equal(where(e, b[4096:], n), a[:n]) {
				t.Errorf("send of %d bytes: format %d, %v", n, e.Format(), &e)
			}
			p.one(p.a.Send)
			p.a.PostRing(loop.Data(loop.Raddr(loop.WQE(loop.Read, loop.Signaled, 0), dst, g.Lkey), src+4096, n, h.Lkey))
			e = p.one(p.a.Send)
			if (e.Format() != 0) != (n <= c.room) || e.Length() != n || !bytes.Equal(where(e, a[4096:], n), b[:n]) {
				t.Errorf("read of %d bytes: format %d, %v", n, e.Format(), &e)
			}
		}
	}
}

func TestFence(t *testing.T) {
	p := newPair(t, transport.RC, loop.Options{}, nil)
	// The data must be sent after it was read, which only a fence ensures.
	copy(p.bBuf, "fresh")
	p.b.PostRecv(loop.Data(nil, p.bAddr+4096, 5, p.b.H.Lkey))
	p.a.Post(loop.Data(loop.Raddr(loop.WQE(loop.Read, 0, 0), p.bAddr, p.b.H.Lkey), p.aAddr, 5, p.a.H.Lkey))
	x := p.a.PostRing(loop.Data(loop.WQE(loop.Send, loop.Signaled|loop.Fence, 0), p.aAddr, 5, p.a.H.Lkey))
	p.want(p.a.Send, cq.Requester, 0, x)
	if got := string(p.bBuf[4096:][:5]); got != "fresh" {
		t.Errorf("sent %q", got)
	}
	p.want(p.b.Recv, cq.ResponderSend, 0, 0)
	p.quiet()
}
