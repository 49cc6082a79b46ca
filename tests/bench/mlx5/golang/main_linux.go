// Golang makes the measurements of bench.c with this library. It prints a line for each
// operation, with the median of many batches' nanoseconds per operation.
//
//	golang [-single] [-only NAME] [-count | BATCHES]
//
// -single creates the queues with SingleOwner. An operation that allocates memory is an
// error. -count is for ../counted: for each operation its name, and two batches of
// which the second one is marked.
package main

import (
	"flag"
	"fmt"
	"log"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

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
	single   bool
	only     string
	counting bool
	batches  = 2000
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("golang: ")
	flag.BoolVar(&single, "single", false, "")
	flag.StringVar(&only, "only", "", "")
	flag.BoolVar(&counting, "count", false, "")
	flag.Parse()
	if counting {
		batches = 2
	}
	if flag.NArg() > 0 {
		var err error
		if batches, err = strconv.Atoi(flag.Arg(0)); err != nil {
			log.Fatal(err)
		}
	}
	w := newWorld()
	w.sends()
	w.builds()
	w.receives()
	w.polls()
	if !counting {
		w.crowds()
	}
}

type world struct {
	ctx            *verbs.Device
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
	w := &world{ctx: ctx, pd: must(ctx.AllocPD()), wcs: make([]verbs.WC, list)}
	w.cq = must(ctx.CreateCQ(verbs.CQOptions{MaxCQE: 2*ring - 1, SingleOwner: single}))
	cq := must(rings.Last(rings.CQ))
	w.mr = must(w.pd.AllocMR(1<<16, verbs.MROptions{Access: verbs.AccessLocalWrite}))
	w.ah = must(w.pd.CreateAH(verbs.AHAttr{DLID: 1, Port: 1}))
	w.rc = w.newQP(verbs.RC, w.cq, ring)
	w.playRC = rings.NewPlayer(must(rings.Last(rings.QP)), cq)
	w.ud = w.newQP(verbs.UD, w.cq, ring)
	w.playUD = w.playRC.Another(must(rings.Last(rings.QP)))
	return w
}

func (w *world) newQP(typ verbs.QPType, cq *verbs.CQ, depth int) *verbs.QP {
	qp := must(w.pd.CreateQP(verbs.QPOptions{
		Type: typ, SendCQ: cq, RecvCQ: cq, SingleOwner: single,
		Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: size},
	}))
	// The library needs the state. The device doesn't check the other attributes.
	a := verbs.QPAttr{Port: 1, PathMTU: verbs.MTU1024, AH: verbs.AHAttr{DLID: 1, Port: 1}}
	for _, a.State = range []verbs.QPState{verbs.QPInit, verbs.QPRTR, verbs.QPRTS} {
		check(qp.Modify(a, verbs.RequiredMask(typ, a.State-1, a.State)))
	}
	return qp
}

// failed is a separate function, so that the measured code has only a jump to it.
func failed(n int, err error) { log.Fatalf("%d, %v", n, err) }

func (w *world) write() verbs.SendWR {
	return verbs.SendWR{
		Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{w.mr.SGE(0, size)},
		Remote: w.mr.Remote(),
	}
}

// posts returns calls of PostSend with requests that are built once, as in bench.c.
func posts(qp *verbs.QP, wrs ...verbs.SendWR) func(int) {
	return func(calls int) {
		for range calls {
			if n, err := qp.PostSend(wrs...); err != nil {
				failed(n, err)
			}
		}
	}
}

func (w *world) sends() {
	write, writeInline, send, udSend := w.write(), w.write(), w.write(), w.write()
	writeInline.SGL, writeInline.Inline = nil, w.mr.Bytes()[:size]
	send.Opcode, udSend.Opcode = verbs.OpSend, verbs.OpSend
	udSend.AH, udSend.RemoteQPN, udSend.RemoteQKey = w.ah, 5, 0x1ee7

	measure("RC write, inline 64 B", 1, nil, w.drainRC, posts(w.rc, writeInline))
	measure("RC write, 1 SGE", 1, nil, w.drainRC, posts(w.rc, write))
	measure("RC write, 1 SGE, made anew", 1, nil, w.drainRC, func(calls int) {
		qp, sge, addr, rkey := w.rc, w.mr.SGE(0, size), w.mr.Addr(), w.mr.RKey()
		for i := range calls {
			n, err := qp.PostSend(verbs.SendWR{
				WRID: uint64(i), Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
				SGL: []verbs.SGE{sge}, Remote: verbs.Remote{Addr: addr, RKey: rkey},
			})
			if err != nil {
				failed(n, err)
			}
		}
	})
	measure("RC send, 1 SGE", 1, nil, w.drainRC, posts(w.rc, send))
	measure("UD send, 1 SGE", 1, nil, w.drainUD, posts(w.ud, udSend))
	measure("list of 16 RC writes, each", list, nil, w.drainRC, posts(w.rc, w.writes()...))
}

