package rdmacm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// A server with a counter in memory that is registered once. The clients increment the
// counter by themselves. The key of the memory comes with the server's answer.
func ExampleTransport() {
	ctx := context.Background()
	device := must(rdmacm.FindDevice(ctx, "tcp", "192.168.77.1:7475"))
	defer device.Close() // with the PD and the MR
	pd := must(device.AllocPD())
	counter := must(pd.AllocMR(8, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteAtomic}))
	transport := &rdmacm.Transport{PD: pd}
	listener := must(transport.Listen(ctx, "tcp", "192.168.77.1:7475", &rdmacm.Options{
		Prepare: func(_ *rdmacm.Conn, p *rdmacm.ConnParam) (err error) {
			p.PrivateData, err = counter.Remote().AppendBinary(nil)
			return err
		},
	}))
	defer listener.Close()
	for range 3 {
		client := must(rdmacm.Dial(ctx, "tcp", "192.168.77.1:7475", nil))
		server := must(listener.Accept(ctx))
		var remote verbs.Remote
		check(remote.UnmarshalBinary(client.Peer().PrivateData))
		fmt.Println("before:", must(client.FetchAdd(ctx, remote, 1)))
		check(client.Close())
		check(server.Close())
	}
}

// Many messages in flight at the same time. The client waits once, at the end.
func ExampleConn_Post() {
	ctx := context.Background()
	options := &rdmacm.Options{Messages: 64, MessageSize: 1024}
	listener := must(rdmacm.Listen(ctx, "tcp", "192.168.77.1:7472", options))
	defer listener.Close()
	sum := make(chan int)
	go func() {
		conn := must(listener.Accept(ctx))
		defer conn.Close()
		total := 0
		for {
			message, err := conn.RecvBuffer(ctx)
			if err != nil { // io.EOF, when the client closes
				break
			}
			total += len(message.Bytes())
			message.Release()
		}
		sum <- total
	}()

	conn := must(rdmacm.Dial(ctx, "tcp", "192.168.77.1:7472", options))
	for range 1000 {
		check(conn.Post(ctx, []byte("verbs")))
	}
	check(conn.Flush(ctx))
	check(conn.Close())
	fmt.Println("received", <-sum, "bytes")
}

// A server that answers each message in its receive buffer: only the devices copy data.
func ExampleConn_SendBuffer() {
	ctx := context.Background()
	listener := must(rdmacm.Listen(ctx, "tcp", "192.168.77.1:7473", nil))
	defer listener.Close()
	go func() {
		conn := must(listener.Accept(ctx))
		defer conn.Close()
		for {
			question, err := conn.RecvBuffer(ctx)
			if err != nil { // io.EOF, when the client closes
				return
			}
			answer := must(conn.SendBuffer(ctx))
			b := fmt.Appendf(answer.Bytes()[:0], "%d bytes", len(question.Bytes()))
			question.Release()
			check(answer.Post(len(b)))
		}
	}()

	conn := must(rdmacm.Dial(ctx, "tcp", "192.168.77.1:7473", nil))
	defer conn.Close()
	check(conn.Send(ctx, []byte("verbs")))
	answer := must(conn.RecvBuffer(ctx))
	fmt.Printf("%s\n", answer.Bytes())
	answer.Release()
}

// The caller's own requests on a connection's queue pair: the client reads the
// server's memory. Messages say where it is, and when it has been read.
func ExampleConn_QP() {
	ctx := context.Background()
	listener := must(rdmacm.Listen(ctx, "tcp", "192.168.77.1:7474", nil))
	defer listener.Close()
	go func() {
		conn := must(listener.Accept(ctx))
		defer conn.Close()
		memory := must(conn.PD().AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteRead}))
		defer memory.Close()
		copy(memory.Bytes(), "what the server has")
		check(conn.Send(ctx, must(json.Marshal(memory.Remote()))))
		conn.Recv(ctx, nil) // io.EOF, when the client closes
	}()

	// Room for one request beside those for messages.
	options := &rdmacm.Options{Cap: verbs.QPCap{MaxSendWR: 1}}
	conn := must(rdmacm.Dial(ctx, "tcp", "192.168.77.1:7474", options))
	defer conn.Close()
	memory := must(conn.PD().AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite}))
	defer memory.Close()
	message := must(conn.RecvBuffer(ctx))
	var remote verbs.Remote
	check(json.Unmarshal(message.Bytes(), &remote))
	message.Release()

	must(conn.QP().PostSend(verbs.SendWR{
		WRID: 1, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled,
		SGL: []verbs.SGE{memory.SGE(0, 19)}, Remote: remote,
	}))
	var wc [1]verbs.WC
	must(conn.WaitSends(ctx, wc[:]))
	check(wc[0].Err())
	fmt.Printf("request %d: %s\n", wc[0].WRID, memory.Bytes()[:19])
}

