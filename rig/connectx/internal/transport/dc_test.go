package transport_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/loop"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
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

// TestDCStreams: an error of one stream leaves a DCI's others alone, until the stream is reset
// or too many are in error.
func TestDCStreams(t *testing.T) {
	const key = 0x1122334455667788
	w := loop.New(2, loop.Options{Seed: 5})
	h, g := w.HCAs[0], w.HCAs[1]
	p := &pair{T: t, w: w}
	send := h.NewCQ(8, cq.Size64)
	dci := h.NewQP(send, nil, transport.QPContext{Service: transport.DCI, RQType: transport.NoRQ, LogStreams: 2, LogErroredStreams: 1})
	dci.Modify(loop.Attributes(nil))
	src, a := h.Alloc(4096)
	dst, b := g.Alloc(4096)
	dct, err := g.Engine.CreateDCT(transport.DCTContext{CQN: g.NewCQ(6, cq.Size64).Number, SRQN: g.NewSRQ(4, transport.SRQContext{}).Number, PD: loop.PD,
		DCAccessKey: key, MTU: 3, Port: 1, RWE: true, MinRNRNak: 12})
	if err != nil {
		t.Fatal(err)
	}
	const wrong = 0xabcd00
	write := func(stream uint8, at uint64, rkey uint32) []byte {
		wqe := loop.WQE(loop.Write, loop.Signaled, 0)
		wqe[9], wqe[10] = 0x81, stream
		return loop.Data(loop.Raddr(loop.AV(wqe, key, dct, g.Port.LID(), fabric.GID{}), dst+at, rkey), src+at, 8, h.Lkey)
	}
	expect := func(index uint16, syndrome uint8) {
		t.Helper()
		e := p.one(send)
		if e.Counter() != index || syndrome == 0 && e.Kind() != cq.Requester || syndrome != 0 && (e.Kind() != cq.RequesterError || e.Syndrome() != syndrome) {
			t.Errorf("%v, not %d with syndrome %#x", &e, index, syndrome)
		}
	}
	for i := range a {
		a[i] = byte(i%251 + 1)
	}
	first := dci.Post(write(1, 0, g.Lkey))
	bad := dci.Post(write(2, 8, wrong))
	flushed := dci.Post(write(2, 16, g.Lkey))
	other := dci.PostRing(write(1, 24, g.Lkey))
	expect(first, 0)
	expect(bad, cq.SyndromeRemoteAccess)
	expect(flushed, cq.SyndromeFlush)
	expect(other, 0)
	if !bytes.Equal(b[:8], a[:8]) || !bytes.Equal(b[8:24], make([]byte, 16)) || !bytes.Equal(b[24:32], a[24:32]) {
		t.Errorf("the target has % x", b[:32])
	}
	expect(dci.PostRing(write(2, 16, g.Lkey)), cq.SyndromeFlush)
	if dci.State() != transport.RTS {
		t.Errorf("with one stream in error, the queue pair is in state %d", dci.State())
	}
	if err := h.Engine.ResetStream(dci.Number, 0x8102); err != nil {
		t.Fatal(err)
	}
	expect(dci.PostRing(write(2, 16, g.Lkey)), 0)
	// The second stream in error is one too many.
	local := write(3, 8, g.Lkey)
	binary.BigEndian.PutUint32(local[len(local)-12:], wrong)
	expect(dci.PostRing(local), cq.SyndromeLocalProt)
	expect(dci.PostRing(write(1, 32, g.Lkey)), 0)
	bad = dci.Post(write(4, 8, wrong))
	flushed = dci.PostRing(write(1, 40, g.Lkey))
	expect(bad, cq.SyndromeRemoteAccess)
	expect(flushed, cq.SyndromeFlush)
	if dci.State() != transport.Err {
		t.Errorf("with two streams in error, the queue pair is in state %d", dci.State())
	}
	if err := h.Engine.ResetStream(dci.Number, 0x8103); err != transport.ErrBadState {
		t.Errorf("reset of a stream of a queue pair in error: %v", err)
	}
	dci.Reset()
	dci.Modify(loop.Attributes(nil))
	expect(dci.PostRing(write(3, 48, g.Lkey)), 0)
	// A WQE that is wrong in itself is the queue pair's error.
	unknown := write(3, 56, g.Lkey)
	unknown[3] = 0x7f
	expect(dci.PostRing(unknown), cq.SyndromeLocalQPOp)
	if dci.State() != transport.Err {
		t.Errorf("after a wrong opcode, the queue pair is in state %d", dci.State())
	}
}
