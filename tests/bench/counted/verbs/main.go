// Verbs prints how many nanoseconds each of several verbs takes:
//
//	verbs DEVICE GID_INDEX
//
// ../c/verbs.c does the same, step by step.
package main

import (
	"fmt"
	"log"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

const (
	depth  = 32
	size   = 4096
	qkey   = 0x1234
	access = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead
)

var (
	device  *verbs.DeviceInfo
	context *verbs.Device
	pd      *verbs.PD
	mr      *verbs.MR
	address verbs.AHAttr
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// An end is a queue pair with a CQ.
type end struct {
	cq  *verbs.CQ
	srq *verbs.SRQ
	qp  *verbs.QP
}

func createSRQ() *verbs.SRQ {
	return must(pd.CreateSRQ(verbs.SRQOptions{MaxWR: depth, MaxSGE: 1}))
}

func createQP(cq *verbs.CQ, srq *verbs.SRQ, typ verbs.QPType) *verbs.QP {
	o := verbs.QPOptions{
		Type: typ, SendCQ: cq, RecvCQ: cq, SRQ: srq,
		Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1},
	}
	if srq != nil {
		o.Cap.MaxRecvWR = 0
	}
	return must(pd.CreateQP(o))
}

func create(typ verbs.QPType, shared bool) (e end) {
	e.cq = must(context.CreateCQ(verbs.CQOptions{MaxCQE: 2 * depth}))
	if shared {
		e.srq = createSRQ()
	}
	e.qp = createQP(e.cq, e.srq, typ)
	return e
}

func connectTo(qp *verbs.QP, dest uint32) {
	attr := verbs.QPAttr{
		Port: 1, Access: access, QKey: qkey, PathMTU: verbs.MTU1024, DestQPN: dest, AH: address,
		MinRNRTimer: 12, MaxDestRDAtomic: 1, Timeout: 14, RetryCount: 7, RNRRetry: 7, MaxRDAtomic: 1,
	}
	for _, attr.State = range []verbs.QPState{verbs.QPInit, verbs.QPRTR, verbs.QPRTS} {
		check(qp.Modify(attr, verbs.RequiredMask(qp.Type(), attr.State-1, attr.State)))
	}
}

func (e *end) destroy() {
	check(e.qp.Close())
	if e.srq != nil {
		check(e.srq.Close())
	}
	check(e.cq.Close())
}

func complete(cq *verbs.CQ) {
	var wc [4]verbs.WC
	for {
		switch n := must(cq.Poll(wc[:])); {
		case n == 0:
		case n > 1:
			log.Fatalf("%d completions", n)
		default:
			check(wc[0].Err())
			return
		}
	}
}

// data measures requests of one end to the other: the post of a receive if the request needs
// one, the post of the request, and the completions.
func data(name string, n int, typ verbs.QPType, shared bool, opcode verbs.Opcode, length int) {
	a, b := create(typ, false), create(typ, shared)
	connectTo(a.qp, b.qp.Num())
	connectTo(b.qp, a.qp.Num())
	ah := must(pd.CreateAH(address))
	measure(name, n, func() {
		send := verbs.SendWR{Opcode: opcode, Flags: verbs.SendSignaled, SGL: []verbs.SGE{mr.SGE(0, length)}}
		switch {
		case typ == verbs.UD:
			send.AH, send.RemoteQPN, send.RemoteQKey = ah, b.qp.Num(), qkey
		case opcode != verbs.OpSend:
			send.Remote = mr.Remote().At(size)
		}
		if opcode == verbs.OpSend {
			recv := verbs.RecvWR{SGL: []verbs.SGE{mr.SGE(size, size)}}
			if shared {
				must(b.srq.PostRecv(recv))
			} else {
				must(b.qp.PostRecv(recv))
			}
		}
		must(a.qp.PostSend(send))
		complete(a.cq)
		if opcode == verbs.OpSend {
			complete(b.cq)
		}
	})
	check(ah.Close())
	a.destroy()
	b.destroy()
}

// batches is the number of batches of which each measurement is the fastest.
const batches = 60

// measure prints the time of f: the mean of the fastest of several batches, which neither a
// timer nor the garbage collector has interrupted.
func measure(name string, n int, f func()) {
	fastest := math.Inf(1)
	for range batches {
		began := time.Now()
		for range n {
			f()
		}
		fastest = min(fastest, float64(time.Since(began))/float64(n))
	}
	fmt.Printf("%s: %.1f ns\n", name, fastest)
}

// closed closes a new object.
func closed[T interface{ Close() error }](x T, err error) {
	check(must(x, err).Close())
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: verbs DEVICE GID_INDEX")
	}
	gidIndex := must(strconv.Atoi(os.Args[2]))
	context = must(verbs.Open(os.Args[1]))
	device = context.Info()
	gid := must(context.QueryGID(1, gidIndex))
	address = verbs.AHAttr{IsGlobal: true, DGID: gid.GID, SGIDIndex: gidIndex, HopLimit: 1, Port: 1}
	pd = must(context.AllocPD())
	mr = must(pd.AllocMR(2*size, verbs.MROptions{Access: access}))
	memory := make([]byte, 2*size)
	someCQ := must(context.CreateCQ(verbs.CQOptions{MaxCQE: depth}))
	ready := create(verbs.RC, false)

	var wc [4]verbs.WC
	measure("poll of an empty CQ", 100, func() {
		if must(someCQ.Poll(wc[:])) != 0 {
			log.Fatal("a completion of nothing")
		}
	})
	data("RC send, 64 bytes", 10, verbs.RC, false, verbs.OpSend, 64)
	data("RC send to an SRQ, 64 bytes", 10, verbs.RC, true, verbs.OpSend, 64)
	data("RC write, 64 bytes", 10, verbs.RC, false, verbs.OpRDMAWrite, 64)
	data("RC read, 64 bytes", 10, verbs.RC, false, verbs.OpRDMARead, 64)
	data("UD send, 64 bytes", 10, verbs.UD, false, verbs.OpSend, 64)
	measure("open and close a device", 5, func() { closed(device.Open()) })
	measure("allocate and free a PD", 5, func() { closed(context.AllocPD()) })
	measure("register and deregister an MR", 5, func() { closed(pd.RegMR(memory, verbs.MROptions{Access: verbs.AccessLocalWrite})) })
	measure("allocate and free an MW", 5, func() { closed(pd.AllocMW(verbs.MWType1)) })
	measure("create and destroy a completion channel", 5, func() { closed(context.CreateCompChannel()) })
	measure("create and destroy a CQ", 5, func() { closed(context.CreateCQ(verbs.CQOptions{MaxCQE: depth})) })
	measure("create and destroy an SRQ", 5, func() { check(createSRQ().Close()) })
	measure("create and destroy an AH", 5, func() { closed(pd.CreateAH(address)) })
	measure("create and destroy a QP", 5, func() { check(createQP(someCQ, nil, verbs.RC).Close()) })
	measure("connect and reset a QP", 5, func() {
		connectTo(ready.qp, ready.qp.Num())
		check(ready.qp.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.QPAttrState))
	})
	measure("query a port", 5, func() { must(context.QueryPort(1)) })
}
