// Rdmacm shows the two ways to establish a connection by address step by step, and multicast.
//
//	rdmacm [-device NAME] events     many IDs on one channel, whose events one goroutine handles
//	rdmacm [-device NAME] sync       IDs whose methods wait
//	rdmacm [-device NAME] multicast  datagrams to a group
//
// Both ends are in this process. The first prints
//
//	active: RDMA_CM_EVENT_ADDR_RESOLVED
//	active: RDMA_CM_EVENT_ROUTE_RESOLVED
//	active: RDMA_CM_EVENT_ESTABLISHED
//	received "hello"
//	active: RDMA_CM_EVENT_DISCONNECTED
//
// the second only the message, and the last
//
//	received "to the group" from the group
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

var (
	ctx     = context.Background()
	timeout = 2 * time.Second // for an address, and for a route
	small   = verbs.QPOptions{Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4}}
	none    netip.AddrPort
)

func main() {
	subjects := map[string]func(netip.Addr){"events": events, "sync": sync, "multicast": multicast}
	device := flag.String("device", "", "the RDMA device; by default, the first one")
	flag.Parse()
	subject := subjects[flag.Arg(0)]
	if subject == nil {
		log.Fatal("usage: rdmacm [-device NAME] events|sync|multicast")
	}
	dev := must(verbs.Open(*device))
	gid := must(dev.FindGID(verbs.GIDSelector{Port: 1}))
	check(dev.Close())
	subject(gid.GID.Addr())
}

// receive posts a receive, and returns the function that waits for the message.
func receive(qp *verbs.QP, pd *verbs.PD, cq *verbs.CQ, skip int) func() []byte {
	mr := must(pd.AllocMR(256, verbs.MROptions{Access: verbs.AccessLocalWrite}))
	must(qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{mr.SGE(0, 256)}}))
	return func() []byte {
		message := append([]byte(nil), mr.Bytes()[skip:wait(cq).ByteLen]...)
		check(mr.Close())
		return message
	}
}

// send sends a message, with the work request's other fields, and waits until it is sent.
func send(qp *verbs.QP, pd *verbs.PD, cq *verbs.CQ, message string, wr verbs.SendWR) {
	mr := must(pd.AllocMR(256, verbs.MROptions{}))
	wr.Opcode, wr.Flags, wr.SGL = verbs.OpSend, verbs.SendSignaled, []verbs.SGE{mr.SGE(0, copy(mr.Bytes(), message))}
	must(qp.PostSend(wr))
	wait(cq)
	check(mr.Close())
}

func wait(cq *verbs.CQ) verbs.WC {
	wc := make([]verbs.WC, 1)
	must(cq.PollWait(ctx, wc))
	check(wc[0].Err())
	return wc[0]
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

// events connects two IDs on one channel.
func events(addr netip.Addr) {
	ch := must(rdmacm.NewEventChannel())
	listener := must(ch.CreateID(rdmacm.PortSpaceTCP))
	check(listener.Bind(netip.AddrPortFrom(addr, 0)))
	check(listener.Listen(1))
	active := must(ch.CreateID(rdmacm.PortSpaceTCP))
	check(active.ResolveAddr(none, listener.LocalAddr(), timeout))

	var passive *rdmacm.ID
	var message func() []byte
	for open := 2; open > 0; {
		ev := must(ch.Event(ctx))
		check(ev.Err())
		id := ev.ID
		if id == active {
			fmt.Println("active:", ev.Type)
		}
		switch ev.Type {
		case rdmacm.EventAddrResolved:
			check(id.ResolveRoute(timeout))
		case rdmacm.EventRouteResolved:
			must(id.CreateQP(nil, small))
			check(id.Connect(nil))
		case rdmacm.EventConnectRequest:
			passive = id
			qp := must(id.CreateQP(nil, small))
			message = receive(qp, id.PD(), id.RecvCQ(), 0)
			check(id.Accept(nil))
		case rdmacm.EventEstablished:
			if id == active {
				send(id.QP(), id.PD(), id.SendCQ(), "hello", verbs.SendWR{})
				check(id.Disconnect())
			}
		case rdmacm.EventDisconnected:
			if id == passive {
				fmt.Printf("received %q\n", message())
				check(id.Disconnect())
			}
			open--
		}
	}
	for _, id := range []*rdmacm.ID{active, passive, listener} {
		check(id.Close())
	}
	check(ch.Close())
}

// sync connects two IDs without a channel: each end is a goroutine.
func sync(addr netip.Addr) {
	listener := must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))
	check(listener.Bind(netip.AddrPortFrom(addr, 0)))
	check(listener.Listen(1))

	done := make(chan bool)
	go func() {
		defer close(done)
		id := must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))
		check(id.ResolveAddr(ctx, none, listener.LocalAddr(), timeout))
		check(id.ResolveRoute(ctx, timeout))
		qp := must(id.CreateQP(nil, small))
		must(id.Connect(ctx, nil))
		send(qp, id.PD(), id.SendCQ(), "hello", verbs.SendWR{})
		check(id.Disconnect(ctx))
		check(id.Close())
	}()

	id := must(listener.Request(ctx)).SyncID
	qp := must(id.CreateQP(nil, small))
	message := receive(qp, id.PD(), id.RecvCQ(), 0)
	check(id.Accept(ctx, nil))
	fmt.Printf("received %q\n", message())
	check(id.Disconnect(ctx))
	<-done
	check(id.Close())
	check(listener.Close())
}

// multicast joins a group, sends to it, and receives the datagram as a member.
func multicast(addr netip.Addr) {
	id := must(rdmacm.CreateSyncID(rdmacm.PortSpaceUDP))
	check(id.Bind(netip.AddrPortFrom(addr, 0)))
	qp := must(id.CreateQP(nil, small))
	message := receive(qp, id.PD(), id.RecvCQ(), verbs.GRHLen)

	group, joined, err := id.JoinMulticast(ctx, netip.MustParseAddr("239.1.2.3"), rdmacm.JoinFullMember)
	check(err)
	ah := must(id.PD().CreateAH(joined.UD.AH))
	send(qp, id.PD(), id.SendCQ(), "to the group", verbs.SendWR{AH: ah, RemoteQPN: joined.UD.QPNum, RemoteQKey: joined.UD.QKey})
	fmt.Printf("received %q from the group\n", message())

	check(ah.Close())
	check(id.LeaveMulticast(group))
	check(id.Close())
}
