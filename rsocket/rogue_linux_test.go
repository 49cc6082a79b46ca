package rsocket

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// A rogue is a peer that posts arbitrary requests, with package verbs.
type rogue struct {
	id         *rdmacm.SyncID
	mr         *verbs.MR // the list of targets, then a ring
	list, ring sge       // the other side's
}

const (
	rogueList = 64
	rogueRing = 16 << 10
	rogueRoom = 128 // in either queue
)

// newRogue makes a rogue that has not yet connected, with a number of receives.
func newRogue(t testing.TB, to *Listener, receives int) *rogue {
	t.Helper()
	id := ok(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
	check(t, id.ResolveAddr(t.Context(), netip.AddrPort{}, to.Addr().(*net.TCPAddr).AddrPort(), time.Minute))
	check(t, id.ResolveRoute(t.Context(), time.Minute))
	return makeRogue(t, id, receives)
}

// makeRogue makes a rogue on an ID that has a device.
func makeRogue(t testing.TB, id *rdmacm.SyncID, receives int) *rogue {
	t.Helper()
	r := &rogue{id: id}
	caps := verbs.QPCap{MaxSendWR: rogueRoom, MaxRecvWR: rogueRoom, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64}
	ok(r.id.CreateQP(nil, verbs.QPOptions{Cap: caps}))(t)
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	r.mr = ok(r.id.PD().AllocMR(rogueList+rogueRing, verbs.MROptions{Access: access}))(t)
	r.receive(t, receives)
	return r
}

// data returns the connection data of an honest peer with this memory.
func (r *rogue) data(credits uint16) connData {
	return connData{
		bigEndian: binary.NativeEndian.Uint16([]byte{0, 1}) == 1, credits: credits,
		targets: sge{addr: r.mr.Addr(), key: r.mr.RKey(), length: entries},
		ring:    sge{addr: r.mr.Addr() + rogueList, key: r.mr.RKey(), length: rogueRing / 2},
	}
}

// connect connects, and learns the other side's memory.
func (r *rogue) connect(t testing.TB, private []byte) error {
	e, err := r.id.Connect(t.Context(), &rdmacm.ConnParam{PrivateData: private})
	if err != nil {
		return err
	}
	d, err := parseConnData(e.PrivateData())
	r.list, r.ring = d.targets, d.ring
	return err
}

func (r *rogue) receive(t testing.TB, n int) {
	t.Helper()
	for range n {
		ok(r.id.QP().PostRecv(verbs.RecvWR{}))(t)
	}
}

// write writes bytes into the other side's ring, with a message.
func (r *rogue) write(t testing.TB, b []byte, imm uint32) {
	t.Helper()
	wr := verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, Flags: verbs.SendSignaled, Imm: imm, Remote: verbs.Remote{Addr: r.ring.addr, RKey: r.ring.key}}
	if len(b) > 0 {
		wr.Inline = b
	}
	ok(r.id.QP().PostSend(wr))(t)
}

// close ends the rogue, whether it is connected or not.
func (r *rogue) close(t testing.TB) {
	t.Helper()
	check(t, errors.Join(r.id.DestroyQP(), r.mr.Close(), r.id.Close()))
}

// ok returns v, unless there is an error.
func ok[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// host is the address of package verbstest's first device.
const host = "192.0.2.1"

// fakePair returns both ends of a connection on package verbstest's device.
func fakePair(t testing.TB, o Options) (client, server *Conn) {
	t.Helper()
	l := listenFake(t, ListenConfig{Options: o})
	d := Dialer{Options: o}
	client = ok(d.Dial("tcp", l.Addr().String()))(t).(*Conn)
	server = ok(l.AcceptConn())(t)
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
	})
	return client, server
}

// listenFake listens until the test ends.
func listenFake(t testing.TB, lc ListenConfig) *Listener {
	t.Helper()
	l := ok(lc.Listen(t.Context(), "tcp", host+":0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	return l
}
