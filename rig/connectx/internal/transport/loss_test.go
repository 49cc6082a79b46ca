package transport_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/loop"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// Messages of all kinds on a wire that loses, duplicates, reorders and delays packets:
// each arrives once, complete and in order.
func TestLossyWire(t *testing.T) {
	messages := 100_000
	if testing.Short() {
		messages = 10_000
	}
	p := newPair(t, transport.RC, loop.Options{Seed: 1}, func(q *loop.QP, c *transport.QPContext) { c.MTU = 1 })
	p.w.Fabric.SetFaults(fabric.Faults{Drop: 0.01, Duplicate: 0.01, Reorder: 0.01, Delay: 2 * time.Microsecond, Jitter: 3 * time.Microsecond})
	r := rand.New(rand.NewPCG(2, 3))
	const room, depth = 4096, 16
	var sent, received, completed int
	var lengths []int
	post := func() {
		n := r.IntN(600)
		lengths = append(lengths, n)
		at := uint64(sent%depth) * room
		binary.BigEndian.PutUint32(p.aBuf[at:], uint32(sent))
		p.b.PostRecv(loop.Data(nil, p.bAddr+at, room, p.b.H.Lkey))
		p.a.PostRing(loop.Data(loop.WQE(loop.SendImm, loop.Signaled, uint32(sent)), p.aAddr+at, 4+n, p.a.H.Lkey))
		sent++
	}
	for range depth {
		post()
	}
	done := p.w.Idle(time.Hour, func() bool {
		for {
			e, ok := p.b.Recv.Poll()
			if !ok {
				break
			}
			at := received % depth * room
			if e.Kind() != cq.ResponderSendImm || e.Imm() != uint32(received) || e.Length() != 4+lengths[received] ||
				!bytes.Equal(p.bBuf[at:at+e.Length()], p.aBuf[at:at+e.Length()]) {
				t.Fatalf("message %d: %v, immediate %d", received, &e, e.Imm())
			}
			received++
		}
		for {
			e, ok := p.a.Send.Poll()
			if !ok {
				break
			}
			if e.Kind() != cq.Requester {
				t.Fatalf("message %d: %v", completed, &e)
			}
			completed++
		}
		for sent < messages && sent < min(received, completed)+depth {
			post()
		}
		return received == messages && completed == messages
	})
	s, c := p.w.Fabric.Stats(), p.a.H.Engine.Counters(0)
	if !done {
		t.Fatalf("%d sent, %d received, %d completed; %+v; %+v", sent, received, completed, s, c)
	}
	if d := p.b.H.Engine.Counters(0); s.Dropped == 0 || s.Duplicated == 0 || s.Reordered == 0 || c.PacketSeqErr == 0 || d.OutOfSequence == 0 || d.DuplicateRequest == 0 {
		t.Errorf("the wire had no fault: %+v, %+v, %+v", s, c, d)
	}
}

// Reads, writes and atomics on the same wire. Each atomic is executed once.
func TestLossyResponses(t *testing.T) {
	p := newPair(t, transport.RC, loop.Options{Seed: 4}, func(q *loop.QP, c *transport.QPContext) { c.MTU = 2 })
	p.w.Fabric.SetFaults(fabric.Faults{Drop: 0.01, Duplicate: 0.01, Reorder: 0.01, Jitter: 10 * time.Microsecond})
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 2000 {
		n := 1 + r.IntN(20000)
		off := uint64(r.IntN(10000))
		for j := range 16 {
			p.aBuf[int(off)+j] = byte(i + j)
		}
		p.a.Post(loop.Data(loop.Raddr(loop.WQE(loop.Write, 0, 0), p.bAddr+64+off, p.b.H.Lkey), p.aAddr+off, n, p.a.H.Lkey))
		p.a.Post(loop.Data(loop.Words(loop.Raddr(loop.WQE(loop.FA, 0, 0), p.bAddr, p.b.H.Lkey), 1, 0), p.aAddr+1<<20, 8, p.a.H.Lkey))
		x := p.a.PostRing(loop.Data(loop.Raddr(loop.WQE(loop.Read, loop.Signaled, 0), p.bAddr+64+off, p.b.H.Lkey), p.aAddr+1<<20+8, n, p.a.H.Lkey))
		p.want(p.a.Send, cq.Requester, 0, x)
		if !bytes.Equal(p.aBuf[off:int(off)+n], p.aBuf[1<<20+8:][:n]) {
			t.Fatalf("round %d: what came back differs", i)
		}
		if v := binary.LittleEndian.Uint64(p.aBuf[1<<20:]); v != uint64(i) {
			t.Fatalf("round %d: the counter was %d", i, v)
		}
	}
	if v := binary.LittleEndian.Uint64(p.bBuf); v != 2000 {
		t.Errorf("the counter is %d after 2000 additions", v)
	}
}

