// Rdma_server waits for one client, receives a message of 16 bytes, answers with
// 16 bytes, and exits. The client is rdma-core's rdma_client, or
// examples/rdma_client.
//
// It takes the steps of rdmacm.Listen one by one, with a SyncID, to show each of
// them.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"

	_ "github.com/goverbs/goverbs/provider/siw" // soft-iWARP is not part of every program
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
	infos, err := rdmacm.Lookup(ctx, addr, port, rdmacm.Hints{Passive: true})
	if err != nil {
		return err
	}
	listener, err := rdmacm.CreateSyncID(rdmacm.PortSpaceTCP)
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

	// Wait for a client. Its request has a new SyncID, which is bound to the device that
	// the request arrived on. All other objects are made on that device.
	request, err := listener.Request(ctx)
	if err != nil {
		return err
	}
	id := request.SyncID
	defer id.Close()
	qp, err := id.CreateQP(nil, verbs.QPOptions{
		Cap:       verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxInlineData: messageLen},
		SignalAll: true, // each send generates a completion
	})
	if err != nil {
		return err
	}
	// Registered memory for the message: rdma_reg_msgs.
	mr, err := id.PD().AllocMR(messageLen, verbs.MROptions{Access: verbs.AccessLocalWrite})
	if err != nil {
		return err
	}
	defer mr.Close()

	// The most important rule: a message needs a receive that is already posted. The
	// client may send as soon as it learns that it is accepted. So post the receive
	// before Accept.
	if _, err := qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{mr.SGE(0, messageLen)}}); err != nil {
		return err
	}
	if err := id.Accept(ctx, nil); err != nil {
		return err
	}

	// Wait for the client's message: rdma_get_recv_comp.
	if err := completed(ctx, id.RecvCQ()); err != nil {
		return err
	}
	fmt.Printf("received %q\n", mr.Bytes())

	// The answer. The client posted a receive for it before it sent its message.
	// Inline data is copied into the work request and needs no registered memory.
	if _, err := qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("hello from Go\x00\x00\x00")}); err != nil {
		return err
	}
	// Wait until the client has the answer: then the client ends the connection. Its device
	// may acknowledge the answer after the client has seen it, so the completion of the send
	// would come too late, with an error, or never.
	e, err := id.Event(ctx)
	if err != nil {
		return err
	}
	if e.Type != rdmacm.EventDisconnected {
		return fmt.Errorf("the connection ends with %v", e.Type)
	}
	return id.Disconnect(ctx)
}

// completed waits for one completion. It returns an error if the work request
// failed.
func completed(ctx context.Context, cq *verbs.CQ) error {
	var wc [1]verbs.WC
	if _, err := cq.PollWait(ctx, wc[:]); err != nil {
		return err
	}
	return wc[0].Err()
}
