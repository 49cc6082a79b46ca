package rdmacm

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// An ID's SRQ feeds the queue pairs that are made after it, other IDs' too.
func TestSRQ(t *testing.T) {
	rdmatest.CheckLeaks(t)
	activeCh, passiveCh := channel(t), channel(t)
	listener := listenOn(t, passiveCh, rdmacm.TCP)
	_, err := create(t, nil, rdmacm.TCP).CreateSRQ(nil, verbs.SRQOptions{MaxWR: 8, MaxSGE: 1})
	wantError(t, err, rdmacm.ErrInvalid) // no device yet
	srq := rdmatest.Must(listener.CreateSRQ(nil, verbs.SRQOptions{MaxWR: 8, MaxSGE: 1}))(t)
	_, err = listener.CreateSRQ(nil, verbs.SRQOptions{MaxWR: 8, MaxSGE: 1})
	wantError(t, err, rdmacm.ErrInvalid)
	if listener.SRQ() != srq {
		t.Errorf("the SRQ is %p, not %p", listener.SRQ(), srq)
	}

	active := newEnd(t, reach(t, activeCh, rdmacm.TCP, listener.LocalAddr()))
	rdmatest.Must(active.Connect(patient(t), nil))(t)
	request := expect(t, passiveCh, rdmacm.ConnectRequest)
	if request.Conn.SRQ {
		t.Error("the request is of a QP with an SRQ")
	}
	o := queuesOf
	o.SRQ = srq
	rdmatest.Must(request.ID.CreateQP(nil, o))(t)
	rdmatest.Check(t, request.ID.Accept(patient(t), nil))
	if e := expect(t, activeCh, rdmacm.Established); !e.Conn.SRQ {
		t.Error("the answer doesn't tell of the SRQ")
	}
	expect(t, passiveCh, rdmacm.Established)
	mr := rdmatest.Must(request.ID.PD().AllocMR(64, verbs.AccessLocalWrite))(t)
	rdmatest.Must(srq.PostRecv(verbs.RecvWR{WRID: 77, SGL: []verbs.SGE{mr.SGE(0, 64)}}))(t)
	copy(active.mr.Bytes(), rdmatest.Pattern(64, 1))
	active.send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{active.mr.SGE(0, 64)}})
	if wc := rdmatest.PollOK(t, request.ID.RecvCQ(), 1)[0]; wc.WRID != 77 {
		t.Errorf("receive %d completed", wc.WRID)
	}
	wantBytes(t, mr.Bytes(), rdmatest.Pattern(64, 1))

	wantError(t, listener.DestroySRQ(), rdmacm.ErrBusy)
	rdmatest.Check(t, request.ID.Close())
	rdmatest.Check(t, mr.Close())
	rdmatest.Check(t, listener.DestroySRQ())
	rdmatest.Check(t, listener.DestroySRQ())

	// One of the ID's own goes with it, in order.
	other := reach(t, channel(t), rdmacm.TCP, listener.LocalAddr())
	rdmatest.Must(other.CreateSRQ(nil, verbs.SRQOptions{MaxWR: 8, MaxSGE: 1}))(t)
	qp := rdmatest.Must(other.CreateQP(nil, queuesOf))(t)
	if _, err := qp.PostRecv(verbs.RecvWR{}); err == nil {
		t.Error("a QP with an SRQ takes receives of its own")
	}
	rdmatest.Check(t, other.Close())
}

// What devices can do beyond the specification travels with the handshake.
func TestECE(t *testing.T) {
	rdmatest.CheckLeaks(t)
	activeCh, passiveCh := channel(t), channel(t)
	listener := listenOn(t, passiveCh, rdmacm.TCP)
	wish, answer := rdmacm.ECE{VendorID: 0x123456, Options: 0xdeadbeef}, rdmacm.ECE{VendorID: 0x654321, Options: 0x55}

	ask := func() (active, passive *rdmacm.ID, qp *verbs.QP) {
		active = reach(t, activeCh, rdmacm.TCP, listener.LocalAddr())
		wantError(t, active.SetLocalECE(rdmacm.ECE{Options: 1}), rdmacm.ErrInvalid)
		wantError(t, active.SetLocalECE(rdmacm.ECE{VendorID: 1 << 24}), rdmacm.ErrInvalid)
		rdmatest.Check(t, active.SetLocalECE(wish))
		qp = own(t, active)
		param := rdmacm.ConnParam{}
		param.QPNum = qp.Num()
		rdmatest.Must(active.Connect(patient(t), &param))(t)
		passive = expect(t, passiveCh, rdmacm.ConnectRequest).ID
		closeAtEnd(t, passive)
		if got := passive.RemoteECE(); got != wish {
			t.Errorf("the request has %+v, not %+v", got, wish)
		}
		return active, passive, qp
	}

	active, passive, _ := ask()
	rdmatest.Check(t, passive.SetLocalECE(answer))
	peer := own(t, passive)
	move(t, passive, peer, verbs.QPInit, verbs.QPRTR, verbs.QPRTS)
	param := rdmacm.ConnParam{}
	param.QPNum = peer.Num()
	rdmatest.Check(t, passive.Accept(patient(t), &param))
	expect(t, activeCh, rdmacm.ConnectResponse)
	// The vendor is the one who was asked for.
	if got, want := active.RemoteECE(), (rdmacm.ECE{VendorID: wish.VendorID, Options: answer.Options}); got != want {
		t.Errorf("the answer has %+v, not %+v", got, want)
	}
	rdmatest.Check(t, active.Establish())
	expect(t, passiveCh, rdmacm.Established)

	_, passive, _ = ask()
	rdmatest.Check(t, passive.RejectECE([]byte("no")))
	e := rdmatest.Must(activeCh.Event(patient(t)))(t)
	var rejected *rdmacm.EventError
	if !errors.As(e.Err(), &rejected) || rejected.Reason() != rdmacm.RejectVendorOption {
		t.Errorf("rejected: %v", e.Err())
	}

	withQP := newEnd(t, reach(t, activeCh, rdmacm.TCP, listener.LocalAddr()))
	wantError(t, withQP.SetLocalECE(wish), rdmacm.ErrInvalid)
}

