// Verbs demonstrates verbs, one subject at a time. Each runs within one process and, except raw,
// on one device.
//
//	verbs [-device NAME] SUBJECT
//
// The subjects are:
//
//	uc          an unreliable connection
//	srq         a shared receive queue of two QPs, and its limit
//	rdma        RDMA read, fetch-and-add and compare-and-swap
//	mw          a memory window
//	multicast   datagrams to a group, and one completion channel for its two receivers (RoCE)
//	timestamps  the times of completions, by the device's clock (mlx5)
//	odp         memory that is not pinned (mlx5; rxe from Linux 7 on)
//	dmabuf      memory of another driver (mlx5)
//	xrc         messages to any SRQ over one connection (mlx5)
//	dc          messages to any QP without a connection (mlx5)
//	raw PEER    Ethernet frames to the device PEER (mlx5 with an Ethernet port)
//
// Each subject is a file, whose comment shows its output.
package main

import (
	"context"
	"flag"
	"log"

	"github.com/goverbs/goverbs/verbs"
)

var subjects = map[string]func(*env){
	"uc": uc, "srq": srq, "rdma": rdma, "mw": mw, "multicast": multicast, "timestamps": timestamps,
	"odp": odp, "xrc": xrc, "dc": dc, "raw": raw,
}

func main() {
	device := flag.String("device", "", "the RDMA device; by default, the first one")
	flag.Parse()
	subject := subjects[flag.Arg(0)]
	if subject == nil {
		log.Fatal("usage: verbs [-device NAME] SUBJECT")
	}
	e := newEnv(*device)
	subject(e)
	check(e.dev.Close())
}

// An env has the objects that all subjects need.
type env struct {
	dev *verbs.Device
	gid verbs.GIDEntry
	pd  *verbs.PD
	cq  *verbs.CQ // for all completions, unless a subject has its own
}

func newEnv(device string) *env {
	e := &env{dev: must(verbs.Open(device))}
	e.gid = must(e.dev.FindGID(verbs.GIDSelector{Port: 1}))
	e.pd = must(e.dev.AllocPD())
	e.cq = must(e.dev.CreateCQ(verbs.CQOptions{MaxCQE: 16}))
	return e
}

// small are the queues of the subjects' QPs.
var small = verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4}

// pair creates two QPs that are connected to each other. Both use the env's CQ for receives and,
// if SendCQ is nil, for sends.
func (e *env) pair(o verbs.QPOptions, access verbs.AccessFlags) (a, b *verbs.QP) {
	if o.SendCQ == nil {
		o.SendCQ = e.cq
	}
	o.RecvCQ, o.Cap = e.cq, small
	a, b = must(e.pd.CreateQP(o)), must(e.pd.CreateQP(o))
	e.connect(a, b, access)
	return a, b
}

// connect connects two QPs to each other. Each may access the other's memory.
func (e *env) connect(a, b *verbs.QP, access verbs.AccessFlags) {
	atA, atB := must(a.Endpoint(e.gid)), must(b.Endpoint(e.gid))
	check(a.Connect(atB, verbs.ConnectOptions{Access: access}))
	check(b.Connect(atA, verbs.ConnectOptions{Access: access}))
}

// alloc allocates registered memory.
func (e *env) alloc(n int, access verbs.AccessFlags) *verbs.MR {
	return must(e.pd.AllocMR(n, verbs.MROptions{Access: access}))
}

// send posts a request and waits for its completion.
func (e *env) send(qp *verbs.QP, wr verbs.SendWR) error {
	wr.Flags |= verbs.SendSignaled
	must(qp.PostSend(wr))
	wc := e.wait()
	return wc.Err()
}

// wait waits for a completion.
func (e *env) wait() verbs.WC {
	wc := make([]verbs.WC, 1)
	must(e.cq.PollWait(context.Background(), wc))
	return wc[0]
}

// waits waits for n successful completions, and returns the completion of a receive, if any.
func (e *env) waits(n int) (recv verbs.WC) {
	for range n {
		wc := e.wait()
		check(wc.Err())
		if wc.Opcode == verbs.WCRecv || wc.Opcode == verbs.WCRecvRDMAWithImm {
			recv = wc
		}
	}
	return recv
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
