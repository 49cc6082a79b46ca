package faults

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/tests/internal/control"
	"github.com/goverbs/goverbs/verbs"
)

// TestCompressed: the device's counters confirm that a CQ with compression did get
// compressed completions.
func TestCompressed(t *testing.T) {
	type counts struct{ Completions, Blocks, Compressed int }
	count := func() (n counts) {
		t.Helper()
		rdmatest.Check(t, control.Request{Do: "completions"}.Get(&n))
		return n
	}
	for _, c := range []verbs.CQECompression{0, verbs.CompressHash, verbs.CompressChecksum} {
		s := rdmatest.Default()
		s.Compression = c
		p := rdmatest.NewPair(t, s)
		before := count()
		const rounds, burst = 20, 16
		for round := range rounds {
			recvs, sends := make([]verbs.RecvWR, burst), make([]verbs.SendWR, burst)
			for i := range burst {
				recvs[i] = verbs.RecvWR{WRID: uint64(round*burst + i), SGL: []verbs.SGE{p.B.MR.SGE(256*i, 256)}}
				sends[i] = verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{p.A.MR.SGE(0, 1+round+7*i)}}
			}
			sends[burst-1].Flags = verbs.SendSignaled
			p.B.PostRecv(t, recvs...)
			p.A.Send(t, sends...)
			rdmatest.PollOK(t, p.A.CQ, 1)
			for i, wc := range rdmatest.PollOK(t, p.B.CQ, burst) {
				if wc.WRID != recvs[i].WRID || int(wc.ByteLen) != 1+round+7*i {
					t.Fatalf("compression %d, round %d, completion %d: %+v", c, round, i, wc)
				}
			}
		}
		after := count()
		completions, blocks, compressed := after.Completions-before.Completions, after.Blocks-before.Blocks, after.Compressed-before.Compressed
		t.Logf("compression %d: of %d completions %d in %d blocks", c, completions, compressed, blocks)
		if completions < rounds*(burst+1) || (blocks > 0) != (c != 0) || compressed < 2*blocks || compressed > rounds*burst {
			t.Errorf("compression %d: of %d completions %d in %d blocks", c, completions, compressed, blocks)
		}
	}
}
