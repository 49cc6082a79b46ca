package transport_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	checksum "github.com/goverbs/goverbs/rig/connectx/internal/frame"
	"github.com/goverbs/goverbs/rig/connectx/internal/loop"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// over returns a function with which Connect uses addresses of a kind.
func over(kind int) func(q *loop.QP, c *transport.QPContext) {
	return func(q *loop.QP, c *transport.QPContext) {
		to := 1
		if q.H == q.H.W.HCAs[1] {
			to = 0
		}
		a := loop.RoCEAddress(to, kind)
		c.Primary.SGIDIndex, c.Primary.DGID, c.Primary.MAC = uint8(kind), a.GID, a.MAC
	}
}

var roce = loop.Options{RoCE: true, Seed: 5}

// Connected queue pairs work with each kind of address, also on a lossy wire.
func TestRoCE(t *testing.T) {
	for kind := range loop.KindsOfAddress {
		p := newPair(t, transport.RC, roce, over(kind))
		p.w.Fabric.SetFaults(fabric.Faults{Drop: 0.02, Duplicate: 0.02, Reorder: 0.02})
		for i, n := range sizes {
			clear(p.bBuf)
			p.b.PostRecv(loop.Data(nil, p.bAddr, bufSize, p.b.H.Lkey))
			x := p.a.PostRing(loop.Data(loop.WQE(loop.SendImm, loop.Signaled, uint32(i)), p.aAddr, n, p.a.H.Lkey))
			p.want(p.a.Send, cq.Requester, 0, x)
			e := p.one(p.b.Recv)
			tag, tagged := e.Tag()
			if e.Imm() != uint32(i) || !e.GRH() || e.SLID() != 0 || e.RoCE() != header(kind) ||
				tagged != (kind >= loop.IPv6Tagged) || tagged && tag != loop.VLAN || !bytes.Equal(p.bBuf[:n], p.aBuf[:n]) {
				t.Fatalf("kind %d, %d bytes: %v % x", kind, n, &e, e.Raw)
			}
			clear(p.aBuf[:1])
			x = p.a.PostRing(loop.Data(loop.Raddr(loop.WQE(loop.Read, loop.Signaled, 0), p.bAddr, p.b.H.Lkey), p.aAddr, n, p.a.H.Lkey))
			p.want(p.a.Send, cq.Requester, 0, x)
			if p.aBuf[0] != p.bBuf[0] {
				t.Fatalf("kind %d, %d bytes read: content differs", kind, n)
			}
		}
	}
}

// header returns the kind of header in a completion.
func header(kind int) uint8 {
	switch a := loop.RoCEAddress(0, kind); {
	case a.V1:
		return 0
	case a.IPv4:
		return 2
	}
	return 1
}

