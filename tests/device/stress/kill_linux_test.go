package stress

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// victimVar makes the test binary a process that runs traffic until killed.
const victimVar = "GOVERBS_STRESS_VICTIM"

// TestKill kills processes in the middle of traffic. Nothing of theirs remains in the
// kernel.
func TestKill(t *testing.T) {
	rdmatest.CheckLeaks(t)
	before := rdmatest.Resources(t)
	for i := range 4 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), victimVar+"=1")
		child := rdmatest.StartCmd(t, cmd)
		if line := child.Line(t); line != "running" {
			t.Fatalf("the child said %q", line)
		}
		if rdmatest.Resources(t) == before {
			t.Error("the child has no objects in the kernel")
		}
		time.Sleep(time.Duration(i) * 7 * time.Millisecond)
		child.Kill()
		if ws := child.Wait().Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGKILL {
			t.Fatalf("the child ended by itself: %v", child)
		}
		// The kernel may release a file after its process is gone.
		for deadline := time.Now().Add(rdmatest.Patience); rdmatest.Resources(t) != before; {
			if time.Now().After(deadline) {
				t.Fatalf("before:\n%s\nafter the child's end:\n%s", before, rdmatest.Resources(t))
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	// The device still works.
	p := rdmatest.NewPair(t, rdmatest.Default())
	p.B.Recv(t, 1, 0, 64)
	p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, Inline: []byte{1}})
	rdmatest.PollOK(t, p.A.CQ, 1)
	rdmatest.PollOK(t, p.B.CQ, 1)
}

// victim runs traffic of all kinds until it is killed.
func victim() {
	t := &victimTB{}
	s := rdmatest.Default()
	s.Channel, s.SRQ = true, true
	c := rdmatest.Must(verbs.Open(rdmatest.Device))(t)
	p := rdmatest.PairOn(t, c, s)
	to := p.B.MR.Remote()
	if rdmatest.KindOf() != rdmatest.SIW { // siw has no memory windows
		mw := rdmatest.Must(p.PD.AllocMW(verbs.MWType1))(t)
		bind := verbs.MWBindInfo{MR: p.B.MR, Addr: p.B.MR.Addr(), Length: 4096, Access: verbs.AccessRemoteWrite}
		rdmatest.Check(t, p.B.QP.BindMW(mw, verbs.MWBind{Flags: verbs.SendSignaled, MWBindInfo: bind}))
		rdmatest.PollOK(t, p.B.CQ, 1)
		to.RKey = mw.RKey()
	}
	for i := 0; ; i++ {
		p.B.Recv(t, 1, 0, 8192)
		p.A.Send(t,
			verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{p.A.MR.SGE(0, 4096)}, Remote: to},
			verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{p.A.MR.SGE(0, 8192)}, Remote: p.B.MR.Remote()},
			verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, 8192)}})
		if i == 10 {
			fmt.Println("running")
		}
		rdmatest.PollOK(t, p.A.CQ, 1)
		rdmatest.PollOK(t, p.B.CQ, 1)
	}
}

// victimTB lets the victim, which isn't a test, use rdmatest.
type victimTB struct{ testing.TB }

func (victimTB) Helper()                  {}
func (victimTB) Cleanup(func())           {}
func (victimTB) Context() context.Context { return context.Background() }
func (victimTB) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}

func (v victimTB) Fatalf(format string, args ...any) { v.Fatal(fmt.Sprintf(format, args...)) }
