package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

func TestSyncTraffic(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for _, ps := range []rdmacm.PortSpace{rdmacm.PortSpaceTCP, rdmacm.PortSpaceIB} {
		t.Run(ps.String(), func(t *testing.T) {
			active, passive := connectedSync(t, ps)
			exchange(t, active, passive)
			rdmatest.Check(t, active.sync.Disconnect(shortly(t, passive.sync)))
			e := rdmatest.Must(passive.sync.Event(patient(t)))(t)
			if e.Type != rdmacm.EventDisconnected {
				t.Errorf("the passive side got %v", e.Type)
			}
		})
	}
}

// shortly makes the peer reply to a disconnect request.
func shortly(t testing.TB, peer *rdmacm.SyncID) context.Context {
	go peer.Disconnect(patient(t))
	return patient(t)
}

func TestAsyncTraffic(t *testing.T) {
	rdmatest.CheckLeaks(t)
	active, passive, activeCh, passiveCh := connected(t, rdmacm.PortSpaceTCP)
	exchange(t, active, passive)
	active.recv(t, 1)
	rdmatest.Check(t, active.id.Disconnect())
	if s := rdmatest.Poll(t, active.RecvCQ(), 1)[0].Status; s != verbs.WCWRFlushErr {
		t.Errorf("a receive completed with %v", s)
	}
	expect(t, passiveCh, rdmacm.EventDisconnected)
	rdmatest.Check(t, passive.id.Disconnect())
	expect(t, activeCh, rdmacm.EventDisconnected)
}

func TestReject(t *testing.T) {
	rdmatest.CheckLeaks(t)
	activeCh, passiveCh := channel(t), channel(t)
	listener := listenOn(t, passiveCh, rdmacm.PortSpaceTCP)
	active := newEnd(t, reach(t, activeCh, rdmacm.PortSpaceTCP, listener.LocalAddr()))
	rdmatest.Check(t, active.id.Connect(nil))
	request := expect(t, passiveCh, rdmacm.EventConnectRequest)
	closeAtEnd(t, request.ID)
	rdmatest.Check(t, request.ID.Reject([]byte("no")))
	e := rdmatest.Must(activeCh.Event(patient(t)))(t)
	wantError(t, e.Err(), rdmacm.ErrRejected)
	if got := string(e.PrivateData()[:3]); e.Type != rdmacm.EventRejected || got != "no\x00" {
		t.Errorf("%v with %q", e.Type, got)
	}
	if s := active.QP().State(); s != verbs.QPErr {
		t.Errorf("the rejected QP is in %v", s)
	}
	wantError(t, listener.Reject(make([]byte, 149)), rdmacm.ErrInvalid)
	wantError(t, request.ID.Reject(nil), rdmacm.ErrInvalid)
	wantError(t, request.ID.Accept(nil), rdmacm.ErrInvalid)
}

// A request can be answered only once, and only by the ID that received it.
func TestAnsweredTwice(t *testing.T) {
	rdmatest.CheckLeaks(t)
	active, passive, activeCh, passiveCh := connected(t, rdmacm.PortSpaceTCP)
	wantError(t, active.id.Accept(nil), rdmacm.ErrInvalid)
	wantError(t, passive.id.Accept(nil), rdmacm.ErrInvalid)
	wantError(t, passive.id.Reject(nil), rdmacm.ErrInvalid)
	exchange(t, active, passive)
	rdmatest.Check(t, active.id.Disconnect())
	expect(t, passiveCh, rdmacm.EventDisconnected)
	wantError(t, passive.id.Accept(nil), rdmacm.ErrInvalid)
	rdmatest.Check(t, passive.id.Disconnect())
	expect(t, activeCh, rdmacm.EventDisconnected)
}

