// Rdma_client connects to a server, sends it a message of 16 bytes, receives its
// answer, and exits. The server is rdma-core's rdma_server, or
// examples/rdma_server.
//
// It takes the steps of rdmacm.Dial one by one, with a SyncID, to show each of them.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/netip"
	"time"

	_ "github.com/goverbs/goverbs/provider/siw" // soft-iWARP is not part of every program
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

func main() {
	server := flag.String("s", "127.0.0.1", "address or name of the server")
	port := flag.String("p", "7471", "port of the server")
	flag.Parse()
	fmt.Println("rdma_client: start")
	if err := run(*server, *port); err != nil {
		log.Fatalf("rdma_client: %v", err)
	}
	fmt.Println("rdma_client: end")
}

const (
	messageLen = 16
	timeout    = 2 * time.Second // for the address, and for the route
)

func run(server, port string) error {
	ctx := context.Background()

	// The server's address: rdma_getaddrinfo.
	infos, err := rdmacm.Lookup(ctx, server, port, rdmacm.Hints{})
	if err != nil {
		return err
	}
	id, err := rdmacm.CreateSyncID(rdmacm.PortSpaceTCP)
	if err != nil {
		return err
	}
	defer id.Close()
	// The device on the way to the server, and the route.
	if err := id.ResolveAddr(ctx, netip.AddrPort{}, infos[0].Dst, timeout); err != nil {
		return err
	}
	if err := id.ResolveRoute(ctx, timeout); err != nil {
		return err
	}
	qp, err := id.CreateQP(nil, verbs.QPOptions{
		Cap:       verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxInlineData: messageLen},
		SignalAll: true, // each send generates a completion
	})
	if err != nil {
		return err
	}
	// Registered memory for the answer: rdma_reg_msgs.
	mr, err := id.PD().AllocMR(messageLen, verbs.MROptions{Access: verbs.AccessLocalWrite})
	if err != nil {
		return err
	}
	defer mr.Close()

	// The most important rule: a message needs a receive that is already posted. The
	// server answers as soon as it has our message. So post the receive for the
	// answer before sending that message, or better before Connect.
	if _, err := qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{mr.SGE(0, messageLen)}}); err != nil {
		return err
	}
	if _, err := id.Connect(ctx, nil); err != nil {
		return err
	}

	// Our message. Inline data is copied into the work request and needs no
	// registered memory. The server's answer shows that the message has arrived, so
	// nothing waits for the completion of the send.
	if _, err := qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("hello from Go\x00\x00\x00")}); err != nil {
		return err
	}
	// Wait for the answer: rdma_get_recv_comp.
	if err := completed(ctx, id.RecvCQ()); err != nil {
		return err
	}
	fmt.Printf("received %q\n", mr.Bytes())
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
