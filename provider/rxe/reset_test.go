package rxe

import (
	"testing"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// TestResetPositions: after RESET, requests continue at the positions of the kernel's
// rings, and requests without a doorbell are dropped. Other states change nothing.
func TestResetPositions(t *testing.T) {
	for _, at := range []uint32{0, 5, 7, 8 + 5} { // beyond the ring only if the memory is spoiled
		q := memQP(t, 8)
		if n, err := q.PostRecv([]provider.RecvWR{{WRID: 1}, {WRID: 2}}); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := q.PostSend([]provider.SendWR{{Opcode: uapi.IB_UVERBS_WR_SEND}, {Opcode: uapi.IB_UVERBS_WR_SEND}}, true); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		q.Moved(uapi.IB_QPS_ERR)
		if q.prod != 2 || q.rq.prod != 2 {
			t.Errorf("ERR left positions %d and %d, want 2", q.prod, q.rq.prod)
		}
		for _, ring := range []*queue{&q.sq, &q.rq.queue} {
			ring.buf.ProducerIndex, ring.buf.ConsumerIndex = at, at&ring.mask
		}
		q.Moved(uapi.IB_QPS_RESET)
		if n, err := q.PostRecv([]provider.RecvWR{{WRID: 7}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if n := q.rq.producer(); n != (at+1)&7 || q.rq.recvWQE(at).WrId != 7 {
			t.Errorf("at %d: the receive is not there, and the index is %d", at, n)
		}
		if err := q.put(&provider.SendWR{WRID: 8, Opcode: uapi.IB_UVERBS_WR_SEND}); err != nil {
			t.Fatal(err)
		}
		if q.prod != (at+1)&7 || q.sq.sendWQE(at).Wr.WrId != 8 {
			t.Errorf("at %d: the send is not there, and the next is %d", at, q.prod)
		}
	}
}
