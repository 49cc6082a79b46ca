package conformance

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// TestEmptyBuffers: an empty buffer in a receive takes nothing of a message, wherever the receive
// is posted.
func TestEmptyBuffers(t *testing.T) {
	for name, spec := range map[string]rdmatest.Spec{"QP": rdmatest.Default(), "SRQ": srqSpec()} {
		t.Run(name, func(t *testing.T) {
			p := rdmatest.NewPair(t, spec)
			for i, at := range [][]int{{0, 64}, {64, 0}, {0, 64, 0}} {
				clear(p.B.MR.Bytes())
				wr := verbs.RecvWR{WRID: uint64(i)}
				for j, n := range at {
					wr.SGL = append(wr.SGL, p.B.MR.SGE(1024*j, n))
				}
				post := p.B.QP.PostRecv
				if p.B.SRQ != nil {
					post = p.B.SRQ.PostRecv
				}
				if n, err := post(wr); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				rdmatest.Fill(p.A.MR.Bytes()[:40], i)
				p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, 40)}})
				rdmatest.PollOK(t, p.A.CQ, 1)
				if wc := rdmatest.PollOK(t, p.B.CQ, 1)[0]; wc.ByteLen != 40 || wc.WRID != uint64(i) {
					t.Errorf("%d: %+v", at, wc)
				}
				for j, n := range at {
					if n > 0 {
						wantArrived(t, p.B.MR.Bytes(), 1024*j, rdmatest.Pattern(40, i))
					}
				}
			}
		})
	}
}
