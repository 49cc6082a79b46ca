package rdmanl_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"syscall"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/rdmanl"
)

// A software device is added, listed and deleted.
func Example() {
	ctx := context.Background()
	if err := rdmanl.AddLink(ctx, rdmanl.LinkOptions{Name: "rxe0", Type: "rxe", Netdev: "eth0"}); err != nil {
		log.Fatal(err)
	}
	d, err := rdmanl.FindDevice(ctx, "rxe0")
	if err != nil {
		log.Fatal(err)
	}
	links, err := rdmanl.Links(ctx, d.Index)
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range links {
		if state, ok := l.State.Get(); ok {
			fmt.Printf("%s/%d is %v\n", l.Device, l.Port, state)
		}
	}
	if err := rdmanl.DeleteLink(ctx, d.Index); err != nil {
		log.Fatal(err)
	}
}

// The program lists the queue pairs of a device and their owners.
func ExampleQPs() {
	ctx := context.Background()
	d, err := rdmanl.FindDevice(ctx, "mlx5_0")
	if err != nil {
		log.Fatal(err)
	}
	qps, err := rdmanl.QPs(ctx, d.Index, rdmanl.DetailCommon)
	if err != nil {
		log.Fatal(err)
	}
	for _, q := range qps {
		name, _ := q.Comm()
		if pid, ok := q.PID.Get(); ok {
			fmt.Printf("QP %d of process %d (%s) is in %v\n", q.Number, pid, name, q.State.Or(ib.QPReset))
		}
	}
}

// The program lists the links that are up, and reports links that go down.
func ExampleWatch() {
	ctx := context.Background()
	w, err := rdmanl.Watch(ctx, rdmanl.WatchOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	for {
		e, err := w.Next(ctx)
		switch {
		case errors.Is(err, syscall.ENOBUFS):
			log.Print("some events were lost")
		case err != nil:
			log.Fatal(err)
		case e.Kind == rdmanl.EventPortState:
			up := e.State.Or(ib.PortNop) == ib.PortActive
			fmt.Printf("%s/%d: up %t\n", e.Device.Or(""), e.Port.Or(0), up)
		default:
			fmt.Println(e.Kind, e.Device.Or(""))
		}
	}
}

// An Optional distinguishes a zero from no answer.
func ExampleOptional() {
	lid := rdmanl.Some(uint32(0))
	if v, ok := lid.Get(); ok {
		fmt.Println("the LID is", v)
	}
	var none rdmanl.Optional[uint32]
	if _, ok := none.Get(); !ok {
		fmt.Println("the kernel doesn't say")
	}
	// Output:
	// the LID is 0
	// the kernel doesn't say
}
