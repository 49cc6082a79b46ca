package rdmacm

import (
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/uapi"
)

// A fakeKernel is a connection manager that the test controls. It has no devices.
type fakeKernel struct {
	mu       sync.Mutex
	handles  uint32
	ids      map[uint32]uint64 // to the number in the registry; groups, too
	groups   map[uint32]uint32 // to the ID that is in the group
	channels map[uintptr]*fakeChannel
	commands []uint32                           // that were given, but for GET_EVENT
	bodies   map[uint32][]byte                  // what came with the last of each of them
	query    func(option uint32, answer uint64) // fills in the answer to a QUERY

	// hook, unless nil, is called with each command before it is worked on, and
	// its error is the answer.
	hook func(command uint32, id uint32) error
}

type fakeChannel struct {
	*EventChannel
	w      *os.File // the channel is readable while there are bytes written here
	events []uapi.RdmaUcmEventResp
}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{ids: make(map[uint32]uint64), groups: make(map[uint32]uint32), bodies: make(map[uint32][]byte), channels: make(map[uintptr]*fakeChannel)}
}

// share makes SyncIDs use the fake kernel, until the test ends.
func (k *fakeKernel) share(t *testing.T) {
	unused(t)
	open := shared.open
	shared.open = func() (*EventChannel, error) { return k.open(t).EventChannel, nil }
	t.Cleanup(func() {
		shared.open = open
		unused(t)
	})
}

// unused waits until all SyncIDs are closed. The goroutine that delivers events closes the IDs
// of requests to a closed ID.
func unused(t *testing.T) {
	t.Helper()
	rdmatest.UntilNot(t, "an ID is open", func() bool {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		return shared.ch != nil
	})
}

// open opens a channel.
func (k *fakeKernel) open(t testing.TB) *fakeChannel {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() }) // r is the channel's
	ch, err := newChannel(r)
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeChannel{EventChannel: ch, w: w}
	ch.write = func(fd uintptr, command []byte) error { return k.run(f, fd, command) }
	k.mu.Lock()
	defer k.mu.Unlock()
	var number uintptr
	ch.raw.Control(func(fd uintptr) { number = fd })
	k.channels[number] = f
	return f
}

// happen puts an event on the channel.
func (k *fakeKernel) happen(ch *fakeChannel, e uapi.RdmaUcmEventResp) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ch.events = append(ch.events, e)
	ch.w.Write([]byte{0})
}

// sharedChannel returns the channel behind SyncIDs.
func (k *fakeKernel) sharedChannel() *fakeChannel {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, ch := range k.channels {
		if ch.EventChannel == shared.ch {
			return ch
		}
	}
	return nil
}

// anID is an ID or a SyncID.
type anID interface{ core() *cmID }

func (id *cmID) core() *cmID { return id }

// request delivers a connection request to a listener, and returns the new ID's handle.
func (k *fakeKernel) request(ch *fakeChannel, listener anID) uint32 {
	k.mu.Lock()
	k.handles++
	handle := k.handles
	k.ids[handle] = 0
	k.mu.Unlock()
	k.happen(ch, uapi.RdmaUcmEventResp{Uid: listener.core().number, Event: uint32(EventConnectRequest), Id: handle})
	return handle
}

// given returns the body of the last command with the number.
func given[T any](t testing.TB, k *fakeKernel, number uint32) T {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	command := k.bodies[number]
	if command == nil {
		t.Fatalf("there was no command %d among %v", number, k.commands)
	}
	delete(k.bodies, number)
	return *body[T](command)
}

// has reports whether there is an ID with the handle.
func (k *fakeKernel) has(handle uint32) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.ids[handle]
	return ok
}

// body and answer return views of a command, and of the memory for its answer.
func body[T any](command []byte) *T {
	if len(command) != 8+int(unsafe.Sizeof(*new(T))) {
		panic("the command has another length")
	}
	if hdr := (*uapi.RdmaUcmCmdHdr)(unsafe.Pointer(&command[0])); int(hdr.In) != len(command)-8 {
		panic("the command's header has another length")
	}
	return (*T)(unsafe.Pointer(&command[8]))
}