// A client and a server of one message, step by step: the functions of librdmacm
// without an event channel.
func ExampleSyncID() {
	ctx := context.Background()
	options := verbs.QPOptions{
		Cap:       verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxInlineData: 16},
		SignalAll: true,
	}
	listener := must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))
	defer listener.Close()
	check(listener.Bind(netip.MustParseAddrPort("192.168.77.1:0")))
	check(listener.Listen(0))
	received := make(chan string)
	go func() {
		server := must(listener.Request(ctx)).SyncID
		defer server.Close()
		qp := must(server.CreateQP(nil, options))
		memory := must(server.PD().AllocMR(16, verbs.MROptions{Access: verbs.AccessLocalWrite}))
		defer memory.Close()
		must(qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{memory.SGE(0, 16)}})) // before the client may send
		check(server.Accept(ctx, nil))
		var wc [1]verbs.WC
		must(server.RecvCQ().PollWait(ctx, wc[:]))
		check(wc[0].Err())
		received <- string(memory.Bytes()[:wc[0].ByteLen])
		check(server.Disconnect(ctx))
	}()

	client := must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))
	defer client.Close()
	check(client.ResolveAddr(ctx, netip.AddrPort{}, listener.LocalAddr(), time.Second))
	check(client.ResolveRoute(ctx, time.Second))
	qp := must(client.CreateQP(nil, options))
	must(client.Connect(ctx, nil))
	must(qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("verbs")}))
	fmt.Println("received", <-received)
	check(client.Disconnect(ctx))
}

// A server of many clients in one goroutine: the functions of librdmacm with an event
// channel. It accepts all clients, and counts those that have come and gone.
func ExampleEventChannel() {
	ctx := context.Background()
	channel := must(rdmacm.NewEventChannel())
	defer channel.Close()
	listener := must(channel.CreateID(rdmacm.PortSpaceTCP))
	defer listener.Close()
	check(listener.Bind(netip.MustParseAddrPort("192.168.77.1:0")))
	check(listener.Listen(0))

	const clients = 3
	address := listener.LocalAddr().String()
	for range clients {
		go func() { check(must(rdmacm.Dial(ctx, "tcp", address, nil)).Close()) }()
	}
	options := verbs.QPOptions{Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}}
	for gone := 0; gone < clients; {
		e := must(channel.Event(ctx))
		switch e.Type {
		case rdmacm.EventConnectRequest:
			must(e.ID.CreateQP(nil, options))
			check(e.ID.Accept(nil))
		case rdmacm.EventEstablished:
		case rdmacm.EventDisconnected:
			gone++
			check(e.ID.Disconnect())
			check(e.ID.Close())
		default:
			check(e.Err())
		}
	}
	fmt.Println(clients, "clients have come and gone")
}

// A datagram to all members of a multicast group, of which the sender is one.
func ExampleSyncID_JoinMulticast() {
	ctx := context.Background()
	id := must(rdmacm.CreateSyncID(rdmacm.PortSpaceUDP))
	defer id.Close()
	check(id.Bind(netip.MustParseAddrPort("192.168.77.1:0")))
	qp := must(id.CreateQP(nil, verbs.QPOptions{Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxInlineData: 16}}))
	memory := must(id.PD().AllocMR(verbs.GRHLen+16, verbs.MROptions{Access: verbs.AccessLocalWrite}))
	defer memory.Close()
	must(qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{memory.SGE(0, memory.Len())}}))

	// The event has the address for datagrams to the group.
	_, joined, err := id.JoinMulticast(ctx, netip.MustParseAddr("239.1.2.3"), rdmacm.JoinFullMember)
	check(err)
	group := must(id.PD().CreateAH(joined.UD.AH))
	defer group.Close()
	must(qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("to all"),
		AH: group, RemoteQPN: joined.UD.QPNum, RemoteQKey: joined.UD.QKey}))
	var wc [1]verbs.WC
	must(id.RecvCQ().PollWait(ctx, wc[:]))
	check(wc[0].Err())
	fmt.Printf("received %s\n", memory.Bytes()[verbs.GRHLen:wc[0].ByteLen])
}
