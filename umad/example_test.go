package umad_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/goverbs/goverbs/umad"
)

// The program queries the description of the node at the other end of the link, by a directed
// route of one hop.
func Example() {
	port, err := umad.Open("mlx5_0", 1)
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	agent, err := port.Register(umad.AgentOptions{Class: umad.ClassDirected})
	if err != nil {
		log.Fatal(err)
	}
	const nodeDescription, hops = 0x10, 1
	mad := make([]byte, umad.Size)
	h := umad.Header{Class: umad.ClassDirected, Version: 1, Method: umad.MethodGet, Hops: hops, Attr: nodeDescription}
	h.Put(mad)
	mad[32], mad[33], mad[34], mad[35] = 0xff, 0xff, 0xff, 0xff // the route begins and ends here
	mad[128+1] = 1                                              // by port 1
	answer, err := agent.Do(context.Background(), umad.Message{
		Addr: umad.Addr{LID: umad.PermissiveLID}, MAD: mad, Timeout: time.Second, Retries: 2,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer.MAD[64:128])
}

// A header is written and read.
func ExampleHeader() {
	mad := make([]byte, umad.Size)
	h := umad.Header{Class: umad.ClassPerformance, Version: 1, Method: umad.MethodGet, Attr: 0x12}
	h.Put(mad)
	back, err := umad.ParseHeader(mad)
	fmt.Printf("%#x %v\n", back.Attr, err)
	_, err = umad.ParseHeader(mad[:10])
	fmt.Println(err)
	// Output:
	// 0x12 <nil>
	// malformed MAD
}
