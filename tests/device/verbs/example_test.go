package verbs_test

import (
	"context"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/verbs"
)

// A queue pair that is connected to itself sends itself a message.
func Example() {
	dev := must(verbs.Open("")) // the first device
	defer dev.Close()           // and all objects created on it
	gid := must(dev.FindGID(verbs.GIDSelector{Port: 1}))
	pd := must(dev.AllocPD())
	mr := must(pd.AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite}))
	cq := must(dev.CreateCQ(verbs.CQOptions{MaxCQE: 2}))
	qp := must(pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}}))

	me := must(qp.Endpoint(gid)) // for the peer
	must(qp.PostRecv(verbs.RecvWR{WRID: 1, SGL: []verbs.SGE{mr.SGE(2048, 2048)}}))
	check(qp.Connect(me, verbs.ConnectOptions{}))

	n := copy(mr.Bytes(), "hello, verbs")
	must(qp.PostSend(verbs.SendWR{WRID: 2, Opcode: verbs.OpSend, SGL: []verbs.SGE{mr.SGE(0, n)}}))

	wc := make([]verbs.WC, 1)
	must(cq.PollWait(context.Background(), wc))
	check(wc[0].Err())
	fmt.Printf("%s: %q\n", wc[0].Opcode, mr.Bytes()[2048:][:wc[0].ByteLen])
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
