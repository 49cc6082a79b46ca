// Rdma_server waits for one client, takes a message of 16 bytes from it, answers
// with 16 bytes, and ends. It speaks with rdma-core's rdma_client, and with
// examples/rdma_client.
//
// It does by hand, with an ID, what rdmacm.Listen does by itself, so that each
// step can be seen.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

func main() {
	addr := flag.String("s", "0.0.0.0", "address to listen on")
	port := flag.String("p", "7471", "port to listen on")
	flag.Parse()
	fmt.Println("rdma_server: start")
	if err := run(*addr, *port); err != nil {
		log.Fatalf("rdma_server: %v", err)
	}
	fmt.Println("rdma_server: end")
}

const messageLen = 16

func run(addr, port string) error {
	ctx := context.Background()

	// The address to listen on: rdma_getaddrinfo with RAI_PASSIVE.
	infos, err := rdmacm.GetAddrInfo(ctx, addr, port, rdmacm.Hints{Passive: true})
	if err != nil {
		return err
	}
	listener, err := rdmacm.CreateID(rdmacm.TCP)
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := listener.Bind(infos[0].Src); err != nil {
		return err
	}
	if err := listener.Listen(0); err != nil {
		return err
	}

	// A client. Its request brings an ID of its own, which knows the device that
	// the request came in on: everything else is made there.
	request, err := listener.Request(ctx)
	if err != nil {
		return err
	}
	id := request.ID
	defer id.Close()
	qp, err := id.CreateQP(nil, verbs.QPOptions{
		Cap:       verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: messageLen},
		SignalAll: true, // each send reports that it is done
	})
	if err != nil {
		return err
	}
	// Memory that the device may write to: rdma_reg_msgs.
	mr, err := id.PD().AllocMR(messageLen, verbs.AccessLocalWrite)
	if err != nil {
		return err
	}
	defer mr.Close()

	// The rule that matters: a message needs a receive that was posted before it
	// was sent. The client may send as soon as it hears that it is accepted, so
	// the receive comes before Accept.
	if _, err := qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{mr.SGE(0, messageLen)}}); err != nil {
		return err
	}
	if err := id.Accept(ctx, nil); err != nil {
		return err
	}

	// The client's message: rdma_get_recv_comp.
	if err := completed(ctx, id.RecvCQ()); err != nil {
		return err
	}
	fmt.Printf("received %q\n", mr.Bytes())

	// The answer. The client has posted a receive for it before it sent. Data of
	// a few bytes goes along with the work request and needs no registered memory.
	if _, err := qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("hello from Go\x00\x00\x00")}); err != nil {
		return err
	}
	// It must have left before the connection ends: rdma_get_send_comp.
	if err := completed(ctx, id.SendCQ()); err != nil {
		return err
	}
	return id.Disconnect(ctx)
}

// completed waits for one completion, and fails if the work did.
func completed(ctx context.Context, cq *verbs.CQ) error {
	var wc [1]verbs.WC
	if _, err := cq.PollWait(ctx, wc[:]); err != nil {
		return err
	}
	return wc[0].Err()
}