// datagrams requests the queue pair of a datagram service.
func datagrams(t *testing.T) (active, passive *end, ah *verbs.AH, to rdmacm.UDParam) {
	t.Helper()
	activeCh, passiveCh := channel(t), channel(t)
	listener := listenOn(t, passiveCh, rdmacm.PortSpaceUDP)
	active = newEnd(t, reach(t, activeCh, rdmacm.PortSpaceUDP, listener.LocalAddr()))
	param := rdmacm.ConnParam{}
	param.PrivateData = rdmatest.Pattern(rdmacm.MaxUDConnectData, 1)
	rdmatest.Check(t, active.id.Connect(&param))
	request := expect(t, passiveCh, rdmacm.EventConnectRequest)
	closeAtEnd(t, request.ID)
	wantData(t, request.PrivateData(), param.PrivateData, rdmacm.MaxUDConnectData)
	passive = newEnd(t, request.ID)
	param.PrivateData = rdmatest.Pattern(rdmacm.MaxUDAcceptData, 2)
	rdmatest.Check(t, passive.id.Accept(&param))
	e := expect(t, activeCh, rdmacm.EventEstablished)
	wantData(t, e.PrivateData(), param.PrivateData, rdmacm.MaxUDAcceptData)
	if e.UD.QPNum != passive.QP().Num() || e.UD.QKey != rdmacm.UDPQKey {
		t.Fatalf("received QP number %#x, Q_Key %#x; the QP is %#x", e.UD.QPNum, e.UD.QKey, passive.QP().Num())
	}
	ah = rdmatest.Must(active.PD().CreateAH(e.UD.AH))(t)
	t.Cleanup(func() { rdmatest.Close(t, ah) })
	return active, passive, ah, e.UD
}

func TestUDP(t *testing.T) {
	rdmatest.CheckLeaks(t)
	active, passive, ah, to := datagrams(t)
	const n, grh = 500, 40
	message := rdmatest.Pattern(n, 5)
	copy(active.mr.Bytes(), message)
	passive.recv(t, grh+n)
	active.send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{active.mr.SGE(0, n)}, AH: ah, RemoteQPN: to.QPNum, RemoteQKey: to.QKey})
	wc := rdmatest.PollOK(t, passive.RecvCQ(), 1)[0]
	got := passive.mr.Bytes()[endLen/2:]
	wantBytes(t, got[grh:][:n], message)

	// Reply to the sender of the message.
	back := rdmatest.Must(passive.PD().CreateAHFromWC(&wc, got[:grh], passive.Port()))(t)
	defer rdmatest.Close(t, back)
	copy(passive.mr.Bytes(), message)
	active.recv(t, grh+n)
	passive.send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{passive.mr.SGE(0, n)}, AH: back, RemoteQPN: wc.SrcQP, RemoteQKey: rdmacm.UDPQKey})
	rdmatest.PollOK(t, active.RecvCQ(), 1)
	wantBytes(t, active.mr.Bytes()[endLen/2+grh:][:n], message)
}

func TestUDPRefused(t *testing.T) {
	rdmatest.CheckLeaks(t)
	listener := listenSync(t, rdmacm.PortSpaceUDP)
	to := listener.LocalAddr()
	var rejecting sync.WaitGroup
	rejecting.Go(func() {
		if request, err := listener.Request(patient(t)); err == nil {
			request.SyncID.Reject([]byte("no"))
			request.SyncID.Close()
		}
	})
	ask := func(to netip.AddrPort) error {
		id := createSync(t, rdmacm.PortSpaceUDP)
		rdmatest.Check(t, id.ResolveAddr(patient(t), none, to, resolve))
		rdmatest.Check(t, id.ResolveRoute(patient(t), resolve))
		_, err := id.Connect(patient(t), nil)
		return err
	}
	wantError(t, ask(to), rdmacm.ErrUnreachable, rdmacm.ErrRejected)
	wantError(t, ask(netip.AddrPortFrom(to.Addr(), 9)), rdmacm.ErrUnreachable, rdmacm.ErrRejected)
	rejecting.Wait()
}

// own creates a queue pair that the connection manager doesn't manage.
func own(t *testing.T, id anID) *verbs.QP {
	t.Helper()
	cq := rdmatest.Must(id.Device().CreateCQ(verbs.CQOptions{MaxCQE: 16}))(t)
	t.Cleanup(func() { rdmatest.Close(t, cq) })
	o := queuesOf
	o.Type, o.SendCQ, o.RecvCQ = verbs.RC, cq, cq
	qp := rdmatest.Must(id.PD().CreateQP(o))(t)
	t.Cleanup(func() { rdmatest.Close(t, qp) })
	return qp
}

