// Rdma_write writes into the memory of another process (RC).
//
//	rdma_write -listen :7471           the side whose memory is written
//	rdma_write -connect 10.0.0.1:7471  the side that writes
//	rdma_write                         both sides, in one process
//
// Over TCP, as JSON, the sides exchange descriptions of their queue pairs and memory. The
// writer prints how much it has written, and the other side prints its memory:
//
//	wrote 20 bytes
//	memory: "written by the peer"
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"

	"github.com/goverbs/goverbs/verbs"
)

var (
	device  = flag.String("device", "", "the RDMA device; by default, the first one")
	listen  = flag.String("listen", "", "wait for a writer at this TCP address")
	connect = flag.String("connect", "", "write to the process that listens at this TCP address")
)

func main() {
	flag.Parse()
	switch {
	case *listen != "":
		target(must(net.Listen("tcp", *listen)))
	case *connect != "":
		writer(*connect)
	default:
		l := must(net.Listen("tcp", "localhost:0"))
		done := make(chan bool)
		go func() { writer(l.Addr().String()); close(done) }()
		target(l)
		<-done
	}
}

// A hello is the message that the sides exchange.
type hello struct {
	Endpoint verbs.Endpoint
	Memory   verbs.Remote
}

// target lets a writer write to its memory, and prints the memory.
func target(l net.Listener) {
	tcp := must(l.Accept())
	s := newSide()
	defer s.dev.Close()

	// The write takes a receive, without memory, because it has immediate data.
	must(s.qp.PostRecv(verbs.RecvWR{}))
	var peer hello
	check(json.NewDecoder(tcp).Decode(&peer))
	check(s.qp.Connect(peer.Endpoint, verbs.ConnectOptions{Access: verbs.AccessRemoteWrite}))
	check(json.NewEncoder(tcp).Encode(s.hello)) // from now on the peer can write

	wc := s.wait()
	n, _ := wc.Imm()
	fmt.Printf("memory: %q\n", s.mr.Bytes()[:n])
	io.Copy(io.Discard, tcp) // the writer may still wait for an acknowledgement
}

// writer writes to the memory of the process that listens at an address.
func writer(address string) {
	tcp := must(net.Dial("tcp", address))
	defer tcp.Close()
	s := newSide()
	defer s.dev.Close()
	check(json.NewEncoder(tcp).Encode(s.hello))
	var peer hello
	check(json.NewDecoder(tcp).Decode(&peer))
	check(s.qp.Connect(peer.Endpoint, verbs.ConnectOptions{}))

	n := copy(s.mr.Bytes(), "written by the peer")
	must(s.qp.PostSend(verbs.SendWR{
		Opcode: verbs.OpRDMAWriteImm, Flags: verbs.SendSignaled,
		SGL: []verbs.SGE{s.mr.SGE(0, n)}, Remote: peer.Memory, Imm: uint32(n),
	}))
	s.wait()
	fmt.Printf("wrote %d bytes\n", n)
}

// A side is a queue pair with its memory.
type side struct {
	dev   *verbs.Device
	mr    *verbs.MR
	cq    *verbs.CQ
	qp    *verbs.QP
	hello hello
}

func newSide() *side {
	dev := must(verbs.Open(*device))
	gid := must(dev.FindGID(verbs.GIDSelector{Port: 1}))
	pd := must(dev.AllocPD())
	mr := must(pd.AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite}))
	cq := must(dev.CreateCQ(verbs.CQOptions{MaxCQE: 2}))
	qp := must(pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}}))
	return &side{dev, mr, cq, qp, hello{must(qp.Endpoint(gid)), mr.Remote()}}
}

// wait waits for the completion of a request.
func (s *side) wait() verbs.WC {
	wc := make([]verbs.WC, 1)
	must(s.cq.PollWait(context.Background(), wc))
	check(wc[0].Err())
	return wc[0]
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