func answer[T any](address uint64) *T {
	at := uintptr(address)
	return (*T)(*(*unsafe.Pointer)(unsafe.Pointer(&at)))
}

func (k *fakeKernel) run(ch *fakeChannel, fd uintptr, command []byte) error {
	number := (*uapi.RdmaUcmCmdHdr)(unsafe.Pointer(&command[0])).Cmd
	if number == uapi.RDMA_USER_CM_CMD_GET_EVENT {
		return k.getEvent(ch, fd, body[uapi.RdmaUcmGetEvent](command).Response)
	}
	k.mu.Lock()
	hook := k.hook
	k.commands = append(k.commands, number)
	k.bodies[number] = slices.Clone(command)
	k.mu.Unlock()
	if hook != nil {
		if err := hook(number, handleOf(number, command)); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch number {
	case uapi.RDMA_USER_CM_CMD_CREATE_ID:
		req := body[uapi.RdmaUcmCreateId](command)
		k.handles++
		k.ids[k.handles] = req.Uid
		answer[uapi.RdmaUcmCreateIdResp](req.Response).Id = k.handles
	case uapi.RDMA_USER_CM_CMD_JOIN_MCAST:
		req := body[uapi.RdmaUcmJoinMcast](command)
		k.handles++
		k.ids[k.handles], k.groups[k.handles] = req.Uid, req.Id
		answer[uapi.RdmaUcmCreateIdResp](req.Response).Id = k.handles
	case uapi.RDMA_USER_CM_CMD_DESTROY_ID, uapi.RDMA_USER_CM_CMD_LEAVE_MCAST:
		id := body[uapi.RdmaUcmDestroyId](command).Id
		if _, ok := k.ids[id]; !ok {
			return syscall.ENOENT
		}
		delete(k.ids, id)
		for group, of := range k.groups {
			if of == id {
				delete(k.ids, group)
			}
		}
	case uapi.RDMA_USER_CM_CMD_QUERY:
		if req := body[uapi.RdmaUcmQuery](command); k.query != nil {
			k.query(req.Option, req.Response)
		}
	case uapi.RDMA_USER_CM_CMD_MIGRATE_ID:
		req := body[uapi.RdmaUcmMigrateId](command)
		from := k.channels[uintptr(req.Fd)]
		uid := k.ids[req.Id]
		for _, e := range from.events {
			if e.Uid == uid {
				ch.events = append(ch.events, e)
				ch.w.Write([]byte{0})
			}
		}
		from.events = slices.DeleteFunc(from.events, func(e uapi.RdmaUcmEventResp) bool { return e.Uid == uid })
		k.mu.Unlock()
		for range 100 { // other goroutines may be faster than the one that has moved the ID
			runtime.Gosched()
		}
		k.mu.Lock()
	}
	return nil
}

// handleOf returns the handle of a command's ID, for the commands that tests use.
func handleOf(number uint32, command []byte) uint32 {
	switch number {
	case uapi.RDMA_USER_CM_CMD_DESTROY_ID, uapi.RDMA_USER_CM_CMD_LEAVE_MCAST:
		return body[uapi.RdmaUcmDestroyId](command).Id
	case uapi.RDMA_USER_CM_CMD_QUERY:
		return body[uapi.RdmaUcmQuery](command).Id
	case uapi.RDMA_USER_CM_CMD_MIGRATE_ID:
		return body[uapi.RdmaUcmMigrateId](command).Id
	}
	return 0
}

func (k *fakeKernel) getEvent(ch *fakeChannel, fd uintptr, address uint64) error {
	k.mu.Lock()
	hook := k.hook
	k.mu.Unlock()
	if hook != nil {
		if err := hook(uapi.RDMA_USER_CM_CMD_GET_EVENT, 0); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		if len(ch.events) > 0 {
			*answer[uapi.RdmaUcmEventResp](address) = ch.events[0]
			ch.events = ch.events[1:]
			return nil
		}
		var b [64]byte
		if n, err := unix.Read(int(fd), b[:]); err != nil {
			return err
		} else if n == 0 { // the test is over
			return syscall.EAGAIN
		}
	}
}
