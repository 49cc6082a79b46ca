package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// host is the address of package verbstest's first device.
const host = "192.0.2.1"

var hostAddr = netip.MustParseAddrPort(host + ":0")

// A setup is one run of a way to make connections. It collects the errors of its calls.
type setup struct {
	t       *testing.T
	ctx     context.Context
	cancel  context.CancelFunc // after a failure, so that the other side doesn't wait
	serving sync.WaitGroup

	mu   sync.Mutex
	errs []error
}

// ok records an error, and ends all waits. It reports whether err is nil.
func (s *setup) ok(what string, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("%s: %w", what, err))
		s.cancel()
	}
	return err == nil
}

// all takes steps until one fails.
func (s *setup) all(steps ...func() error) bool {
	for i, step := range steps {
		if !s.ok(fmt.Sprintf("step %d", i), step()) {
			return false
		}
	}
	return true
}

// end closes an object. If Close is refused, the second Close succeeds.
func (s *setup) end(c io.Closer) {
	s.t.Helper()
	if !s.ok(fmt.Sprintf("close %T", c), c.Close()) {
		if err := c.Close(); err != nil {
			s.t.Errorf("close %T again: %v", c, err)
		}
	}
}

// made returns a step that makes an object and stores it.
func made[T any](keep *T, make func() (T, error)) func() error {
	return func() (err error) {
		v, err := make()
		if err == nil {
			*keep = v
		}
		return err
	}
}

// pair listens and dials, makes both ends play their parts, and closes all objects.
func (s *setup) pair(t *Transport, o Options, serve, call func(*Conn) bool) {
	o.Refused = func(_ Request, err error) { s.ok("refused", err) }
	l, err := t.Listen(s.ctx, "tcp", host+":0", &o)
	if !s.ok("listen", err) {
		return
	}
	defer s.serving.Wait()
	defer s.end(l)
	accepted := make(chan struct{})
	s.serving.Go(func() {
		c, err := l.Accept(s.ctx)
		if !errors.Is(err, ErrClosed) && s.ok("accept", err) {
			close(accepted)
			serve(c)
			s.end(c)
		}
	})
	if c, err := t.Dial(s.ctx, "tcp", l.Addr().String(), &o); s.ok("dial", err) {
		select {
		case <-accepted: // the Listener ends the other connections without a report
		case <-s.ctx.Done():
		}
		call(c)
		s.end(c)
	}
}

// listen listens with a SyncID, and makes serve answer the first request.
func (s *setup) listen(ps PortSpace, serve func(*Event), call func(to netip.AddrPort)) {
	id, err := CreateSyncID(ps)
	if !s.ok("create listener", err) {
		return
	}
	defer s.end(id)
	if !s.all(func() error { return id.Bind(hostAddr) }, func() error { return id.Listen(1) }) {
		return
	}
	s.serving.Go(func() {
		if e, err := id.Request(s.ctx); s.ok("request", err) {
			serve(e)
			s.end(e.SyncID)
		}
	})
	defer s.serving.Wait()
	call(id.LocalAddr())
}

// reached makes a SyncID with a route to an address.
func (s *setup) reached(ps PortSpace, to netip.AddrPort, call func(*SyncID)) {
	id, err := CreateSyncID(ps)
	if !s.ok("create", err) {
		return
	}
	defer s.end(id)
	if s.all(
		func() error { return id.ResolveAddr(s.ctx, netip.AddrPort{}, to, time.Minute) },
		func() error { return id.ResolveRoute(s.ctx, time.Minute) },
	) {
		call(id)
	}
}

var oneOfEach = verbs.QPOptions{Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}

// accepts answers a request with a QP of the connection manager's, and waits for the end of the connection.
func (s *setup) accepts(e *Event) {
	id := e.SyncID
	_ = s.all(
		func() error { _, err := id.CreateSRQ(nil, verbs.SRQOptions{MaxWR: 1, MaxSGE: 1}); return err },
		func() error { _, err := id.CreateQP(nil, oneOfEach); return err },
		func() error { return id.Accept(s.ctx, nil) },
	) && id.QPType() == verbs.RC && s.all(func() error { _, err := id.Event(s.ctx); return err })
}

// gone waits until the peer ends a connection.
func (s *setup) gone(c *Conn) bool {
	<-c.Done()
	if err := c.Err(); !errors.Is(err, ErrDisconnected) {
		return s.ok("peer", err)
	}
	return true
}

