package verbstest_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// A server and its client, on two devices. The second message is lost in each attempt, so the
// connection breaks. In a test, New is shorter than Open.
func Example() {
	n := must(verbstest.Open())
	defer n.Close()
	n.SetFault(func(r verbstest.Request) verbstest.Fault {
		if r.Device == "vt0" && r.Opcode == verbs.OpSend && r.Seq > 0 {
			return verbstest.Lose()
		}
		return verbstest.Fault{}
	})

	ctx := context.Background()
	l := must(rdmacm.Listen(ctx, "tcp", "192.0.2.2:0", nil))
	defer l.Close()
	done := make(chan bool)
	go func() {
		defer close(done)
		c := must(l.Accept(ctx))
		defer c.Close()
		b := make([]byte, c.MaxMessage())
		k := must(c.Recv(ctx, b))
		fmt.Printf("received %q\n", b[:k])
		<-c.Done()
	}()

	c := must(rdmacm.Dial(ctx, "tcp", l.Addr().String(), &rdmacm.Options{LocalAddr: netip.MustParseAddrPort("192.0.2.1:0")}))
	fmt.Println("one:", c.Send(ctx, []byte("one")))
	fmt.Println("two:", c.Send(ctx, []byte("two")) != nil)
	c.Close()
	<-done
	// Unordered output:
	// received "one"
	// one: <nil>
	// two: true
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
