package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// refuse makes the kernel answer a command with an error, the first time only.
func (k *fakeKernel) refuse(command uint32, err error) {
	var done atomic.Bool
	k.mu.Lock()
	defer k.mu.Unlock()
	k.commands = nil
	k.hook = func(number, _ uint32) error {
		if number == command && done.CompareAndSwap(false, true) {
			return err
		}
		return nil
	}
}

// TestListenFails: whichever step fails, the error says why, no step follows, and the
// kernel keeps no ID.
func TestListenFails(t *testing.T) {
	errControl := errors.New("control")
	const create, bind, listen, destroy = uapi.RDMA_USER_CM_CMD_CREATE_ID, uapi.RDMA_USER_CM_CMD_BIND, uapi.RDMA_USER_CM_CMD_LISTEN, uapi.RDMA_USER_CM_CMD_DESTROY_ID
	for _, test := range []struct {
		name    string
		refused uint32
		o       *Options
		want    error
		steps   []uint32
	}{
		{"create", create, nil, syscall.EACCES, []uint32{create}},
		{"control", 0, &Options{Control: func(*SyncID) error { return errControl }}, errControl, []uint32{create, destroy}},
		{"bind", bind, nil, syscall.EACCES, []uint32{create, bind, destroy}},
		{"listen", listen, nil, syscall.EACCES, []uint32{create, bind, uapi.RDMA_USER_CM_CMD_QUERY, listen, destroy}},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := newFakeKernel()
			k.share(t)
			if test.o == nil {
				k.refuse(test.refused, syscall.EACCES)
			}
			l, err := Listen(t.Context(), "tcp", "192.168.77.1:7", test.o)
			if l != nil || !errors.Is(err, test.want) {
				t.Errorf("%v, %v, want %v", l, err, test.want)
			}
			if !slices.Equal(k.commands, test.steps) || len(k.ids) != 0 {
				t.Errorf("the kernel was given the commands %v, want %v, and has %d IDs", k.commands, test.steps, len(k.ids))
			}
		})
	}
}

// TestListenerCloseWaits: when Close returns, no Decide runs any more.
func TestListenerCloseWaits(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	deciding := make(chan struct{})
	var decided atomic.Bool
	l := rdmatest.Must(Listen(t.Context(), "tcp", "192.168.77.1:7", &Options{
		Decide: func(ctx context.Context, _ Request) (*ConnParam, error) {
			close(deciding)
			<-ctx.Done()
			time.Sleep(10 * time.Millisecond) // longer than Close takes if it doesn't wait
			decided.Store(true)
			return nil, ctx.Err()
		},
	}))(t)
	request := k.request(k.sharedChannel(), l.ID())
	<-deciding
	rdmatest.Check(t, l.Close())
	if !decided.Load() {
		t.Error("Close returned while Decide ran")
	}
	if k.has(request) {
		t.Error("the kernel has the request's ID")
	}
}

// TestDisconnectWaits: Disconnect waits for the end unless the kernel refuses. If it can't wait,
// it returns the reason.
func TestDisconnectWaits(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	id := sharedID(t, PortSpaceTCP)
	id.bound.dev = &device{refs: 2}
	for _, answer := range []error{nil, syscall.EACCES} {
		ctx, cancel := context.WithCancel(t.Context())
		k.mu.Lock()
		k.hook = func(command, _ uint32) error {
			if command == uapi.RDMA_USER_CM_CMD_DISCONNECT {
				cancel()
				return answer
			}
			return nil
		}
		k.mu.Unlock()
		want := answer
		if want == nil {
			want = context.Canceled
		}
		var e *OpError
		if err := id.Disconnect(ctx); !errors.Is(err, want) || !errors.As(err, &e) || e.Op != opDisconnect {
			t.Errorf("the kernel answers %v: %v", answer, err)
		}
		cancel()
	}
}

// TestClosedChannel: on a channel that was closed there is neither a command nor a request.
func TestClosedChannel(t *testing.T) {
	k := newFakeKernel()
	ch, closed := k.open(t), k.open(t)
	closeAtEnd(t, ch)
	rdmatest.Check(t, closed.Close())
	f := newFrame()
	defer f.release()
	in[uapi.RdmaUcmConnect](f)
	if err := closed.run(uapi.RDMA_USER_CM_CMD_CONNECT, f); err != ErrClosed {
		t.Errorf("command: %v", err)
	}
	listener := rdmatest.Must(ch.CreateID(PortSpaceTCP))(t)
	closeAtEnd(t, listener)
	if id, err := listener.requested(closed.EventChannel, 77, &ConnParam{}); id != nil || err != ErrClosed {
		t.Errorf("request: %v, %v", id, err)
	}
}