// exchange plays two ends that exchange messages.
func (s *setup) exchange(t *Transport, o Options) {
	s.pair(t, o, func(c *Conn) bool {
		b := make([]byte, 8)
		return s.all(
			func() error { _, err := c.Recv(s.ctx, b); return err },
			func() error { return c.Send(s.ctx, b) },
		) && s.gone(c)
	}, func(c *Conn) bool {
		b := make([]byte, 8)
		return s.all(
			func() error { return c.Send(s.ctx, b) },
			func() error { _, err := c.Recv(s.ctx, b); return err },
			func() error { return c.Flush(s.ctx) },
			func() error { return c.Drain(s.ctx) },
		)
	})
}

// shared opens the objects that a Transport is to share.
func (s *setup) shared(with func(dev *verbs.Device, pd *verbs.PD)) {
	dev, err := verbs.Open("vt0")
	if !s.ok("open", err) {
		return
	}
	defer s.end(dev)
	if pd, err := dev.AllocPD(); s.ok("alloc PD", err) {
		defer s.end(pd)
		with(dev, pd)
	}
}

// setups are the ways to make and to end connections.
var setups = map[string]func(*setup){
	"messages": func(s *setup) { s.exchange(new(Transport), Options{Messages: 1, MessageSize: 8}) },
	"own requests": func(s *setup) {
		o := Options{Messages: None, Cap: oneOfEach.Cap}
		o.Control = func(id *SyncID) error { return id.SetTOS(1) }
		o.Prepare = func(c *Conn, _ *ConnParam) error {
			mr, err := c.PD().AllocMR(8, verbs.MROptions{})
			if err == nil {
				c.Own(mr)
				_, err = c.QP().PostRecv(verbs.RecvWR{})
			}
			return err
		}
		wait := func(cq *verbs.CQ) func() error {
			return func() error { _, err := cq.PollWait(s.ctx, make([]verbs.WC, 1)); return err }
		}
		s.pair(new(Transport), o, func(c *Conn) bool { return s.all(wait(c.RecvCQ())) && s.gone(c) }, func(c *Conn) bool {
			return s.all(func() error {
				_, err := c.QP().PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled})
				return err
			}, wait(c.SendCQ()))
		})
	},
	"shared pool": func(s *setup) {
		s.shared(func(_ *verbs.Device, pd *verbs.PD) {
			if pool, err := pd.NewBufferPool(verbs.BufferPoolOptions{Access: verbs.AccessLocalWrite}); s.ok("pool", err) {
				s.exchange(&Transport{PD: pd, Pool: pool}, Options{Messages: 1, MessageSize: 8})
				s.end(pool)
			}
		})
	},
	"shared queues": func(s *setup) {
		s.shared(func(dev *verbs.Device, pd *verbs.PD) {
			var t Transport
			if s.all(
				made(&t.SendCQ, func() (*verbs.CQ, error) { return dev.CreateCQ(verbs.CQOptions{MaxCQE: 4}) }),
				made(&t.RecvCQ, func() (*verbs.CQ, error) { return dev.CreateCQ(verbs.CQOptions{MaxCQE: 4}) }),
				made(&t.SRQ, func() (*verbs.SRQ, error) { return pd.CreateSRQ(verbs.SRQOptions{MaxWR: 4, MaxSGE: 1}) }),
			) {
				t.PD = pd
				s.pair(&t, Options{Messages: None}, s.gone, func(*Conn) bool { return true })
			}
			for _, c := range []io.Closer{t.SRQ, t.RecvCQ, t.SendCQ} {
				s.end(c)
			}
		})
	},
	"find device": func(s *setup) {
		if dev, err := FindDevice(s.ctx, "tcp", host+":1"); s.ok("find", err) {
			s.end(dev)
		}
	},
	"not accepted": func(s *setup) {
		refused := func(_ Request, err error) { s.ok("refused", err) }
		l, err := Listen(s.ctx, "tcp", host+":0", &Options{Refused: refused})
		if !s.ok("listen", err) {
			return
		}
		defer s.end(l)
		if c, err := Dial(s.ctx, "tcp", l.Addr().String(), nil); s.ok("dial", err) {
			s.end(c)
		}
	},
	"rejected": func(s *setup) {
		s.listen(PortSpaceTCP, func(e *Event) { s.ok("reject", e.SyncID.Reject([]byte("no"))) }, func(to netip.AddrPort) {
			s.reached(PortSpaceTCP, to, func(id *SyncID) {
				s.all(
					func() error { _, err := id.CreateQP(nil, oneOfEach); return err },
					func() error {
						_, err := id.Connect(s.ctx, nil)
						if errors.Is(err, ErrRejected) {
							err = nil
						}
						return err
					},
				)
			})
		})
	},
	"SyncID": func(s *setup) {
		s.listen(PortSpaceTCP, s.accepts, func(to netip.AddrPort) {
			s.reached(PortSpaceTCP, to, func(id *SyncID) {
				s.all(
					func() error { _, err := id.QueryAddr(); return err },
					func() error { _, err := id.QueryGID(); return err },
					func() error { _, err := id.QueryPath(); return err },
					func() error { _, err := id.CreateSRQ(nil, verbs.SRQOptions{MaxWR: 1, MaxSGE: 1}); return err },
					func() error { _, err := id.CreateQP(nil, oneOfEach); return err },
					func() error { _, err := id.Connect(s.ctx, nil); return err },
					func() error { return id.Disconnect(s.ctx) },
					id.DestroyQP,
					id.DestroySRQ,
				)
			})
		})
	},
	"own QP": func(s *setup) {
		s.listen(PortSpaceTCP, s.accepts, func(to netip.AddrPort) {
			s.reached(PortSpaceTCP, to, func(id *SyncID) {
				var cq *verbs.CQ
				var qp *verbs.QP
				move := func(state verbs.QPState) func() error {
					return func() error {
						a, mask, err := id.InitQPAttr(state)
						if err == nil {
							err = qp.Modify(a, mask)
						}
						return err
					}
				}
				s.all(
					made(&cq, func() (*verbs.CQ, error) { return id.Device().CreateCQ(verbs.CQOptions{MaxCQE: 2}) }),
					made(&qp, func() (*verbs.QP, error) {
						o := oneOfEach
						o.Type, o.SendCQ, o.RecvCQ = verbs.RC, cq, cq
						return id.PD().CreateQP(o)
					}),
					move(verbs.QPInit),
					func() error { _, err := id.Connect(s.ctx, &ConnParam{QPNum: qp.Num()}); return err },
					move(verbs.QPRTR),
					move(verbs.QPRTS),
					id.Establish,
				)
				s.end(qp)
				s.end(cq)
			})
		})
	},
	"channels": func(s *setup) {
		s.listen(PortSpaceTCP, s.accepts, func(to netip.AddrPort) {
			var first, second *EventChannel
			var id *ID
			var sync *SyncID
			next := func(ch **EventChannel, want EventType) func() error {
				return func() error {
					e, err := (*ch).Event(s.ctx)
					if err == nil {
						err = e.Err()
					}
					if err == nil && e.Type != want {
						err = fmt.Errorf("event %v, want %v", e.Type, want)
					}
					return err
				}
			}
			s.all(
				made(&first, NewEventChannel),
				made(&second, NewEventChannel),
				made(&id, func() (*ID, error) { return first.CreateID(PortSpaceTCP) }),
				func() error { return id.ResolveAddr(netip.AddrPort{}, to, time.Minute) },
				next(&first, EventAddrResolved),
				func() error { return id.Migrate(second) },
				func() error { return id.ResolveRoute(time.Minute) },
				next(&second, EventRouteResolved),
				func() error { _, err := id.CreateQP(nil, oneOfEach); return err },
				made(&sync, func() (*SyncID, error) { return id.MigrateSync() }),
				func() error { _, err := sync.Connect(s.ctx, nil); return err },
				func() error { _, err := sync.Migrate(first); return err },
				func() error { return id.Disconnect() },
				next(&first, EventDisconnected),
			)
			for _, c := range []io.Closer{id, second, first} {
				s.end(c)
			}
		})
	},
	"datagrams": func(s *setup) {
		group := netip.MustParseAddr("224.1.1.1")
		s.listen(PortSpaceUDP, s.accepts, func(to netip.AddrPort) {
			s.reached(PortSpaceUDP, to, func(id *SyncID) {
				var mc *Multicast
				s.all(
					func() error { _, err := id.CreateQP(nil, oneOfEach); return err },
					func() error { _, err := id.Connect(s.ctx, nil); return err },
					made(&mc, func() (*Multicast, error) {
						mc, _, err := id.JoinMulticast(s.ctx, group, JoinFullMember)
						return mc, err
					}),
					func() error { return id.LeaveMulticast(mc) },
					made(&mc, func() (*Multicast, error) {
						mc, _, err := id.JoinMulticast(s.ctx, group, JoinFullMember)
						return mc, err
					}),
				)
			})
		})
	},
}

