package rdmacm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// TestClosedID: each method of a closed ID or SyncID returns ErrClosed, and passes no command
// to the kernel.
func TestClosedID(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	ch := k.open(t)
	closeAtEnd(t, ch)
	id, syncID := rdmatest.Must(ch.CreateID(PortSpaceTCP))(t), rdmatest.Must(CreateSyncID(PortSpaceTCP))(t)
	rdmatest.Check(t, id.Close())
	rdmatest.Check(t, syncID.Close())
	refusesAll(t, k, reflect.ValueOf(id))
	refusesAll(t, k, reflect.ValueOf(syncID))
}

func refusesAll(t *testing.T, k *fakeKernel, v reflect.Value) {
	t.Helper()
	other := k.open(t)
	closeAtEnd(t, other)
	k.mu.Lock()
	k.commands = nil
	k.mu.Unlock()
	to := netip.MustParseAddrPort("192.168.77.1:1")
	arguments := map[reflect.Type]any{
		reflect.TypeFor[context.Context](): t.Context(),
		reflect.TypeFor[netip.AddrPort]():  to,
		reflect.TypeFor[time.Duration]():   time.Second,
		reflect.TypeFor[*EventChannel]():   other.EventChannel,
		reflect.TypeFor[ECE]():             ECE{VendorID: 1},
		reflect.TypeFor[*ConnParam]():      &ConnParam{QPNum: 1},
		reflect.TypeFor[verbs.QPState]():   verbs.QPRTR,
	}
	asked := 0
	for i := range v.NumMethod() {
		m := v.Type().Method(i)
		n := m.Type.NumOut()
		if n == 0 || m.Type.Out(n-1) != reflect.TypeFor[error]() {
			continue
		}
		var args []reflect.Value
		for j := 1; j < m.Type.NumIn() && !(m.Type.IsVariadic() && j == m.Type.NumIn()-1); j++ {
			if a, ok := arguments[m.Type.In(j)]; ok {
				args = append(args, reflect.ValueOf(a))
			} else {
				args = append(args, reflect.Zero(m.Type.In(j)))
			}
		}
		asked++
		err, _ := v.Method(i).Call(args)[n-1].Interface().(error)
		switch {
		case m.Name == "Close":
			rdmatest.Check(t, err)
		case errors.Is(err, ErrInvalid): // the argument is checked first
		case !errors.Is(err, ErrClosed):
			t.Errorf("%v.%s: %v", v.Type(), m.Name, err)
		}
	}
	if asked < 20 {
		t.Errorf("%d methods", asked)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.commands) > 0 {
		t.Errorf("the kernel was given the commands %v", k.commands)
	}
}