// move changes a queue pair's states with the attributes that the connection manager
// returns.
func move(t *testing.T, id anID, qp *verbs.QP, states ...verbs.QPState) {
	t.Helper()
	for _, state := range states {
		a, mask, err := id.InitQPAttr(state)
		rdmatest.Check(t, err)
		rdmatest.Check(t, qp.Modify(a, mask))
	}
}

func TestExternalQP(t *testing.T) {
	rdmatest.CheckLeaks(t)
	activeCh, passiveCh := channel(t), channel(t)
	listener := listenOn(t, passiveCh, rdmacm.PortSpaceTCP)
	active := reach(t, activeCh, rdmacm.PortSpaceTCP, listener.LocalAddr())
	qp := own(t, active)
	wantError(t, active.Connect(nil), rdmacm.ErrInvalid) // the ID has no QP
	param := rdmacm.ConnParam{}
	param.QPNum = qp.Num()
	rdmatest.Check(t, active.Connect(&param))
	request := expect(t, passiveCh, rdmacm.EventConnectRequest)
	passive := request.ID
	closeAtEnd(t, passive)
	if request.Conn.QPNum != qp.Num() {
		t.Errorf("the request is from QP %#x, not %#x", request.Conn.QPNum, qp.Num())
	}
	peer := own(t, passive)
	move(t, passive, peer, verbs.QPInit, verbs.QPRTR, verbs.QPRTS)
	param.QPNum = peer.Num()
	rdmatest.Check(t, passive.Accept(&param))
	if e := expect(t, activeCh, rdmacm.EventConnectResponse); e.Conn.QPNum != peer.Num() {
		t.Errorf("the reply is from QP %#x, not %#x", e.Conn.QPNum, peer.Num())
	}
	move(t, active, qp, verbs.QPInit, verbs.QPRTR, verbs.QPRTS)
	rdmatest.Check(t, active.Establish())
	expect(t, passiveCh, rdmacm.EventEstablished)

	a, b := endOf(t, active), endOf(t, passive)
	rdmatest.Must(peer.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(0, 100)}}))(t)
	copy(a.mr.Bytes(), rdmatest.Pattern(100, 9))
	rdmatest.Must(qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{a.mr.SGE(0, 100)}}))(t)
	_, init, err := peer.Query()
	rdmatest.Check(t, err)
	rdmatest.PollOK(t, init.RecvCQ, 1)
	wantBytes(t, b.mr.Bytes()[:100], rdmatest.Pattern(100, 9))
}

// member joins a group on rxe0.
func member(t *testing.T, group string, flag rdmacm.JoinFlag) (*end, *rdmacm.Multicast, *rdmacm.Event) {
	t.Helper()
	id := createSync(t, rdmacm.PortSpaceUDP)
	rdmatest.Check(t, id.Bind(anyPort))
	e := newEnd(t, id)
	mc, event, err := id.JoinMulticast(patient(t), netip.MustParseAddr(group), flag)
	rdmatest.Check(t, err)
	if event.Multicast != mc || mc.Addr().String() != group {
		t.Errorf("joined %v", mc.Addr())
	}
	return e, mc, event
}

// toGroup sends a datagram of n bytes to a group.
func (e *end) toGroup(t *testing.T, event *rdmacm.Event, n int) {
	t.Helper()
	ah := rdmatest.Must(e.PD().CreateAH(event.UD.AH))(t)
	defer rdmatest.Close(t, ah)
	e.send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{e.mr.SGE(0, n)}, AH: ah, RemoteQPN: event.UD.QPNum, RemoteQKey: event.UD.QKey})
}

func TestJoinMulticast(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for _, test := range []struct {
		name   string
		sender rdmacm.JoinFlag
	}{{"plain", rdmacm.JoinFullMember}, {"extended", rdmacm.JoinSendOnlyFullMember}} {
		t.Run(test.name, func(t *testing.T) {
			const group, n, grh = "239.1.2.3", 300, 40
			receiver, _, _ := member(t, group, rdmacm.JoinFullMember)
			sender, _, event := member(t, group, test.sender)
			message := rdmatest.Pattern(n, 7)
			copy(sender.mr.Bytes(), message)
			receiver.recv(t, grh+n)
			sender.toGroup(t, event, n)
			rdmatest.PollOK(t, receiver.RecvCQ(), 1)
			wantBytes(t, receiver.mr.Bytes()[endLen/2+grh:][:n], message)
		})
	}
	_, _, err := createSync(t, rdmacm.PortSpaceUDP).JoinMulticast(patient(t), netip.MustParseAddr("239.1.2.3"), 7)
	wantError(t, err, rdmacm.ErrInvalid)
}

