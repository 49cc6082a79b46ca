// Xfer prints how many nanoseconds a write of 64 bytes takes:
//
//	xfer DEVICE bare|engine
//
// With bare, it is a loop of PostSend and Poll on a queue pair, and with engine a write by package
// xfer between two engines of this process.
package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"os"
	"slices"
	"time"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/xfer"
)

const (
	size    = 64
	batches = 60  // of which each measurement is the fastest
	writes  = 320 // in a batch
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: xfer DEVICE bare|engine")
	}
	of := bare(os.Args[1])
	if os.Args[2] == "engine" {
		of = engine(os.Args[1])
	}
	for _, at := range []int{1, 16} {
		write := of(at)
		fastest := math.Inf(1)
		for range batches {
			began := time.Now()
			write(writes)
			fastest = min(fastest, float64(time.Since(began))/writes)
		}
		fmt.Printf("xfer beside bare verbs, a write of %d bytes, %d at a time: %.1f ns\n", size, at, fastest)
	}
}

// bare returns writes over a queue pair, with a number of them in flight.
func bare(device string) func(at int) func(n int) {
	dev := must(verbs.Open(device))
	pd := must(dev.AllocPD())
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	mr := must(pd.AllocMR(4096, verbs.MROptions{Access: access}))
	gid := must(dev.FindGID(verbs.GIDSelector{Port: 1}))
	end := func() (*verbs.QP, *verbs.CQ) {
		cq := must(dev.CreateCQ(verbs.CQOptions{MaxCQE: 64}))
		return must(pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 64, MaxSendSGE: 1}})), cq
	}
	a, cq := end()
	b, _ := end()
	from, to := must(a.Endpoint(gid)), must(b.Endpoint(gid))
	check(a.Connect(to, verbs.ConnectOptions{}))
	check(b.Connect(from, verbs.ConnectOptions{Access: access}))
	return func(at int) func(n int) {
		wr := verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{mr.SGE(0, size)}, Remote: mr.Remote().At(2048)}
		wcs := make([]verbs.WC, 16)
		return func(n int) {
			posted, done := 0, 0
			for done < n {
				for posted < n && posted-done < at {
					must(a.PostSend(wr))
					posted++
				}
				k := must(cq.Poll(wcs))
				for i := range wcs[:k] {
					check(wcs[i].Err())
				}
				done += k
			}
		}
	}
}

// engine returns writes by package xfer. One at a time is Peer.Do. Of more, each starts the next one
// when it is over.
func engine(device string) func(at int) func(n int) {
	ctx := context.Background()
	o := xfer.Options{Devices: []string{device}}
	owner := must(xfer.Open(o))
	theirs := must(owner.Alloc(4096))
	remote := must(theirs.All().Grant(xfer.GrantOptions{Access: xfer.Write})).Remote()
	l := must(owner.Listen(ctx, "127.0.0.1:0"))
	o.Spin = time.Hour // the bare loop doesn't sleep either
	e := must(xfer.Open(o))
	mine := must(e.Alloc(4096))
	peer := must(e.Dial(ctx, l.Addr().String()))
	add := func(b *xfer.Batch) { b.Write(remote.Slice(2048, size), mine.Slice(0, size)) }
	check(peer.Write(ctx, remote, mine.All()))
	for slices.ContainsFunc(peer.Stats().Lanes, func(l xfer.LaneStats) bool { return !l.Up }) {
		time.Sleep(time.Millisecond)
	}
	return func(at int) func(n int) {
		if at == 1 {
			b := new(xfer.Batch)
			add(b)
			return func(n int) {
				for range n {
					check(peer.Do(ctx, b))
				}
			}
		}
		all := make([]xfer.Batch, at)
		over := make(chan bool)
		started, running, most := 0, 0, 0 // on the rail's goroutine
		for i := range all {
			add(&all[i])
			all[i].OnDone = func(b *xfer.Batch) {
				check(b.Err())
				if started == most {
					if running--; running == 0 {
						over <- true
					}
					return
				}
				started++
				check(peer.Start(b))
			}
		}
		return func(n int) {
			started, running, most = at, at, n
			for i := range all {
				check(peer.Start(&all[i]))
			}
			<-over
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
