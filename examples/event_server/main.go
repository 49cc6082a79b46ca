// Event_server serves many clients from one goroutine, with one completion channel. Each
// client has a queue pair and a CQ of its own.
//
//	event_server -listen :7471 -clients 2    serves two clients, and ends
//	event_server -connect 10.0.0.1:7471      is a client
//	event_server                             a server and four clients, in one process
//
// Endpoints are exchanged over TCP, as JSON. A client sends three messages, and waits for the
// answer to each. The server prints
//
//	served 12 messages of 4 clients
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

var (
	device  = flag.String("device", "", "the RDMA device; by default, the first one")
	listen  = flag.String("listen", "", "serve clients at this TCP address")
	connect = flag.String("connect", "", "be a client of the server at this TCP address")
	clients = flag.Int("clients", 4, "how many clients to serve")
)

func main() {
	flag.Parse()
	switch {
	case *listen != "":
		serve(must(net.Listen("tcp", *listen)))
	case *connect != "":
		client(*connect)
	default:
		l := must(net.Listen("tcp", "localhost:0"))
		for range *clients {
			go client(l.Addr().String())
		}
		serve(l)
	}
}

// serve answers the messages of all clients until the last one has gone.
func serve(l net.Listener) {
	dev := must(verbs.Open(*device))
	defer dev.Close()
	ch := must(dev.CreateCompChannel())
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		accept(l, dev, ch)
		cancel()
	}()

	messages := 0
	wcs := make([]verbs.WC, 8)
	for {
		cq, err := ch.Wait(ctx)
		if errors.Is(err, context.Canceled) {
			break
		}
		check(err)
		check(cq.Arm(false)) // before the poll, which then misses nothing
		c := cq.Value().(*conn)
		for n := must(cq.Poll(wcs)); n > 0; n = must(cq.Poll(wcs)) {
			for _, wc := range wcs[:n] {
				check(wc.Err())
				if wc.Opcode != verbs.WCRecv {
					continue // the answer is sent
				}
				copy(c.out(), c.in())
				c.postRecv()
				c.postSend()
				messages++
			}
		}
	}
	fmt.Printf("served %d messages of %d clients\n", messages, *clients)
}

// accept connects the clients, and waits until they have gone.
func accept(l net.Listener, dev *verbs.Device, ch *verbs.CompChannel) {
	var gone sync.WaitGroup
	for range *clients {
		tcp := must(l.Accept())
		c := newConn(dev, ch)
		check(c.cq.Arm(false))
		c.postRecv()
		var peer verbs.Endpoint
		check(json.NewDecoder(tcp).Decode(&peer))
		check(c.qp.Connect(peer, verbs.ConnectOptions{}))
		check(json.NewEncoder(tcp).Encode(c.endpoint)) // from now on the client can send
		gone.Go(func() { io.Copy(io.Discard, tcp) })
	}
	gone.Wait()
}

// client sends three messages to the server, and checks the answers.
func client(address string) {
	tcp := must(net.Dial("tcp", address))
	dev := must(verbs.Open(*device))
	defer dev.Close()
	c := newConn(dev, nil)
	check(json.NewEncoder(tcp).Encode(c.endpoint))
	var peer verbs.Endpoint
	check(json.NewDecoder(tcp).Decode(&peer))
	check(c.qp.Connect(peer, verbs.ConnectOptions{}))

	wc := make([]verbs.WC, 1)
	for i := range 3 {
		copy(c.out(), fmt.Sprintf("message %d", i))
		c.postRecv()
		c.postSend()
		for range 2 { // the send, and the answer
			must(c.cq.PollWait(context.Background(), wc))
			check(wc[0].Err())
		}
		if string(c.in()) != string(c.out()) {
			log.Fatalf("%q is answered with %q", c.out(), c.in())
		}
	}
	check(tcp.Close())
}

// A conn is one end of a connection, with a buffer for sends and one for receives.
type conn struct {
	mr       *verbs.MR
	cq       *verbs.CQ
	qp       *verbs.QP
	endpoint verbs.Endpoint
}

const size = 64 // of a message

// newConn creates a queue pair with a CQ of its own. The channel may be nil.
func newConn(dev *verbs.Device, ch *verbs.CompChannel) *conn {
	c := new(conn)
	pd := must(dev.AllocPD())
	c.mr = must(pd.AllocMR(2*size, verbs.MROptions{Access: verbs.AccessLocalWrite}))
	c.cq = must(dev.CreateCQ(verbs.CQOptions{MaxCQE: 2, Channel: ch, Value: c}))
	c.qp = must(pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: c.cq, RecvCQ: c.cq,
		Cap: verbs.QPCap{MaxSendWR: 2, MaxRecvWR: 1}}))
	c.endpoint = must(c.qp.Endpoint(must(dev.FindGID(verbs.GIDSelector{Port: 1}))))
	return c
}

func (c *conn) out() []byte { return c.mr.Bytes()[:size] }
func (c *conn) in() []byte  { return c.mr.Bytes()[size:] }

func (c *conn) postSend() {
	must(c.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{c.mr.SGEOf(c.out())}}))
}

func (c *conn) postRecv() {
	must(c.qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{c.mr.SGEOf(c.in())}}))
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
