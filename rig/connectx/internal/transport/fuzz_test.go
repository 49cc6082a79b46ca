package transport_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/loop"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// rounds is more work than a fuzzer's input can legitimately cause: a message has at most
// 64 KiB here.
const rounds = 20000

// settle runs the world until it is idle, and fails the test if that takes too long.
func settle(t *testing.T, w *loop.World) {
	t.Helper()
	until := w.Steps + rounds
	w.Idle(loop.Second, func() bool { return w.Steps > until })
	if w.Steps > until {
		t.Fatal("it doesn't become idle")
	}
}

var services = []transport.Service{transport.RC, transport.UC, transport.UD, transport.XRC, transport.DCI}

func fuzzPair(t *testing.T, service transport.Service, recv, roce bool) *pair {
	w := loop.New(2, loop.Options{RAM: 1 << 20, RoCE: roce, Violation: func(error) {}})
	p := &pair{T: t, w: w}
	make1 := func(h *loop.HCA) *loop.QP {
		c := transport.QPContext{Service: service, LogSQSize: 4, LogRQSize: 2, LogRQStride: 1, WQSignature: false, CSReq: 0x11, CSRes: 1}
		if service == transport.XRC || service == transport.DCI {
			c.RQType = transport.NoRQ
		}
		return h.NewQP(h.NewCQ(8, cq.Size64), h.NewCQ(8, cq.Size64), c)
	}
	p.a, p.b = make1(w.HCAs[0]), make1(w.HCAs[1])
	p.aAddr, p.aBuf = p.a.H.Alloc(4096)
	p.bAddr, p.bBuf = p.b.H.Alloc(4096)
	loop.Connect(p.a, p.b, func(q *loop.QP, c *transport.QPContext) { c.MTU, c.LogMsgMax, c.RNRRetry, c.RetryCount = 1, 16, 1, 1 })
	if recv {
		for range 3 {
			p.b.PostRecv(loop.Data(nil, p.bAddr, 4096, p.b.H.Lkey))
		}
	}
	return p
}

// FuzzWQE posts arbitrary send WQEs. The first byte chooses the service and whether RoCE
// is used. In half of the cases, the control segment is corrected.
func FuzzWQE(f *testing.F) {
	for i := range services {
		b := loop.Raddr(loop.WQE(loop.Write, loop.Signaled, 0), loop.Base+8192, 0x1000)
		f.Add(append([]byte{byte(i)}, loop.Data(b, loop.Base+4096, 64, 0x1000)...))
		f.Add(append([]byte{byte(i) | 0x80}, loop.Inline(loop.AV(loop.WQE(loop.SendImm, 0, 0), 0x1234<<32, 0x50, 2, [16]byte{}), []byte("inline"))...))
		f.Add(append([]byte{byte(i) | 0xc0}, loop.Inline(loop.RoCEAV(loop.WQE(loop.Send, 0, 0), 0x1234<<32, 0x50, loop.IPv4, loop.RoCEAddress(1, loop.IPv4)), []byte("inline"))...))
		f.Add(append([]byte{byte(i)}, bind(0x11, 1, 0x50, 0x1000, loop.Base, 4096, 0x3c)...))
		f.Add(append([]byte{byte(i)}, loop.Data(loop.Words(loop.Raddr(loop.WQE(loop.MaskedCS, 8, 0), loop.Base, 0x1000), 1, 2, 3, 4), loop.Base, 8, 0x1000)...))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < 1 || len(in) > 1024 {
			return
		}
		p := fuzzPair(t, services[int(in[0]&0x3f)%len(services)], true, in[0]&0x40 != 0)
		if b := append([]byte(nil), in[1:]...); in[0]&0x80 == 0 && len(b) >= 16 {
			p.a.Post(b)
		} else {
			p.a.PostRaw(b)
		}
		p.a.Ring()
		bell := make([]byte, 8)
		binary.BigEndian.PutUint32(bell[4:], p.a.Number<<8)
		p.a.H.Engine.Doorbell(0, 0x800, bell)
		settle(t, p.w)
		// Whatever it got, it is still a working queue pair.
		p.a.Reset()
		p.b.Reset()
		loop.Connect(p.a, p.b, nil)
		settle(t, p.w)
	})
}

