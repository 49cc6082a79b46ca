// Poller measures round trips of 64 bytes by a goroutine that polls, alone and while another
// goroutine allocates and the collector works:
//
//	poller [-d DEVICE | -fake FAKEMLX5 [-c PROGRAM]] [-t DURATION] [-heap MIB] [-rate MB/S]
//
// It runs itself once for each row of its table, with other settings of Go's runtime. The two
// ends are queue pairs of one process, and the goroutine polls for both. So a round trip is
// two messages. Poller needs two processors, on an otherwise idle machine. A row must last
// for several collections: with the defaults, a collection occurs about every ten seconds.
//
// With -fake, it runs on the fake device of the program at this path, where the goroutine
// itself stands in for the adapter: the remaining time is that of posts and polls. There, -c
// adds the rows of the program in C, c/poller.c, compiled with -libverbs. -d is for a device
// of the kernel's, such as rxe.
package main

import (
	"flag"
	"fmt"
	"log"
	"math/bits"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/tests/fakemlx5/rings"
	"github.com/goverbs/goverbs/verbs"
)

var (
	device  = flag.String("d", "", "the device")
	fake    = flag.String("fake", "", "the `path` of fakemlx5, to run on its device")
	inC     = flag.String("c", "", "with -fake, the `path` of the program in C, for its rows")
	lasts   = flag.Duration("t", time.Minute, "how long a row is measured")
	heap    = flag.Int("heap", 1024, "live heap, in `MiB`")
	rate    = flag.Int("rate", 100, "allocations per second, in `MB`")
	measure = flag.Bool("measure", false, "measure one row: what the program runs itself for")
	alone   = flag.Bool("alone", false, "without allocations")
	lock    = flag.Bool("lock", false, "lock the goroutine that polls to its thread")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	if *measure {
		row()
		return
	}
	fmt.Printf("| µs, in %v | p50 | p99 | p99.9 | max | round trips | collections |\n|---|---|---|---|---|---|---|\n", *lasts)
	if *inC != "" {
		seconds := fmt.Sprint(int(lasts.Seconds()))
		printRow("C, alone", nil, *inC, seconds)
		printRow(fmt.Sprintf("C, beside %d MB/s, %d MiB live", *rate, *heap), nil, *inC, seconds, fmt.Sprint(*rate), fmt.Sprint(*heap))
	}
	for _, r := range []struct {
		name string
		args []string
		env  []string
	}{
		{"alone", []string{"-alone"}, nil},
		{fmt.Sprintf("beside %d MB/s, %d MiB live", *rate, *heap), nil, nil},
		{"and `GODEBUG=asyncpreemptoff=1`", nil, []string{"GODEBUG=asyncpreemptoff=1"}},
		{"and locked to its thread", []string{"-lock"}, nil},
		{"both", []string{"-lock"}, []string{"GODEBUG=asyncpreemptoff=1"}},
		{"and `GOGC=off`", nil, []string{"GOGC=off"}},
	} {
		printRow(r.name, r.env, must(os.Executable()), slices.Concat(os.Args[1:], []string{"-measure"}, r.args)...)
	}
}

// printRow runs a program that measures a row, on the fake device with -fake, and prints the row.
func printRow(name string, env []string, program string, args ...string) {
	if *fake != "" {
		program, args = *fake, append([]string{program}, args...)
	}
	cmd := exec.Command(program, args...)
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), os.Stderr
	out, err := cmd.Output()
	check(err)
	fmt.Printf("| %s | %s |\n", name, strings.TrimSpace(string(out)))
}

// row measures one row, and prints its figures.
func row() {
	ends := connect()
	if !*alone {
		stop := make(chan struct{})
		defer close(stop)
		go allocate(stop, fill())
	}
	if *lock {
		runtime.LockOSThread()
	}
	var times histogram
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for end := time.Now().Add(*lasts); ; {
		start := time.Now()
		ends[0].send(ends[1])
		ends[1].receive()
		ends[1].send(ends[0])
		ends[0].receive()
		now := time.Now()
		times.add(now.Sub(start))
		if now.After(end) {
			break
		}
	}
	runtime.ReadMemStats(&after)
	fmt.Printf("%.2f | %.2f | %.2f | %.2f | %d | %d\n", times.at(0.5), times.at(0.99), times.at(0.999),
		float64(times.max)/1000, times.n, after.NumGC-before.NumGC)
}

