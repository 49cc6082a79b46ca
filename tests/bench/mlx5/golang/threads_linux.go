package main

import (
	"fmt"
	"log"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/tests/fakemlx5/rings"
	"github.com/goverbs/goverbs/verbs"
)

// As in threads.h.
const (
	threads = 16
	manyQPs = 64
	share   = 32
)

// A member is one of many queue pairs, with its own completion queue.
type member struct {
	qp   *verbs.QP
	cq   *verbs.CQ
	play *rings.Player
}

// crowds measures posting by many goroutines at once: on their own queue pairs, which are
// more than a process has doorbell registers, and on one queue pair that all share.
func (w *world) crowds() {
	if single {
		return
	}
	members := make([]member, manyQPs)
	for i := range members {
		depth := 2 * share
		if i == 0 { // it is also the shared one
			depth = threads * share
		}
		cq := must(w.ctx.CreateCQ(verbs.CQOptions{MaxCQE: 2*threads - 1}))
		ring := must(rings.Last(rings.CQ))
		qp := w.newQP(verbs.RC, cq, depth)
		members[i] = member{qp, cq, rings.NewPlayer(must(rings.Last(rings.QP)), ring)}
	}
	write := w.write()
	inline := write
	inline.SGL, inline.Inline = nil, w.mr.Bytes()[:size]
	crowd("64 QPs, 16 threads: RC write, 1 SGE", members, write)
	crowd("64 QPs, 16 threads: RC write, inline 64 B", members, inline)
	crowd("1 QP, 16 threads: RC write, 1 SGE", members[:1], write)
}

func crowd(name string, members []member, wr verbs.SendWR) {
	if only != "" && name != only {
		return
	}
	last := []verbs.SendWR{wr} // only the last one of a batch is signaled
	wr.Flags &^= verbs.SendSignaled
	usual := []verbs.SendWR{wr}
	// posts posts to a thread's QPs: every sixteenth QP, or the only one.
	posts := func(thread int) (n int) {
		for q := thread; q < len(members) || q == thread; q += threads {
			qp := members[q%len(members)].qp
			for range share - 1 {
				if n, err := qp.PostSend(usual...); err != nil {
					failed(n, err)
				}
			}
			if n, err := qp.PostSend(last...); err != nil {
				failed(n, err)
			}
			n += share
		}
		return n
	}
	rounds := max(batches/2, 1)
	ns := make([]float64, rounds*threads)
	var begins [threads]chan int
	var end sync.WaitGroup
	for thread := range begins {
		begins[thread] = make(chan int)
		go func() {
			runtime.LockOSThread() // so that it is alone on its thread, whose time is measured
			for round := range begins[thread] {
				start := used()
				n := posts(thread)
				ns[round*threads+thread] = float64(used()-start) / float64(n)
				end.Done()
			}
		}()
	}
	for round := range rounds {
		end.Add(threads)
		for _, begin := range begins {
			begin <- round
		}
		end.Wait()
		for _, m := range members {
			m.drain()
		}
	}
	for _, begin := range begins {
		close(begin)
	}
	slices.Sort(ns)
	fmt.Printf("%s\t%.2f\n", name, ns[len(ns)/2])
}

// used returns this thread's processor time. The elapsed time would depend on the scheduler.
// Go's scheduler isn't informed of the call, as it isn't of a post: its work at the call's
// end would be counted as posting.
func used() int64 {
	var t unix.Timespec
	if _, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID, uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		log.Fatal(errno)
	}
	return t.Nano()
}

func (m member) drain() {
	var wcs [list]verbs.WC
	for n := m.play.CompleteSends(); n > 0; {
		got := must(m.cq.Poll(wcs[:]))
		if got == 0 {
			log.Fatalf("%d completions are missing", n)
		}
		n -= got
	}
}
