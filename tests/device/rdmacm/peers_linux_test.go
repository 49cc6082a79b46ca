package rdmacm

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// These tests use package rdmacm to implement the peers of rdma-core's programs. The
// programs check the data themselves to some degree, so their exit status matters.

func TestClientAndServer(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for _, who := range pairings {
		t.Run(who.server+"-"+who.client, func(t *testing.T) {
			lastPort++
			port := fmt.Sprint(lastPort)
			run := func(maker, name string) *rdmatest.Process {
				if maker == "c" {
					return rdmatest.Start(t, name, "-s", host, "-p", port)
				}
				return rdmatest.Start(t, rdmatest.Program(t, name), "-s", host, "-p", port)
			}
			server := run(who.server, "rdma_server")
			listens(t, server, rdmacm.PortSpaceTCP, lastPort)
			client := run(who.client, "rdma_client")
			for maker, p := range map[string]*rdmatest.Process{who.server: server, who.client: client} {
				if out := p.Succeeds(t); maker == "go" && !strings.Contains(out, "received") {
					t.Errorf("nothing was received: %v", p)
				}
			}
		})
	}
}

const messages, messageLen = 10, 100 // as ucmatose, udaddy and mckey send them

var groupMessages = long(50, 500) // the number of messages that mckey sends

var _ = rdmatest.Test(TestUcmatose, rdmatest.OnRXE, rdmatest.OnMLX5Eth)

// cmatose: the server sends, and the client answers, on each connection.
func TestUcmatose(t *testing.T) {
	rdmatest.CheckLeaks(t)
	options := &rdmacm.Options{Messages: messages, MessageSize: messageLen}
	const connections = 5
	t.Run("go server", func(t *testing.T) {
		l, addr := listen(t, options)
		client := rdmatest.Start(t, "ucmatose", "-s", host, "-p", addr[len(host)+1:], "-c", fmt.Sprint(connections))
		var conns []*rdmacm.Conn
		for range connections {
			conns = append(conns, rdmatest.Must(l.Accept(patient(t)))(t))
		}
		for _, sending := range []bool{true, false} {
			for _, c := range conns {
				play(t, c, sending)
			}
		}
		for _, c := range conns {
			rdmatest.Check(t, c.Close())
		}
		client.Succeeds(t)
	})
	t.Run("go client", func(t *testing.T) {
		lastPort++
		server := rdmatest.Start(t, "ucmatose", "-b", host, "-p", fmt.Sprint(lastPort), "-c", fmt.Sprint(connections))
		listens(t, server, rdmacm.PortSpaceTCP, lastPort)
		var conns []*rdmacm.Conn
		for range connections {
			conns = append(conns, rdmatest.Must(rdmacm.Dial(patient(t), "tcp", fmt.Sprintf("%s:%d", host, lastPort), options))(t))
		}
		for _, sending := range []bool{false, true} {
			for _, c := range conns {
				play(t, c, sending)
			}
		}
		for _, c := range conns {
			<-c.Done()
			rdmatest.Check(t, c.Close())
		}
		server.Succeeds(t)
	})
}

// play sends or receives ucmatose's messages.
func play(t *testing.T, c *rdmacm.Conn, sending bool) {
	t.Helper()
	b := make([]byte, messageLen)
	for range messages {
		if sending {
			rdmatest.Check(t, c.Send(patient(t), b))
		} else if n := rdmatest.Must(c.Recv(patient(t), b))(t); n != messageLen {
			t.Fatalf("a message has %d bytes", n)
		}
	}
}

// datagramEnd returns an end that can receive n messages of udaddy or mckey.
func datagramEnd(t *testing.T, id anID, n int) *end {
	t.Helper()
	o := queuesOf
	o.Cap.MaxSendWR, o.Cap.MaxRecvWR = messages, n
	rdmatest.Must(id.CreateQP(nil, o))(t)
	e := endOf(t, id)
	for range n {
		e.recv(t, verbs.GRHLen+messageLen)
	}
	return e
}

// sendAll sends all messages. Their immediate data tells the receiver the QP to reply to,
// in big-endian order on the wire.
func (e *end) sendAll(t *testing.T, ah *verbs.AH, qpn, qkey uint32) {
	t.Helper()
	for range messages {
		e.send(t, verbs.SendWR{
			Opcode: verbs.OpSendImm, Imm: e.QP().Num(), SGL: []verbs.SGE{e.mr.SGE(0, messageLen)},
			AH: ah, RemoteQPN: qpn, RemoteQKey: qkey,
		})
	}
}

// recvAll receives all messages and returns the last one's completion.
func (e *end) recvAll(t *testing.T) verbs.WC {
	t.Helper()
	wcs := rdmatest.PollOK(t, e.RecvCQ(), messages)
	for _, wc := range wcs {
		if wc.ByteLen != verbs.GRHLen+messageLen {
			t.Fatalf("a datagram has %d bytes", wc.ByteLen)
		}
	}
	return wcs[messages-1]
}

