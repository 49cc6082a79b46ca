// Cm_echo is an echo server and its client, on connections by IP address (rdmacm).
//
//	cm_echo -listen :7471           serves one client, and ends
//	cm_echo -connect 10.0.0.1:7471  is the client; the address is the RDMA device's
//	cm_echo                         both sides, in one process
//
// The client keeps many messages in flight. Both sides read and write the messages in the
// connection's own buffers. The client prints
//
//	1000 messages of 4096 bytes came back
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"log"
	"net"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

var (
	device  = flag.String("device", "", "without an address: the RDMA device; by default, the first one")
	listen  = flag.String("listen", "", "serve a client at this address")
	connect = flag.String("connect", "", "be a client of the server at this address")
)

const messages = 1000

var (
	ctx     = context.Background()
	options = &rdmacm.Options{Messages: 16}
)

func main() {
	flag.Parse()
	switch {
	case *listen != "":
		serve(must(rdmacm.Listen(ctx, "tcp", *listen, options)))
	case *connect != "":
		client(*connect)
	default:
		l := must(rdmacm.Listen(ctx, "tcp", net.JoinHostPort(address(), "0"), options))
		done := make(chan bool)
		go func() { serve(l); close(done) }()
		client(l.Addr().String())
		<-done
	}
}

// address returns an IP address of the device.
func address() string {
	dev := must(verbs.Open(*device))
	defer dev.Close()
	return must(dev.FindGID(verbs.GIDSelector{Port: 1})).GID.Addr().String()
}

// serve sends each message of a client back to it.
func serve(l *rdmacm.Listener) {
	defer l.Close()
	c := must(l.Accept(ctx))
	defer c.Close()
	for {
		in, err := c.RecvBuffer(ctx)
		if err == io.EOF {
			return
		}
		check(err)
		out := must(c.SendBuffer(ctx))
		n := copy(out.Bytes(), in.Bytes())
		in.Release()
		check(out.Post(n))
	}
}

// client sends numbered messages, while it receives and checks the answers. It keeps at most
// as many in flight as each side has buffers: a message that finds no buffer must be sent
// again.
func client(address string) {
	c := must(rdmacm.Dial(ctx, "tcp", address, options))
	defer c.Close()
	size := c.MaxMessage()
	window := make(chan bool, options.Messages)
	go func() {
		for i := range messages {
			window <- true
			b := must(c.SendBuffer(ctx))
			binary.BigEndian.PutUint64(b.Bytes(), uint64(i))
			check(b.Post(size))
		}
	}()
	for i := range messages {
		b := must(c.RecvBuffer(ctx))
		if n := binary.BigEndian.Uint64(b.Bytes()); n != uint64(i) || len(b.Bytes()) != size {
			log.Fatalf("message %d: received message %d, %d bytes", i, n, len(b.Bytes()))
		}
		b.Release()
		<-window
	}
	fmt.Printf("%d messages of %d bytes came back\n", messages, size)
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