// FuzzReceiveWQE posts arbitrary WQEs to a receive queue or an SRQ.
func FuzzReceiveWQE(f *testing.F) {
	f.Add(false, uint32(1), loop.Data(nil, loop.Base, 64, 0x1000))
	f.Add(true, uint32(70000), append(make([]byte, 16), loop.Data(nil, loop.Base, 64, 0x1000)...))
	f.Fuzz(func(t *testing.T, shared bool, posted uint32, ring []byte) {
		w := loop.New(2, loop.Options{RAM: 1 << 20, Violation: func(error) {}})
		h, g := w.HCAs[0], w.HCAs[1]
		a := h.NewQP(h.NewCQ(6, cq.Size64), h.NewCQ(6, cq.Size64), transport.QPContext{Service: transport.RC})
		mem, b := g.Alloc(4096)
		dbr, record := g.Alloc(8)
		copy(b, ring)
		bus.Store32(record, posted)
		c := transport.QPContext{Service: transport.RC}
		if shared {
			n, err := g.Engine.CreateSRQ(transport.SRQContext{LogSize: 6, LogStride: 2, PD: loop.PD, DBRAddr: dbr, Buffer: bus.Buffer{Shift: 12, Pages: []uint64{mem}}})
			if err != nil {
				t.Fatal(err)
			}
			c.RQType, c.SRQN = transport.SharedRQ, n
		}
		q := g.NewQP(g.NewCQ(6, cq.Size64), g.NewCQ(6, cq.Size64), c)
		if !shared {
			for len(ring) >= 16 {
				n := min(64, len(ring))
				q.PostRecv(ring[:n])
				ring = ring[n:]
			}
		}
		loop.Connect(a, q, func(q *loop.QP, c *transport.QPContext) { c.RNRRetry, c.RetryCount = 1, 1 })
		for i := range 20 {
			a.PostRing(loop.Inline(loop.WQE(loop.Send, loop.Signaled, 0), make([]byte, i)))
			settle(t, w)
		}
		if err := g.Engine.ModifyQP(q.Number, transport.ToErr, 0, nil); err != nil {
			t.Fatal(err)
		}
		settle(t, w)
	})
}

// addressed makes p a RoCE packet from the other HCA to one.
func addressed(p *fabric.Packet, to, kind int) {
	source, dest := loop.RoCEAddress(1-to, kind), loop.RoCEAddress(to, kind)
	p.RoCE, p.HasGRH, p.GRH = true, true, [40]byte{}
	p.Link = fabric.Link{Source: source.MAC, Dest: dest.MAC, Tagged: dest.Tagged, Tag: dest.VLAN}
	if dest.IPv4 {
		p.GRH[20] = 0x45
		copy(p.GRH[32:], source.GID[12:])
		copy(p.GRH[36:], dest.GID[12:])
		return
	}
	p.GRH[0] = 0x60
	copy(p.GRH[8:], source.GID[:])
	copy(p.GRH[24:], dest.GID[:])
}

// FuzzPacket delivers arbitrary packets to both sides. The first byte chooses the service,
// the second the receiver, whether RoCE is used, and the kind of its addresses. A packet's
// length precedes it.
func FuzzPacket(f *testing.F) {
	for i := range services {
		class := []byte{0, 0x20, 0x60, 0xa0, 0xc0}[i]
		for op := range byte(0x1c) {
			pk := []byte{byte(i), op & 1, 60, class | op, 0, 0xff, 0xff, 0, 0, 0, 0x51, 0x80, 0, 2, 0x30}
			pk = append(pk, make([]byte, 48)...)
			f.Add(pk)
			over := bytes.Clone(pk)
			over[1] |= 2
			f.Add(over)
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < 2 || len(in) > 4096 {
			return
		}
		roce, kind := in[1]&2 != 0, int(in[1])>>2%loop.KindsOfAddress
		p := fuzzPair(t, services[int(in[0])%len(services)], true, roce)
		p.a.PostRing(loop.Data(loop.Raddr(loop.WQE(loop.Read, 0, 0), p.bAddr, p.b.H.Lkey), p.aAddr, 4000, p.a.H.Lkey))
		to := p.b
		if in[1]&1 != 0 {
			to = p.a
		}
		in = in[2:]
		for len(in) > 0 {
			n := min(int(in[0]), len(in)-1)
			pk := fabric.NewPacket()
			pk.SLID = 3 - to.H.Port.LID()
			if roce {
				addressed(pk, int(to.H.Port.LID())-1, kind)
			}
			pk.Data = append(pk.Data, in[1:1+n]...)
			in = in[1+n:]
			to.H.Engine.Receive(1, pk)
			p.w.Step()
		}
		settle(t, p.w)
	})
}
