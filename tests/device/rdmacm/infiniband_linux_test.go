package rdmacm

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// A port is an InfiniBand port of the rig.
type port struct {
	gid verbs.GID
	lid uint16
}

// ports returns the ports of the two devices.
func ports(t *testing.T) (of [2]port) {
	t.Helper()
	for _, device := range rdmatest.Must(verbs.Devices())(t) {
		for i, name := range rdmatest.Devices {
			if device.Name() == name {
				c := rdmatest.Must(device.Open())(t)
				of[i] = port{rdmatest.GID(t, c).GID, rdmatest.Must(c.QueryPort(rdmatest.Port))(t).LID}
				rdmatest.Check(t, c.Close())
			}
		}
	}
	return of
}

const ibService = 0x13f4321

// listenIB listens on a port's GID.
func listenIB(t *testing.T, ch *rdmacm.EventChannel, p port) *rdmacm.ID {
	t.Helper()
	id := create(t, ch, rdmacm.PortSpaceIB)
	rdmatest.Check(t, id.BindIB(rdmacm.IBAddr{GID: p.gid, PKey: 0xffff, Service: ibService, ServiceMask: 0xffff}))
	rdmatest.Check(t, id.Listen(8))
	return id
}

// reachIB returns an ID that has resolved the address of one port from another.
func reachIB(t *testing.T, ch *rdmacm.EventChannel, from, to port) *rdmacm.ID {
	t.Helper()
	id := create(t, ch, rdmacm.PortSpaceIB)
	src, dst := addrsIB(from, to)
	rdmatest.Check(t, id.ResolveIBAddr(&src, dst, resolve))
	expect(t, ch, rdmacm.EventAddrResolved)
	return id
}

// addrsIB returns the addresses for a connection from one port to another.
func addrsIB(from, to port) (src, dst rdmacm.IBAddr) {
	return rdmacm.IBAddr{GID: from.gid, PKey: 0xffff},
		rdmacm.IBAddr{GID: to.gid, PKey: 0xffff, Service: ibService, ServiceMask: ^uint64(0)}
}

// routeIB is like reachIB, and also sets the path, as a subnet administrator would return
// it.
func routeIB(t *testing.T, ch *rdmacm.EventChannel, from, to port) *rdmacm.ID {
	t.Helper()
	id := reachIB(t, ch, from, to)
	rdmatest.Check(t, id.SetPath(rdmacm.Path{
		SGID: from.gid, DGID: to.gid, SLID: from.lid, DLID: to.lid, PKey: 0xffff,
		Reversible: true, MTU: verbs.MTU4096, Rate: 7, PacketLifeTime: 14,
	}))
	expect(t, ch, rdmacm.EventRouteResolved)
	return id
}

var _ = rdmatest.Test(TestInfiniBand, rdmatest.OnMLX5)

// Two InfiniBand ports connect without an IP address, and disconnect.
func TestInfiniBand(t *testing.T) {
	rdmatest.CheckLeaks(t)
	p := ports(t)
	activeCh, passiveCh := channel(t), channel(t)
	listener := listenIB(t, passiveCh, p[1])
	active := newEnd(t, routeIB(t, activeCh, p[0], p[1]))
	g := rdmatest.Must(active.id.QueryGID())(t)
	if g.LocalGID != p[0].gid || g.RemoteGID != p[1].gid || g.RemoteService&0xffff != ibService&0xffff {
		t.Errorf("the addresses are %+v", g)
	}
	if name := active.Device().Info().Name(); name != rdmatest.Devices[0] {
		t.Errorf("the ID is on device %s", name)
	}
	param := rdmacm.ConnParam{}
	param.PrivateData = []byte("by LID") // the kernel clears its first byte
	rdmatest.Check(t, active.id.Connect(&param))
	request := expect(t, passiveCh, rdmacm.EventConnectRequest)
	closeAtEnd(t, request.ID)
	if request.Listen != listener || !strings.HasPrefix(string(request.PrivateData()), "\x00y LID") {
		t.Errorf("the request has %q", request.PrivateData())
	}
	if name := request.ID.Device().Info().Name(); name != rdmatest.Devices[1] {
		t.Errorf("the request arrived on device %s", name)
	}
	passive := newEnd(t, request.ID)
	rdmatest.Check(t, passive.id.Accept(nil))
	expect(t, activeCh, rdmacm.EventEstablished)
	expect(t, passiveCh, rdmacm.EventEstablished)
	exchange(t, active, passive)
	rdmatest.Check(t, active.id.Disconnect())
	expect(t, passiveCh, rdmacm.EventDisconnected)
	rdmatest.Check(t, passive.id.Disconnect())
	expect(t, activeCh, rdmacm.EventDisconnected)
}

var _ = rdmatest.Test(TestInfiniBandRejected, rdmatest.OnMLX5)

func TestInfiniBandRejected(t *testing.T) {
	rdmatest.CheckLeaks(t)
	p := ports(t)
	activeCh, passiveCh := channel(t), channel(t)
	listener := listenIB(t, passiveCh, p[1])
	reject := func(reason rdmacm.RejectReason, answer func()) {
		active := newEnd(t, routeIB(t, activeCh, p[0], p[1]))
		rdmatest.Check(t, active.id.Connect(nil))
		answer()
		e := rdmatest.Must(activeCh.Event(patient(t)))(t)
		wantError(t, e.Err(), rdmacm.ErrRejected)
		if rdmacm.RejectReason(e.Status) != reason {
			t.Errorf("rejected with reason %v, want %v", rdmacm.RejectReason(e.Status), reason)
		}
	}
	reject(rdmacm.RejectConsumer, func() {
		id := expect(t, passiveCh, rdmacm.EventConnectRequest).ID
		rdmatest.Check(t, id.Reject(nil))
		rdmatest.Check(t, id.Close())
	})
	rdmatest.Check(t, listener.Close())
	reject(rdmacm.RejectInvalidServiceID, func() {})
}

var _ = rdmatest.Test(TestInfiniBandWithoutSubnetManager, rdmatest.OnMLX5)

// The rig's fabric has no subnet administrator, so nothing resolves paths.
func TestInfiniBandWithoutSubnetManager(t *testing.T) {
	rdmatest.CheckLeaks(t)
	p := ports(t)
	id := createSync(t, rdmacm.PortSpaceIB)
	src, dst := addrsIB(p[0], p[1])
	rdmatest.Check(t, id.ResolveIBAddr(patient(t), &src, dst, resolve))
	err := id.ResolveRoute(patient(t), 100*time.Millisecond)
	wantError(t, err, rdmacm.ErrRouteResolution, syscall.ETIMEDOUT)
	if err == nil || !strings.Contains(err.Error(), p[1].gid.String()) {
		t.Errorf("the error doesn't name the destination: %v", err)
	}
}
