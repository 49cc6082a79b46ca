package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// patient returns a context for a wait that must succeed.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func closeAtEnd(t testing.TB, c closer) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// sharedID makes a SyncID on the fake kernel.
func sharedID(t testing.TB, ps PortSpace) *SyncID {
	id := rdmatest.Must(CreateSyncID(ps))(t)
	closeAtEnd(t, id)
	return id
}

func event(id anID, typ EventType) uapi.RdmaUcmEventResp {
	return uapi.RdmaUcmEventResp{Uid: id.core().number, Event: uint32(typ)}
}

// A SyncID keeps as many requests as its backlog allows, and rejects further ones.
func TestBacklogKept(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	listener := sharedID(t, PortSpaceTCP)
	const backlog = 3
	rdmatest.Check(t, listener.Listen(backlog))
	ch := k.sharedChannel()
	var handles []uint32
	for range backlog + 2 {
		handles = append(handles, k.request(ch, listener))
	}
	k.happen(ch, event(listener, EventTimewaitExit)) // behind them
	other := sharedID(t, PortSpaceTCP)
	k.happen(ch, event(other, EventAddrChange)) // once it is there, all are
	rdmatest.Must(other.Event(patient(t)))(t)
	for i := range backlog {
		e := rdmatest.Must(listener.Request(patient(t)))(t)
		if e.SyncID.handle != handles[i] || e.ID != nil || e.Listen != nil {
			t.Errorf("request %d is ID %d, want %d", i, e.SyncID.handle, handles[i])
		}
		closeAtEnd(t, e.SyncID)
	}
	if e := rdmatest.Must(listener.Event(patient(t)))(t); e.Type != EventTimewaitExit {
		t.Errorf("behind the backlog there is %v", e.Type)
	}
	for i, handle := range handles {
		if kept := i < backlog; k.has(handle) != kept {
			t.Errorf("request %d was kept: %t", i, !kept)
		}
	}
	// There is room again.
	handle := k.request(ch, listener)
	e := rdmatest.Must(listener.Request(patient(t)))(t)
	if e.SyncID.handle != handle {
		t.Errorf("got request %d, want %d", e.SyncID.handle, handle)
	}
	closeAtEnd(t, e.SyncID)
}

// An inbox takes exactly limit events.
func TestInboxLimit(t *testing.T) {
	b := newInbox()
	for i := range 3 {
		if got, want := b.put(&Event{}, 2), i < 2; got != want {
			t.Errorf("event %d is taken: %t", i, got)
		}
	}
	rdmatest.Must(b.next(t.Context()))(t)
	if !b.put(&Event{}, 2) || b.put(&Event{}, 2) || b.put(&Event{}, 0) {
		t.Error("after one was taken, there is room for one")
	}
}

func TestInbox(t *testing.T) {
	b := newInbox()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	first, second := &Event{Type: EventAddrChange}, &Event{Type: EventDisconnected}
	b.put(first, 9)
	if _, err := b.next(ended); err != context.Canceled {
		t.Errorf("a context that has ended: %v", err)
	}
	if _, err := b.next(noContext); !errors.Is(err, ErrInvalid) {
		t.Errorf("no context: %v", err)
	}
	if err := b.waitOver(ended); err != context.Canceled {
		t.Errorf("not over: %v", err)
	}
	b.put(second, 9)
	b.put(&Event{Type: EventDeviceRemoval}, 9) // over, a second time
	rdmatest.Check(t, b.waitOver(patient(t)))
	if e := rdmatest.Must(b.next(patient(t)))(t); e != first {
		t.Errorf("first came %v", e.Type)
	}
	if left := b.end(ErrClosed); len(left) != 2 || left[0] != second {
		t.Errorf("left: %v", left)
	}
	if left := b.end(ErrBusy); left != nil || b.put(first, 9) {
		t.Error("ended, it takes events")
	}
	if _, err := b.next(patient(t)); err != ErrClosed {
		t.Errorf("ended: %v", err)
	}
	over := newInbox()
	over.end(ErrClosed)
	if err := over.waitOver(patient(t)); err != ErrClosed {
		t.Errorf("ended before it was over: %v", err)
	}
}

