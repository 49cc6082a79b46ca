package valkeyrdma_test

import (
	"bufio"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/valkeyrdma"
)

// A client that speaks Valkey's protocol itself. Client libraries take Dialer.DialContext: see the package's
// documentation.
func Example() {
	c, err := valkeyrdma.Dial("tcp", "192.168.77.1:6379")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprint(c, "PING\r\n"); err != nil {
		log.Fatal(err)
	}
	answer, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(answer) // +PONG
}

// A server that Valkey's clients reach by RDMA.
func ExampleListen() {
	l, err := valkeyrdma.Listen("tcp", ":6379")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	for {
		c, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer c.Close()
			for commands := bufio.NewScanner(c); commands.Scan(); {
				if _, err := fmt.Fprint(c, "+OK\r\n"); err != nil {
					return
				}
			}
		}()
	}
}