// The IP header before a datagram is valid for an IP stack.
func TestRoCEDatagram(t *testing.T) {
	p := newPair(t, transport.UD, roce, func(q *loop.QP, c *transport.QPContext) { c.MTU, c.LogMsgMax = 5, 12 })
	send := func(index int, to transport.Address, n int) bool {
		t.Helper()
		clear(p.bBuf[:8192])
		p.b.PostRecv(loop.Data(nil, p.bAddr, 8192, p.b.H.Lkey))
		b := loop.RoCEAV(loop.WQE(loop.Send, loop.Signaled, 0), 0x1234<<32, p.b.Number, index, to)
		x := p.a.PostRing(loop.Data(b, p.aAddr, n, p.a.H.Lkey))
		p.want(p.a.Send, cq.Requester, 0, x)
		p.w.Idle(loop.Second, nil)
		e, ok := p.b.Recv.Poll()
		if !ok {
			return false
		}
		if e.Length() != 40+n || e.RemoteQPN() != p.a.Number || !e.GRH() || e.RoCE() != header(index) {
			t.Errorf("kind %d: %v", index, &e)
		}
		if tag, ok := e.Tag(); ok != to.Tagged || ok && tag != 3<<13|loop.VLAN {
			t.Errorf("kind %d: tag %#x", index, tag)
		}
		if !bytes.Equal(p.bBuf[40:40+n], p.aBuf[:n]) {
			t.Errorf("kind %d: content differs", index)
		}
		return true
	}
	for kind := range loop.KindsOfAddress {
		from, to := loop.RoCEAddress(0, kind), loop.RoCEAddress(1, kind)
		const n = 100
		headers, next := 8+12+8+4, byte(17) // of UDP, BTH, DETH, and the ICRC
		if from.V1 {
			headers, next = headers-8, 0x1b
		}
		if !send(kind, to, n) {
			t.Errorf("kind %d: nothing came", kind)
			continue
		}
		h := p.bBuf[:40]
		if from.IPv4 {
			ip := h[20:]
			if !bytes.Equal(h[:20], make([]byte, 20)) || ip[0] != 0x45 || ip[1] != 8 || ip[8] != 64 || ip[9] != 17 ||
				int(binary.BigEndian.Uint16(ip[2:])) != 20+headers+n || checksum.Fold(checksum.Sum(0, ip)) != 0xffff ||
				!bytes.Equal(ip[12:16], from.GID[12:]) || !bytes.Equal(ip[16:], to.GID[12:]) {
				t.Errorf("header % x", h)
			}
		} else if binary.BigEndian.Uint32(h) != 6<<28|8<<20 || int(binary.BigEndian.Uint16(h[4:])) != headers+n || h[6] != next || h[7] != 64 ||
			fabric.GID(h[8:]) != from.GID || fabric.GID(h[24:]) != to.GID {
			t.Errorf("header % x", h)
		}
	}
	// Wrongly addressed packets don't arrive.
	good := loop.RoCEAddress(1, loop.IPv4)
	for name, change := range map[string]func(index *int, a *transport.Address){
		"another's MAC address":   func(_ *int, a *transport.Address) { a.MAC = loop.RoCEAddress(0, 0).MAC },
		"nobody's MAC address":    func(_ *int, a *transport.Address) { a.MAC[0] = 4 },
		"nobody's GID":            func(_ *int, a *transport.Address) { a.GID[15] = 9 },
		"from another VLAN":       func(i *int, _ *transport.Address) { *i = loop.IPv4Tagged },
		"from IPv6 to IPv4":       func(i *int, _ *transport.Address) { *i = loop.IPv6 },
		"from version 1":          func(i *int, _ *transport.Address) { *i = loop.V1 },
		"from IPv4 to IPv6":       func(_ *int, a *transport.Address) { *a = loop.RoCEAddress(1, loop.IPv6) },
		"from an empty entry":     func(i *int, _ *transport.Address) { *i = loop.KindsOfAddress },
		"from beyond the entries": func(i *int, _ *transport.Address) { *i = 200 },
	} {
		index, a := loop.IPv4, good
		change(&index, &a)
		if send(index, a, 10) {
			t.Errorf("%s: it came", name)
		}
	}
	// Nothing is sent or received while RoCE is disabled or the address is removed.
	h := p.b.H.Engine
	h.EnableRoCE(false)
	if send(loop.IPv4, good, 10) {
		t.Error("disabled: it came")
	}
	h.EnableRoCE(true)
	if err := h.SetAddress(1, loop.IPv4, transport.Address{}); err != nil || send(loop.IPv4, good, 10) {
		t.Error("address removed: it came", err)
	}
	if err := h.SetAddress(1, loop.IPv4, good); err != nil || !send(loop.IPv4, good, 10) {
		t.Error("address back: nothing came", err)
	}
	// A short address vector has no RoCE address.
	b := loop.WQE(loop.Send, loop.Signaled, 0)
	b = binary.BigEndian.AppendUint64(b, 0x1234<<32)
	b = append(binary.BigEndian.AppendUint32(b, p.b.Number), 0, 0, 0, 0)
	x := p.a.PostRing(loop.Data(b, p.aAddr, 4, p.a.H.Lkey))
	p.want(p.a.Send, cq.RequesterError, cq.SyndromeLocalQPOp, x)
}

// A queue pair accepts packets only from its peer, and to its connection's address.
func TestRoCEStrangers(t *testing.T) {
	for name, change := range map[string]func(q *loop.QP, c *transport.QPContext){
		"from an address that is not the peer's": func(q *loop.QP, c *transport.QPContext) {
			if q.H == q.H.W.HCAs[1] {
				c.Primary.DGID[15] = 9
			}
		},
		"to an address that is not the queue pair's": func(q *loop.QP, c *transport.QPContext) {
			if q.H == q.H.W.HCAs[1] {
				over(loop.IPv6)(q, c)
			}
		},
	} {
		p := newPair(t, transport.RC, roce, func(q *loop.QP, c *transport.QPContext) {
			over(loop.IPv4)(q, c)
			c.RetryCount = 1
			change(q, c)
		})
		p.b.PostRecv(loop.Data(nil, p.bAddr, 4096, p.b.H.Lkey))
		p.a.PostRing(loop.Inline(loop.WQE(loop.Send, loop.Signaled, 0), []byte("hello")))
		if e := p.one(p.a.Send); e.Kind() != cq.RequesterError || e.Syndrome() != cq.SyndromeRetryExceeded {
			t.Errorf("%s: %v", name, &e)
		}
	}
}

