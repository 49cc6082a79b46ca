// Golang measures what bench.c does with this library: a line for each thing,
// with the median of many batches' nanoseconds per operation.
//
//	golang [-single] [BATCHES]
//
// -single makes the queues with SingleOwner. A thing that allocates is an error.
package main

import (
	"flag"
	"fmt"
	"log"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/tests/fakemlx5/rings"
	"github.com/goverbs/goverbs/verbs"
)

// As in world.h.
const (
	ring  = 256
	batch = 128
	list  = 16
	size  = 64
)

var (
	single  bool
	batches = 2000
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("golang: ")
	flag.BoolVar(&single, "single", false, "")
	flag.Parse()
	if flag.NArg() > 0 {
		var err error
		if batches, err = strconv.Atoi(flag.Arg(0)); err != nil {
			log.Fatal(err)
		}
	}
	w := newWorld()
	w.sends()
	w.lists()
	w.receives()
	w.polls()
}

type world struct {
	pd             *verbs.PD
	cq             *verbs.CQ
	mr             *verbs.MR
	ah             *verbs.AH
	rc, ud         *verbs.QP
	playRC, playUD *rings.Player
	wcs            []verbs.WC
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func newWorld() *world {
	ctx := must(verbs.Open("mlx5_0"))
	w := &world{pd: must(ctx.AllocPD()), wcs: make([]verbs.WC, list)}
	w.cq = must(ctx.CreateCQ(verbs.CQOptions{CQE: 2*ring - 1, SingleOwner: single}))
	cq := must(rings.Last(rings.CQ))
	w.mr = must(w.pd.AllocMR(1<<16, verbs.AccessLocalWrite))
	w.ah = must(w.pd.CreateAH(verbs.AHAttr{DLID: 1, Port: 1}))
	w.rc = w.newQP(verbs.RC)
	w.playRC = rings.NewPlayer(must(rings.Last(rings.QP)), cq)
	w.ud = w.newQP(verbs.UD)
	w.playUD = w.playRC.Another(must(rings.Last(rings.QP)))
	return w
}

func (w *world) newQP(typ verbs.QPType) *verbs.QP {
	qp := must(w.pd.CreateQP(verbs.QPOptions{
		Type: typ, SendCQ: w.cq, RecvCQ: w.cq, SingleOwner: single,
		Cap: verbs.QPCap{MaxSendWR: ring, MaxRecvWR: ring, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: size},
	}))
	// The library wants to know; the device doesn't care how it got there.
	a := verbs.QPAttr{Port: 1, PathMTU: verbs.MTU1024, AH: verbs.AHAttr{DLID: 1, Port: 1}}
	for _, step := range []struct {
		to     verbs.QPState
		rc, ud verbs.QPAttrMask
	}{
		{verbs.QPInit, verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccess, verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrQKey},
		{verbs.QPRTR, verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN | verbs.QPAttrMaxDestRDAtomic | verbs.QPAttrMinRNRTimer, 0},
		{verbs.QPRTS, verbs.QPAttrSQPSN | verbs.QPAttrTimeout | verbs.QPAttrRetryCount | verbs.QPAttrRNRRetry | verbs.QPAttrMaxRDAtomic, verbs.QPAttrSQPSN},
	} {
		a.State = step.to
		mask := step.rc
		if typ == verbs.UD {
			mask = step.ud
		}
		check(qp.Modify(a, verbs.QPAttrState|mask))
	}
	return qp
}

func (w *world) sends() {
	data := w.mr.Bytes()[:size]
	var (
		sge   = []verbs.SGE{w.mr.SGE(0, size)}
		addr  = w.mr.Addr()
		rkey  = w.mr.RKey()
		flags = verbs.SendSignaled
	)
	measure("RC write, inline 64 B", 1, nil, w.drainRC, func() {
		_, err := w.rc.PostSend(verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: flags, Inline: data, RemoteAddr: addr, RKey: rkey})
		check(err)
	})
	measure("RC write, 1 SGE", 1, nil, w.drainRC, func() {
		_, err := w.rc.PostSend(verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: flags, SGL: sge, RemoteAddr: addr, RKey: rkey})
		check(err)
	})
	measure("RC send, 1 SGE", 1, nil, w.drainRC, func() {
		_, err := w.rc.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: flags, SGL: sge})
		check(err)
	})
	measure("UD send, 1 SGE", 1, nil, w.drainUD, func() {
		_, err := w.ud.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: flags, SGL: sge, AH: w.ah, RemoteQPN: 5, RemoteQKey: 0x1ee7})
		check(err)
	})
}

func (w *world) writes() []verbs.SendWR {
	wrs := make([]verbs.SendWR, list)
	for i := range wrs {
		wrs[i] = verbs.SendWR{
			Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{w.mr.SGE(0, size)},
			RemoteAddr: w.mr.Addr(), RKey: w.mr.RKey(),
		}
	}
	return wrs
}

func (w *world) lists() {
	wrs := w.writes()
	measure("list of 16 RC writes, each", list, nil, w.drainRC, func() {
		_, err := w.rc.PostSend(wrs...)
		check(err)
	})
}

func (w *world) receives() {
	sge := []verbs.SGE{w.mr.SGE(0, size)}
	measure("receive, 1 SGE", 1, nil, w.drainRC, func() {
		_, err := w.rc.PostRecv(verbs.RecvWR{SGL: sge})
		check(err)
	})
	wrs := make([]verbs.RecvWR, list)
	for i := range wrs {
		wrs[i].SGL = sge
	}
	measure("list of 16 receives, each", list, nil, w.drainRC, func() {
		_, err := w.rc.PostRecv(wrs...)
		check(err)
	})
}

func (w *world) polls() {
	wrs := w.writes()
	fill := func() {
		for range batch / list {
			must(w.rc.PostSend(wrs...))
		}
		w.playRC.CompleteSends()
	}
	measure("poll of 1", 1, fill, nil, func() { w.poll(1, 1) })
	measure("poll of 16, each", list, fill, nil, func() { w.poll(list, list) })
	measure("empty poll", 1, nil, nil, func() { w.poll(1, 0) })
}

func (w *world) poll(room, want int) {
	if n, err := w.cq.Poll(w.wcs[:room]); n != want || err != nil {
		log.Fatalf("polled %d of %d: %v", n, want, err)
	}
}

func (w *world) drainRC() { w.drain(w.playRC) }
func (w *world) drainUD() { w.drain(w.playUD) }

// drain completes what was posted and takes the completions.
func (w *world) drain(p *rings.Player) {
	for n := p.CompleteSends() + p.CompleteRecvs(size); n > 0; {
		m := must(w.cq.Poll(w.wcs))
		if m == 0 {
			log.Fatalf("%d completions are missing", n)
		}
		n -= m
	}
}

// measure runs batches of operations, of which a call of op does each.
func measure(name string, each int, before, after, op func()) {
	ns := make([]float64, batches)
	var allocated uint64
	for i := range ns {
		if before != nil {
			before()
		}
		start := time.Now()
		for j := 0; j < batch; j += each {
			op()
		}
		ns[i] = float64(time.Since(start).Nanoseconds()) / batch
		if after != nil {
			after()
		}
		if i == batches/2 {
			allocated = mallocs()
		}
	}
	// Other goroutines' allocations are few; one in each operation would be many.
	if n := mallocs() - allocated; n > uint64(batches/2) {
		log.Fatalf("%s: %d allocations in %d batches", name, n, batches/2)
	}
	slices.Sort(ns)
	fmt.Printf("%s\t%.2f\n", name, ns[batches/2])
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
