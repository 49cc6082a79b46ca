package conformance

import (
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/scenario"
	"github.com/goverbs/goverbs/verbs"
)

// forConnected runs a test for each connected transport of the device.
func forConnected(t *testing.T, f func(t *testing.T, p *rdmatest.Pair)) {
	types := []verbs.QPType{verbs.RC}
	if expect(t).unreliable {
		types = append(types, verbs.UC)
	}
	for _, typ := range types {
		t.Run(typ.String(), func(t *testing.T) {
			s := rdmatest.Default()
			s.Type = typ
			f(t, rdmatest.NewPair(t, s))
		})
	}
}

// fresh fills both ends' memory with known contents and returns the n bytes to send.
func fresh(p *rdmatest.Pair, n, seed int) []byte {
	rdmatest.Fill(p.A.MR.Bytes(), seed)
	clear(p.B.MR.Bytes())
	return p.A.MR.Bytes()[:n]
}

// wantArrived checks that memory contains want at off, and is unchanged elsewhere.
func wantArrived(t *testing.T, mem []byte, off int, want []byte) {
	t.Helper()
	expected := make([]byte, len(mem))
	copy(expected[off:], want)
	wantBytes(t, mem, expected)
}

// transfer does one exchange of a scenario, from a to b, and checks its completions and the memory of
// both. Inline data is overwritten as soon as it is posted.
func transfer(t *testing.T, a, b *rdmatest.End, x scenario.Exchange, id uint64) {
	t.Helper()
	tr := x.Begin(a.QP.Type(), a.MR, b.MR, 4, id, id)
	if tr.Recv != nil {
		b.PostRecv(t, *tr.Recv)
	}
	for _, wr := range tr.Sends {
		if a.AH != nil {
			wr.AH, wr.RemoteQPN, wr.RemoteQKey = a.AH, b.QP.Num(), rdmatest.QKey
		}
		a.Send(t, wr)
		clear(wr.Inline)
		wc := rdmatest.PollOK(t, a.CQ, 1)[0]
		if expected := tr.Sent(&wc); expected != "" || wc.WRID != id || wc.Opcode != scenario.Completion(wr.Opcode) || wc.QPNum != a.QP.Num() {
			t.Errorf("%v of %d bytes, request %d completed with %+v, want %s", x, x.N, id, wc, expected)
		}
	}
	if tr.Recv != nil {
		wc := rdmatest.PollOK(t, b.CQ, 1)[0]
		if expected := tr.Received(&wc, a.QP.Num()); expected != "" || wc.WRID != tr.Recv.WRID || wc.Opcode != tr.Receipt() || wc.QPNum != b.QP.Num() {
			t.Errorf("%v of %d bytes, receive %d completed with %+v, want %s", x, x.N, tr.Recv.WRID, wc, expected)
		}
	}
	if expected, seen, details := tr.Compare(); seen != "" {
		t.Fatalf("%v of %d bytes: want %s, but %s\n%s", x, x.N, expected, seen, strings.Join(details, "\n"))
	}
}

// exchanges does each operation of the pair's transport with each length, in several layouts.
func exchanges(t *testing.T, p *rdmatest.Pair) {
	t.Helper()
	e := expect(t)
	inline := p.A.QP.Cap().MaxInlineData
	if inline < 64 {
		t.Fatalf("MaxInlineData is %d, but 64 were requested", inline)
	}
	for i, x := range scenario.Exchanges(p.A.QP.Type(), 1024, 8192, inline, 4) {
		imm := x.Op == verbs.OpSendImm || x.Op == verbs.OpRDMAWriteImm
		if imm && !e.immediate || x.Op == verbs.OpRDMARead && x.To > 1 && !e.readsPieces {
			continue
		}
		transfer(t, p.A, p.B, x, uint64(i))
	}
	rdmatest.Idle(t, p.A.CQ)
	rdmatest.Idle(t, p.B.CQ)
}

// TestExchanges: the sent data arrives, and no other memory changes.
func TestExchanges(t *testing.T) { forConnected(t, exchanges) }