// TestAttributesRefused: a QP isn't changed if the kernel refuses to return the attributes.
func TestAttributesRefused(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	id := sharedID(t, PortSpaceTCP)
	id.queues.qp = new(verbs.QP) // refuses any change, with another error
	defer func() { id.queues.qp = nil }()
	for name, step := range map[string]func() error{
		"INIT":            func() error { return id.doInitQP(id.queues.qp) },
		"RTR":             func() error { return id.doConnectQP(nil) },
		"RTR, when asked": func() error { id.asked = true; defer func() { id.asked = false }(); return id.doConnectQP(nil) },
	} {
		k.refuse(uapi.RDMA_USER_CM_CMD_INIT_QP_ATTR, syscall.EACCES)
		if err := step(); err != syscall.EACCES || len(k.commands) != 1 {
			t.Errorf("%s: %v after the commands %v", name, err, k.commands)
		}
	}
}

// TestPartsRefused: when a part of a QP or a connection can't be made, its error is returned, and
// nothing is made after it.
func TestPartsRefused(t *testing.T) {
	cq := new(verbs.CQ)
	for want, o := range map[string]verbs.QPOptions{
		"create completion channel": {RecvCQ: cq},
		"create QP":                 {SendCQ: cq, RecvCQ: cq},
	} {
		var q queues
		var e *verbs.OpError
		err := q.create(new(verbs.PD), o, verbs.RC)
		if !errors.As(err, &e) || e.Op != want || q.qp != nil || len(q.made) != 0 {
			t.Errorf("want %q: %v, and made %d", want, err, len(q.made))
		}
	}

	k := newFakeKernel()
	k.share(t)
	sharedID(t, PortSpaceTCP) // keeps the shared channel
	id := rdmatest.Must(CreateSyncID(PortSpaceTCP))(t)
	id.bound.dev = &device{refs: 2, ctx: new(verbs.Device)} // a closed device
	var e *verbs.OpError
	c, _, err := newConn(id, new(Transport), &Options{Messages: 1, MessageSize: 1}, nil)
	if c != nil || !errors.Is(err, verbs.ErrClosed) || !errors.As(err, &e) || e.Op != "query device" {
		t.Errorf("connection: %v, %v", c, err)
	}
	if k.has(id.handle) {
		t.Error("the kernel has the connection's ID")
	}
}

// TestGUIDZero: a device with an unconfigured GUID is a device like any other. Only without a port
// there is no device.
func TestGUIDZero(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	id := sharedID(t, PortSpaceTCP)
	var port uint8
	k.query = func(_ uint32, to uint64) {
		a := answer[uapi.RdmaUcmQueryAddrResp](to)
		a.PortNum, a.NodeGuid, a.IbdevIndex = port, 0, 7
	}
	key := deviceKey{index: 7}
	dev := &device{key: key, refs: 1} // this test's
	devices.Lock()
	devices.open[key] = dev
	devices.Unlock()
	defer func() {
		devices.Lock()
		defer devices.Unlock()
		delete(devices.open, key)
	}()
	for port = range uint8(2) {
		rdmatest.Check(t, id.addrResolved())
		if got := id.device() == dev; got != (port > 0) || id.Port() != int(port) {
			t.Errorf("port %d: the ID has the device: %v, and port %d", port, got, id.Port())
		}
	}
}

// TestDeviceFoundTwice: an ID whose device becomes known twice at once holds it once.
func TestDeviceFoundTwice(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	id := sharedID(t, PortSpaceTCP)
	local := netip.MustParseAddrPort("1.2.3.4:5")
	const guid, index = 0x7766554433221100, 7
	k.query = func(_ uint32, to uint64) {
		a := answer[uapi.RdmaUcmQueryAddrResp](to)
		a.PortNum, a.NodeGuid, a.IbdevIndex = 1, guid, index
		putAddr("test", &a.SrcAddr, local)
	}
	key := deviceKey{nodeGUID(guid), index}
	dev := &device{key: key, refs: 2} // the ID's, and this test's

	devices.Lock() // between the lookup of the device and its opening
	devices.open[key] = dev
	defer func() {
		devices.Lock()
		defer devices.Unlock()
		delete(devices.open, key)
	}()
	result := make(chan error)
	go func() { result <- id.addrResolved() }()
	rdmatest.UntilNot(t, "the ID has no address", func() bool {
		id.mu.Lock()
		defer id.mu.Unlock()
		if id.bound.src == local {
			id.bound.dev = dev
		}
		return id.bound.src != local
	})
	devices.Unlock()
	rdmatest.Check(t, <-result)
	devices.Lock()
	defer devices.Unlock()
	if dev.refs != 2 || id.device() != dev {
		t.Errorf("the device is held %d times, want 2", dev.refs)
	}
}