// A histogram has the numbers of times, by their nanoseconds' five binary digits after the first.
type histogram struct {
	counts [60 * steps]int
	n, max int
}

const steps = 1 << 5

func (h *histogram) add(t time.Duration) {
	ns := max(int(t), 0)
	e := max(bits.Len(uint(ns))-6, 0)
	h.counts[e*steps+ns>>e]++
	h.n++
	h.max = max(h.max, ns)
}

// at returns the time, in µs, that a share of all times doesn't exceed.
func (h *histogram) at(share float64) float64 {
	left := int(share * float64(h.n))
	for i, n := range h.counts {
		if left -= n; left < 0 {
			e := max(i/steps-1, 0)
			return float64((i-e*steps)<<e) / 1000
		}
	}
	return float64(h.max) / 1000
}

// The heap consists of objects. The collector follows their pointers.
type object struct {
	next *object
	_    [1016]byte
}

// fill allocates the live heap.
func fill() []*object {
	live := make([]*object, *heap<<10)
	for i := range live {
		live[i] = new(object)
	}
	return live
}

// allocate replaces the objects of the heap, one after the other, at the rate.
func allocate(stop chan struct{}, live []*object) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for at := 0; ; {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		for range *rate {
			live[at%len(live)] = &object{next: live[(at+1)%len(live)].next}
			at++
		}
	}
}

// An end is one of the queue pairs.
type end struct {
	qp  *verbs.QP
	cq  *verbs.CQ
	mr  *verbs.MR
	wcs []verbs.WC

	fake *rings.Player // or nil
}

const length = 64

// connect connects the two ends.
func connect() (ends [2]*end) {
	dev := must(verbs.Open(*device))
	pd := must(dev.AllocPD())
	for i := range ends {
		e := &end{wcs: make([]verbs.WC, 4)}
		e.cq = must(dev.CreateCQ(verbs.CQOptions{MaxCQE: 16}))
		e.mr = must(pd.AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite}))
		e.qp = must(pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: e.cq, RecvCQ: e.cq, Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8}}))
		ends[i] = e
		if *fake != "" {
			e.fake = rings.NewPlayer(must(rings.Last(rings.QP)), must(rings.Last(rings.CQ)))
			// The fake device doesn't connect anything: the library needs the state.
			a := verbs.QPAttr{Port: 1, PathMTU: verbs.MTU1024, AH: verbs.AHAttr{DLID: 1, Port: 1}}
			for _, a.State = range []verbs.QPState{verbs.QPInit, verbs.QPRTR, verbs.QPRTS} {
				check(e.qp.Modify(a, verbs.RequiredMask(verbs.RC, a.State-1, a.State)))
			}
			e.post()
		}
	}
	if *fake != "" {
		return ends
	}
	gid := must(dev.FindGID(verbs.GIDSelector{Port: 1}))
	there := [2]verbs.Endpoint{must(ends[1].qp.Endpoint(gid)), must(ends[0].qp.Endpoint(gid))}
	for i, e := range ends {
		e.post()
		check(e.qp.Connect(there[i], verbs.ConnectOptions{}))
	}
	return ends
}

// post posts a receive.
func (e *end) post() {
	must(e.qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{e.mr.SGE(length, length)}}))
}

func (e *end) send(to *end) {
	must(e.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{e.mr.SGE(0, length)}}))
	if e.fake != nil {
		e.fake.CompleteSends()
		to.fake.CompleteRecvs(length)
	}
}

// receive polls until the message has arrived.
func (e *end) receive() {
	for {
		n := must(e.cq.Poll(e.wcs))
		for _, wc := range e.wcs[:n] {
			check(wc.Err())
			if wc.Opcode == verbs.WCRecv {
				e.post()
				return
			}
		}
	}
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
