package rdmacm

import (
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

var none netip.AddrPort

var anyPort = netip.MustParseAddrPort(host + ":0")

// queuesOf has the options of the tests' queue pairs.
var queuesOf = verbs.QPOptions{Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1}}

// channel opens an event channel.
func channel(t testing.TB) *rdmacm.EventChannel {
	t.Helper()
	ch := rdmatest.Must(rdmacm.NewEventChannel())(t)
	t.Cleanup(func() { rdmatest.Close(t, ch) })
	return ch
}

// create creates an ID.
func create(t testing.TB, ch *rdmacm.EventChannel, ps rdmacm.PortSpace) *rdmacm.ID {
	t.Helper()
	id := rdmatest.Must(ch.CreateID(ps))(t)
	closeAtEnd(t, id)
	return id
}

// createSync creates a SyncID.
func createSync(t testing.TB, ps rdmacm.PortSpace) *rdmacm.SyncID {
	t.Helper()
	id := rdmatest.Must(rdmacm.CreateSyncID(ps))(t)
	closeAtEnd(t, id)
	return id
}

// An anID is an ID or a SyncID.
type anID interface {
	Device() *verbs.Device
	Port() int
	PD() *verbs.PD
	CreateQP(*verbs.PD, verbs.QPOptions) (*verbs.QP, error)
	DestroyQP() error
	InitQPAttr(verbs.QPState) (verbs.QPAttr, verbs.QPAttrMask, error)
	QP() *verbs.QP
	SendCQ() *verbs.CQ
	RecvCQ() *verbs.CQ
	Close() error
}

func closeAtEnd(t testing.TB, id anID) {
	t.Cleanup(func() { rdmatest.Close(t, id) })
}

// expect returns the next event, which must be a successful one of the type.
func expect(t testing.TB, ch *rdmacm.EventChannel, typ rdmacm.EventType) *rdmacm.Event {
	t.Helper()
	e, err := ch.Event(patient(t))
	rdmatest.Check(t, err)
	if e.Type != typ || e.Err() != nil {
		t.Fatalf("got %v (%v), want %v", e.Type, e.Err(), typ)
	}
	return e
}

// An end is an ID or a SyncID, with memory for its queue pair.
type end struct {
	anID
	id   *rdmacm.ID     // or nil
	sync *rdmacm.SyncID // or nil
	mr   *verbs.MR
}

const endLen = 8192

// newEnd creates a queue pair for the ID, and memory that the peer may access.
func newEnd(t testing.TB, id anID) *end {
	t.Helper()
	rdmatest.Must(id.CreateQP(nil, queuesOf))(t)
	return endOf(t, id)
}

func endOf(t testing.TB, id anID) *end {
	t.Helper()
	e := bareEnd(t, id, endLen)
	t.Cleanup(func() { rdmatest.Close(t, e.mr) })
	return e
}

// bareEnd is like newEnd, for a caller that closes the memory.
func bareEnd(t testing.TB, id anID, memory int) *end {
	t.Helper()
	e := &end{anID: id, mr: rdmatest.Must(id.PD().AllocMR(memory, verbs.MROptions{Access: rdmatest.All}))(t)}
	e.id, _ = id.(*rdmacm.ID)
	e.sync, _ = id.(*rdmacm.SyncID)
	return e
}

func (e *end) recv(t testing.TB, n int) {
	t.Helper()
	rdmatest.Must(e.QP().PostRecv(verbs.RecvWR{SGL: []verbs.SGE{e.mr.SGE(endLen/2, n)}}))(t)
}

func (e *end) send(t testing.TB, wr verbs.SendWR) {
	t.Helper()
	wr.Flags = verbs.SendSignaled
	rdmatest.Must(e.QP().PostSend(wr))(t)
	rdmatest.PollOK(t, e.SendCQ(), 1)
}

