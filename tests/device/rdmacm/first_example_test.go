package rdmacm_test

import (
	"context"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/rdmacm"
)

// A server and its client in one process. 192.168.77.1 is the address of a
// network interface with an RDMA device.
func Example() {
	ctx := context.Background()
	listener := must(rdmacm.Listen(ctx, "tcp", "192.168.77.1:7471", nil))
	defer listener.Close()
	go func() {
		conn := must(listener.Accept(ctx))
		defer conn.Close()
		b := make([]byte, conn.MaxMessage())
		n := must(conn.Recv(ctx, b))
		check(conn.Send(ctx, append([]byte("hello, "), b[:n]...)))
		conn.Recv(ctx, b) // io.EOF, when the client closes
	}()

	conn := must(rdmacm.Dial(ctx, "tcp", "192.168.77.1:7471", nil))
	defer conn.Close()
	check(conn.Send(ctx, []byte("verbs")))
	b := make([]byte, conn.MaxMessage())
	n := must(conn.Recv(ctx, b))
	fmt.Printf("%s\n", b[:n])
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
