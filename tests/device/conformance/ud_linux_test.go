package conformance

import (
	"net"
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

func udPair(t *testing.T, global bool) *rdmatest.Pair {
	t.Helper()
	s := rdmatest.Default()
	s.Type, s.Global = verbs.UD, global
	return rdmatest.NewPair(t, s)
}

// addressings returns the ways to address datagrams: over Ethernet, always by GID.
func addressings() map[string]bool {
	if rdmatest.RoCE {
		return map[string]bool{"GID": true}
	}
	return map[string]bool{"LID": false, "GID": true}
}

// wantDatagram polls a receive that was posted at 0 and checks it.
func wantDatagram(t *testing.T, p *rdmatest.Pair, e *rdmatest.End, from uint32, data []byte) verbs.WC {
	t.Helper()
	wc := rdmatest.PollOK(t, e.CQ, 1)[0]
	if wc.SrcQP != from || wc.ByteLen != uint32(verbs.GRHLen+len(data)) || wc.Flags&verbs.WCGRH != 0 != p.Address.IsGlobal || wc.QPNum != e.QP.Num() {
		t.Errorf("a datagram of %d bytes from QP %#x: %+v", len(data), from, wc)
	}
	wantBytes(t, e.MR.Bytes()[verbs.GRHLen:verbs.GRHLen+len(data)], data)
	return wc
}

func TestUD(t *testing.T) {
	for name, global := range addressings() {
		t.Run(name, func(t *testing.T) { exchanges(t, udPair(t, global)) })
	}
}

// TestUDAnswer replies to a datagram, to the address in its completion and GRH.
func TestUDAnswer(t *testing.T) {
	for name, global := range addressings() {
		t.Run(name, func(t *testing.T) { testUDAnswer(t, udPair(t, global)) })
	}
}

func testUDAnswer(t *testing.T, p *rdmatest.Pair) {
	p.B.Recv(t, 1, 0, 1024)
	p.A.Send(t, message(p, 100))
	rdmatest.PollOK(t, p.A.CQ, 1)
	wc := rdmatest.PollOK(t, p.B.CQ, 1)[0]
	ah := rdmatest.Must(p.PD.CreateAHFromWC(&wc, p.B.MR.Bytes()[:verbs.GRHLen], rdmatest.Port))(t)
	p.A.Recv(t, 1, 0, 1024)
	answer := rdmatest.Pattern(33, 3)
	p.B.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, Inline: answer, AH: ah, RemoteQPN: wc.SrcQP, RemoteQKey: rdmatest.QKey})
	rdmatest.PollOK(t, p.B.CQ, 1)
	wantDatagram(t, p, p.A, p.B.QP.Num(), answer)

	if !p.Address.IsGlobal {
		return
	}
	for _, b := range [][]byte{nil, make([]byte, 39), make([]byte, 40)} {
		if _, err := p.PD.CreateAHFromWC(&wc, b, rdmatest.Port); err == nil {
			t.Errorf("created an AH from a GRH of %d zeros", len(b))
		}
	}
}

// TestUDMulticast sends to a group that a queue pair is attached to.
func TestUDMulticast(t *testing.T) {
	p := udPair(t, true)
	gid, lid := multicastGroup(t, p)
	rdmatest.Check(t, p.B.QP.AttachMcast(gid, lid))
	address := p.Address
	address.DGID, address.DLID = gid, lid
	ah := rdmatest.Must(p.PD.CreateAH(address))(t)
	wr := message(p, 300)
	wr.AH, wr.RemoteQPN = ah, verbs.MulticastQPN
	for i := range 3 {
		data := fresh(p, 300, i)
		p.B.Recv(t, uint64(i), 0, 1024)
		p.A.Send(t, wr)
		rdmatest.PollOK(t, p.A.CQ, 1)
		wantDatagram(t, p, p.B, p.A.QP.Num(), data)
	}
	rdmatest.Check(t, p.B.QP.DetachMcast(gid, lid))
	// A detached QP gets no more messages to the group, but still messages to itself.
	data := fresh(p, 300, 9)
	p.B.Recv(t, 7, 0, 1024)
	p.A.Send(t, wr)
	p.A.Send(t, message(p, 300))
	rdmatest.PollOK(t, p.A.CQ, 2)
	wantDatagram(t, p, p.B, p.A.QP.Num(), data)
	rdmatest.Idle(t, p.B.CQ)

	wantInvalid(t, p.B.QP.DetachMcast(gid, lid))
	wantInvalid(t, p.B.QP.AttachMcast(verbs.GID(netip.MustParseAddr("fe80::1").As16()), 0))
	// Closing an attached QP detaches it.
	rdmatest.Check(t, p.B.QP.AttachMcast(gid, lid))
}

// multicastGroup returns a group and its LID, which has no meaning over
// Ethernet.
func multicastGroup(t *testing.T, p *rdmatest.Pair) (verbs.GID, uint16) {
	t.Helper()
	if !rdmatest.RoCE {
		// Without a subnet manager, the group's LID is arbitrary.
		return verbs.GID(netip.MustParseAddr("ff12:401b::7701:5").As16()), 0xc001
	}
	group := netip.MustParseAddr("239.77.1.5")
	if rdmatest.KindOf() == rdmatest.Verbstest {
		return verbs.GID(group.As16()), 0
	}
	// The interface accepts a group's packets, and loops back its own, once a process on
	// the host has joined the group.
	ifi := rdmatest.Must(net.InterfaceByName(p.GID.NetDev))(t)
	member := rdmatest.Must(net.ListenMulticastUDP("udp4", ifi, &net.UDPAddr{IP: group.AsSlice(), Port: 7777}))(t)
	t.Cleanup(func() { member.Close() })
	return verbs.GID(group.As16()), 0
}
