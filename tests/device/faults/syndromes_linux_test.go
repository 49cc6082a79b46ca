package faults

import (
	"fmt"
	"io"
	"os/exec"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/tests/internal/control"
	"github.com/goverbs/goverbs/verbs"
)

// A player plays rounds. In each, one queue pair sends a message to another. Both begin
// in RESET.
type player interface {
	begin(t *testing.T) (a, b uint32)
	play(t *testing.T) (outcome string)
}

// A peer is the program in c/faults.c.
type peer struct {
	in   io.WriteCloser
	out  *rdmatest.Process
	a, b uint32
}

func startPeer(t *testing.T, args ...string) *peer {
	t.Helper()
	program := rdmatest.CProgram(t, "c/faults.c")
	cmd := exec.Command(program, append([]string{rdmatest.Device}, args...)...)
	p := &peer{in: rdmatest.Must(cmd.StdinPipe())(t)}
	p.out = rdmatest.StartCmd(t, cmd)
	t.Cleanup(func() {
		p.in.Close()
		if !p.out.OK() || t.Failed() {
			t.Errorf("the peer: %v", p.out)
		}
	})
	rdmatest.Must(fmt.Sscan(p.out.Line(t), &p.a, &p.b))(t)
	return p
}

func (p *peer) ask(t *testing.T, what string) string {
	t.Helper()
	rdmatest.Must(io.WriteString(p.in, what+"\n"))(t)
	return p.out.Line(t)
}

func (p *peer) begin(t *testing.T) (a, b uint32) {
	t.Helper()
	if got := p.ask(t, "round"); got != "ready" {
		t.Fatalf("the peer said %q", got)
	}
	return p.a, p.b
}

func (p *peer) play(t *testing.T) string { return p.ask(t, "play") }

// ours is a pair of this library's queue pairs.
type ours struct{ *rdmatest.Pair }

func (p ours) move(t *testing.T, to verbs.QPState) {
	t.Helper()
	for _, e := range []*rdmatest.End{p.A, p.B} {
		rdmatest.Check(t, e.QP.Modify(verbs.QPAttr{State: to}, verbs.QPAttrState))
	}
}

func (p ours) begin(t *testing.T) (a, b uint32) {
	t.Helper()
	p.move(t, verbs.QPReset)
	p.ToRTS(t, p.A, p.B.QP.Num())
	p.ToRTS(t, p.B, p.A.QP.Num())
	return p.A.QP.Num(), p.B.QP.Num()
}

func (p ours) play(t *testing.T) string {
	t.Helper()
	const n = 64
	p.B.Recv(t, 2, 1024, n)
	p.A.Send(t, verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, n)}})
	sent := rdmatest.Poll(t, p.A.CQ, 1)[0]
	p.move(t, verbs.QPErr) // so that the receive completes too
	received := rdmatest.Poll(t, p.B.CQ, 1)[0]
	if sent.WRID != 1 || received.WRID != 2 {
		t.Errorf("completions of requests %d and %d", sent.WRID, received.WRID)
	}
	rdmatest.Idle(t, p.A.CQ)
	rdmatest.Idle(t, p.B.CQ)
	return fmt.Sprintf("%d %s, %d %s", sent.Status, hex(sent.VendorErr), received.Status, hex(received.VendorErr))
}

// hex formats n as C's %#x does.
func hex(n uint32) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%#x", n)
}

const fine = "0 0, 0 0"

// syndromes has all syndromes of completions (MLX5_CQE_SYNDROME_*), and some unknown
// ones.
var syndromes = []uint8{
	0x01, 0x02, 0x04, 0x05, 0x06, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x22,
	0x00, 0x03, 0x20, 0x2f, 0xff,
}

// TestSyndromes fails requests with every syndrome, and loses packets. The completions
// must be those of the C stack. After each round, the queue pairs go from ERR through
// RESET to RTS, and work.
func TestSyndromes(t *testing.T) {
	for _, test := range []struct {
		name string
		srq  bool
		args []string
	}{{"receive queue", false, nil}, {"SRQ", true, []string{"srq"}}} {
		t.Run(test.name, func(t *testing.T) {
			theirs := startPeer(t, test.args...)
			spec := rdmatest.Default()
			spec.SRQ = test.srq
			impatient := func(a *verbs.QPAttr) { a.Timeout = 10 } // 4 ms
			spec.A.Tune, spec.B.Tune = impatient, impatient
			us := ours{rdmatest.NewPair(t, spec)}
			once := func(p player, r control.Request) string {
				a, b := p.begin(t)
				if r.QPN = a; r.Kind == "receive" {
					r.QPN = b
				}
				ask(t, r)
				outcome := p.play(t)
				p.begin(t)
				if again := p.play(t); again != fine {
					t.Errorf("after %+v: %s", r, again)
				}
				return outcome
			}
			failed := make(map[string]bool)
			both := func(r control.Request) string {
				r.Do, r.N = "inject", 1
				in := once(theirs, r)
				if got := once(us, r); got != in {
					t.Errorf("%s, syndrome %#x: %s, in C %s", r.Kind, r.Syndrome, got, in)
				}
				failed[in] = true
				return in
			}
			for i, syndrome := range syndromes {
				for _, kind := range []string{"send", "receive"} {
					if kind == "send" && (test.srq || syndrome == 0) {
						// An SRQ's receive stays in the SRQ; 0 injects nothing.
						continue
					}
					r := control.Request{Kind: kind, Syndrome: syndrome, Vendor: 0x70 + uint8(i)}
					if got := both(r); got == fine {
						t.Errorf("%+v did nothing", r)
					}
				}
			}
			for _, kind := range []string{"drop", "damage"} {
				if got := both(control.Request{Kind: kind}); got != fine {
					t.Errorf("after one packet's %s: %s", kind, got)
				}
			}
			// At least one outcome per vendor syndrome.
			if len(failed) < len(syndromes) {
				t.Errorf("there were %d outcomes", len(failed))
			}
		})
	}
}
