package rdmanl

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/mlx5ctx"
	"github.com/goverbs/goverbs/rdmanl"
	"github.com/goverbs/goverbs/verbs"
)

// TestRaw: what an adapter tells of its objects is what verbs know of them. Other devices tell nothing.
func TestRaw(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	p.B.Recv(t, 1, 0, 8)
	p.B.Recv(t, 2, 0, 8)
	p.A.Send(t, verbs.SendWR{WRID: 3, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, 8)}})
	rdmatest.PollOK(t, p.A.CQ, 1)
	d := rdmatest.Must(rdmanl.FindDevice(t.Context(), device))(t)
	raw, err := rdmanl.Raw(t.Context(), d.Index, rdmanl.RawQP, p.B.QP.Num())
	all, err2 := rdmanl.Raws(t.Context(), d.Index, rdmanl.RawQP)
	if rdmatest.KindOf() != rdmatest.MLX5 {
		if err == nil || !errors.Is(err2, errors.ErrUnsupported) {
			t.Errorf("%x, %v; %x, %v", raw, err, all, err2)
		}
		return
	}
	rdmatest.Check(t, errors.Join(err, err2))
	b := rdmatest.Must(mlx5ctx.QPFromDump(raw))(t)
	if b.Number != p.B.QP.Num() || b.RemoteQPN != p.A.QP.Num() || b.State != verbs.QPRTS || b.NextRecvPSN != 0x1235 || b.Receivable() != 1 || b.RecvRequests < 16 || b.MTU != verbs.MTU1024 || b.RNRRetry != 7 {
		t.Errorf("%+v", b)
	}
	found := 0
	for _, raw := range all {
		if q, err := mlx5ctx.QPFromDump(raw); err == nil && (q.Number == b.Number || q.Number == b.RemoteQPN) {
			found++
			if q.Number == b.RemoteQPN && (q.NextSendPSN != 0x1235 || q.LastAckedPSN != 0x1234 || q.Unacknowledged() != 0 || q.Waiting() != 0) {
				t.Errorf("%+v", q)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d of 2 queue pairs are among %d", found, len(all))
	}
	cqs := rdmatest.Must(rdmanl.Raws(t.Context(), d.Index, rdmanl.RawCQ))(t)
	found = 0
	for _, raw := range cqs {
		c := rdmatest.Must(mlx5ctx.CQFromDump(raw))(t)
		if c.Number == b.RecvCQ && c.Status == mlx5ctx.CQOK && c.Produced == 1 && c.Entries >= 64 && c.Record != 0 {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d CQs are B's", found)
	}
	mrs := rdmatest.Must(rdmanl.Raws(t.Context(), d.Index, rdmanl.RawMR))(t)
	found = 0
	for _, raw := range mrs {
		m := rdmatest.Must(mlx5ctx.MkeyFromDump(raw))(t)
		if m.Index<<8|uint32(m.Key) == p.B.MR.LKey() && m.Start == p.B.MR.Addr() && m.Length == 16384 && m.Local.Write && m.Remote.Read && m.Atomic {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d keys are B's", found)
	}
}
