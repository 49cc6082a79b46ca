package transport_test

import (
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/loop"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// BenchmarkPingpong measures the HCAs' whole work for a round trip of 4 KiB.
func BenchmarkPingpong(b *testing.B) {
	w := loop.New(2, loop.Options{})
	var qps [2]*loop.QP
	var addrs [2]uint64
	for i, h := range w.HCAs {
		qps[i] = h.NewQP(h.NewCQ(8, cq.Size64), h.NewCQ(8, cq.Size64), transport.QPContext{Service: transport.RC})
		addrs[i], _ = h.Alloc(4096)
	}
	loop.Connect(qps[0], qps[1], nil)
	var wqes, recvs [2][]byte
	for i, h := range w.HCAs {
		wqes[i] = loop.Data(loop.WQE(loop.Send, loop.Signaled, 0), addrs[i], 4096, h.Lkey)
		recvs[i] = loop.Data(nil, addrs[i], 4096, h.Lkey)
	}
	b.ReportAllocs()
	for b.Loop() {
		for i := range qps {
			to := qps[1-i]
			to.PostRecv(recvs[1-i])
			qps[i].PostRing(wqes[i])
			sent, got := false, false
			done := w.Idle(loop.Second, func() bool {
				if _, ok := qps[i].Send.Poll(); ok {
					sent = true
				}
				if _, ok := to.Recv.Poll(); ok {
					got = true
				}
				return sent && got
			})
			if !done {
				b.Fatal("no completion")
			}
		}
	}
}

// BenchmarkWrite measures an RDMA WRITE of 1 MiB.
func BenchmarkWrite(b *testing.B) {
	w := loop.New(2, loop.Options{})
	h, g := w.HCAs[0], w.HCAs[1]
	q := h.NewQP(h.NewCQ(8, cq.Size64), h.NewCQ(8, cq.Size64), transport.QPContext{Service: transport.RC})
	r := g.NewQP(g.NewCQ(8, cq.Size64), g.NewCQ(8, cq.Size64), transport.QPContext{Service: transport.RC})
	loop.Connect(q, r, func(q *loop.QP, c *transport.QPContext) { c.MTU = 5 })
	src, _ := h.Alloc(1 << 20)
	dst, _ := g.Alloc(1 << 20)
	wqe := loop.Data(loop.Raddr(loop.WQE(loop.Write, loop.Signaled, 0), dst, g.Lkey), src, 1<<20, h.Lkey)
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		q.PostRing(wqe)
		if !w.Idle(loop.Second, func() bool { _, ok := q.Send.Poll(); return ok }) {
			b.Fatal("no completion")
		}
	}
}
