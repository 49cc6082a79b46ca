package main

import (
	"fmt"
	"log"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/tests/fakemlx5/rings"
	"github.com/goverbs/goverbs/verbs"
)

// As in threads.h.
const (
	threads = 16
	manyQPs = 64
	deep    = 2048
)

// A member is one of many queue pairs, with a completion queue of its own.
type member struct {
	qp   *verbs.QP
	cq   *verbs.CQ
	play *rings.Player
}

// crowds has many goroutines post at once: on queue pairs of their own, which are
// more than a process has doorbell registers, and on one that all share.
func (w *world) crowds() {
	if single {
		return
	}
	members := make([]member, manyQPs)
	for i := range members {
		cq := must(w.ctx.CreateCQ(verbs.CQOptions{CQE: 2*threads - 1}))
		ring := must(rings.Last(rings.CQ))
		qp := w.newQP(verbs.RC, cq, deep)
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
	each := deep
	if len(members) == 1 {
		each = deep / threads
	}
	last := []verbs.SendWR{wr} // of a batch: it completes, for all
	wr.Flags &^= verbs.SendSignaled
	usual := []verbs.SendWR{wr}
	post := func(qp *verbs.QP) {
		for range each - 1 {
			if n, err := qp.PostSend(usual...); err != nil {
				failed(n, err)
			}
		}
		if n, err := qp.PostSend(last...); err != nil {
			failed(n, err)
		}
	}
	rounds := crowdRounds(batches)
	var begins [threads]chan bool
	var end sync.WaitGroup
	for thread := range begins {
		begins[thread] = make(chan bool)
		go func() {
			for range begins[thread] {
				if len(members) == 1 {
					post(members[0].qp)
				}
				for q := thread; q < len(members) && len(members) > 1; q += threads {
					post(members[q].qp)
				}
				end.Done()
			}
		}()
	}
	ns := make([]float64, rounds)
	for i := range ns {
		end.Add(threads)
		start := time.Now()
		for _, begin := range begins {
			begin <- true
		}
		end.Wait()
		ns[i] = float64(time.Since(start).Nanoseconds()) / float64(deep*len(members))
		for _, m := range members {
			m.drain()
		}
	}
	for _, begin := range begins {
		close(begin)
	}
	slices.Sort(ns)
	fmt.Printf("%s\t%.2f\n", name, ns[rounds/2])
}

// crowdRounds is how many rounds have about as many posts as batches.
func crowdRounds(batches int) int { return max(batches/50, 1) }

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
