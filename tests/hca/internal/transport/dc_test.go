package transport_test

import (
	"bytes"
	"testing"

	"github.com/goverbs/goverbs/tests/hca/internal/cq"
	"github.com/goverbs/goverbs/tests/hca/internal/eq"
	"github.com/goverbs/goverbs/tests/hca/internal/fabric"
	"github.com/goverbs/goverbs/tests/hca/internal/loop"
	"github.com/goverbs/goverbs/tests/hca/internal/transport"
)

func TestDC(t *testing.T) {
	const key = 0x1122334455667788
	w := loop.New(3, loop.Options{Seed: 3})
	h := w.HCAs[0]
	p := &pair{T: t, w: w}
	send := h.NewCQ(8, cq.Size64)
	dci := h.NewQP(send, nil, transport.QPContext{Service: transport.DCI, RQType: transport.NoRQ})
	dci.Modify(loop.Attributes(nil))
	src, a := h.Alloc(1 << 16)
	for i := range a {
		a[i] = byte(i * 3)
	}
	type target struct {
		n    uint32
		srq  *loop.SRQ
		recv *loop.CQ
		addr uint64
		mem  []byte
		h    *loop.HCA
	}
	var targets []target
	for i, g := range w.HCAs[1:] {
		x := target{recv: g.NewCQ(6, cq.Size64), srq: g.NewSRQ(4, transport.SRQContext{}), h: g}
		var err error
		x.n, err = g.Engine.CreateDCT(transport.DCTContext{CQN: x.recv.Number, SRQN: x.srq.Number, PD: loop.PD, DCAccessKey: key, MTU: 3, Port: 1,
			RRE: true, RWE: true, RAE: true, AtomicMode: 1, MinRNRNak: 12, UserIndex: uint32(0x500 + i)})
		if err != nil {
			t.Fatal(err)
		}
		x.addr, x.mem = g.Alloc(1 << 16)
		targets = append(targets, x)
	}
	av := func(b []byte, x target, k uint64) []byte {
		return loop.AV(b, k, x.n, x.h.Port.LID(), fabric.GID{})
	}
	w.Fabric.SetFaults(fabric.Faults{Drop: 0.02, Duplicate: 0.02})
	for i := range 200 {
		x := targets[i/3%2]
		n := 1 + i*97%20000
		clear(x.mem)
		index := x.srq.Post(loop.Data(nil, x.addr, 1<<16, x.h.Lkey))
		dci.Post(loop.Data(av(loop.WQE(loop.SendImm, loop.Signaled, uint32(i)), x, key), src, n, h.Lkey))
		dci.Post(loop.Data(loop.Raddr(av(loop.WQE(loop.Write, loop.Signaled, 0), x, key), x.addr+40000, x.h.Lkey), src, n, h.Lkey))
		dci.PostRing(loop.Data(loop.Raddr(av(loop.WQE(loop.Read, loop.Signaled, 0), x, key), x.addr+40000, x.h.Lkey), src+40000, n, h.Lkey))
		for range 3 {
			if e := p.one(send); e.Kind() != cq.Requester {
				t.Fatalf("message %d: %v", i, &e)
			}
		}
		e := p.one(x.recv)
		if e.Kind() != cq.ResponderSendImm || e.Imm() != uint32(i) || e.Index() != uint32(0x500+i/3%2) || e.Counter() != index || e.QPN() != x.n {
			t.Fatalf("message %d: %v", i, &e)
		}
		if !bytes.Equal(x.mem[:n], a[:n]) || !bytes.Equal(a[40000:40000+n], a[:n]) {
			t.Fatalf("message %d: content differs", i)
		}
		x.srq.Return(index)
	}
	w.Fabric.SetFaults(fabric.Faults{})
	// A wrong access key is the initiator's error, and the target counts it.
	dci.PostRing(loop.Data(av(loop.WQE(loop.Send, 0, 0), targets[0], key+1), src, 4, h.Lkey))
	if e := p.one(send); e.Kind() != cq.RequesterError || e.Syndrome() != cq.SyndromeRemoteAccess {
		t.Errorf("a wrong access key: %v", &e)
	}
	g := targets[0].h
	if c, _ := g.Engine.QueryDCT(targets[0].n); c.Violations != 1 || count(events(g), eq.TypeDCTKey) != 1 {
		t.Errorf("%d violations, events %#x", c.Violations, events(g))
	}
	dci.Reset()
	dci.Modify(loop.Attributes(nil))
	// A connection's error doesn't affect the target.
	dci.PostRing(loop.Data(loop.Raddr(av(loop.WQE(loop.Write, 0, 0), targets[0], key), targets[0].addr, 0xabcd00), src, 4, h.Lkey))
	if e := p.one(send); e.Kind() != cq.RequesterError || e.Syndrome() != cq.SyndromeRemoteAccess {
		t.Errorf("a wrong rkey: %v", &e)
	}
	dci.Reset()
	dci.Modify(loop.Attributes(nil))
	index := targets[0].srq.Post(loop.Data(nil, targets[0].addr, 1<<16, g.Lkey))
	dci.PostRing(loop.Data(av(loop.WQE(loop.Send, loop.Signaled, 0), targets[0], key), src, 4, h.Lkey))
	if e := p.one(send); e.Kind() != cq.Requester {
		t.Errorf("after an error: %v", &e)
	}
	if e := p.one(targets[0].recv); e.Kind() != cq.ResponderSend || e.Counter() != index {
		t.Errorf("after an error: %v", &e)
	}
	if err := g.Engine.DestroyDCT(targets[0].n); err != transport.ErrBadState {
		t.Errorf("destroyed undrained: %v", err)
	}
	if err := g.Engine.DrainDCT(targets[0].n); err != nil || count(events(g), eq.TypeDCTDrained) != 1 {
		t.Errorf("drained: %v, events %#x", err, events(g))
	}
	if err := g.Engine.DestroyDCT(targets[0].n); err != nil {
		t.Error(err)
	}
}
