package mlx5

import (
	"errors"
	"math/bits"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// TestTooMuch: queues and requests beyond the adapter's limits are invalid arguments, so that a program
// knows that it must request less.
func TestTooMuch(t *testing.T) {
	r := newRig(t, 1)
	r.limits = limits{sendWQE: 256, recvWQE: 32, sendBlocks: 512, recvWQEs: 512, srqWQEs: 31}
	for _, c := range []uapi.IbUverbsQpCap{
		{MaxSendWr: 513}, {MaxSendWr: 256, MaxSendSge: 1}, {MaxSendWr: 1, MaxSendSge: 5}, {MaxSendWr: 1, MaxInlineData: 61},
		{MaxRecvWr: 513}, {MaxRecvWr: 1, MaxRecvSge: 3},
	} {
		q := &qp{ctx: r.context, init: provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: c}}
		if err := q.prepare(new(uapi.Mlx5IbCreateQp)); !errors.Is(err, operr.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
		q.Release()
	}
	for _, init := range []provider.SRQInit{{MaxWR: 32, MaxSGE: 1}, {MaxWR: 1, MaxSGE: 2}} {
		s := &srq{ctx: r.context}
		if err := s.prepare(new(uapi.Mlx5IbCreateSrq), &init); !errors.Is(err, operr.ErrInvalid) {
			t.Errorf("%+v: %v", init, err)
		}
	}
}

// TestQPRequest checks the driver's request for a QP's queues.
func TestQPRequest(t *testing.T) {
	for _, version := range []uint8{0, 1} {
		r := newRig(t, version)
		for i, reg := range r.uars.free {
			reg.page = 70 + uint32(i)
		}
		other := r.newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(1, 1, 0)})
		q := &qp{ctx: r.context, init: provider.QPInit{
			Type: uapi.IB_UVERBS_QPT_RC, Cap: uapi.IbUverbsQpCap{MaxSendWr: 10, MaxRecvWr: 5, MaxSendSge: 1, MaxRecvSge: 3},
		}}
		var req uapi.Mlx5IbCreateQp
		if err := q.prepare(&req); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(q.Release)
		// With UMRs, a WQE has up to four blocks: ten WQEs take 40, rounded up to 64.
		want := uapi.Mlx5IbCreateQp{
			BufAddr: q.buf.addr(), DbAddr: q.record.addr(), SqWqeCount: 64,
			RqWqeCount: 8, RqWqeShift: uint32(bits.Len(4*16)) - 1,
			Flags: uapi.MLX5_QP_FLAG_UAR_PAGE_INDEX, BfregIndex: q.reg.page, Uidx: 1,
		}
		if version == 0 {
			want.Uidx = 0xffffff
		}
		if diff := cmp.Diff(want, req); diff != "" {
			t.Errorf("version %d (-want +got):\n%s", version, diff)
		}
		if q.reg == other.reg || q.reg.page < 70 || q.record == other.record {
			t.Errorf("version %d: the register or the record is another QP's", version)
		}
	}
}
