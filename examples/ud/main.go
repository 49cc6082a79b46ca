// Ud sends datagrams to another process, which answers them (UD).
//
//	ud -listen :7471           the side that answers
//	ud -connect 10.0.0.1:7471  the side that asks
//	ud                         both sides, in one process
//
// The asking side receives the other side's endpoint over TCP, as JSON. The answering side
// finds the sender's address in the datagram. The asking side prints
//
//	"one" is answered with "ONE"
//	"two" is answered with "TWO"
//	"three" is answered with "THREE"
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"

	"github.com/goverbs/goverbs/verbs"
)

var (
	device  = flag.String("device", "", "the RDMA device; by default, the first one")
	listen  = flag.String("listen", "", "answer whoever asks at this TCP address")
	connect = flag.String("connect", "", "ask the process that listens at this TCP address")
)

const qkey = 0x11111111

func main() {
	flag.Parse()
	switch {
	case *listen != "":
		answer(must(net.Listen("tcp", *listen)))
	case *connect != "":
		ask(*connect)
	default:
		l := must(net.Listen("tcp", "localhost:0"))
		go ask(l.Addr().String())
		answer(l)
	}
}

// answer answers datagrams until the peer closes its TCP connection.
func answer(l net.Listener) {
	tcp := must(l.Accept())
	s := newSide()
	defer s.dev.Close()
	check(json.NewEncoder(tcp).Encode(must(s.qp.Endpoint(s.gid))))

	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, tcp)
		cancel()
	}()
	peers := make(map[verbs.AHAttr]*verbs.AH)
	for {
		wc, err := wait(ctx, s.recvCQ)
		if errors.Is(err, context.Canceled) {
			return
		}
		check(err)
		received := s.ring.Bytes(&wc)
		path := must(s.dev.AHAttrFromWC(&wc, received, s.gid.Port))
		if peers[path] == nil {
			peers[path] = must(s.pd.CreateAH(path))
		}
		message := bytes.ToUpper(received[verbs.GRHLen:])
		check(s.ring.Repost(&wc))
		s.send(peers[path], wc.SrcQP, message)
	}
}

// ask sends three datagrams, and waits for the answer to each. A datagram may be lost on the
// way: a program for more than one cable would send it again after a while.
func ask(address string) {
	tcp := must(net.Dial("tcp", address))
	defer tcp.Close()
	s := newSide()
	defer s.dev.Close()
	var peer verbs.Endpoint
	check(json.NewDecoder(tcp).Decode(&peer))
	must(s.qp.Endpoint(s.gid)) // PathTo begins there
	ah := must(s.pd.CreateAH(must(s.qp.PathTo(peer))))
	for _, message := range []string{"one", "two", "three"} {
		s.send(ah, peer.QPN, []byte(message))
		wc, err := wait(context.Background(), s.recvCQ)
		check(err)
		fmt.Printf("%q is answered with %q\n", message, s.ring.Bytes(&wc)[verbs.GRHLen:])
		check(s.ring.Repost(&wc))
	}
}

// A side is a queue pair with a buffer for sends and several for receives.
type side struct {
	dev            *verbs.Device
	gid            verbs.GIDEntry
	pd             *verbs.PD
	out            *verbs.MR
	ring           *verbs.RecvRing
	sendCQ, recvCQ *verbs.CQ
	qp             *verbs.QP
}

func newSide() *side {
	dev := must(verbs.Open(*device))
	s := &side{dev: dev, pd: must(dev.AllocPD())}
	s.gid = must(dev.FindGID(verbs.GIDSelector{Port: 1}))
	s.out = must(s.pd.AllocMR(1024, verbs.MROptions{}))
	const size, depth = verbs.GRHLen + 1024, 16
	in := must(s.pd.AllocMR(depth*size, verbs.MROptions{Access: verbs.AccessLocalWrite}))
	s.sendCQ = must(dev.CreateCQ(verbs.CQOptions{MaxCQE: 1}))
	s.recvCQ = must(dev.CreateCQ(verbs.CQOptions{MaxCQE: depth}))
	s.qp = must(s.pd.CreateQP(verbs.QPOptions{Type: verbs.UD, SendCQ: s.sendCQ, RecvCQ: s.recvCQ,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: depth}}))
	check(s.qp.Activate(verbs.ActivateOptions{Port: s.gid.Port, QKey: qkey}))
	s.ring = must(verbs.NewRecvRing(s.qp, in, size, 0))
	return s
}

func (s *side) send(ah *verbs.AH, qpn uint32, message []byte) {
	n := copy(s.out.Bytes(), message)
	must(s.qp.PostSend(verbs.SendWR{
		Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{s.out.SGE(0, n)},
		AH: ah, RemoteQPN: qpn, RemoteQKey: qkey,
	}))
	_, err := wait(context.Background(), s.sendCQ)
	check(err)
}

func wait(ctx context.Context, cq *verbs.CQ) (verbs.WC, error) {
	wc := make([]verbs.WC, 1)
	if _, err := cq.PollWait(ctx, wc); err != nil {
		return verbs.WC{}, err
	}
	return wc[0], wc[0].Err()
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