func (w *world) builds() {
	sge, to := w.mr.SGE(0, size), w.mr.Remote()
	// The C compiler unrolls the loop of one request.
	one := func(b *verbs.SendBuilder) error {
		b.RDMAWrite(0, verbs.SendSignaled, to, sge)
		return nil
	}
	many := func(b *verbs.SendBuilder) error {
		for i := range list {
			b.RDMAWrite(uint64(i), verbs.SendSignaled, to, sge)
		}
		return nil
	}
	measure("builder, 1 RC write", 1, nil, w.drainRC, batchesOf(w.rc, one))
	measure("builder, 16 RC writes, each", list, nil, w.drainRC, batchesOf(w.rc, many))
}

// batchesOf returns calls of Sends.
func batchesOf(qp *verbs.QP, build func(*verbs.SendBuilder) error) func(int) {
	return func(calls int) {
		for range calls {
			if n, err := qp.Sends(build); err != nil {
				failed(n, err)
			}
		}
	}
}

func (w *world) writes() []verbs.SendWR {
	wrs := make([]verbs.SendWR, list)
	for i := range wrs {
		wrs[i] = w.write()
	}
	return wrs
}

func (w *world) receives() {
	wrs := make([]verbs.RecvWR, list)
	for i := range wrs {
		wrs[i].SGL = []verbs.SGE{w.mr.SGE(0, size)}
	}
	post := func(wrs []verbs.RecvWR) func(int) {
		qp := w.rc
		return func(calls int) {
			for range calls {
				if n, err := qp.PostRecv(wrs...); err != nil {
					failed(n, err)
				}
			}
		}
	}
	measure("receive, 1 SGE", 1, nil, w.drainRC, post(wrs[:1]))
	measure("list of 16 receives, each", list, nil, w.drainRC, post(wrs))
}

func (w *world) polls() {
	wrs := w.writes()
	fill := func() {
		for range batch / list {
			must(w.rc.PostSend(wrs...))
		}
		w.playRC.CompleteSends()
	}
	polls := func(room, want int) func(int) {
		cq, wcs := w.cq, w.wcs[:room]
		return func(calls int) {
			for range calls {
				if n, err := cq.Poll(wcs); n != want || err != nil {
					failed(n, err)
				}
			}
		}
	}
	measure("poll of 1", 1, fill, nil, polls(1, 1))
	measure("poll of 16, each", list, fill, nil, polls(list, list))
	measure("empty poll", 1, nil, nil, polls(1, 0))
}

func (w *world) drainRC() { w.drain(w.playRC) }
func (w *world) drainUD() { w.drain(w.playUD) }

// drain completes the posted requests and polls the completions.
func (w *world) drain(p *rings.Player) {
	for n := p.CompleteSends() + p.CompleteRecvs(size); n > 0; {
		m := must(w.cq.Poll(w.wcs))
		if m == 0 {
			log.Fatalf("%d completions are missing", n)
		}
		n -= m
	}
}

// measure runs batches of operations. Each call does `each` of them.
func measure(name string, each int, before, after func(), run func(calls int)) {
	if only != "" && name != only {
		return
	}
	ns := make([]float64, batches)
	var allocated uint64
	for i := range ns {
		if before != nil {
			before()
		}
		marks := counting && i == batches-1
		start := time.Now()
		if marks {
			mark()
			runtime.Gosched() // the scheduler has no work for a while
			mark()
		}
		run(batch / each)
		if marks {
			mark() // before the clock, whose loop repeats while it is stepped through
		}
		ns[i] = float64(time.Since(start).Nanoseconds()) / batch
		if after != nil {
			after()
		}
		if i == batches/2 {
			allocated = mallocs()
		}
	}
	// Other goroutines allocate a little. One allocation per operation would be far more, unless
	// there are only two batches.
	if n := mallocs() - allocated; n > uint64(batches/2) && !counting {
		log.Fatalf("%s: %d allocations in %d batches", name, n, batches/2)
	}
	slices.Sort(ns)
	fmt.Printf("%s\t%.2f\n", name, ns[batches/2])
}

// mark marks a point of a batch, for ../counted. Go's scheduler isn't informed of the call:
// it would give the processor to a stopped thread.
func mark() {
	tid, _, _ := unix.RawSyscall(unix.SYS_GETTID, 0, 0, 0)
	unix.RawSyscall(unix.SYS_TGKILL, uintptr(unix.Getpid()), tid, uintptr(unix.SIGUSR1))
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
