// Stream streams RDMA writes from one RC QP to another on the same device, and prints the
// bandwidth in MiB/s. ../c/stream.c does the same, step by step.
//
//	stream DEVICE GID_INDEX SIZE DEPTH COUNT
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

const batch = 16

func main() {
	log.SetFlags(0)
	if len(os.Args) != 6 {
		log.Fatal("usage: stream DEVICE GID_INDEX SIZE DEPTH COUNT")
	}
	gidIndex, size, depth, count := number(2), number(3), number(4), number(5)
	context, err := verbs.Open(os.Args[1])
	check(err)
	gid, err := context.QueryGID(1, gidIndex)
	check(err)
	pd, err := context.AllocPD()
	check(err)
	cq, err := context.CreateCQ(verbs.CQOptions{MaxCQE: depth})
	check(err)
	from, err := pd.AllocMR(size, verbs.MROptions{})
	check(err)
	to, err := pd.AllocMR(size, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite})
	check(err)
	a, b := createQP(pd, cq, depth), createQP(pd, cq, depth)
	aEnd, err := a.Endpoint(gid)
	check(err)
	bEnd, err := b.Endpoint(gid)
	check(err)
	o := verbs.ConnectOptions{Access: verbs.AccessRemoteWrite, MTU: verbs.MTU1024}
	check(a.Connect(bEnd, o))
	check(b.Connect(aEnd, o))
	for i := range from.Bytes() {
		from.Bytes()[i] = 0xa5
	}
	stream(a, cq, from, to, depth, depth) // warm up
	start := time.Now()
	stream(a, cq, from, to, depth, count)
	rate := float64(size) * float64(count) / time.Since(start).Seconds()
	if !bytes.Equal(from.Bytes(), to.Bytes()) {
		log.Fatal("the written data differs")
	}
	fmt.Printf("%.2f MiB/s\n", rate/(1<<20))
}

func stream(qp *verbs.QP, cq *verbs.CQ, from, to *verbs.MR, depth, count int) {
	var wc [batch]verbs.WC
	for posted, done := 0, 0; done < count; {
		for ; posted < count && posted-done < depth; posted++ {
			_, err := qp.PostSend(verbs.SendWR{
				WRID:   uint64(posted),
				Opcode: verbs.OpRDMAWrite,
				SGL:    []verbs.SGE{from.SGE(0, from.Len())},
				Remote: to.Remote(),
			})
			check(err)
		}
		n, err := cq.Poll(wc[:])
		check(err)
		for i := range wc[:n] {
			check(wc[i].Err())
		}
		done += n
	}
}

func createQP(pd *verbs.PD, cq *verbs.CQ, depth int) *verbs.QP {
	qp, err := pd.CreateQP(verbs.QPOptions{
		Type:      verbs.RC,
		SendCQ:    cq,
		RecvCQ:    cq,
		Cap:       verbs.QPCap{MaxSendWR: depth, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
		SignalAll: true,
	})
	check(err)
	return qp
}

func number(arg int) int {
	n, err := strconv.Atoi(os.Args[arg])
	check(err)
	return n
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
