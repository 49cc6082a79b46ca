// Poller measures round trips of 64 bytes of a goroutine that polls, alone and while another
// one allocates and the collector works:
//
//	poller [-d DEVICE] [-n ROUNDS] [-heap MIB] [-rate MB/S]
//
// It runs itself once for each row of its table, with other settings of Go's runtime. The two
// ends are queue pairs of one process, and the goroutine polls for both: so a round trip is two
// messages. It needs two processors, and else an idle machine.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

var (
	device  = flag.String("d", "", "the device")
	rounds  = flag.Int("n", 100_000, "round trips")
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
	fmt.Printf("| µs, of %d round trips | p50 | p99 | p99.9 | max | collections |\n|---|---|---|---|---|---|\n", *rounds)
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
		cmd := exec.Command("/proc/self/exe", append(append(os.Args[1:len(os.Args):len(os.Args)], "-measure"), r.args...)...)
		cmd.Env, cmd.Stderr = append(os.Environ(), r.env...), os.Stderr
		out, err := cmd.Output()
		check(err)
		fmt.Printf("| %s | %s |\n", r.name, strings.TrimSpace(string(out)))
	}
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
	times := make([]time.Duration, *rounds)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range times {
		start := time.Now()
		ends[0].send()
		ends[1].receive()
		ends[1].send()
		ends[0].receive()
		times[i] = time.Since(start)
	}
	runtime.ReadMemStats(&after)
	slices.Sort(times)
	at := func(share float64) float64 {
		return float64(times[int(share*float64(len(times)-1))].Nanoseconds()) / 1000
	}
	fmt.Printf("%.1f | %.1f | %.1f | %.1f | %d\n", at(0.5), at(0.99), at(0.999), at(1), after.NumGC-before.NumGC)
}

// An object is what the heap consists of. The collector follows its pointer.
type object struct {
	next *object
	_    [1016]byte
}

// fill makes the live heap.
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
}

const length = 64

// connect connects the two ends.
func connect() (ends [2]*end) {
	dev := must(verbs.Open(*device))
	gid := must(dev.FindGID(verbs.GIDSelector{Port: 1}))
	pd := must(dev.AllocPD())
	for i := range ends {
		e := &end{wcs: make([]verbs.WC, 4)}
		e.cq = must(dev.CreateCQ(verbs.CQOptions{MaxCQE: 16}))
		e.mr = must(pd.AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite}))
		e.qp = must(pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: e.cq, RecvCQ: e.cq, Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8}}))
		ends[i] = e
	}
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

func (e *end) send() {
	must(e.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{e.mr.SGE(0, length)}}))
}

// receive polls until the message is there.
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
