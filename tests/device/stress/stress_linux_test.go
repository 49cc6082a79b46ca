// Package stress stresses the library on a real device: with many objects, killed
// processes, a garbage collector that runs all the time, waits that end in every way, and
// a device that is removed.
package stress

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/rdmatest/iwarp"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) {
	rdmatest.ConnectIWARP = iwarp.Connect
	if os.Getenv(victimVar) != "" {
		victim()
	}
	rdmatest.Main(m, rdmatest.OnRXE, rdmatest.OnMLX5)
}

// These tests run on soft-iWARP, too. The other tests here need a device that can be removed,
// or messages that wait for a receive.
var _ = []struct{}{
	rdmatest.Test(TestGarbageCollector, rdmatest.AlsoSIW),
	rdmatest.Test(TestKill, rdmatest.AlsoSIW),
	rdmatest.Test(TestManyObjects, rdmatest.AlsoSIW),
	rdmatest.Test(TestAllocations, rdmatest.AlsoSIW),
	rdmatest.Test(TestCancelWaits, rdmatest.AlsoSIW),
	rdmatest.Test(TestManyWaiters, rdmatest.AlsoSIW),
}

// TestManyObjects creates and destroys 1,000 queue pairs and 10,000 memory regions. A
// leak would grow with each round.
func TestManyObjects(t *testing.T) {
	c := rdmatest.Open(t)
	const qps = 100
	mrs := 1000
	rounds := 10
	if testing.Short() {
		rounds = 1
	}
	heap := make([]byte, 1<<20)
	types := []verbs.QPType{verbs.RC, verbs.UC, verbs.UD}
	if rdmatest.KindOf() == rdmatest.SIW {
		types = types[:1]
		mrs = 500 // siw applies RLIMIT_MEMLOCK to root, too
	}
	round := func() {
		pd := rdmatest.Must(c.AllocPD())(t)
		ch := rdmatest.Must(c.CreateCompChannel())(t)
		cq := rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 16, Channel: ch}))(t)
		srq := rdmatest.Must(pd.CreateSRQ(verbs.SRQOptions{MaxWR: 4, MaxSGE: 1}))(t)
		var made []interface{ Close() error }
		for i := range qps {
			o := verbs.QPOptions{
				Type: types[i%len(types)], SendCQ: cq, RecvCQ: cq,
				Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
			}
			if i%2 == 0 {
				o.SRQ = srq
			}
			qp := rdmatest.Must(pd.CreateQP(o))(t)
			made = append(made, qp)
		}
		for i := range mrs {
			var mr *verbs.MR
			var err error
			if i%2 == 0 {
				mr, err = pd.AllocMR(4096+i, verbs.MROptions{Access: rdmatest.All})
			} else {
				mr, err = pd.RegMR(heap[i*100:i*100+5000], verbs.MROptions{Access: rdmatest.All})
			}
			if err != nil {
				t.Fatal(err)
			}
			made = append(made, mr)
		}
		for _, x := range append(made, srq, cq, ch, pd) {
			rdmatest.Close(t, x)
		}
	}
	settle := func() int64 {
		runtime.GC()
		debug.FreeOSMemory()
		return rdmatest.RSS(t)
	}
	round() // the runtime and the kernel allocate some memory once
	resources, fds, rss := rdmatest.Resources(t), rdmatest.FDs(t), settle()
	for range rounds {
		round()
	}
	if r := rdmatest.Resources(t); r != resources {
		t.Errorf("before:\n%s\nafter:\n%s", resources, r)
	}
	if n := rdmatest.FDs(t); n != fds {
		t.Errorf("%d file descriptors were open, now %d", fds, n)
	}
	// Leaking a page for each region would take 4 MB a round, a ring for each queue pair 1 MB
	// or more. The runtime's own variation doesn't grow with the rounds.
	grown := settle() - rss
	t.Logf("the process has %d KB more than before", grown>>10)
	if grown > max(3<<20, int64(rounds)<<19)+shadow {
		t.Error("that is too much")
	}
}

var _ = rdmatest.Test(TestManyContexts, rdmatest.LongOn("mlx5"), rdmatest.AlsoSIW)

// TestManyContexts opens the device many times, and closes all objects with the Device's
// Close.
func TestManyContexts(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for range 50 {
		c := rdmatest.Must(verbs.Open(rdmatest.Device))(t)
		s := rdmatest.Default()
		s.Channel, s.SRQ = true, true
		p := rdmatest.PairOn(t, c, s)
		p.B.Recv(t, 1, 0, 64)
		p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, Inline: []byte{1}})
		rdmatest.PollOK(t, p.B.CQ, 1)
		rdmatest.Close(t, c)
	}
}

// TestAllocations: the fast path allocates nothing, on a real device.
func TestAllocations(t *testing.T) {
	s := rdmatest.Default()
	s.Channel = true
	p := rdmatest.NewPair(t, s)
	var wc [4]verbs.WC
	poll := func(cq *verbs.CQ) {
		for {
			n, err := cq.Poll(wc[:])
			if err != nil || n > 1 || n == 1 && wc[0].Status != verbs.WCSuccess {
				t.Fatalf("%d completions, %v, %+v", n, err, wc[0])
			}
			if n == 1 {
				return
			}
			runtime.Gosched()
		}
	}
	a, b := p.A, p.B
	full := make([]verbs.SendWR, 64)
	for i := range full {
		full[i] = verbs.SendWR{Opcode: 200}
	}
	for _, x := range []struct {
		name string
		f    func()
	}{
		{"send", func() {
			if n, err := b.QP.PostRecv(verbs.RecvWR{WRID: 1, SGL: []verbs.SGE{b.MR.SGE(0, 64)}}); n != 1 || err != nil {
				t.Fatal(err)
			}
			if n, err := a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{a.MR.SGE(0, 64)}}); n != 1 || err != nil {
				t.Fatal(err)
			}
			poll(a.CQ)
			poll(b.CQ)
		}},
		{"write inline", func() {
			var data [16]byte
			if n, err := a.QP.PostSend(verbs.SendWR{
				Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, Inline: data[:], Remote: b.MR.Remote(),
			}); n != 1 || err != nil {
				t.Fatal(err)
			}
			poll(a.CQ)
		}},
		{"arm", func() {
			rdmatest.Check(t, b.CQ.Arm(true))
		}},
		{"empty poll", func() {
			if n, err := a.CQ.Poll(wc[:]); n != 0 || err != nil {
				t.Fatal(n, err)
			}
		}},
		{"refused post", func() {
			if n, err := a.QP.PostSend(full...); n != 0 || err == nil {
				t.Fatal(n, err)
			}
		}},
	} {
		if n := testing.AllocsPerRun(200, x.f); n != 0 {
			t.Errorf("%s: %v allocations", x.name, n)
		}
	}
}
