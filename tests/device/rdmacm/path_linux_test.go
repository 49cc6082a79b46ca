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

// An ID can set a known path instead of resolving the route.
func TestSetPath(t *testing.T) {
	rdmatest.CheckLeaks(t)
	activeCh, passiveCh := channel(t), channel(t)
	listener := listenOn(t, passiveCh, rdmacm.PortSpaceTCP)
	known := rdmatest.Must(reach(t, activeCh, rdmacm.PortSpaceTCP, listener.LocalAddr()).QueryPath())(t)
	id := create(t, activeCh, rdmacm.PortSpaceTCP)
	if err := id.SetPath(known[0]); err == nil {
		t.Error("an ID without an address has a path")
	}
	rdmatest.Check(t, id.ResolveAddr(none, listener.LocalAddr(), resolve))
	expect(t, activeCh, rdmacm.EventAddrResolved)
	rdmatest.Check(t, id.SetPath(known[0]))
	expect(t, activeCh, rdmacm.EventRouteResolved)
	paths := rdmatest.Must(id.QueryPath())(t)
	if len(paths) != 1 || paths[0].DGID != known[0].DGID || paths[0].SGID != known[0].SGID || paths[0].MTU != known[0].MTU ||
		paths[0].PacketLifeTime != known[0].PacketLifeTime || paths[0].PKey != known[0].PKey || !paths[0].Reversible {
		t.Errorf("the path is %+v, not %+v", paths, known)
	}
	active := newEnd(t, id)
	rdmatest.Check(t, active.id.Connect(nil))
	passive := newEnd(t, expect(t, passiveCh, rdmacm.EventConnectRequest).ID)
	closeAtEnd(t, passive)
	rdmatest.Check(t, passive.id.Accept(nil))
	expect(t, activeCh, rdmacm.EventEstablished)
	expect(t, passiveCh, rdmacm.EventEstablished)
	exchange(t, active, passive)
}

// Over RoCE, an InfiniBand address resolves to a device, but its route can't be resolved.
// A listener can bind to any InfiniBand address.
func TestIBAddr(t *testing.T) {
	rdmatest.CheckLeaks(t)
	listener := createSync(t, rdmacm.PortSpaceIB)
	const service = 0x13f1234
	rdmatest.Check(t, listener.BindIB(rdmacm.IBAddr{PKey: 0xffff, Service: service, ServiceMask: 0xffff}))
	rdmatest.Check(t, listener.Listen(1))
	g := rdmatest.Must(listener.QueryGID())(t)
	if g.LocalGID != (verbs.GID{}) || g.LocalService != service {
		t.Errorf("listens on %+v", g)
	}
	if listener.LocalAddr().IsValid() {
		t.Errorf("the listener has the IP address %v", listener.LocalAddr())
	}

	addr := rdmacm.IBAddr{PKey: 0xffff, Service: service, ServiceMask: ^uint64(0)}
	addr.GID = verbs.GID(netip.MustParseAddr(host).As16()) // rxe0's
	err := createSync(t, rdmacm.PortSpaceIB).BindIB(addr)
	wantError(t, err, syscall.ENODEV)
	var e *rdmacm.OpError
	if !errors.As(err, &e) || e.Hint() == "" {
		t.Errorf("the error doesn't give the reason: %v", err)
	}
	active := createSync(t, rdmacm.PortSpaceIB)
	rdmatest.Check(t, active.ResolveIBAddr(patient(t), nil, addr, resolve))
	if g := rdmatest.Must(active.QueryGID())(t); g.RemoteGID != addr.GID || active.Device().Info().Name() != rdmatest.Device {
		t.Errorf("on %v: %+v", active.Device().Info(), g)
	}
	wantError(t, active.ResolveRoute(patient(t), resolve), rdmacm.ErrRouteResolution, syscall.ENODEV)
}