// Each JoinMulticast returns its own group's event, whatever their order, and leaves other
// events to others.
func TestJoinTogether(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	id := sharedID(t, PortSpaceUDP)
	const groups = 4
	type result struct {
		mc  *Multicast
		e   *Event
		err error
	}
	results := make(chan result)
	for i := range groups {
		go func() {
			mc, e, err := id.JoinMulticast(patient(t), netip.AddrFrom4([4]byte{239, 0, 0, byte(i)}), JoinSendOnlyFullMember)
			results <- result{mc, e, err}
		}()
	}
	joining := func() []*Multicast {
		id.mu.Lock()
		defer id.mu.Unlock()
		return slices.Clone(id.groups)
	}
	for len(joining()) < groups {
		runtime.Gosched()
	}
	ch := k.sharedChannel()
	k.happen(ch, event(id, EventAddrChange))
	for _, mc := range slices.Backward(joining()) {
		e := uapi.RdmaUcmEventResp{Uid: mc.number, Event: uint32(EventMulticastJoin)}
		e.Param.Ud().QpNum = uint32(mc.addr.As4()[3])
		if mc.addr.As4()[3] == 2 {
			e.Event, e.Status = uint32(EventMulticastError), ^uint32(uint32(syscall.ENETUNREACH)-1)
		}
		k.happen(ch, e)
	}
	for range groups {
		r := <-results
		if r.err != nil {
			if !errors.Is(r.err, ErrMulticast) || !errors.Is(r.err, syscall.ENETUNREACH) || len(joining()) != groups-1 {
				t.Errorf("got %v, and is in %d groups", r.err, len(joining()))
			}
			continue
		}
		if r.e.Multicast != r.mc || r.e.UD.QPNum != uint32(r.mc.addr.As4()[3]) {
			t.Errorf("%v got the event of %v: %+v", r.mc.addr, r.e.Multicast.addr, r.e.UD)
		}
	}
	if e := rdmatest.Must(id.Event(patient(t)))(t); e.Type != EventAddrChange {
		t.Errorf("got %v", e.Type)
	}
	// A group that is lost later is the ID's event.
	lost := joining()[0]
	k.happen(ch, uapi.RdmaUcmEventResp{Uid: lost.number, Event: uint32(EventMulticastError)})
	if e := rdmatest.Must(id.Event(patient(t)))(t); e.Type != EventMulticastError || e.Multicast != lost || !errors.Is(e.Err(), ErrMulticast) {
		t.Errorf("got %v of %v", e.Type, e.Multicast)
	}
}

