package main

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// uc sends a message, and writes with immediate data, over an unreliable connection. It prints
//
//	received "sent", and "written" with 42
func uc(e *env) {
	a, b := e.pair(verbs.QPOptions{Type: verbs.UC}, verbs.AccessRemoteWrite)
	out := e.alloc(64, 0)
	in := e.alloc(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)

	must(b.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{in.SGE(0, 32)}}, verbs.RecvWR{}))
	n := copy(out.Bytes(), "sent")
	must(a.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{out.SGE(0, n)}}))
	sent := e.waits(2).ByteLen

	n = copy(out.Bytes(), "written")
	must(a.PostSend(verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, Flags: verbs.SendSignaled,
		SGL: []verbs.SGE{out.SGE(0, n)}, Remote: in.Remote().At(32), Imm: 42}))
	wc := e.waits(2)
	imm, _ := wc.Imm()
	fmt.Printf("received %q, and %q with %d\n", in.Bytes()[:sent], in.Bytes()[32:][:wc.ByteLen], imm)
}
