package mlx5

import (
	"encoding/binary"
	"os"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// A rig is a context without a device: its queues are those of a real one, its
// register page is ordinary memory, and the test plays the adapter.
type rig struct {
	*context
	uar []byte
}

func newRig(t testing.TB, version uint8) *rig {
	t.Helper()
	page, err := newBuffer(1)
	if err != nil {
		t.Fatal(err)
	}
	c := &context{cqeVersion: version, limits: limits{sendWQE: 1024, recvWQE: 512, sendBlocks: 1 << 15, recvWQEs: 1 << 15, srqWQEs: 1 << 15}}
	c.uars.registerSize = 512
	c.uars.perPage = 1
	c.uars.cq = &uarPage{mem: page}
	c.uars.pages = []*uarPage{c.uars.cq}
	for range 4 {
		r := c.uars.register(c.uars.cq, 0, 0, 256)
		r.dynamic = true
		c.uars.free = append(c.uars.free, r)
	}
	t.Cleanup(c.Release)
	return &rig{c, page}
}

func (r *rig) newCQ(t testing.TB, cqe uint32) *cq {
	t.Helper()
	cmd := ioctl.New(uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE)
	defer cmd.Release()
	p, err := r.NewCQ(cmd, provider.CQInit{CQE: cqe})
	if err != nil {
		t.Fatal(err)
	}
	q := p.(*cq)
	q.resp.Cqn = 0x77
	if err := q.Adopt(1); err != nil {
		t.Fatal(err)
	}
	return q
}

func (r *rig) newQP(t testing.TB, qpn uint32, init provider.QPInit) *qp {
	t.Helper()
	cmd := ioctl.New(uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE)
	defer cmd.Release()
	p, err := r.NewQP(cmd, init)
	if err != nil {
		t.Fatal(err)
	}
	q := p.(*qp)
	if err := q.Adopt(1, qpn, &init.Cap); err != nil {
		t.Fatal(err)
	}
	q.Moved(uapi.IB_QPS_RTR)
	return q
}

// complete writes a CQE as the adapter does.
type complete struct {
	op      wqe.CQEOpcode
	sendOp  wqe.Opcode
	qpn     uint32
	uidx    uint32
	counter uint16
	bytes   uint32
}

func (r *cqRing) complete(i uint32, c complete) {
	b := cqeBytes(r.at(i))[:]
	binary.BigEndian.PutUint32(b[32:], c.uidx)
	binary.BigEndian.PutUint32(b[44:], c.bytes)
	binary.BigEndian.PutUint32(b[56:], uint32(c.sendOp)<<24|c.qpn)
	binary.BigEndian.PutUint16(b[60:], c.counter)
	b[63] = byte(c.op)<<4 | byte(r.round(i)&1)
}

var benchRing = func() uint32 {
	if os.Getenv("RING") != "" {
		return 16
	}
	return 256
}()

func benchInit() provider.QPInit {
	return provider.QPInit{
		Type: uapi.IB_UVERBS_QPT_RC,
		Cap:  provider.QPCap{MaxSendWR: benchRing, MaxRecvWR: benchRing, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64},
	}
}

func BenchmarkPost(b *testing.B) {
	sgl := []provider.SGE{{Addr: 0x1000, Length: 64, LKey: 7}}
	inline := make([]byte, 64)
	for _, bench := range []struct {
		name string
		wr   provider.SendWR
		n    int
	}{
		{"write inline 64", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE, Flags: 2, Inline: inline, RemoteAddr: 1, RKey: 2}, 1},
		{"write 1 SGE", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE, Flags: 2, SGL: sgl, RemoteAddr: 1, RKey: 2}, 1},
		{"send 1 SGE", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, Flags: 2, SGL: sgl}, 1},
		{"write 16", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE, Flags: 2, SGL: sgl, RemoteAddr: 1, RKey: 2}, 16},
	} {
		b.Run(bench.name, func(b *testing.B) {
			r := newRig(b, 1)
			var q provider.QP = r.newQP(b, 0x123, benchInit())
			done := &q.(*qp).sq.done
			wrs := make([]provider.SendWR, bench.n)
			for i := range wrs {
				wrs[i] = bench.wr
			}
			b.ReportAllocs()
			for b.Loop() {
				if n, err := q.PostSend(wrs); n != len(wrs) {
					b.Fatal(err)
				}
				*done += uint32(len(wrs))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(bench.n), "ns/WR")
		})
	}
	b.Run("recv 1", func(b *testing.B) {
		r := newRig(b, 1)
		var q provider.QP = r.newQP(b, 0x123, benchInit())
		done := &q.(*qp).rq.done
		wrs := []provider.RecvWR{{WRID: 1, SGL: sgl}}
		for b.Loop() {
			if n, err := q.PostRecv(wrs); n != len(wrs) {
				b.Fatal(err)
			}
			*done += uint32(len(wrs))
		}
	})
}

func BenchmarkPoll(b *testing.B) {
	for _, batch := range []int{0, 1, 16} {
		b.Run(map[int]string{0: "empty", 1: "1", 16: "16"}[batch], func(b *testing.B) {
			r := newRig(b, 1)
			q := r.newQP(b, 0x123, benchInit())
			c := r.newCQ(b, 1000)
			var pc provider.CQ = c
			wc := make([]provider.WC, max(batch, 1))
			if batch > 0 {
				for i := range c.mask + 1 {
					c.complete(i, complete{op: wqe.CQERequester, sendOp: wqe.OpRDMAWrite, qpn: 0x123, uidx: q.resource.number, counter: uint16(i)})
				}
			}
			for b.Loop() {
				n, _ := pc.Poll(wc)
				if n != batch {
					b.Fatal(n)
				}
				if c.next > c.mask-16 {
					c.next = 0
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(max(batch, 1)), "ns/CQE")
		})
	}
}

var _ = os.DevNull
var _ = unsafe.Pointer(nil)