// TestJoinWithoutQP: if the QP can't be attached to the group, the join fails with the
// reason.
func TestJoinWithoutQP(t *testing.T) {
	rdmatest.CheckLeaks(t)
	id := createSync(t, rdmacm.PortSpaceUDP)
	rdmatest.Check(t, id.Bind(anyPort))
	e := newEnd(t, id)
	rdmatest.Close(t, e.QP())
	_, _, err := id.JoinMulticast(patient(t), netip.MustParseAddr("239.1.2.3"), rdmacm.JoinFullMember)
	wantError(t, err, rdmacm.ErrMulticast)
	wantError(t, err, verbs.ErrClosed)
}

// After one member leaves a group, it receives nothing more from it. The other members
// still do.
func TestLeaveMulticast(t *testing.T) {
	rdmatest.CheckLeaks(t)
	const group, n, grh = "239.4.5.6", 8, 40
	stays, _, _ := member(t, group, rdmacm.JoinFullMember)
	leaves, mc, _ := member(t, group, rdmacm.JoinFullMember)
	sender, _, event := member(t, group, rdmacm.JoinSendOnlyFullMember)
	for _, e := range []*end{stays, stays, leaves, leaves} {
		e.recv(t, grh+n)
	}
	sender.toGroup(t, event, n)
	rdmatest.PollOK(t, stays.RecvCQ(), 1)
	rdmatest.PollOK(t, leaves.RecvCQ(), 1)
	rdmatest.Check(t, leaves.sync.LeaveMulticast(mc))
	wantError(t, leaves.sync.LeaveMulticast(mc), rdmacm.ErrInvalid)
	sender.toGroup(t, event, n)
	rdmatest.PollOK(t, stays.RecvCQ(), 1)
	rdmatest.Idle(t, leaves.RecvCQ())
}

// An ID that joins several groups at once gets an event for each.
func TestJoinTogether(t *testing.T) {
	rdmatest.CheckLeaks(t)
	id := createSync(t, rdmacm.PortSpaceUDP)
	rdmatest.Check(t, id.Bind(anyPort))
	newEnd(t, id)
	var joining sync.WaitGroup
	for i := range byte(16) {
		joining.Go(func() {
			group := netip.AddrFrom4([4]byte{239, 8, 8, i})
			mc, event, err := id.JoinMulticast(patient(t), group, rdmacm.JoinFullMember)
			if err != nil {
				t.Error(err)
				return
			}
			// A group's GID over RoCE ends with its IPv4 address.
			if gid := event.UD.AH.DGID; event.Multicast != mc || mc.Addr() != group || [4]byte(gid[12:]) != group.As4() {
				t.Errorf("joining %v gave %v, and the GID %v", group, event.Multicast.Addr(), gid)
			}
		})
	}
	joining.Wait()
}

func TestQueries(t *testing.T) {
	rdmatest.CheckLeaks(t)
	active, passive, _, _ := connected(t, rdmacm.PortSpaceTCP)
	for _, id := range []*rdmacm.ID{active.id, passive.id} {
		a := rdmatest.Must(id.QueryAddr())(t)
		if a.Local != id.LocalAddr() || a.Remote != id.RemoteAddr() || a.Port != id.Port() ||
			a.NodeGUID != id.Device().Info().NodeGUID() || a.PKey != 0 || a.Local.Addr().String() != host {
			t.Errorf("addresses %+v of %v to %v on %v", a, id.LocalAddr(), id.RemoteAddr(), id.Device().Info())
		}
		gid := verbs.GID(netip.MustParseAddr(host).As16())
		g := rdmatest.Must(id.QueryGID())(t)
		if g.LocalGID != gid || g.RemoteGID != gid || g.RemoteService != 0x1060000+uint64(a.Remote.Port()) {
			t.Errorf("GIDs %+v", g)
		}
		paths := rdmatest.Must(id.QueryPath())(t)
		if len(paths) != 1 || paths[0].SGID != gid || paths[0].DGID != gid || paths[0].MTU != verbs.MTU1024 || paths[0].PKey != 0xffff || !paths[0].Reversible {
			t.Errorf("paths %+v", paths)
		}
	}
	if d := rdmatest.Must(active.Device().QueryDevice())(t); d == nil || active.Device() != passive.Device() {
		t.Error("IDs on one device don't share it")
	}
}

