package why

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

var _ = rdmatest.Test(TestWhyAcross, rdmatest.OnRXE, rdmatest.TwoGuests)

// An address is that of a queue pair in the other guest. In the last message of a side it is empty.
type address struct {
	QPN uint32
	GID verbs.GID
}

// TestWhyAcross: asked in one guest, why blames the other, or the network between them. Both guests take
// each part.
func TestWhyAcross(t *testing.T) {
	other := rdmatest.Meet(t)
	hear := func() (a address) {
		t.Helper()
		rdmatest.Check(t, other.Decode(&a))
		return a
	}
	server := rdmatest.Start(t, rdmatest.Program(t, "ibv"), "why", "--serve")
	server.Line(t)
	for _, x := range []struct {
		asks   string // this guest
		name   string
		victim func(t *testing.T, p *rdmatest.Pair) (undo func())
		id     string
		guilty string // PEER is the other guest
	}{
		{"0", "no receive posted", nil, "peer-not-ready", "PEER: "},
		{"1", "the peer's queue pair is gone", closed, "no-ack", "PEER: the queue pair is gone"},
		{"0", "no network", deaf, "no-ack", "network: "},
		{"1", "no receive posted, the other way", nil, "peer-not-ready", "PEER: "},
		{"0", "the peer's queue pair is gone, the other way", closed, "no-ack", "PEER: the queue pair is gone"},
	} {
		asks := os.Getenv("VM_INDEX") == x.asks
		if !t.Run(x.name, func(t *testing.T) {
			s := rdmatest.Default()
			s.A.Idle, s.B.Idle = true, true
			p := rdmatest.NewPair(t, s)
			rdmatest.Check(t, other.Encode(address{p.A.QP.Num(), p.GID.GID}))
			to := hear()
			p.A.Spec.Tune = func(a *verbs.QPAttr) { a.AH.DGID = to.GID }
			p.ToRTS(t, p.A, to.QPN)
			rdmatest.Check(t, other.Encode(address{}))
			hear() // the other side is connected
			if !asks {
				if x.victim != nil {
					defer x.victim(t, p)()
				}
				rdmatest.Check(t, other.Encode(address{}))
				hear() // it has asked
				return
			}
			hear() // it is as it should be
			defer func() { rdmatest.Check(t, other.Encode(address{})) }()
			sends(t, p)
			p.A.Send(t, verbs.SendWR{WRID: 2, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, 8)}})
			guilty := strings.Replace(x.guilty, "PEER", os.Getenv("VM_PEER"), 1)
			r := why(t, "--peer", os.Getenv("VM_PEER"), here)
			for _, f := range r.Findings {
				// On a slow machine, the retries may be spent.
				if slices.Contains(f.QPs, p.A.QP.Num()) && (f.ID == x.id || f.ID == "in-error" && x.id == "no-ack") && strings.HasPrefix(f.Guilty, guilty) {
					return
				}
			}
			t.Errorf("nothing like %s, %q: %+v", x.id, guilty, r)
		}) {
			return // the guests are out of step
		}
	}
}

func closed(t *testing.T, p *rdmatest.Pair) func() {
	rdmatest.Check(t, p.A.QP.Close())
	return func() {}
}

// deaf drops the packets of RoCE that arrive.
func deaf(t *testing.T, _ *rdmatest.Pair) func() {
	shell(t, "modprobe -a sch_ingress cls_u32 act_gact && tc qdisc add dev eth0 clsact")
	shell(t, "tc filter add dev eth0 ingress protocol ip pref 1 u32 match ip protocol 17 0xff match ip dport 4791 0xffff action drop")
	return func() { shell(t, "tc qdisc delete dev eth0 clsact") }
}