// A long READ that is requested again continues from the lost packet. A loss costs little,
// however long the rest is.
func TestLongReadAgain(t *testing.T) {
	const size, rounds = 1 << 20, 16
	p := newPair(t, transport.RC, loop.Options{Seed: 8}, func(q *loop.QP, c *transport.QPContext) { c.MTU, c.LogMsgMax = 3, 20 })
	p.w.Fabric.SetFaults(fabric.Faults{Drop: 0.01, Reorder: 0.01})
	for i := range rounds {
		r := rand.New(rand.NewPCG(9, uint64(i)))
		for at := 0; at < size; at += 8 {
			binary.LittleEndian.PutUint64(p.bBuf[at:], r.Uint64())
		}
		x := p.a.PostRing(loop.Data(loop.Raddr(loop.WQE(loop.Read, loop.Signaled, 0), p.bAddr, p.b.H.Lkey), p.aAddr, size, p.a.H.Lkey))
		p.want(p.a.Send, cq.Requester, 0, x)
		if !bytes.Equal(p.aBuf[:size], p.bBuf[:size]) {
			t.Fatalf("round %d: what came differs", i)
		}
	}
	s := p.w.Fabric.Stats()
	if s.Dropped == 0 || s.Reordered == 0 || s.Sent > 3*rounds*size/1024 {
		t.Errorf("%d packets' worth of data took %+v", rounds*size/1024, s)
	}
}

// Each packet is lost in turn, and the exchange succeeds every time.
func TestEachPacketLost(t *testing.T) {
	for lost := range 60 {
		n := 0
		p := newPair(t, transport.RC, loop.Options{}, nil)
		p.w.Fabric.SetFaults(fabric.Faults{Hook: func(*fabric.Port, *fabric.Packet) fabric.Verdict {
			if n++; n == lost+1 {
				return fabric.Drop
			}
			return fabric.Pass
		}})
		p.b.PostRecv(loop.Data(nil, p.bAddr+1<<20, 10000, p.b.H.Lkey))
		p.a.Post(loop.Data(loop.Raddr(loop.WQE(loop.Write, 0, 0), p.bAddr, p.b.H.Lkey), p.aAddr, 10000, p.a.H.Lkey))
		p.a.Post(loop.Data(loop.Raddr(loop.WQE(loop.Read, 0, 0), p.bAddr, p.b.H.Lkey), p.aAddr+1<<20, 10000, p.a.H.Lkey))
		p.a.Post(loop.Data(loop.Words(loop.Raddr(loop.WQE(loop.FA, 0, 0), p.bAddr+16384, p.b.H.Lkey), 1, 0), p.aAddr+1<<20+16384, 8, p.a.H.Lkey))
		x := p.a.PostRing(loop.Data(loop.WQE(loop.Send, loop.Signaled, 0), p.aAddr, 10000, p.a.H.Lkey))
		p.want(p.a.Send, cq.Requester, 0, x)
		p.want(p.b.Recv, cq.ResponderSend, 0, 0)
		for _, got := range [][]byte{p.bBuf[:10000], p.aBuf[1<<20:][:10000], p.bBuf[1<<20:][:10000]} {
			if !bytes.Equal(got, p.aBuf[:10000]) {
				t.Fatalf("without packet %d the content differs", lost)
			}
		}
		if p.bBuf[16384] != 1 {
			t.Fatalf("without packet %d the addition happened %d times", lost, p.bBuf[16384])
		}
	}
}

