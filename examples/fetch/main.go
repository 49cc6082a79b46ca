// Fetch copies memory from a server, by RDMA reads. When the connection breaks, the client makes
// another and continues from there. Its test runs it on devices of package verbstest, which
// break connections.
//
//	fetch -listen :7471           serves 1 MiB, until it is killed
//	fetch -connect 10.0.0.1:7471  is the client; the address is the RDMA device's
//	fetch                         both sides, in one process
//
// The client prints
//
//	fetched 1048576 bytes over 1 connection
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

var (
	device  = flag.String("device", "", "without an address: the RDMA device; by default, the first one")
	listen  = flag.String("listen", "", "serve clients at this address")
	connect = flag.String("connect", "", "be a client of the server at this address")
)

const piece = 64 << 10 // bytes that one request reads

func main() {
	flag.Parse()
	ctx := context.Background()
	blob := bytes.Repeat([]byte("fetched!"), 128<<10)
	switch {
	case *listen != "":
		serve(ctx, must(rdmacm.Listen(ctx, "tcp", *listen, nil)), blob)
	case *connect != "":
		show(fetch(ctx, *connect))
	default:
		l := must(rdmacm.Listen(ctx, "tcp", net.JoinHostPort(address(), "0"), nil))
		done := make(chan bool)
		go func() { serve(ctx, l, blob); close(done) }()
		show(fetch(ctx, l.Addr().String()))
		check(l.Close())
		<-done
	}
}

func show(blob []byte, connections int, err error) {
	check(err)
	fmt.Printf("fetched %d bytes over %d connection\n", len(blob), connections)
}

// address returns an IP address of the device.
func address() string {
	dev := must(verbs.Open(*device))
	defer dev.Close()
	return must(dev.FindGID(verbs.GIDSelector{Port: 1})).GID.Addr().String()
}

// An offer is the server's message to each client.
type offer struct {
	Memory verbs.Remote
	Size   int
}

// serve lets clients read the blob, until the listener is closed.
func serve(ctx context.Context, l *rdmacm.Listener, blob []byte) {
	err := l.Serve(ctx, func(ctx context.Context, c *rdmacm.Conn) {
		if err := lend(ctx, c, blob); err != nil {
			log.Print(err)
		}
	})
	if !errors.Is(err, rdmacm.ErrClosed) {
		log.Fatal(err)
	}
}

// lend lets one client read the blob, until it leaves.
func lend(ctx context.Context, c *rdmacm.Conn, blob []byte) error {
	mr, err := c.PD().RegMR(blob, verbs.MROptions{Access: verbs.AccessRemoteRead})
	if err != nil {
		return err
	}
	defer mr.Close()
	b, err := json.Marshal(offer{mr.Remote(), len(blob)})
	if err != nil {
		return err
	}
	if err := c.Send(ctx, b); err != nil {
		return err
	}
	select {
	case <-c.Done():
	case <-ctx.Done():
	}
	return nil
}

// fetch returns the blob of a server, and the number of connections used. It gives up when a
// connection transfers no data.
func fetch(ctx context.Context, addr string) (blob []byte, connections int, err error) {
	for {
		had := len(blob)
		var whole bool
		blob, whole, err = more(ctx, addr, blob)
		if connections++; whole || len(blob) == had {
			return blob, connections, err
		}
	}
}

// more appends the bytes from one connection to the blob.
func more(ctx context.Context, addr string, blob []byte) (_ []byte, whole bool, err error) {
	c, err := rdmacm.Dial(ctx, "tcp", addr, nil)
	if err != nil {
		return blob, false, err
	}
	defer c.Close()
	b := make([]byte, c.MaxMessage())
	n, err := c.Recv(ctx, b)
	if err != nil {
		return blob, false, err
	}
	var o offer
	if err := json.Unmarshal(b[:n], &o); err != nil {
		return blob, false, err
	}
	mr, err := c.PD().AllocMR(piece, verbs.MROptions{Access: verbs.AccessLocalWrite})
	if err != nil {
		return blob, false, err
	}
	defer mr.Close()
	for len(blob) < o.Size {
		n := min(piece, o.Size-len(blob))
		if err := c.Read(ctx, mr.SGE(0, n), o.Memory.At(uint64(len(blob)))); err != nil {
			return blob, false, err
		}
		blob = append(blob, mr.Bytes()[:n]...)
	}
	return blob, true, nil
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
