// Pool sends messages from the buffers of a pool, a batch at a time.
//
//	pool [-device NAME]
//
// A queue pair that is connected to itself sends and receives. Sends and receives take their
// buffers from one pool of registered memory. Each request holds a reference to its buffer,
// and its completion returns the reference. The program prints
//
//	received 1024 messages in batches of 16
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/verbs"
)

const (
	batches = 64
	batch   = 16   // messages
	size    = 1024 // of a message
)

func main() {
	device := flag.String("device", "", "the RDMA device; by default, the first one")
	flag.Parse()
	dev := must(verbs.Open(*device))
	defer dev.Close()
	gid := must(dev.FindGID(verbs.GIDSelector{Port: 1}))
	pd := must(dev.AllocPD())
	pool := must(pd.NewBufferPool(verbs.BufferPoolOptions{Access: verbs.AccessLocalWrite, MaxBytes: 1 << 20, SlabBytes: 64 << 10}))
	cq := must(dev.CreateCQ(verbs.CQOptions{MaxCQE: 2 * batch}))
	qp := must(pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: batch, MaxRecvWR: batch}}))
	check(qp.Connect(must(qp.Endpoint(gid)), verbs.ConnectOptions{}))

	received := 0
	wcs := make([]verbs.WC, 2*batch)
	for range batches {
		for range batch {
			b := must(pool.Get(size))
			must(qp.PostRecv(verbs.RecvWR{WRID: b.WRID(), SGL: []verbs.SGE{b.SGE()}}))
		}
		must(qp.Sends(func(sends *verbs.SendBuilder) error {
			for i := range batch {
				b, err := pool.Get(size)
				if err != nil {
					return err
				}
				binary.BigEndian.PutUint64(b.Bytes(), uint64(received+i))
				sends.Send(b.WRID(), verbs.SendSignaled, b.SGE())
			}
			return nil
		}))
		for done := 0; done < 2*batch; {
			n := must(cq.PollWait(context.Background(), wcs))
			done += n
			for _, wc := range wcs[:n] {
				check(wc.Err())
				b := pool.Completed(wc.WRID)
				if wc.Opcode == verbs.WCRecv {
					if number := binary.BigEndian.Uint64(b.Bytes()); number != uint64(received) {
						log.Fatalf("received message %d, want %d", number, received)
					}
					received++
				}
				b.Release()
			}
		}
	}
	check(pool.Close())
	fmt.Printf("received %d messages in batches of %d\n", received, batch)
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
