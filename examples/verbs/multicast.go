package main

import (
	"context"
	"fmt"
	"net"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/verbs"
)

// multicast sends three datagrams to a group over RoCE. Two queue pairs are attached to it, each
// with a CQ of its own. One goroutine waits for both, with one completion channel. It prints
//
//	receiver 0: 3 messages
//	receiver 1: 3 messages
func multicast(e *env) {
	const key, messages, room = 0x11111111, 3, verbs.GRHLen + 64
	addr := net.IPv4(239, 77, 1, 9)
	group := must(ib.ParseGID(addr.String()))
	// The interface accepts packets to the group while a socket has joined it.
	ifi := must(net.InterfaceByName(e.gid.NetDev))
	joined := must(net.ListenMulticastUDP("udp4", ifi, &net.UDPAddr{IP: addr, Port: 7471}))
	defer joined.Close()

	channel := must(e.dev.CreateCompChannel())
	var received [2]int
	for i := range received {
		cq := must(e.dev.CreateCQ(verbs.CQOptions{MaxCQE: messages, Channel: channel, Value: i}))
		check(cq.Arm(false))
		qp := must(e.pd.CreateQP(verbs.QPOptions{Type: verbs.UD, SendCQ: e.cq, RecvCQ: cq, Cap: small}))
		check(qp.Activate(verbs.ActivateOptions{Port: e.gid.Port, QKey: key}))
		in := e.alloc(messages*room, verbs.AccessLocalWrite)
		for j := range messages {
			must(qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{in.SGE(j*room, room)}}))
		}
		check(qp.AttachMcast(group, 0))
	}

	sender := must(e.pd.CreateQP(verbs.QPOptions{Type: verbs.UD, SendCQ: e.cq, RecvCQ: e.cq, Cap: small}))
	check(sender.Activate(verbs.ActivateOptions{Port: e.gid.Port, QKey: key}))
	ah := must(e.pd.CreateAH(verbs.AHAttr{Port: e.gid.Port, IsGlobal: true, DGID: group, SGIDIndex: e.gid.Index, HopLimit: 1}))
	out := e.alloc(64, 0)
	n := copy(out.Bytes(), "to the group")
	for range messages {
		check(e.send(sender, verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{out.SGE(0, n)},
			AH: ah, RemoteQPN: verbs.MulticastQPN, RemoteQKey: key}))
	}

	for received != [2]int{messages, messages} {
		cq := must(channel.Wait(context.Background()))
		check(cq.Arm(false)) // before it is emptied, so that no completion is missed
		var wc [messages]verbs.WC
		for n := must(cq.Poll(wc[:])); n > 0; n = must(cq.Poll(wc[:])) {
			for i := range wc[:n] {
				check(wc[i].Err())
			}
			received[cq.Value().(int)] += n
		}
	}
	for i, n := range received {
		fmt.Printf("receiver %d: %d messages\n", i, n)
	}
}