// TestNoSGE: requests without scatter/gather entries have inline data or none, and receives
// without entries take messages without data.
func TestNoSGE(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC} {
		for _, inline := range []int{0, 48} {
			s := rdmatest.Default()
			s.Type = typ
			s.Cap = verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: -1, MaxRecvSGE: -1, MaxInlineData: inline}
			p := rdmatest.NewPair(t, s)
			for round := range 9 { // twice around the queues
				data := rdmatest.Pattern(inline, round)
				clear(p.B.MR.Bytes())
				p.B.PostRecv(t, verbs.RecvWR{WRID: 5})
				p.A.Send(t, verbs.SendWR{
					Opcode: verbs.OpRDMAWriteImm, Flags: verbs.SendSignaled, Imm: uint32(round), Inline: data, Remote: p.B.MR.Remote().At(3),
				})
				rdmatest.PollOK(t, p.A.CQ, 1)
				wc := rdmatest.PollOK(t, p.B.CQ, 1)[0]
				if imm, ok := wc.Imm(); !ok || imm != uint32(round) || wc.WRID != 5 {
					t.Errorf("%v: got %#x, %v of %+v", typ, imm, ok, wc)
				}
				wantArrived(t, p.B.MR.Bytes(), 3, data)
			}
			p.B.PostRecv(t, verbs.RecvWR{})
			p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled})
			rdmatest.PollOK(t, p.A.CQ, 1)
			rdmatest.PollOK(t, p.B.CQ, 1)

			sgl := make([]verbs.SGE, max(p.A.QP.Cap().MaxSendSGE, p.A.QP.Cap().MaxRecvSGE)+1)
			if _, err := p.A.QP.PostSend(verbs.SendWR{Opcode: verbs.OpSend, SGL: sgl}); !errors.Is(err, verbs.ErrInvalid) {
				t.Errorf("%v: a send of %d entries: %v, want ErrInvalid", typ, len(sgl), err)
			}
			if _, err := p.A.QP.PostRecv(verbs.RecvWR{SGL: sgl}); !errors.Is(err, verbs.ErrInvalid) {
				t.Errorf("%v: a receive of %d entries: %v, want ErrInvalid", typ, len(sgl), err)
			}
		}
	}
}

// TestUnsignaled mixes signaled and unsignaled requests in one batch: all
// arrive, in order, and only the signaled ones complete.
func TestUnsignaled(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	const n = 12
	for round := range 5 { // more than the queue holds
		var send []verbs.SendWR
		var recv []verbs.RecvWR
		for i := range n {
			wr := verbs.SendWR{WRID: uint64(i), Opcode: verbs.OpSend, Inline: []byte{byte(round), byte(i)}}
			if i%4 == 3 {
				wr.Flags = verbs.SendSignaled
			}
			send = append(send, wr)
			recv = append(recv, verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{p.B.MR.SGE(i*16, 16)}})
		}
		p.B.PostRecv(t, recv...)
		p.A.Send(t, send...)
		for i, wc := range rdmatest.PollOK(t, p.A.CQ, n/4) {
			if wc.WRID != uint64(4*i+3) {
				t.Errorf("completion %d is of request %d", i, wc.WRID)
			}
		}
		for i, wc := range rdmatest.PollOK(t, p.B.CQ, n) {
			if wc.WRID != uint64(i) || wc.ByteLen != 2 {
				t.Errorf("receive %d: %+v", i, wc)
			}
			wantBytes(t, p.B.MR.Bytes()[i*16:i*16+2], []byte{byte(round), byte(i)})
		}
	}
	rdmatest.Idle(t, p.A.CQ)
	rdmatest.Idle(t, p.B.CQ)
}