// silent has further commands whose refusal goes unreported.
var silent = map[string]map[string]int{
	// If the address can't be bound, the route to it leads to the device.
	"find device": {"open uverbs0": 1, "get_context": 1, "query_device_ex": 1, "alloc_async_fd": 1, "alloc_pd": 1, "dealloc_pd": 1, "rdma_bind": 1, "rdma_query": 1},
	// The request was rejected already.
	"rejected": {"modify_qp": 2},
	// The client's objects have been closed.
	"not accepted": {"dealloc_pd": 2, "destroy_cq": 3, "destroy_qp": 2, "dereg_mr": 2},
}

// TestFailingSteps: an error at each step of each way to make and to end connections. The call that takes the
// step fails, or else its peer's. A second Close succeeds if the first one failed, nothing is left, and the
// next connection works.
func TestFailingSteps(t *testing.T) {
	n := verbstest.New(t)
	for name, run := range setups {
		t.Run(name, func(t *testing.T) {
			steps := rdmatest.FailingSteps{
				Run: func() error {
					s := &setup{t: t}
					s.ctx, s.cancel = context.WithTimeout(t.Context(), rdmatest.Patience)
					defer s.cancel()
					run(s)
					return errors.Join(s.errs...)
				},
				Held:  inUse,
				Never: []string{"rdma_destroy_id"},
				// The connection is over, or nobody has it any more.
				Silent: map[string]int{"rdma_disconnect": 1, "modify_qp": 7, "req_notify_cq": 3},
				// The peer's, which may be the first to fail. A QP that can't leave its group is busy.
				Others: []error{ErrRejected, ErrDisconnected, io.EOF, ErrBusy},
			}
			maps.Copy(steps.Silent, silent[name])
			rdmatest.Check(t, steps.Run()) // the runtime opens what it needs once
			ended := rdmatest.NothingMore(t)
			steps.Test(t, n)
			ended()
		})
	}
}

