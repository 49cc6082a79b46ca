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

// Many messages on their way at the same time. The client waits once, at the end.
func ExampleConn_Post() {
	ctx := context.Background()
	options := &rdmacm.Options{Messages: 64, MessageSize: 1024}
	listener := must(rdmacm.Listen(ctx, "tcp", "192.168.77.1:7472", options))
	defer listener.Close()
	sum := make(chan int)
	go func() {
		conn := must(listener.Accept(ctx))
		defer conn.Close()
		total := 0
		for {
			message, err := conn.RecvBuffer(ctx)
			if err != nil { // io.EOF, when the client closes
				break
			}
			total += len(message.Bytes())
			message.Release()
		}
		sum <- total
	}()

	conn := must(rdmacm.Dial(ctx, "tcp", "192.168.77.1:7472", options))
	for range 1000 {
		check(conn.Post(ctx, []byte("verbs")))
	}
	check(conn.Flush(ctx))
	check(conn.Close())
	fmt.Println("received", <-sum, "bytes")
}

// A server that answers each message where it lies: nothing is copied but by the
// devices.
func ExampleConn_SendBuffer() {
	ctx := context.Background()
	listener := must(rdmacm.Listen(ctx, "tcp", "192.168.77.1:7473", nil))
	defer listener.Close()
	go func() {
		conn := must(listener.Accept(ctx))
		defer conn.Close()
		for {
			question, err := conn.RecvBuffer(ctx)
			if err != nil { // io.EOF, when the client closes
				return
			}
			answer := must(conn.SendBuffer(ctx))
			b := fmt.Appendf(answer.Bytes()[:0], "%d bytes", len(question.Bytes()))
			question.Release()
			check(answer.Post(len(b)))
		}
	}()

	conn := must(rdmacm.Dial(ctx, "tcp", "192.168.77.1:7473", nil))
	defer conn.Close()
	check(conn.Send(ctx, []byte("verbs")))
	answer := must(conn.RecvBuffer(ctx))
	fmt.Printf("%s\n", answer.Bytes())
	answer.Release()
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