// Who knows the path needn't ask for it.
func TestSetPath(t *testing.T) {
	rdmatest.CheckLeaks(t)
	activeCh, passiveCh := channel(t), channel(t)
	listener := listenOn(t, passiveCh, rdmacm.TCP)
	known := rdmatest.Must(reach(t, activeCh, rdmacm.TCP, listener.LocalAddr()).QueryPath())(t)
	id := create(t, activeCh, rdmacm.TCP)
	if err := id.SetPath(patient(t), known[0]); err == nil {
		t.Error("an ID without an address has a path")
	}
	rdmatest.Check(t, id.ResolveAddr(patient(t), none, listener.LocalAddr(), resolve))
	expect(t, activeCh, rdmacm.AddrResolved)
	rdmatest.Check(t, id.SetPath(patient(t), known[0]))
	expect(t, activeCh, rdmacm.RouteResolved)
	paths := rdmatest.Must(id.QueryPath())(t)
	if len(paths) != 1 || paths[0].DGID != known[0].DGID || paths[0].SGID != known[0].SGID || paths[0].MTU != known[0].MTU ||
		paths[0].PacketLifeTime != known[0].PacketLifeTime || paths[0].PKey != known[0].PKey || !paths[0].Reversible {
		t.Errorf("the path is %+v, not %+v", paths, known)
	}
	active := newEnd(t, id)
	rdmatest.Must(active.Connect(patient(t), nil))(t)
	passive := newEnd(t, expect(t, passiveCh, rdmacm.ConnectRequest).ID)
	closeAtEnd(t, passive.ID)
	rdmatest.Check(t, passive.Accept(patient(t), nil))
	expect(t, activeCh, rdmacm.Established)
	expect(t, passiveCh, rdmacm.Established)
	exchange(t, active, passive)
}

// A program's own events come in turn with the kernel's, where it knows them.
func TestWriteEvent(t *testing.T) {
	rdmatest.CheckLeaks(t)
	ch := channel(t)
	id := create(t, ch, rdmacm.TCP)
	err := id.WriteEvent(-7, 0x1122334455667788)
	if !rdmatest.Kernel(t).AtLeast(7, 2) {
		wantError(t, err, rdmacm.ErrNotSupported)
		return
	}
	rdmatest.Check(t, err)
	if e := expect(t, ch, rdmacm.UserEvent); e.ID != id || e.Status != -7 || e.Arg != 0x1122334455667788 {
		t.Errorf("got %+v", e)
	}
}

// InfiniBand's addresses are for InfiniBand: over RoCE they lead to a device, but
// no further. Any of them can be listened on.
func TestIBAddr(t *testing.T) {
	rdmatest.CheckLeaks(t)
	listener := create(t, nil, rdmacm.IB)
	const service = 0x13f1234
	rdmatest.Check(t, listener.BindIB(rdmacm.IBAddr{PKey: 0xffff, Service: service, ServiceMask: 0xffff}))
	rdmatest.Check(t, listener.Listen(1))
	g := rdmatest.Must(listener.QueryGID())(t)
	if g.LocalGID != (verbs.GID{}) || g.LocalService != service {
		t.Errorf("listens on %+v", g)
	}
	if listener.LocalAddr().IsValid() {
		t.Errorf("it has the IP address %v", listener.LocalAddr())
	}

	addr := rdmacm.IBAddr{PKey: 0xffff, Service: service, ServiceMask: ^uint64(0)}
	addr.GID = verbs.GID(netip.MustParseAddr(host).As16()) // rxe0's
	err := create(t, nil, rdmacm.IB).BindIB(addr)
	wantError(t, err, syscall.ENODEV)
	var e *rdmacm.OpError
	if !errors.As(err, &e) || e.Hint == "" {
		t.Errorf("it doesn't say why: %v", err)
	}
	active := create(t, nil, rdmacm.IB)
	rdmatest.Check(t, active.ResolveIBAddr(patient(t), nil, addr, resolve))
	if g := rdmatest.Must(active.QueryGID())(t); g.RemoteGID != addr.GID || active.Verbs().Device().Name() != rdmatest.Device {
		t.Errorf("on %v: %+v", active.Verbs().Device(), g)
	}
	wantError(t, active.ResolveRoute(patient(t), resolve), rdmacm.ErrRouteResolution, syscall.ENODEV)
}