// exchange sends messages both ways, and reads and writes the peer's memory.
func exchange(t testing.TB, a, b *end) {
	t.Helper()
	for i, ends := range [][2]*end{{a, b}, {b, a}} {
		from, to := ends[0], ends[1]
		const n = 1000
		message := rdmatest.Pattern(n, i)
		copy(from.mr.Bytes(), message)
		to.recv(t, n)
		from.send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{from.mr.SGE(0, n)}})
		rdmatest.PollOK(t, to.RecvCQ(), 1)
		wantBytes(t, to.mr.Bytes()[endLen/2:][:n], message)

		clear(to.mr.Bytes())
		from.send(t, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{from.mr.SGE(0, n)}, Remote: to.mr.Remote()})
		wantBytes(t, to.mr.Bytes()[:n], message)

		clear(from.mr.Bytes())
		from.send(t, verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{from.mr.SGE(0, n)}, Remote: to.mr.Remote()})
		wantBytes(t, from.mr.Bytes()[:n], message)
	}
}

func wantBytes(t testing.TB, got, want []byte) {
	t.Helper()
	if string(got) != string(want) {
		t.Fatalf("%d bytes differ from those sent", len(want))
	}
}

// listenOn returns an ID that listens on a free port of rxe0.
func listenOn(t testing.TB, ch *rdmacm.EventChannel, ps rdmacm.PortSpace) *rdmacm.ID {
	t.Helper()
	id := create(t, ch, ps)
	rdmatest.Check(t, id.Bind(anyPort))
	rdmatest.Check(t, id.Listen(8))
	return id
}

// listenSync is like listenOn, for a SyncID.
func listenSync(t testing.TB, ps rdmacm.PortSpace) *rdmacm.SyncID {
	t.Helper()
	id := createSync(t, ps)
	rdmatest.Check(t, id.Bind(anyPort))
	rdmatest.Check(t, id.Listen(8))
	return id
}

// reach returns a new ID on the channel that has resolved an address and its route.
func reach(t testing.TB, ch *rdmacm.EventChannel, ps rdmacm.PortSpace, to netip.AddrPort) *rdmacm.ID {
	t.Helper()
	id := create(t, ch, ps)
	rdmatest.Check(t, id.ResolveAddr(none, to, resolve))
	expect(t, ch, rdmacm.EventAddrResolved)
	rdmatest.Check(t, id.ResolveRoute(resolve))
	expect(t, ch, rdmacm.EventRouteResolved)
	return id
}

// connected connects two IDs on channels of their own.
func connected(t testing.TB, ps rdmacm.PortSpace) (active, passive *end, activeCh, passiveCh *rdmacm.EventChannel) {
	t.Helper()
	activeCh, passiveCh = channel(t), channel(t)
	listener := listenOn(t, passiveCh, ps)
	active = newEnd(t, reach(t, activeCh, ps, listener.LocalAddr()))
	rdmatest.Check(t, active.id.Connect(nil))
	request := expect(t, passiveCh, rdmacm.EventConnectRequest)
	closeAtEnd(t, request.ID)
	if request.Listen != listener {
		t.Errorf("the request's listener is %p, not the listening ID", request.Listen)
	}
	passive = newEnd(t, request.ID)
	rdmatest.Check(t, passive.id.Accept(nil))
	if e := expect(t, activeCh, rdmacm.EventEstablished); e.ID != active.id {
		t.Errorf("established: %p", e.ID)
	}
	expect(t, passiveCh, rdmacm.EventEstablished)
	return active, passive, activeCh, passiveCh
}

// connectedSync is like connected, for SyncIDs.
func connectedSync(t testing.TB, ps rdmacm.PortSpace) (active, passive *end) {
	t.Helper()
	listener := listenSync(t, ps)
	id := createSync(t, ps)
	rdmatest.Check(t, id.ResolveAddr(patient(t), none, listener.LocalAddr(), resolve))
	rdmatest.Check(t, id.ResolveRoute(patient(t), resolve))
	active = newEnd(t, id)
	answered := make(chan *rdmacm.SyncID)
	go func() {
		defer close(answered)
		request, err := listener.Request(patient(t))
		if err == nil {
			_, err = request.SyncID.CreateQP(nil, queuesOf)
		}
		if err == nil {
			err = request.SyncID.Accept(patient(t), nil)
		}
		if err != nil {
			t.Error(err)
			return
		}
		answered <- request.SyncID
	}()
	rdmatest.Must(active.sync.Connect(patient(t), nil))(t)
	server := <-answered
	if server == nil {
		t.FailNow()
	}
	closeAtEnd(t, server)
	return active, endOf(t, server)
}