func TestRoCEMulticast(t *testing.T) {
	w := loop.New(3, roce)
	for _, c := range []struct {
		kind  int
		group transport.Address
	}{
		{loop.IPv4, transport.Address{GID: fabric.GID{10: 0xff, 0xff, 239, 1, 2, 3}, MAC: fabric.MAC{1, 0, 0x5e, 1, 2, 3}}},
		{loop.IPv6, transport.Address{GID: fabric.GID{0xff, 0x12, 15: 9}, MAC: fabric.MAC{0x33, 0x33, 0, 0, 0, 9}}},
	} {
		var qps []*loop.QP
		for i, h := range []*loop.HCA{w.HCAs[0], w.HCAs[0], w.HCAs[1], w.HCAs[2]} {
			q := h.NewQP(h.NewCQ(4, cq.Size64), h.NewCQ(4, cq.Size64), transport.QPContext{Service: transport.UD, BlockLBMC: i == 1})
			q.Modify(loop.Attributes(nil))
			if i != 3 {
				if err := h.Engine.AttachMulticast(q.Number, c.group.GID); err != nil {
					t.Fatal(err)
				}
			}
			a, _ := h.Alloc(4096)
			q.PostRecv(loop.Data(nil, a, 4096, h.Lkey))
			qps = append(qps, q)
		}
		qps[0].PostRing(loop.Inline(loop.RoCEAV(loop.WQE(loop.Send, 0, 0), 0x1234<<32, 0xffffff, c.kind, c.group), []byte("to all of you")))
		w.Idle(loop.Second, nil)
		var got [4]bool
		for i, q := range qps {
			if e, ok := q.Recv.Poll(); ok {
				got[i] = e.Length() == 40+13 && e.GRH() && e.RoCE() == header(c.kind)
			}
		}
		// The sender receives its own message. Its neighbour disabled that, and the last
		// one isn't a member.
		if got != [4]bool{true, false, true, false} {
			t.Errorf("kind %d: received by %v", c.kind, got)
		}
	}
	h := w.HCAs[0]
	q := h.NewQP(h.NewCQ(4, cq.Size64), h.NewCQ(4, cq.Size64), transport.QPContext{Service: transport.UD})
	if err := h.Engine.AttachMulticast(q.Number, loop.RoCEAddress(0, loop.IPv4).GID); err == nil {
		t.Error("attached to a GID that isn't a group")
	}
}

// DC works with RoCE addresses.
func TestRoCEDC(t *testing.T) {
	const key = 0x1122334455667788
	w := loop.New(3, roce)
	h := w.HCAs[0]
	p := &pair{T: t, w: w}
	send := h.NewCQ(8, cq.Size64)
	dci := h.NewQP(send, nil, transport.QPContext{Service: transport.DCI, RQType: transport.NoRQ})
	dci.Modify(loop.Attributes(nil))
	src, a := h.Alloc(1 << 16)
	for i := range a {
		a[i] = byte(i * 3)
	}
	w.Fabric.SetFaults(fabric.Faults{Drop: 0.02, Duplicate: 0.02})
	for kind := range loop.KindsOfAddress {
		for i, g := range w.HCAs[1:] {
			recv, srq := g.NewCQ(6, cq.Size64), g.NewSRQ(4, transport.SRQContext{})
			n, err := g.Engine.CreateDCT(transport.DCTContext{CQN: recv.Number, SRQN: srq.Number, PD: loop.PD, DCAccessKey: key, MTU: 3, Port: 1,
				SGIDIndex: uint8(kind), HopLimit: 64, MinRNRNak: 12})
			if err != nil {
				t.Fatal(err)
			}
			dst, mem := g.Alloc(1 << 16)
			srq.Post(loop.Data(nil, dst, 1<<16, g.Lkey))
			dci.PostRing(loop.Data(loop.RoCEAV(loop.WQE(loop.Send, loop.Signaled, 0), key, n, kind, loop.RoCEAddress(i+1, kind)), src, 1<<16, h.Lkey))
			if e := p.one(send); e.Kind() != cq.Requester {
				t.Fatalf("kind %d: %v", kind, &e)
			}
			if e := p.one(recv); e.Kind() != cq.ResponderSend || !e.GRH() || e.RoCE() != header(kind) || !bytes.Equal(mem, a) {
				t.Errorf("kind %d: %v", kind, &e)
			}
		}
	}
}

// Entries beyond the table, and IPv4 entries with an IPv6 address, are refused.
func TestRoCEAddresses(t *testing.T) {
	e := loop.New(1, roce).HCAs[0].Engine
	good := loop.RoCEAddress(0, loop.IPv6)
	for _, c := range []struct {
		port  uint8
		index int
	}{{0, 0}, {2, 0}, {1, 8}} {
		if e.SetAddress(c.port, c.index, good) == nil {
			t.Errorf("entry %d of port %d was set", c.index, c.port)
		}
		if _, ok := e.Address(c.port, c.index); ok {
			t.Errorf("entry %d of port %d was read", c.index, c.port)
		}
	}
	wrong := good
	wrong.IPv4 = true
	if e.SetAddress(1, 0, wrong) == nil {
		t.Error("an address of IPv6 passed for one of IPv4")
	}
	if a, ok := e.Address(1, 0); !ok || a != good {
		t.Errorf("%+v", a)
	}
	ib := loop.New(1, loop.Options{}).HCAs[0].Engine
	if ib.SetAddress(1, 0, good) == nil {
		t.Error("an InfiniBand port has RoCE addresses")
	}
}
