package mlx5dv

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/mlx5dv"
	"github.com/goverbs/goverbs/verbs"
)

// TestPaddedCQ: the adapter treats a CQ as padded, and Poll finds its completions, even after
// a resize.
func TestPaddedCQ(t *testing.T) {
	c := open(t, rdmatest.Device)
	has := rdmatest.Must(mlx5dv.QueryDevice(c))(t).Caps&mlx5dv.CapCQEPad != 0
	if promised := capability(t, c, 1469, 1) == 1; has != promised { // cqe_128_always
		t.Errorf("CapCQEPad is %t, the firmware says %t", has, promised)
	}
	for _, o := range []mlx5dv.CQOptions{
		{CQOptions: verbs.CQOptions{MaxCQE: 1}, Pad: true},
		{CQOptions: verbs.CQOptions{MaxCQE: 1, CQESize: 64}, Pad: true},
	} {
		if _, err := mlx5dv.CreateCQ(c, o); !errors.Is(err, verbs.ErrInvalid) && !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("%d bytes, padded: %v", o.CQESize, err)
		}
	}
	cq, err := mlx5dv.CreateCQ(c, mlx5dv.CQOptions{CQOptions: verbs.CQOptions{MaxCQE: 15, CQESize: 128}, Pad: true})
	if !has {
		if !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("on an adapter that pads none: %v", err)
		}
		return
	}
	rdmatest.Check(t, err)
	memory := rdmatest.Must(mlx5dv.CQQueue(cq))(t)
	if memory.CQEs.Size != 128 {
		t.Errorf("completions of %d bytes", memory.CQEs.Size)
	}
	query, out := command(queryCQ, 0, 16), make([]byte, 272)
	binary.BigEndian.PutUint32(query[8:], memory.Number)
	rdmatest.Check(t, mlx5dv.Query(cq, query, out))
	const padded = 2
	if size := be32(out[16:], 0) >> 21 & 7; size != padded {
		t.Errorf("the adapter's cqe_sz is %d, not %d", size, padded)
	}
	// CQQueue has left the first CQ to the program.
	cq = rdmatest.Must(mlx5dv.CreateCQ(c, mlx5dv.CQOptions{CQOptions: verbs.CQOptions{MaxCQE: 15, CQESize: 128}, Pad: true}))(t)
	pd := rdmatest.Must(c.AllocPD())(t)
	mr := rdmatest.Must(pd.AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)
	qp := rdmatest.Must(pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8}}))(t)
	gid := rdmatest.Must(c.FindGID(verbs.GIDSelector{Port: 1}))(t)
	rdmatest.Check(t, qp.Connect(rdmatest.Must(qp.Endpoint(gid))(t), verbs.ConnectOptions{}))
	for i := range 40 { // more than twice around the queue
		if i == 20 {
			rdmatest.Check(t, cq.Resize(31))
		}
		rdmatest.Must(qp.PostRecv(verbs.RecvWR{WRID: uint64(2 * i), SGL: []verbs.SGE{mr.SGE(2048, 64)}}))(t)
		rdmatest.Must(qp.PostSend(verbs.SendWR{WRID: uint64(2*i + 1), Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{mr.SGE(0, 64)}}))(t)
		wcs := rdmatest.PollOK(t, cq, 2)
		if sum := wcs[0].WRID + wcs[1].WRID; sum != uint64(4*i+1) {
			t.Errorf("exchange %d: requests %d and %d", i, wcs[0].WRID, wcs[1].WRID)
		}
	}
}

// TestOptionsRefused: an option that the adapter lacks is refused before it reaches the
// kernel.
func TestOptionsRefused(t *testing.T) {
	c := open(t, rdmatest.Device)
	caps := rdmatest.Must(mlx5dv.QueryDevice(c))(t).Caps
	pd := rdmatest.Must(c.AllocPD())(t)
	cq := rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 1}))(t)
	for need, o := range map[mlx5dv.Caps]mlx5dv.QPOptions{
		mlx5dv.CapOutOfOrder: {OutOfOrder: true}, mlx5dv.CapPacketCredits: {PacketCredits: true},
	} {
		o.QPOptions = verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 2}}
		_, err := mlx5dv.CreateQP(pd, o)
		if errors.Is(err, verbs.ErrNotSupported) != (caps&need == 0) {
			t.Errorf("%v of %v: %v", need, caps, err)
		}
	}
}