func TestOptions(t *testing.T) {
	rdmatest.CheckLeaks(t)
	l, addr := listen(t, nil)
	const ack = 21
	client, err := rdmacm.Dial(patient(t), "tcp", addr, &rdmacm.Options{Control: func(id *rdmacm.SyncID) error {
		return errors.Join(id.SetTOS(0x20), id.SetAckTimeout(ack))
	}})
	rdmatest.Check(t, err)
	defer client.Close()
	server := rdmatest.Must(l.Accept(patient(t)))(t)
	defer server.Close()
	a, _, err := client.QP().Query()
	rdmatest.Check(t, err)
	if a.Timeout != ack {
		t.Errorf("the QP's ack timeout is %d, not %d", a.Timeout, ack)
	}
	// The RNR timer bounds the wait of a sender that is ahead of the receives.
	for _, qp := range []*verbs.QP{client.QP(), server.QP()} {
		a, _, err := qp.Query()
		rdmatest.Check(t, err)
		if d := a.MinRNRTimer.Duration(); d != 640*time.Microsecond {
			t.Errorf("the RNR timer is %v", d)
		}
	}
	paths := rdmatest.Must(client.ID().QueryPath())(t)
	if len(paths) != 1 || paths[0].TrafficClass != 0x20 {
		t.Errorf("the path's traffic class: %+v", paths)
	}
	wantError(t, client.ID().SetAckTimeout(32), rdmacm.ErrInvalid)

	// Two IDs can share a port as long as neither listens.
	a1, a2, a3 := createSync(t, rdmacm.PortSpaceTCP), createSync(t, rdmacm.PortSpaceTCP), createSync(t, rdmacm.PortSpaceTCP)
	rdmatest.Check(t, errors.Join(a1.SetReuseAddr(true), a2.SetReuseAddr(true)))
	rdmatest.Check(t, a1.Bind(anyPort))
	rdmatest.Check(t, a2.Bind(a1.LocalAddr()))
	if err := a3.Bind(a1.LocalAddr()); err == nil {
		t.Error("an ID without port sharing bound to a port in use")
	}

	// An IPv6-only ID leaves the port free for IPv4.
	six, four := createSync(t, rdmacm.PortSpaceTCP), createSync(t, rdmacm.PortSpaceTCP)
	rdmatest.Check(t, six.SetAFOnly(true))
	rdmatest.Check(t, six.Bind(netip.MustParseAddrPort("[::]:0")))
	rdmatest.Check(t, six.Listen(1))
	rdmatest.Check(t, four.Bind(netip.AddrPortFrom(netip.IPv4Unspecified(), six.LocalAddr().Port())))
	rdmatest.Check(t, four.Listen(1))
}

// Closing a listener also ends its unanswered requests, whether read or not.
func TestListenerCloses(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for _, read := range []bool{false, true} {
		passiveCh, activeCh := channel(t), channel(t)
		listener := listenOn(t, passiveCh, rdmacm.PortSpaceTCP)
		active := newEnd(t, reach(t, activeCh, rdmacm.PortSpaceTCP, listener.LocalAddr()))
		rdmatest.Check(t, active.id.Connect(nil))
		if read {
			request := expect(t, passiveCh, rdmacm.EventConnectRequest)
			rdmatest.Check(t, listener.Close())
			rdmatest.Check(t, request.ID.Close())
		} else {
			rdmatest.Check(t, listener.Close())
		}
		e := rdmatest.Must(activeCh.Event(patient(t)))(t)
		wantError(t, e.Err(), rdmacm.ErrRejected)
	}
}