// UC loses whole messages, and only those.
func TestLossyUC(t *testing.T) {
	p := newPair(t, transport.UC, loop.Options{Seed: 7}, nil)
	p.w.Fabric.SetFaults(fabric.Faults{Drop: 0.05, Duplicate: 0.02})
	next, got, posted := 0, 0, 0
	for i := range 2000 {
		for ; posted < got+40; posted++ {
			p.b.PostRecv(loop.Data(nil, p.bAddr, 8192, p.b.H.Lkey))
		}
		binary.BigEndian.PutUint32(p.aBuf[5000:], uint32(i))
		x := p.a.PostRing(loop.Data(loop.WQE(loop.SendImm, loop.Signaled, uint32(i)), p.aAddr, 6000, p.a.H.Lkey))
		p.want(p.a.Send, cq.Requester, 0, x)
		p.w.Idle(loop.Second, nil)
		for {
			e, ok := p.b.Recv.Poll()
			if !ok {
				break
			}
			if int(e.Imm()) < next || e.Length() != 6000 || e.Imm() == uint32(i) && !bytes.Equal(p.bBuf[:6000], p.aBuf[:6000]) {
				t.Fatalf("message %d: %v", i, &e)
			}
			next = int(e.Imm()) + 1
			got++
		}
	}
	if got < 1000 || got == 2000 {
		t.Errorf("%d of 2000 messages arrived", got)
	}
}

func TestMulticast(t *testing.T) {
	w := loop.New(3, loop.Options{})
	group := fabric.GID{0xff, 0x12, 15: 9}
	var qps []*loop.QP
	var bufs [][]byte
	for i, h := range []*loop.HCA{w.HCAs[0], w.HCAs[0], w.HCAs[1], w.HCAs[2]} {
		q := h.NewQP(h.NewCQ(4, cq.Size64), h.NewCQ(4, cq.Size64), transport.QPContext{Service: transport.UD, BlockLBMC: i == 1})
		c := loop.Attributes(nil)
		c.MTU, c.LogMsgMax = 5, 12
		q.Modify(c)
		if i != 3 {
			if err := h.Engine.AttachMulticast(q.Number, group); err != nil {
				t.Fatal(err)
			}
		}
		a, b := h.Alloc(4096)
		q.PostRecv(loop.Data(nil, a, 4096, h.Lkey))
		qps, bufs = append(qps, q), append(bufs, b)
	}
	send := func() (got [4]bool) {
		qps[0].PostRing(loop.Inline(loop.AV(loop.WQE(loop.Send, 0, 0), 0x1234<<32, 0xffffff, 0xc001, group), []byte("to all of you")))
		w.Idle(loop.Second, nil)
		for i, q := range qps {
			if e, ok := q.Recv.Poll(); ok {
				got[i] = true
				if e.Length() != 40+13 || !e.GRH() || string(bufs[i][40:53]) != "to all of you" {
					t.Errorf("queue pair %d: %v", i, &e)
				}
			}
		}
		return got
	}
	// The sender receives its own message. Its neighbour disabled that, and the last one
	// isn't a member.
	if got := send(); got != [4]bool{true, false, true, false} {
		t.Errorf("received by %v", got)
	}
	if err := w.HCAs[1].Engine.DetachMulticast(qps[2].Number, group); err != nil {
		t.Fatal(err)
	}
	if got := send(); got != [4]bool{} {
		t.Errorf("received by %v, where nobody is left who can", got)
	}
	if n := count(events(w.HCAs[2]), eq.TypeCommEst); n != 0 {
		t.Error("an event for who is no member")
	}
}
