package verbs

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/provider"
)

// keepQP keeps copies of what is posted.
type keepQP struct {
	nullQP
	wrs []provider.SendWR
}

func (q *keepQP) PostSend(wrs []provider.SendWR) (int, error) {
	q.wrs = append(q.wrs, wrs...)
	return q.nullQP.PostSend(wrs)
}

func keepRC() (*QP, *keepQP) {
	qp, _ := nullRC()
	p := new(keepQP)
	qp.prov = p
	return qp, p
}

// What is built is what would have been posted.
func TestSendBuilder(t *testing.T) {
	list := []SGE{{Addr: 1, Length: 2, LKey: 3}, {Addr: 4, Length: 5, LKey: 6}}
	data := []byte("inline")
	want := []SendWR{
		{WRID: 1, Opcode: OpSend, Flags: SendSignaled, SGL: list[:1]},
		{WRID: 1, Opcode: OpSendImm, Flags: SendSignaled, Imm: 7, Inline: data},
		{WRID: 2, Opcode: OpSendInv, Flags: SendFence, InvalidateRKey: 8, SGL: list},
		{WRID: 2, Opcode: OpRDMAWrite, Flags: SendFence, RKey: 9, RemoteAddr: 10},
		{WRID: 2, Opcode: OpRDMAWriteImm, Flags: SendFence, RKey: 9, RemoteAddr: 10, Imm: 11},
		{WRID: 2, Opcode: OpRDMARead, Flags: SendFence, RKey: 9, RemoteAddr: 10, SGL: list},
		{WRID: 2, Opcode: OpCompareSwap, Flags: SendFence, RKey: 9, RemoteAddr: 16, Compare: 12, Swap: 13, SGL: []SGE{{Length: 8}}},
		{WRID: 2, Opcode: OpFetchAdd, Flags: SendFence, RKey: 9, RemoteAddr: 16, Add: 14, SGL: []SGE{{Length: 8}}},
		{WRID: 2, Opcode: OpLocalInv, Flags: SendFence, InvalidateRKey: 15},
	}
	build := func(qp *QP) *SendBuilder {
		b := qp.StartSends()
		b.WRID, b.Flags = 1, SendSignaled
		b.Send()
		b.SetSGE(list[0])
		b.SendImm(7)
		b.SetInlineData(data)
		b.WRID, b.Flags = 2, SendFence
		b.SendInv(8)
		b.SetSGEList(list)
		b.RDMAWrite(9, 10)
		b.RDMAWriteImm(9, 10, 11)
		b.RDMARead(9, 10)
		b.SetSGEList(list)
		b.CompareSwap(9, 16, 12, 13)
		b.SetSGE(SGE{Length: 8})
		b.FetchAdd(9, 16, 14)
		b.SetSGE(SGE{Length: 8})
		b.LocalInv(15)
		return b
	}
	posting, posted := keepRC()
	if n, err := posting.PostSend(want...); n != len(want) || err != nil {
		t.Fatal(n, err)
	}
	qp, p := keepRC()
	for range 3 { // in the places of the round before
		p.wrs, p.rung = nil, 0
		if n, err := build(qp).Complete(); n != len(want) || err != nil {
			t.Fatal(n, err)
		}
		if p.rung != 1 {
			t.Errorf("%d doorbells", p.rung)
		}
		for i := range want {
			got, want := p.wrs[i], posted.wrs[i]
			if len(got.SGL) == 0 {
				got.SGL = want.SGL
			}
			if got.Opcode != want.Opcode || got.WRID != want.WRID || got.Flags != want.Flags || got.Imm != want.Imm && i != 0 ||
				cmp.Diff(got.SGL, want.SGL) != "" || string(got.Inline) != string(want.Inline) {
				t.Errorf("request %d: %+v, want %+v", i, got, want)
			}
		}
		qp.StartSends().Abort()
		b := qp.StartSends()
		b.Send()
		b.Abort()
		if n, err := b.Complete(); n != 0 || err == nil {
			t.Errorf("complete after abort: %d, %v", n, err)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		b := qp.StartSends()
		for range 16 {
			b.RDMAWrite(1, 2)
			b.SetSGE(SGE{Length: 3})
		}
		p.wrs = p.wrs[:0]
		b.Complete()
	}); n > 0.5 {
		t.Errorf("%v allocations", n)
	}
	var none *QP
	if n, err := none.StartSends().Complete(); n != 0 || err == nil {
		t.Errorf("on no QP: %d, %v", n, err)
	}
}
