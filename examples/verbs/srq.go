package main

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// srq receives on two QPs from one shared receive queue, and gets an event when the queue
// runs low. It prints
//
//	QP 0 received "from QP 0"
//	QP 1 received "from QP 1"
//	SRQ_LIMIT_REACHED
func srq(e *env) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events := e.dev.Events(ctx) // events from now on

	srq := must(e.pd.CreateSRQ(verbs.SRQOptions{MaxWR: 8, MaxSGE: 1}))
	in := e.alloc(3*64, verbs.AccessLocalWrite)
	for i := range 3 {
		must(srq.PostRecv(verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{in.SGE(64*i, 64)}}))
	}
	check(srq.SetLimit(2)) // after the receives are posted
	out := e.alloc(64, 0)
	for i := range 2 {
		sender, receiver := e.pair(verbs.QPOptions{Type: verbs.RC, SRQ: srq}, 0)
		n := copy(out.Bytes(), fmt.Sprintf("from QP %d", i))
		must(sender.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{out.SGE(0, n)}}))
		wc := e.waits(2)
		if e.dev.QPByNum(wc.QPNum) == receiver {
			fmt.Printf("QP %d received %q\n", i, in.Bytes()[64*wc.WRID:][:wc.ByteLen])
		}
	}
	for event, err := range events {
		check(err)
		if event.SRQ == srq {
			fmt.Println(event.Type)
			break
		}
	}
}