// TestTokenStaysTaken: a call that gives up before it has the token leaves it to its
// holder.
func TestTokenStaysTaken(t *testing.T) {
	k := newFakeKernel()
	ch := k.open(t)
	closeAtEnd(t, ch)
	<-ch.token // another goroutine has the token
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ch.Event(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if len(ch.token) != 0 {
		t.Error("there are two tokens")
	}
	ch.token <- struct{}{}
}

// TestUnknownDevice: if this process doesn't find the device of a resolved address, the ID
// has no device, and the error says so.
func TestUnknownDevice(t *testing.T) {
	k := newFakeKernel()
	ch := k.open(t)
	closeAtEnd(t, ch)
	id := rdmatest.Must(ch.CreateID(PortSpaceTCP))(t)
	closeAtEnd(t, id)
	local, remote := netip.MustParseAddrPort("1.2.3.4:5"), netip.MustParseAddrPort("6.7.8.9:10")
	k.query = func(option uint32, to uint64) {
		a := answer[uapi.RdmaUcmQueryAddrResp](to)
		a.PortNum, a.NodeGuid, a.IbdevIndex = 1, 0x7766554433221100, noIndex
		putAddr("test", &a.SrcAddr, local)
		putAddr("test", &a.DstAddr, remote)
	}
	if err := id.doAddrResolved(); err == nil {
		t.Error("found")
	}
	if id.device() != nil || id.Device() != nil {
		t.Error("the ID has a device")
	}
	if id.bound.src != local || id.bound.dst != remote {
		t.Errorf("bound to %v and %v", id.bound.src, id.bound.dst)
	}
}

// TestDialTriesAll: if one address can't be reached, the next is tried, and the first
// error is returned.
func TestDialTriesAll(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	sharedID(t, PortSpaceTCP) // keeps the shared channel
	var errnos []error
	var families []uint16
	k.mu.Lock()
	k.hook = func(command, _ uint32) error {
		if command != uapi.RDMA_USER_CM_CMD_RESOLVE_ADDR {
			return nil
		}
		k.mu.Lock()
		req := *body[uapi.RdmaUcmResolveAddr](k.bodies[command])
		k.mu.Unlock()
		families = append(families, req.DstAddr.SsFamily)
		err := errnos[0]
		errnos = errnos[1:]
		return err
	}
	k.mu.Unlock()
	errnos = []error{syscall.ENETUNREACH, syscall.EHOSTUNREACH}
	_, err := Dial(patient(t), "tcp", ":7", nil)
	if !errors.Is(err, syscall.ENETUNREACH) || len(errnos) != 0 {
		t.Errorf("%v, and %d are not tried", err, len(errnos))
	}
	if want := []uint16{syscall.AF_INET, syscall.AF_INET6}; !slices.Equal(families, want) {
		t.Errorf("tried families %v, want %v", families, want)
	}
	// A cancelled Dial doesn't try the other addresses.
	ctx, cancel := context.WithCancel(patient(t))
	defer cancel()
	k.mu.Lock()
	k.hook = func(command, _ uint32) error {
		if command == uapi.RDMA_USER_CM_CMD_RESOLVE_ADDR {
			families = append(families, 0)
			cancel()
			return syscall.ENETUNREACH
		}
		return nil
	}
	k.mu.Unlock()
	families = nil
	if _, err := Dial(ctx, "tcp", ":7", nil); !errors.Is(err, syscall.ENETUNREACH) || len(families) != 1 {
		t.Errorf("given up: %v after %d", err, len(families))
	}
}

// TestLookupFails: a name that is not found is an error.
func TestLookupFails(t *testing.T) {
	bad := errors.New("no server")
	r := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, bad }}
	addrs, err := (&Hints{}).lookup(t.Context(), r, "test", "name.invalid")
	if addrs != nil || err == nil || !strings.HasPrefix(err.Error(), "rdmacm: test") {
		t.Errorf("%v, %v", addrs, err)
	}
}

// TestNothingInUse: a call that ends leaves nothing of the connection in use, so that
// Close doesn't wait for it.
func TestNothingInUse(t *testing.T) {
	f := newFakeConn(t, 1, 8)
	f.endLife(ErrDisconnected)
	var b [8]byte
	for name, call := range map[string]func() error{
		"Send":      func() error { return f.Send(t.Context(), b[:1]) },
		"Recv":      func() error { _, err := f.Recv(t.Context(), b[:]); return err },
		"WaitSends": func() error { _, err := f.WaitSends(t.Context(), make([]verbs.WC, 1)); return err },
		"WaitRecvs": func() error { _, err := f.WaitRecvs(t.Context(), make([]verbs.WC, 1)); return err },
	} {
		if err := call(); err == nil {
			t.Errorf("%s: no error after the end", name)
		}
		if !f.use.TryLock() {
			t.Errorf("%s leaves the connection in use", name)
			f.use.RUnlock()
			continue
		}
		f.use.Unlock()
	}
}

// TestClosedConn: no method uses the objects of a closed Conn.
func TestClosedConn(t *testing.T) {
	newFakeKernel().share(t)
	c := connected(t)
	c.messages = new(messages) // it would panic
	rdmatest.Check(t, c.Close())
	var b [8]byte
	if err := c.Send(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Send: %v", err)
	}
	if _, err := c.Recv(t.Context(), b[:]); !errors.Is(err, ErrClosed) {
		t.Errorf("Recv: %v", err)
	}
}

// TestOneOfEach: an ID has one QP and one SRQ of its own.
func TestOneOfEach(t *testing.T) {
	newFakeKernel().share(t)
	id := sharedID(t, PortSpaceTCP)
	id.bound.dev = &device{refs: 2}
	id.queues.qp, id.srq = new(verbs.QP), new(verbs.SRQ)
	for want, call := range map[string]func() error{
		"create QP":  func() error { _, err := id.CreateQP(new(verbs.PD), verbs.QPOptions{}); return err },
		"create SRQ": func() error { _, err := id.CreateSRQ(new(verbs.PD), verbs.SRQOptions{}); return err },
	} {
		var e *OpError
		if err := call(); !errors.Is(err, ErrInvalid) || !errors.As(err, &e) || e.Op != want || !strings.Contains(err.Error(), "the ID has a") {
			t.Errorf("%s: %v", want, err)
		}
	}
	id.queues.qp, id.srq = nil, nil
	rdmatest.Check(t, (*ID)(nil).Close())
	rdmatest.Check(t, (*SyncID)(nil).Close())
}