// TestSignalAll: a QP with SignalAll completes every request.
func TestSignalAll(t *testing.T) {
	s := rdmatest.Default()
	s.SignalAll = true
	p := rdmatest.NewPair(t, s)
	p.B.Recv(t, 1, 0, 64)
	p.A.Send(t, verbs.SendWR{WRID: 7, Opcode: verbs.OpSend, Inline: []byte{1}})
	if wc := rdmatest.PollOK(t, p.A.CQ, 1)[0]; wc.WRID != 7 {
		t.Errorf("%+v", wc)
	}
	_, init, err := p.A.QP.Query()
	if err != nil || !init.SignalAll {
		t.Errorf("the kernel reports SignalAll %v, %v", init.SignalAll, err)
	}
}

// TestPartialPost: if a request in the middle is refused, the requests before it are posted,
// and n is its index.
func TestPartialPost(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	p.B.Recv(t, 1, 0, 64)
	good := verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, Inline: []byte{42}}
	bad := good
	bad.Inline = make([]byte, p.A.QP.Cap().MaxInlineData+1)
	n, err := p.A.QP.PostSend(good, bad, good)
	if n != 1 || err == nil {
		t.Fatalf("posted %d, %v", n, err)
	}
	wantInvalid(t, err)
	rdmatest.PollOK(t, p.A.CQ, 1)
	rdmatest.PollOK(t, p.B.CQ, 1)
	roundTrip(t, p, 3) // and the refused requests have left nothing in the queue
}

// TestQueueFull fills the send queue, whose requests wait for receives. Then posting
// returns ErrQueueFull, and works again after completions are polled.
func TestQueueFull(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	wr := verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, Inline: []byte{1}}
	posted := 0
	for range 1000 {
		if _, err := p.A.QP.PostSend(wr); err != nil {
			if !isFull(err) {
				t.Fatal(err)
			}
			break
		}
		posted++
	}
	if want := p.A.QP.Cap().MaxSendWR; posted < want || posted == 1000 {
		t.Fatalf("%d requests fit in a queue of %d", posted, want)
	}
	for left := posted; left > 0; left -= min(left, 16) {
		for range min(left, 16) {
			p.B.Recv(t, 1, 0, 64)
		}
		rdmatest.PollOK(t, p.B.CQ, min(left, 16))
		rdmatest.PollOK(t, p.A.CQ, min(left, 16))
	}
	roundTrip(t, p, 4)
}

// TestFullReceiveQueue: posting to a full receive queue is refused.
func TestFullReceiveQueue(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UD} {
		s := rdmatest.Default()
		s.Type = typ
		p := rdmatest.NewPair(t, s)
		wr := verbs.RecvWR{SGL: []verbs.SGE{p.A.MR.SGE(0, 64)}}
		posted := 0
		for range 1000 {
			if _, err := p.A.QP.PostRecv(wr); err != nil {
				if !isFull(err) {
					t.Fatal(err)
				}
				break
			}
			posted++
		}
		if want := p.A.QP.Cap().MaxRecvWR; posted < want || posted == 1000 {
			t.Errorf("%v: %d receives fit in a queue of %d", typ, posted, want)
		}
	}
}

// TestSendQueueOrder: a batch of different operations with one doorbell keeps its order.
func TestSendQueueOrder(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	fresh(p, 0, 1)
	p.B.Recv(t, 9, 8192, 64)
	p.A.Send(t,
		verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, 3000)}, Remote: p.B.MR.Remote()},
		verbs.SendWR{WRID: 2, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(4096, 3000)}, Remote: p.B.MR.Remote()},
		// The fence delays the send until the read has returned the data that it sends.
		verbs.SendWR{WRID: 3, Opcode: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendFence, SGL: []verbs.SGE{p.A.MR.SGE(4096, 64)}},
	)
	for i, wc := range rdmatest.PollOK(t, p.A.CQ, 3) {
		if wc.WRID != uint64(i+1) {
			t.Errorf("completion %d is of request %d", i, wc.WRID)
		}
	}
	rdmatest.PollOK(t, p.B.CQ, 1)
	wantBytes(t, p.A.MR.Bytes()[4096:4096+3000], p.A.MR.Bytes()[:3000])
	wantBytes(t, p.B.MR.Bytes()[8192:8192+64], p.A.MR.Bytes()[:64])
}