var udaddyAddr = netip.MustParseAddrPort(host + ":7174") // the only port that udaddy uses

var _ = rdmatest.Test(TestUdaddy, rdmatest.OnRXE, rdmatest.OnMLX5Eth)

// udaddy: the client sends, and the server answers.
func TestUdaddy(t *testing.T) {
	rdmatest.CheckLeaks(t)
	t.Run("go server", func(t *testing.T) {
		listener := createSync(t, rdmacm.PortSpaceUDP)
		rdmatest.Check(t, listener.Bind(udaddyAddr))
		rdmatest.Check(t, listener.Listen(1))
		client := rdmatest.Start(t, "udaddy", "-s", host)
		id := rdmatest.Must(listener.Request(patient(t)))(t).SyncID
		closeAtEnd(t, id)
		e := datagramEnd(t, id, messages)
		rdmatest.Check(t, id.Accept(patient(t), nil))
		wc := e.recvAll(t)
		qpn, _ := wc.Imm()
		ah := rdmatest.Must(id.PD().CreateAHFromWC(&wc, e.mr.Bytes()[endLen/2:], id.Port()))(t)
		defer rdmatest.Close(t, ah)
		e.sendAll(t, ah, qpn, rdmacm.UDPQKey)
		client.Succeeds(t)
	})
	t.Run("go client", func(t *testing.T) {
		server := rdmatest.Start(t, "udaddy", "-b", host)
		listens(t, server, rdmacm.PortSpaceUDP, udaddyAddr.Port())
		id := createSync(t, rdmacm.PortSpaceUDP)
		rdmatest.Check(t, id.ResolveAddr(patient(t), none, udaddyAddr, resolve))
		rdmatest.Check(t, id.ResolveRoute(patient(t), resolve))
		e := datagramEnd(t, id, messages)
		event := rdmatest.Must(id.Connect(patient(t), nil))(t)
		ah := rdmatest.Must(id.PD().CreateAH(event.UD.AH))(t)
		defer rdmatest.Close(t, ah)
		e.sendAll(t, ah, event.UD.QPNum, event.UD.QKey)
		e.recvAll(t)
		server.Succeeds(t)
	})
}

var _ = rdmatest.Test(TestMckey, rdmatest.OnRXE, rdmatest.OnMLX5Eth, rdmatest.LongOn("mlx5-eth"))

func TestMckey(t *testing.T) {
	rdmatest.CheckLeaks(t)
	const group = "239.7.7.7"
	t.Run("go receiver", func(t *testing.T) {
		e := datagramMember(t, group)
		wcs := make([]verbs.WC, groupMessages)
		// mckey exits without waiting until its messages are sent, so the last ones may be
		// lost. Another mckey sends the rest.
		for have := 0; have < groupMessages; {
			rdmatest.Start(t, "mckey", "-m", group, "-b", host, "-s", "-C", fmt.Sprint(groupMessages)).Succeeds(t)
			for n := 1; n > 0 && have < groupMessages; have += n {
				n = rdmatest.Must(e.RecvCQ().Poll(wcs[have:]))(t)
			}
		}
		for _, wc := range wcs {
			if rdmatest.Check(t, wc.Err()); wc.ByteLen != verbs.GRHLen+messageLen {
				t.Fatalf("a datagram has %d bytes", wc.ByteLen)
			}
		}
	})
	t.Run("go sender", func(t *testing.T) {
		receiver := rdmatest.Start(t, "mckey", "-m", group, "-b", host, "-C", fmt.Sprint(groupMessages))
		sender := datagramMember(t, group)
		// Send repeatedly, because the sender can't know when the receiver has joined.
		receiver.Until(t, func() bool {
			sender.sendAll(t, sender.ah, sender.event.UD.QPNum, sender.event.UD.QKey)
			return receiver.Ended()
		})
		receiver.Succeeds(t)
	})
}

type memberEnd struct {
	*end
	event *rdmacm.Event
	ah    *verbs.AH
}

// datagramMember joins a group as mckey does.
func datagramMember(t *testing.T, group string) *memberEnd {
	t.Helper()
	id := createSync(t, rdmacm.PortSpaceUDP)
	addr := netip.MustParseAddr(group)
	rdmatest.Check(t, id.ResolveAddr(patient(t), anyPort, netip.AddrPortFrom(addr, 0), resolve))
	m := &memberEnd{end: datagramEnd(t, id, groupMessages)}
	var err error
	_, m.event, err = id.JoinMulticast(patient(t), addr, rdmacm.JoinFullMember)
	rdmatest.Check(t, err)
	m.ah = rdmatest.Must(id.PD().CreateAH(m.event.UD.AH))(t)
	t.Cleanup(func() { rdmatest.Close(t, m.ah) })
	return m
}
