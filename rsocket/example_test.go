package rsocket_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"time"

	"github.com/goverbs/goverbs/rsocket"
)

// A web server and a client use net/http, which has no code for RDMA.
func Example() {
	l, err := rsocket.Listen("tcp", ":8080")
	if err != nil {
		log.Fatal(err)
	}
	go http.Serve(l, http.FileServer(http.Dir(".")))

	dialer := &rsocket.Dialer{Timeout: 5 * time.Second}
	client := http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
	answer, err := client.Get("http://192.168.77.1:8080/")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	fmt.Println(answer.Status)
}

// A connection with large buffers sends a stream, and marks its end for the peer.
func ExampleDialer() {
	dialer := rsocket.Dialer{Options: rsocket.Options{SendBuffer: 1 << 20, RecvBuffer: 1 << 20}}
	c, err := dialer.DialContext(context.Background(), "tcp", "192.168.77.1:7471")
	if err != nil {
		log.Fatal(err)
	}
	var source io.Reader
	if _, err := io.Copy(c, source); err != nil {
		log.Fatal(err)
	}
	// This process sends the remaining bytes. It may end once they have arrived.
	if err := c.(*rsocket.Conn).SetLinger(60); err != nil {
		log.Fatal(err)
	}
	if err := c.Close(); err != nil {
		log.Fatal(err)
	}
}
