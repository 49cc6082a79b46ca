package rdmacm

import (
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbstest"
)

// host is the address of package verbstest's first device.
const host = "192.0.2.1"

var hostAddr = netip.MustParseAddrPort(host + ":0")

// TestNoFile: a client for which this side has no file left is rejected, and the reason is told. Later clients are
// served.
func TestNoFile(t *testing.T) {
	n := verbstest.New(t)
	once := func() {
		var done sync.Once
		n.SetRefusal(func(command string) (errno syscall.Errno) {
			if command == "open uverbs1" {
				done.Do(func() { errno = syscall.EMFILE })
			}
			return errno
		})
	}
	from := &Options{LocalAddr: hostAddr}
	type refusal struct {
		from Addr
		err  error
	}
	refused := make(chan refusal, 1)
	l := rdmatest.Must(Listen(t.Context(), "tcp", ":0", &Options{Refused: func(r Request, err error) { refused <- refusal{r.RemoteAddr, err} }}))(t)
	to := netip.AddrPortFrom(n.Device(1).Addr(), l.ID().LocalAddr().Port()).String()
	once()
	if _, err := Dial(patient(t), "tcp", to, from); !errors.Is(err, ErrRejected) {
		t.Errorf("the client: %v", err)
	}
	select {
	case r := <-refused:
		if r.from.addr.Addr() != hostAddr.Addr() || !errors.Is(r.err, syscall.EMFILE) || !errors.Is(r.err, ErrConnect) {
			t.Errorf("refused: %v, %v", r.from, r.err)
		}
	case <-time.After(rdmatest.Patience):
		t.Error("nobody is told")
	}
	c := rdmatest.Must(Dial(patient(t), "tcp", to, from))(t)
	rdmatest.Check(t, rdmatest.Must(l.Accept(patient(t)))(t).Close())
	rdmatest.Check(t, c.Close())
	rdmatest.Check(t, l.Close())

	// On a channel, too.
	ch := rdmatest.Must(NewEventChannel())(t)
	id := rdmatest.Must(ch.CreateID(PortSpaceTCP))(t)
	rdmatest.Check(t, id.Listen(1))
	to = netip.AddrPortFrom(n.Device(1).Addr(), id.LocalAddr().Port()).String()
	once()
	dialled := make(chan error)
	go func() {
		_, err := Dial(patient(t), "tcp", to, from)
		dialled <- err
	}()
	if e := rdmatest.Must(ch.Event(patient(t)))(t); e.ID != id || e.Type != EventConnectError || !errors.Is(e.Err(), syscall.EMFILE) {
		t.Errorf("%v for %p, %v", e.Type, e.ID, e.Err())
	}
	if err := <-dialled; !errors.Is(err, ErrRejected) {
		t.Errorf("the client: %v", err)
	}
	rdmatest.Check(t, id.Close())
	rdmatest.Check(t, ch.Close())
}

// TestDeviceStays: a device whose end the kernel refuses is closed later.
func TestDeviceStays(t *testing.T) {
	n := verbstest.New(t)
	var refusals int
	n.SetRefusal(func(command string) syscall.Errno {
		if command != "dealloc_pd" || refusals == 5 {
			return 0
		}
		refusals++
		return syscall.ENOMEM
	})
	id := rdmatest.Must(CreateSyncID(PortSpaceTCP))(t)
	rdmatest.Check(t, id.Bind(hostAddr))
	if err := id.Close(); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("the kernel refuses, and Close returns %v", err)
	}
	rdmatest.Check(t, id.Close())
	for start := time.Now(); len(n.Left()) > 0; time.Sleep(time.Millisecond) {
		if time.Since(start) > rdmatest.Patience {
			t.Fatalf("there are %v", n.Left())
		}
	}
}

// TestSetupStays: what is left of a setup that has failed, because the kernel refuses to destroy it, is destroyed
// later.
func TestSetupStays(t *testing.T) {
	n := verbstest.New(t)
	errPrepare := errors.New("prepare")
	for name, refused := range map[string]string{"Dial": "rdma_connect", "Prepare": "", "Listener": "rdma_accept"} {
		var mu sync.Mutex
		var destroys int
		n.SetRefusal(func(command string) syscall.Errno {
			mu.Lock()
			defer mu.Unlock()
			if command == "destroy_qp" {
				destroys++
			}
			if command == refused || command == "destroy_qp" && destroys <= 2 {
				return syscall.ENOMEM
			}
			return 0
		})
		o := &Options{}
		if refused == "" {
			o.Prepare = func(*Conn, *ConnParam) error { return errPrepare }
		}
		l := rdmatest.Must(Listen(t.Context(), "tcp", host+":0", nil))(t)
		if _, err := Dial(patient(t), "tcp", l.Addr().String(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
		rdmatest.Check(t, l.Close())
		for start := time.Now(); len(n.Left()) > 0; time.Sleep(time.Millisecond) {
			if time.Since(start) > rdmatest.Patience {
				t.Fatalf("%s: there are %v", name, n.Left())
			}
		}
		n.SetRefusal(nil)
	}
}
