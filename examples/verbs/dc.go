package main

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// dc sends to two DC targets from one initiator, without connections. It prints
//
//	target 0 received "for target 0"
//	target 1 received "for target 1"
func dc(e *env) {
	const key = 0xdc
	srq := must(e.pd.CreateSRQ(verbs.SRQOptions{MaxWR: 2, MaxSGE: 1}))
	initiator := must(e.pd.CreateQP(verbs.QPOptions{Type: verbs.DCI, SendCQ: e.cq, RecvCQ: e.cq, Cap: small}))
	check(initiator.Activate(verbs.ActivateOptions{Port: e.gid.Port}))
	must(initiator.Endpoint(e.gid)) // PathTo begins there

	out, in := e.alloc(64, 0), e.alloc(64, verbs.AccessLocalWrite)
	for i := range 2 {
		target := must(e.pd.CreateQP(verbs.QPOptions{Type: verbs.DCT, SendCQ: e.cq, RecvCQ: e.cq, SRQ: srq, DCKey: key}))
		check(target.Activate(verbs.ActivateOptions{Port: e.gid.Port, GID: e.gid}))
		path := must(initiator.PathTo(must(target.Endpoint(e.gid))))
		ah := must(e.pd.CreateAH(path))
		must(srq.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{in.SGE(0, 64)}}))
		n := copy(out.Bytes(), fmt.Sprintf("for target %d", i))
		must(initiator.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled,
			SGL: []verbs.SGE{out.SGE(0, n)}, AH: ah, RemoteQPN: target.Num(), DCKey: key}))
		fmt.Printf("target %d received %q\n", i, in.Bytes()[:e.waits(2).ByteLen])
	}
}