// Whatever ends the wait for a group, the ID is not in the group.
func TestJoinEnds(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	group := netip.MustParseAddr("239.1.1.1")
	join := func(ctx context.Context, id *SyncID) <-chan error {
		result := make(chan error, 1)
		go func() {
			_, _, err := id.JoinMulticast(ctx, group, JoinFullMember)
			result <- err
		}()
		for {
			id.mu.Lock()
			n := len(id.groups)
			id.mu.Unlock()
			if n > 0 {
				return result
			}
			runtime.Gosched()
		}
	}
	for _, test := range []struct {
		name string
		end  func(id *SyncID, cancel func())
		want error
	}{
		{"context", func(_ *SyncID, cancel func()) { cancel() }, context.Canceled},
		{"close", func(id *SyncID, _ func()) { id.Close() }, ErrClosed},
		{"removal", func(id *SyncID, _ func()) { k.happen(k.sharedChannel(), event(id, EventDeviceRemoval)) }, ErrDeviceRemoved},
	} {
		id := sharedID(t, PortSpaceUDP)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		result := join(ctx, id)
		test.end(id, cancel)
		if err := <-result; !errors.Is(err, test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
		rdmatest.Check(t, id.Close())
	}
	id := sharedID(t, PortSpaceUDP)
	if _, _, err := id.JoinMulticast(t.Context(), group, 7); !errors.Is(err, ErrInvalid) {
		t.Errorf("a flag that doesn't exist: %v", err)
	}
	if _, _, err := id.JoinMulticast(t.Context(), netip.Addr{}, JoinFullMember); !errors.Is(err, ErrInvalid) {
		t.Errorf("no group: %v", err)
	}
	if err := id.LeaveMulticast(&Multicast{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("leaving a group that the ID is not in: %v", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.ids) != 1 {
		t.Errorf("the kernel has %d IDs and groups, want 1", len(k.ids))
	}
}

// An ID either leaves the shared channel with all its events, or stays.
func TestMigrateEventUnderWay(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	to := k.open(t)
	closeAtEnd(t, to)
	sharedID(t, PortSpaceTCP) // keeps the shared channel
	for round := range 300 {
		for _, typ := range []EventType{EventAddrResolved, EventConnectRequest} {
			id := rdmatest.Must(CreateSyncID(PortSpaceTCP))(t)
			rdmatest.Check(t, id.Listen(5))
			ch := k.sharedChannel()
			// A watch function is called with an event between the kernel's queue and the
			// inbox.
			heard := make(chan struct{})
			id.mu.Lock()
			id.watch = func(*Event) {
				close(heard)
				for range round {
					runtime.Gosched()
				}
			}
			id.mu.Unlock()
			if typ == EventConnectRequest {
				k.request(ch, id)
			} else {
				k.happen(ch, event(id, typ))
			}
			<-heard
			on, err := id.Migrate(to.EventChannel)
			var e *Event
			var of *ID // the event is of, or its listener
			if errors.Is(err, ErrBusy) {
				e = rdmatest.Must(id.Event(patient(t)))(t)
				rdmatest.Check(t, e.SyncID.Close())
			} else {
				rdmatest.Check(t, err)
				e = rdmatest.Must(to.Event(patient(t)))(t)
				of = on
			}
			if e.Type != typ {
				t.Fatalf("got %v, want %v", e.Type, typ)
			}
			if typ == EventConnectRequest {
				rdmatest.Check(t, e.ID.Close())
				e.ID = e.Listen
			}
			if e.ID != of {
				t.Fatalf("the %v is that of %p, want %p", typ, e.ID, of)
			}
			rdmatest.Check(t, id.Close())
		}
	}
}

// Waits on an ID end when the ID moves to a channel. The channel then delivers its events.
func TestMigrateEndsWaits(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	to := k.open(t)
	closeAtEnd(t, to)
	sharedID(t, PortSpaceTCP) // keeps the shared channel
	id := sharedID(t, PortSpaceTCP)
	result := make(chan error)
	box := id.inbox // which Event waits at
	go func() {
		_, err := box.next(patient(t))
		result <- err
	}()
	on := rdmatest.Must(id.Migrate(to.EventChannel))(t)
	on.Value = "mine"
	if err := <-result; !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v", err)
	}
	// Calls of the former SyncID are refused.
	for name, err := range map[string]error{
		"event":   func() error { _, err := id.Event(patient(t)); return err }(),
		"request": func() error { _, err := id.Request(patient(t)); return err }(),
		"route":   id.ResolveRoute(patient(t), time.Second),
		"migrate": func() error { _, err := id.Migrate(to.EventChannel); return err }(),
	} {
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "on a channel") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The ID moves back, with the events that arrive meanwhile.
	for range 200 {
		k.happen(to, event(id, EventAddrChange))
		id = rdmatest.Must(on.MigrateSync())(t)
		if e := rdmatest.Must(id.Event(patient(t)))(t); e.Type != EventAddrChange || e.ID != nil {
			t.Errorf("got %v of %p", e.Type, e.ID)
		}
		if again := rdmatest.Must(id.Migrate(to.EventChannel))(t); again != on || again.Value != "mine" {
			t.Error("it is another ID than before")
		}
		k.happen(to, event(id, EventAddrChange))
		if e := rdmatest.Must(to.Event(patient(t)))(t); e.ID != on {
			t.Errorf("the event is that of %p", e.ID)
		}
	}
	id = rdmatest.Must(on.MigrateSync())(t)
	for name, err := range map[string]error{
		"route":        on.ResolveRoute(time.Second),
		"disconnect":   on.Disconnect(),
		"migrate":      on.Migrate(to.EventChannel),
		"migrate sync": func() error { _, err := on.MigrateSync(); return err }(),
	} {
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "SyncID") {
			t.Errorf("off its channel, %s: %v", name, err)
		}
	}
	if _, err := id.Migrate(shared.ch); !errors.Is(err, ErrBusy) {
		t.Errorf("to where it is: %v", err)
	}
	if _, err := id.Migrate(nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("to no channel: %v", err)
	}
	rdmatest.Check(t, on.Close())
	if err := id.Listen(1); !errors.Is(err, ErrClosed) {
		t.Errorf("closed as an ID: %v", err)
	}
}

// An ID that the kernel refuses to move stays where it is. An ID that the kernel refuses
// to make leaves the shared channel to the others.
func TestRefusedBySharedKernel(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	to := k.open(t)
	closeAtEnd(t, to)
	id := rdmatest.Must(CreateSyncID(PortSpaceTCP))(t)
	k.mu.Lock()
	k.hook = func(command, _ uint32) error {
		if command == uapi.RDMA_USER_CM_CMD_MIGRATE_ID || command == uapi.RDMA_USER_CM_CMD_CREATE_ID {
			return syscall.EACCES
		}
		return nil
	}
	k.mu.Unlock()
	if _, err := id.Migrate(to.EventChannel); !errors.Is(err, syscall.EACCES) {
		t.Errorf("migrating: %v", err)
	}
	k.happen(k.sharedChannel(), event(id, EventAddrChange))
	if e := rdmatest.Must(id.Event(patient(t)))(t); e.Type != EventAddrChange {
		t.Errorf("got %v", e.Type)
	}
	if n := to.ids.Load(); n != 0 {
		t.Errorf("the channel has %d IDs", n)
	}
	rdmatest.Check(t, id.Close())
	for range 2 {
		if _, err := CreateSyncID(PortSpaceTCP); !errors.Is(err, syscall.EACCES) {
			t.Errorf("creating: %v", err)
		}
		if _, err := to.CreateID(PortSpaceTCP); !errors.Is(err, syscall.EACCES) || to.ids.Load() != 0 {
			t.Errorf("creating on a channel, which has %d IDs: %v", to.ids.Load(), err)
		}
		if shared.ch != nil {
			t.Error("the shared channel stays open")
		}
	}
}

// When the kernel refuses to serve a channel any more, the waits on it end. New IDs use
// another channel.
func TestSharedChannelLost(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	old := sharedID(t, PortSpaceTCP)
	oldChannel := k.sharedChannel()
	lost := make(chan struct{})
	var once sync.Once
	k.mu.Lock()
	k.hook = func(command, _ uint32) error {
		err := error(nil)
		if command == uapi.RDMA_USER_CM_CMD_GET_EVENT {
			once.Do(func() { err = syscall.EACCES; close(lost) })
		}
		return err
	}
	k.mu.Unlock()
	k.happen(oldChannel, event(old, EventAddrChange)) // wakes the deliverer
	<-lost
	var opError *OpError
	if _, err := old.Event(patient(t)); !errors.Is(err, syscall.EACCES) || !errors.As(err, &opError) {
		t.Errorf("on the channel that is lost: %v", err)
	}
	id := sharedID(t, PortSpaceTCP)
	ch := k.sharedChannel()
	if ch == oldChannel {
		t.Fatal("a new ID is on the channel that is lost")
	}
	k.happen(ch, event(id, EventAddrChange))
	if e := rdmatest.Must(id.Event(patient(t)))(t); e.Type != EventAddrChange {
		t.Errorf("got %v", e.Type)
	}
	rdmatest.Check(t, old.Close())
	if err := oldChannel.raw.Control(func(uintptr) {}); err == nil {
		t.Error("the channel that is lost stays open")
	}
}

// The waits of an ID that is created while the channel is being lost end, too.
func TestSharedChannelLostMeanwhile(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	stay := sharedID(t, PortSpaceTCP) // keeps the channel
	lost := rdmatest.Must(shared.acquire())(t)
	shared.abandon(lost, syscall.EACCES)
	id := &SyncID{rdmatest.Must(createID(lost, PortSpaceTCP, newInbox()))(t)}
	closeAtEnd(t, id)
	for _, id := range []*SyncID{id, stay} {
		if _, err := id.Event(patient(t)); !errors.Is(err, syscall.EACCES) {
			t.Errorf("got %v", err)
		}
	}
}

// Closing a slow queue pair delays neither the events of its own ID nor those of others.
func TestSlowDestroy(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	for _, destroy := range []func(*SyncID) error{(*SyncID).DestroyQP, (*SyncID).Close} {
		slow, other := sharedID(t, PortSpaceTCP), sharedID(t, PortSpaceTCP)
		ch := k.sharedChannel()
		heard := make(chan EventType, 9)
		slow.watch = func(e *Event) { heard <- e.Type }
		closing, end := make(chan struct{}), make(chan struct{})
		slow.queues.made = []closer{closeFunc(func() error {
			close(closing)
			<-end
			return nil
		})}
		result := make(chan error)
		go func() { result <- destroy(slow) }()
		<-closing
		for _, typ := range []EventType{EventAddrResolved, EventConnectResponse, EventRejected, EventDisconnected} {
			k.happen(ch, event(slow, typ))
		}
		k.happen(ch, event(other, EventAddrChange))
		if e := rdmatest.Must(other.Event(patient(t)))(t); e.Type != EventAddrChange {
			t.Errorf("got %v", e.Type)
		}
		if n := len(heard); n < 4 {
			t.Errorf("of 4 events who watches the ID has heard of %d", n)
		}
		close(end)
		rdmatest.Check(t, <-result)
	}
}

// TestDestroyQPRemoved: the queue pair can be closed after the device was removed.
func TestDestroyQPRemoved(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	id := sharedID(t, PortSpaceTCP)
	gone := false
	id.queues.made = []closer{closeFunc(func() error {
		gone = true
		return nil
	})}
	k.happen(k.sharedChannel(), event(id, EventDeviceRemoval))
	rdmatest.UntilNot(t, "no event comes", func() bool { return id.inbox.len() == 0 }) // Event comes late
	if e := rdmatest.Must(id.Event(patient(t)))(t); e.Type != EventDeviceRemoval {
		t.Errorf("got %v", e.Type)
	}
	if _, err := id.Event(patient(t)); !errors.Is(err, ErrDeviceRemoved) {
		t.Errorf("after the last event: %v", err)
	}
	if err := id.DestroyQP(); err != nil || !gone {
		t.Errorf("the queue pair is closed: %v, %v", gone, err)
	}
	rdmatest.Check(t, id.Close())
	if err := id.DestroyQP(); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// When an object can't be closed, the ID stays as it was.
func TestCloseBusy(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	id := sharedID(t, PortSpaceTCP)
	var busy atomic.Bool
	busy.Store(true)
	id.queues.made = []closer{closeFunc(func() error {
		if busy.Load() {
			return ErrBusy
		}
		return nil
	})}
	for range 2 {
		if err := id.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("got %v", err)
		}
		if err := id.DestroyQP(); !errors.Is(err, ErrBusy) {
			t.Errorf("got %v", err)
		}
	}
	k.happen(k.sharedChannel(), event(id, EventAddrChange))
	if e := rdmatest.Must(id.Event(patient(t)))(t); e.Type != EventAddrChange {
		t.Errorf("got %v", e.Type)
	}
	rdmatest.Check(t, id.Listen(1))
	busy.Store(false)
	rdmatest.Check(t, id.Close())
	rdmatest.Check(t, id.Close())
	if err := id.Listen(1); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if k.has(id.handle) {
		t.Error("the kernel has the ID")
	}
}

// Events of unknown IDs, and inconsistent events, are dropped. Their new IDs are
// destroyed.
func TestStrangeEvents(t *testing.T) {
	k := newFakeKernel()
	ch := k.open(t)
	closeAtEnd(t, ch)
	id := rdmatest.Must(ch.CreateID(PortSpaceUDP))(t)
	closeAtEnd(t, id)
	for _, uid := range []uint64{0, id.number + 1000, ^uint64(0)} {
		for typ := range uint32(20) {
			e := uapi.RdmaUcmEventResp{Uid: uid, Event: typ}
			if EventType(typ) == EventConnectRequest {
				k.mu.Lock()
				k.handles++
				e.Id = k.handles
				k.ids[e.Id] = 0
				k.mu.Unlock()
			}
			k.happen(ch, e)
		}
	}
	k.happen(ch, event(id, EventMulticastJoin)) // of no group
	k.happen(ch, event(id, EventMulticastError))
	e := event(id, 77)
	e.Param.Ud().PrivateDataLen = 255
	k.happen(ch, e)
	got := rdmatest.Must(ch.Event(patient(t)))(t)
	if got.Type != 77 || got.ID != id || len(got.PrivateData()) != 255 || got.Err() != nil {
		t.Errorf("got %v, %v", got, got.Err())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.ids) != 1 {
		t.Errorf("the kernel has %d IDs, want 1", len(k.ids))
	}
}

// TestEventEnds: the error says what has ended, and why.
func TestEventEnds(t *testing.T) {
	ch := newFakeKernel().open(t)
	closeAtEnd(t, ch)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := ch.Event(ctx)
	var op *OpError
	if !errors.As(err, &op) || op.Op != "get event" || op.Object != "" || !errors.Is(err, context.Canceled) {
		t.Errorf("%#v", err)
	}
}

// Events are decoded correctly.
func TestEvents(t *testing.T) {
	k := newFakeKernel()
	ch := k.open(t)
	closeAtEnd(t, ch)
	tcp, udp := rdmatest.Must(ch.CreateID(PortSpaceTCP))(t), rdmatest.Must(ch.CreateID(PortSpaceUDP))(t)
	closeAtEnd(t, tcp)
	closeAtEnd(t, udp)
	e := event(tcp, EventRejected)
	e.Status = 28
	c := e.Param.Conn()
	*c = uapi.RdmaUcmConnParam{
		QpNum: 0x123456, PrivateDataLen: 3, Srq: 1, ResponderResources: 2, InitiatorDepth: 3,
		FlowControl: 1, RetryCount: 4, RnrRetryCount: 5,
	}
	copy(c.PrivateData[:], "data")
	k.happen(ch, e)
	got := rdmatest.Must(ch.Event(patient(t)))(t)
	want := ConnParam{ResponderResources: 2, InitiatorDepth: 3, FlowControl: true, RetryCount: 4, RNRRetryCount: 5, SRQ: true, QPNum: 0x123456}
	data := got.Conn.PrivateData
	got.Conn.PrivateData = nil
	if got.ID != tcp || got.Type != EventRejected || got.Status != 28 || string(data) != "dat" || !equalParam(got.Conn, want) {
		t.Errorf("got %+v with %q", got, data)
	}
	var rejected *EventError
	got.Conn.PrivateData = data
	if err := got.Err(); !errors.As(err, &rejected) || rejected.Reason() != RejectConsumer || string(rejected.PrivateData) != "dat" {
		t.Errorf("it is the error %v", err)
	}

	e = event(udp, EventEstablished)
	u := e.Param.Ud()
	u.QpNum, u.Qkey, u.PrivateDataLen = 7, 0x01234567, 1
	u.PrivateData[0] = 'x'
	u.AhAttr = uapi.IbUverbsAhAttr{Dlid: 1, Sl: 2, SrcPathBits: 3, StaticRate: 4, IsGlobal: 1, PortNum: 5}
	u.AhAttr.Grh.Dgid[15], u.AhAttr.Grh.FlowLabel, u.AhAttr.Grh.SgidIndex = 6, 8, 9
	u.AhAttr.Grh.HopLimit, u.AhAttr.Grh.TrafficClass = 10, 11
	k.happen(ch, e)
	got = rdmatest.Must(ch.Event(patient(t)))(t)
	ah := got.UD.AH
	if got.UD.QPNum != 7 || got.UD.QKey != UDPQKey || string(got.PrivateData()) != "x" || ah.DLID != 1 || ah.SL != 2 || ah.SrcPathBits != 3 ||
		ah.StaticRate != 4 || !ah.IsGlobal || ah.Port != 5 || ah.DGID[15] != 6 || ah.FlowLabel != 8 || ah.SGIDIndex != 9 || ah.HopLimit != 10 || ah.TrafficClass != 11 {
		t.Errorf("got %+v", got.UD)
	}
	if got.Conn.PrivateData != nil {
		t.Errorf("a datagram service's answer has %+v", got.Conn)
	}

	e = event(tcp, EventUser)
	e.Status = ^uint32(6) // -7
	arg := e.Param.Arg32()
	arg[0], arg[1] = 0x55667788, 0x11223344
	k.happen(ch, e)
	got = rdmatest.Must(ch.Event(patient(t)))(t)
	if want := uint64(0x1122334455667788); got.Status != -7 || got.Arg != want {
		t.Errorf("got status %d, argument %#x", got.Status, got.Arg)
	}
}

func equalParam(a, b ConnParam) bool {
	return string(a.PrivateData) == string(b.PrivateData) && a.ResponderResources == b.ResponderResources &&
		a.InitiatorDepth == b.InitiatorDepth && a.FlowControl == b.FlowControl && a.RetryCount == b.RetryCount &&
		a.RNRRetryCount == b.RNRRetryCount && a.SRQ == b.SRQ && a.QPNum == b.QPNum
}

// Invalid arguments never reach the kernel.
func TestArgumentsRefused(t *testing.T) {
	k := newFakeKernel()
	ch := k.open(t)
	closeAtEnd(t, ch)
	id := rdmatest.Must(ch.CreateID(PortSpaceTCP))(t)
	closeAtEnd(t, id)
	asked := &ID{cmID: &cmID{ps: PortSpaceTCP, asked: true, number: registry.add(nil), ch: ch.EventChannel}}
	to := netip.MustParseAddrPort("192.168.77.1:1")
	ctx := t.Context()
	k.mu.Lock()
	k.commands = nil
	k.mu.Unlock()
	for name, err := range map[string]error{
		"connecting to nowhere":        id.Connect(nil),
		"nil ID":                       (*ID)(nil).Connect(nil),
		"accepting what was not asked": id.Accept(nil),
		"accepting without a device":   asked.Accept(nil),
		"long rejection":               id.Reject(make([]byte, MaxRejectData+1)),
		"backlog":                      id.Listen(-1),
		"no timeout":                   id.ResolveAddr(netip.AddrPort{}, to, 0),
		"tiny timeout":                 id.ResolveRoute(time.Microsecond),
		"long timeout":                 id.ResolveRoute(1 << 62),
		"no address":                   id.ResolveAddr(netip.AddrPort{}, netip.AddrPort{}, time.Second),
		"no address to bind to":        id.Bind(netip.AddrPort{}),
		"ack timeout":                  id.SetAckTimeout(32),
		"no context":                   (&SyncID{id.cmID}).ResolveRoute(noContext, time.Second),
		"vendor":                       id.SetLocalECE(ECE{}),
		"disconnecting nothing":        id.Disconnect(),
		"event of a channel's ID":      func() error { _, err := (&SyncID{id.cmID}).Event(ctx); return err }(),
		"request of a channel's ID":    func() error { _, err := (&SyncID{id.cmID}).Request(ctx); return err }(),
		"group without a kind":         func() error { _, err := id.JoinMulticast(to.Addr(), 7); return err }(),
		"QP without a device":          func() error { _, err := id.CreateQP(nil, verbs.QPOptions{}); return err }(),
		"SRQ without a device":         func() error { _, err := id.CreateSRQ(nil, verbs.SRQOptions{}); return err }(),
		"nil channel":                  func() error { _, err := (*EventChannel)(nil).CreateID(PortSpaceTCP); return err }(),
	} {
		var e *OpError
		if !errors.Is(err, ErrInvalid) || !errors.As(err, &e) {
			t.Errorf("%s: %v", name, err)
		}
	}
	registry.remove(asked.number)
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.commands) > 0 {
		t.Errorf("the kernel was given the commands %v", k.commands)
	}
}
