package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// TestBufferPool sends from one pool's buffers and receives into them. A wait that is
// cancelled doesn't free the buffer of the receive that is still posted.
func TestBufferPool(t *testing.T) {
	s := rdmatest.Default()
	s.Channel = true
	p := rdmatest.NewPair(t, s)
	pool := rdmatest.Must(p.PD.NewBufferPool(verbs.BufferPoolOptions{Access: verbs.AccessLocalWrite, SlabBytes: 4096}))(t)
	const n = 1000
	recv := rdmatest.Must(pool.Get(n))(t)
	p.B.PostRecv(t, verbs.RecvWR{WRID: recv.WRID(), SGL: []verbs.SGE{recv.SGE()}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := p.B.CQ.PollWait(ctx, make([]verbs.WC, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if err := pool.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("the pool closes beside a posted receive: %v", err)
	}
	for round := range 20 {
		send := rdmatest.Must(pool.Get(n))(t)
		if send == recv {
			t.Fatal("the buffer of a posted receive was handed out")
		}
		rdmatest.Fill(send.Bytes(), round)
		p.A.Send(t, verbs.SendWR{WRID: send.WRID(), Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{send.SGE()}})
		if b := pool.Completed(rdmatest.PollOK(t, p.A.CQ, 1)[0].WRID); b != send {
			t.Fatalf("another buffer was sent")
		}
		got := pool.Completed(rdmatest.PollOK(t, p.B.CQ, 1)[0].WRID)
		if got != recv {
			t.Fatal("another buffer was received")
		}
		wantBytes(t, got.Bytes(), rdmatest.Pattern(n, round))
		// The next round sends the received buffer, and another buffer is posted.
		got.Release()
		send.Release()
		recv = rdmatest.Must(pool.Get(n))(t)
		p.B.PostRecv(t, verbs.RecvWR{WRID: recv.WRID(), SGL: []verbs.SGE{recv.SGE()}})
	}
	rdmatest.Check(t, p.B.QP.Close())
	recv.Release()
	rdmatest.Close(t, pool)
}

// TestBufferPoolDmabuf: the pool's memory is a dma-buf's.
func TestBufferPoolDmabuf(t *testing.T) {
	if e := expect(t); !e.dmabuf || !e.udmabuf {
		return // TestDmabuf tests the refusal; the rest needs a dma-buf
	}
	p := rdmatest.NewPair(t, rdmatest.Default())
	var mem []byte
	pool := rdmatest.Must(p.PD.NewBufferPool(verbs.BufferPoolOptions{SlabBytes: 16384, Register: func(n int) (*verbs.MR, error) {
		var fd int
		fd, mem = udmabuf(t, n)
		return p.PD.RegDmabufMR(verbs.DmabufOptions{FD: fd, Length: uint64(n), IOVA: 1 << 30, Access: rdmatest.All})
	}}))(t)
	first, second := rdmatest.Must(pool.Get(4096))(t), rdmatest.Must(pool.Get(4096))(t)
	if first.Bytes() != nil {
		t.Error("memory that isn't mapped has bytes")
	}
	rdmatest.Fill(p.A.MR.Bytes()[:4096], 3)
	p.A.Send(t, verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, 4096)}, Remote: second.Remote()})
	rdmatest.PollOK(t, p.A.CQ, 1)
	at := second.Remote().Addr - 1<<30
	wantArrived(t, mem, int(at), p.A.MR.Bytes()[:4096])
	first.Release()
	second.Release()
	rdmatest.Close(t, pool)
}