// inUse lists all objects of this package.
func inUse() (all []string) {
	devices.Lock()
	for key, d := range devices.open {
		all = append(all, fmt.Sprintf("a device %v with %d IDs", key, d.refs))
	}
	devices.Unlock()
	readers.Lock()
	all = append(all, fmt.Sprintf("%d readers", len(readers.of)))
	readers.Unlock()
	registry.mu.RLock()
	all = append(all, fmt.Sprintf("%d IDs and groups", len(registry.of)))
	registry.mu.RUnlock()
	shared.mu.Lock()
	if shared.ch != nil {
		all = append(all, "the shared channel")
	}
	shared.mu.Unlock()
	return all
}

// TestNoFile: a client for which this side has no file descriptor left is rejected, and the reason is
// reported. Later clients are served.
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
		t.Error("Refused is never called")
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
	rdmatest.Until(t, func() string { return strings.Join(n.Left(), ", ") })
}

// TestSetupStays: objects of a failed setup that the kernel refuses to destroy are destroyed later.
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
		rdmatest.UntilNot(t, name+": not all objects are closed", func() bool { return len(n.Left()) > 0 })
		n.SetRefusal(nil)
	}
}

// TestDoneNotArmed: if the kernel refuses to report completions, the connection ends, because nothing would
// notice its end.
func TestDoneNotArmed(t *testing.T) {
	n := verbstest.New(t)
	l := rdmatest.Must(Listen(t.Context(), "tcp", host+":0", nil))(t)
	c := rdmatest.Must(Dial(patient(t), "tcp", l.Addr().String(), nil))(t)
	n.SetRefusal(func(command string) syscall.Errno {
		if command == "req_notify_cq" {
			return syscall.ENOMEM
		}
		return 0
	})
	select {
	case <-c.Done():
	case <-time.After(rdmatest.Patience):
		t.Error("it goes on")
	}
	if err := c.Err(); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("it has ended with %v", err)
	}
	n.SetRefusal(nil)
	rdmatest.Check(t, c.Close())
	rdmatest.Check(t, l.Close())
}
