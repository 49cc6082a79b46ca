package main

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// xrc sends to two SRQs over one connection. It prints
//
//	SRQ 0 received "for SRQ 0"
//	SRQ 1 received "for SRQ 1"
func xrc(e *env) {
	domain := must(e.dev.OpenXRCD())
	receiver := must(domain.CreateQP(verbs.QPOptions{}))
	sender := must(e.pd.CreateQP(verbs.QPOptions{Type: verbs.XRCSend, SendCQ: e.cq, Cap: small}))
	e.connect(sender, receiver, 0)

	out, in := e.alloc(64, 0), e.alloc(64, verbs.AccessLocalWrite)
	for i := range 2 {
		srq := must(e.pd.CreateSRQ(verbs.SRQOptions{MaxWR: 1, MaxSGE: 1, XRCD: domain, CQ: e.cq}))
		must(srq.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{in.SGE(0, 64)}}))
		n := copy(out.Bytes(), fmt.Sprintf("for SRQ %d", i))
		must(sender.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled,
			SGL: []verbs.SGE{out.SGE(0, n)}, RemoteSRQN: srq.Num()}))
		fmt.Printf("SRQ %d received %q\n", i, in.Bytes()[:e.waits(2).ByteLen])
	}
}
