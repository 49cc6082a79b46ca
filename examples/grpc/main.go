// Grpc is a gRPC server and its client, on sockets over RDMA (rsocket). It is a module of its own, so that
// the library's module doesn't depend on gRPC.
//
//	grpc -listen :50051           serves until it is interrupted
//	grpc -connect 10.0.0.1:50051  is the client; the address is the RDMA device's
//	grpc                          both sides, in one process
//
// Package grpc has no code for RDMA: the server gets a net.Listener, and the client a
// function that makes a net.Conn. The service's messages are protobuf's well-known
// BytesValue, so there is no generated code. The client prints
//
//	Echo: 1048576 bytes came back
//	Stream: 100 messages came back
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
)

var (
	device  = flag.String("device", "", "without an address: the RDMA device; by default, the first one")
	listen  = flag.String("listen", "", "serve at this address")
	connect = flag.String("connect", "", "be a client of the server at this address")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	switch {
	case *listen != "":
		log.Fatal(serve(must(rsocket.Listen("tcp", *listen))))
	case *connect != "":
		client(*connect)
	default:
		l := must(rsocket.Listen("tcp", net.JoinHostPort(address(), "0")))
		go serve(l)
		client(l.Addr().String())
	}
}

// address returns an IP address of the device.
func address() string {
	dev := must(verbs.Open(*device))
	defer dev.Close()
	return must(must(dev.GIDTable()).Find(verbs.GIDSelector{Port: 1})).GID.Addr().String()
}

// The service answers a message with itself, and a stream of messages with the same stream.
const (
	echoMethod   = "/goverbs.Echo/Echo"
	streamMethod = "/goverbs.Echo/Stream"
)

var service = grpc.ServiceDesc{
	ServiceName: "goverbs.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Echo",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			m := new(wrapperspb.BytesValue)
			return m, decode(m)
		},
	}},
	Streams: []grpc.StreamDesc{{
		StreamName: "Stream", ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, stream grpc.ServerStream) error {
			for {
				m := new(wrapperspb.BytesValue)
				if err := stream.RecvMsg(m); err != nil {
					if errors.Is(err, io.EOF) {
						return nil
					}
					return err
				}
				if err := stream.SendMsg(m); err != nil {
					return err
				}
			}
		},
	}},
}

func serve(l net.Listener) error {
	server := grpc.NewServer()
	server.RegisterService(&service, nil)
	return server.Serve(l)
}

func client(address string) {
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		return new(rsocket.Dialer).DialContext(ctx, "tcp", address)
	}
	// With passthrough, the resolver doesn't change the address.
	conn := must(grpc.NewClient("passthrough:///"+address, grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer conn.Close()
	ctx := context.Background()

	sent := make([]byte, 1<<20)
	rand.Read(sent)
	answer := new(wrapperspb.BytesValue)
	check(conn.Invoke(ctx, echoMethod, wrapperspb.Bytes(sent), answer))
	if !bytes.Equal(answer.Value, sent) {
		log.Fatalf("%d bytes came back, and they are others", len(answer.Value))
	}
	fmt.Printf("Echo: %d bytes came back\n", len(answer.Value))

	const messages, size = 100, 5000
	stream := must(conn.NewStream(ctx, &service.Streams[0], streamMethod))
	go func() {
		for i := range messages {
			check(stream.SendMsg(wrapperspb.Bytes(sent[i*size : (i+1)*size])))
		}
		check(stream.CloseSend())
	}()
	n := 0
	for ; ; n++ {
		err := stream.RecvMsg(answer)
		if err == io.EOF {
			break
		}
		check(err)
		if n == messages || !bytes.Equal(answer.Value, sent[n*size:(n+1)*size]) {
			log.Fatalf("message %d is another", n)
		}
	}
	fmt.Printf("Stream: %d messages came back\n", n)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}
