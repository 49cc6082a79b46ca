package mlx5

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// outOfOrder is the init of a QP whose receives complete in any order.
func outOfOrder(c *cq, recvs, sges uint32) provider.QPInit {
	return provider.QPInit{
		Type: uapi.IB_UVERBS_QPT_RC, Cap: uapi.IbUverbsQpCap{MaxRecvWr: recvs, MaxRecvSge: sges}, RecvCQ: c,
		Extra: driverapi.MLX5QPOptions{OutOfOrder: true},
	}
}

// TestDisorder: an adapter completes receives in any order. Each completion has its own request's ID.
// No post overwrites a WQE that the adapter still has. The queue has room for the granted number of
// receives, unless the oldest lags behind by the whole ring. Numbers wrap at the 16 bits of a
// counter.
func TestDisorder(t *testing.T) {
	for _, tt := range []struct{ recvs, sges, limit, places uint32 }{
		{1, 4, 1, 1}, {1, 1, 2, 4}, {2, 4, 2, 4}, {3, 4, 4, 8}, {64, 1, 64, 128}, {100, 2, 128, 256},
	} {
		r := newRig(t, 1)
		c := r.newCQ(t, provider.CQInit{CQE: 255})
		init := outOfOrder(c, tt.recvs, tt.sges)
		q := r.newQP(t, 5, init)
		if q.rq.limit != tt.limit || uint32(len(q.rq.ids)) != tt.places || q.rq.mask != tt.places-1 {
			t.Fatalf("%+v: at most %d of %d", tt, q.rq.limit, len(q.rq.ids))
		}
		m := rand.New(rand.NewPCG(uint64(tt.recvs), 1))
		var has []uint32 // the indices of the WQEs that the adapter has, in order
		var wc [1]provider.WC
		wrs := make([]provider.RecvWR, 3)
		posted, produced, laggard := uint32(0), uint32(0), 0
		for posted < 150_000 {
			oldest := posted
			if len(has) > 0 {
				oldest = has[0]
			}
			room := min(tt.limit-uint32(len(has)), tt.places-(posted-oldest))
			if room == tt.places-(posted-oldest) && room < tt.limit-uint32(len(has)) {
				laggard++
			}
			n := 1 + m.IntN(len(wrs))
			for i := range n {
				wrs[i] = provider.RecvWR{WRID: uint64(posted) + uint64(i), SGL: []provider.SGE{{Length: 8}}}
				if m.IntN(4) == 0 {
					wrs[i].SGL = nil // not on the short path
				}
			}
			got, err := q.PostRecv(wrs[:n])
			if got != min(n, int(room)) || (err == provider.ErrQueueFull) != (got < n) {
				t.Fatalf("%+v: posted %d of %d with room for %d: %v", tt, got, n, room, err)
			}
			for range got {
				has = append(has, posted)
				posted++
			}
			if want := uint16(posted); number(q.record[0]) != uint32(want) {
				t.Fatalf("%+v: the record is %#x, want %#x", tt, number(q.record[0]), want)
			}
			for len(has) > 0 && m.IntN(3) > 0 {
				i := m.IntN(len(has))
				if i == 0 && len(has) > 1 && m.IntN(200) > 0 {
					i = 1 + m.IntN(len(has)-1)
				}
				at := has[i]
				has = append(has[:i], has[i+1:]...)
				c.write(produced, cqe{op: wqe.CQEResponderSend, qpn: 5, uidx: q.uidx(), counter: at, bytes: 8})
				produced++
				if n, err := c.Poll(wc[:]); n != 1 || err != nil || wc[0].WRID != uint64(at) {
					t.Fatalf("%+v: %d, %v, %+v, want receive %d", tt, n, err, wc[0], at)
				}
			}
		}
		if tt.limit > 2 && laggard == 0 {
			t.Errorf("%+v: no receive ever lagged behind", tt)
		}
		q.Moved(uapi.IB_QPS_RESET)
		q.Moved(uapi.IB_QPS_RTR)
		for i := range tt.limit + 1 {
			if n, err := q.PostRecv([]provider.RecvWR{{WRID: uint64(i)}}); (n == 1) != (i < tt.limit) {
				t.Errorf("%+v: after RESET, receive %d: %v", tt, i, err)
			}
		}
	}
}

// TestDisorderTwice: a receive that completes twice counts once, and once more after a reset.
func TestDisorderTwice(t *testing.T) {
	r := newRig(t, 1)
	c := r.newCQ(t, provider.CQInit{CQE: 7})
	q := r.newQP(t, 5, outOfOrder(c, 4, 4))
	for i := range uint32(3) {
		if n, err := q.PostRecv(make([]provider.RecvWR, 4)); n != 4 {
			t.Fatal(n, err)
		}
		for twice := range uint32(2) {
			c.write(2*i+twice, cqe{op: wqe.CQEResponderSend, qpn: 5, uidx: q.uidx(), counter: 2})
		}
		if n, err := c.Poll(make([]provider.WC, 2)); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		if n, _ := q.PostRecv(make([]provider.RecvWR, 2)); n != 1 {
			t.Errorf("there was room for %d", n)
		}
		q.Moved(uapi.IB_QPS_RESET)
		q.Moved(uapi.IB_QPS_RTR)
	}
}

// TestDisorderRefused: options that exclude receives in any order are refused.
func TestDisorderRefused(t *testing.T) {
	r := newRig(t, 1)
	r.limits.recvWQEs = 512
	cmd := ioctl.NewQpCreate()
	defer cmd.Release()
	for _, tt := range []struct {
		recvs  uint32
		format wqe.MiniFormat
		want   error
	}{
		{256, 0, nil}, {256, wqe.MiniStride, nil}, {257, 0, operr.ErrInvalid},
		{1, wqe.MiniHash, errCompressedDisorder}, {1, wqe.MiniChecksum, errCompressedDisorder},
	} {
		init := outOfOrder(r.newCQ(t, provider.CQInit{CQE: 7, Compression: uint8(tt.format)}), tt.recvs, 1)
		p, err := r.NewQP(cmd, &init)
		if !errors.Is(err, tt.want) {
			t.Errorf("%d receives, format %d: %v, want %v", tt.recvs, tt.format, err, tt.want)
		}
		if err == nil {
			p.Release()
		}
	}
}
