package verbs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var canceled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// TestEvents: an event names its object or its port, comes once however often it came
// before it was fetched, and isn't lost when nobody waits.
func TestEvents(t *testing.T) {
	c, k := fakeContext(t)
	x := makeFakes(t, c)
	for range 3 {
		k.event(EventQPFatal, x.qp.id)
		k.event(EventCommEst, x.qp.id)
		k.event(EventCQErr, x.cq.id)
		k.event(EventSRQLimitReached, x.srq.id)
		k.event(EventPortErr, 2)
	}
	k.event(EventQPFatal, 1<<40)   // nobody's
	k.event(EventQPFatal, x.cq.id) // no QP's
	k.event(EventPortErr, 1)       // the last one
	var got []AsyncEvent
	for len(got) == 0 || got[len(got)-1].Port != 1 {
		e, err := c.AsyncEvent(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	times := make(map[AsyncEvent]int)
	for _, e := range got {
		times[e]++
	}
	for _, want := range []AsyncEvent{
		{Type: EventQPFatal, QP: x.qp},
		{Type: EventCommEst, QP: x.qp},
		{Type: EventCQErr, CQ: x.cq},
		{Type: EventSRQLimitReached, SRQ: x.srq},
		{Type: EventPortErr, Port: 2},
		{Type: EventPortErr, Port: 1},
	} {
		if n := times[want]; n < 1 || n > 3 {
			t.Errorf("%+v came %d times", want, n)
		}
		delete(times, want)
	}
	if len(times) > 0 {
		t.Errorf("these came, too: %+v", times)
	}
	if _, err := c.AsyncEvent(canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// TestEventsInOrder: events are kept in their order, each once.
func TestEventsInOrder(t *testing.T) {
	var q events
	q.init()
	qp, cq, srq := new(QP), new(CQ), new(SRQ)
	list := []AsyncEvent{
		{Type: EventPortErr, Port: 1}, {Type: EventQPFatal, QP: qp}, {Type: EventCommEst, QP: qp},
		{Type: EventCQErr, CQ: cq}, {Type: EventSRQErr, SRQ: srq}, {Type: EventDeviceFatal},
	}
	for range 2 {
		for _, e := range list {
			q.add(e)
		}
	}
	q.forget(qp)
	for _, want := range []AsyncEvent{list[0], list[3], list[4], list[5]} {
		if len(q.more) != 1 {
			t.Fatal("nobody is told that there is more")
		}
		<-q.more
		if e, ok := q.take(); !ok || e != want {
			t.Errorf("%+v, want %+v", e, want)
		}
	}
	q.add(AsyncEvent{Type: EventDeviceFatal})
	if e, ok := q.take(); ok || len(q.more) != 0 {
		t.Errorf("%+v is left", e)
	}
	for _, e := range list[3:5] {
		q.add(e)
	}
	q.forget(cq)
	q.forget(srq)
	if e, ok := q.take(); ok {
		t.Errorf("%+v is left", e)
	}
}

// TestEventOfClosed: of an object that was closed no event is reported; one that was
// reported before still says which object it was.
func TestEventOfClosed(t *testing.T) {
	c, k := fakeContext(t)
	x := makeFakes(t, c)
	k.event(EventQPFatal, x.qp.id)
	e, err := c.AsyncEvent(t.Context())
	if err != nil || e.QP != x.qp {
		t.Fatalf("%+v, %v", e, err)
	}
	number := x.qp.Num()
	k.event(EventCommEst, x.qp.id)
	k.event(EventPortErr, 1)
	yield(func() bool { // until both have been read
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.events.list) == 2
	})
	if err := x.qp.Close(); err != nil {
		t.Fatal(err)
	}
	if n := e.QP.Num(); n != number || n == 0 {
		t.Errorf("the closed QP's number is %d, was %d", n, number)
	}
	if e, err := c.AsyncEvent(t.Context()); err != nil || e != (AsyncEvent{Type: EventPortErr, Port: 1}) {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestOverrun: those who poll and wait learn that completions are lost, though nobody
// asks for events.
func TestOverrun(t *testing.T) {
	c, k := fakeContext(t)
	x := makeFakes(t, c)
	done := make(chan error)
	for range 3 {
		go func() {
			_, err := x.cq.PollWait(t.Context(), make([]WC, 1))
			done <- err
		}()
	}
	yield(func() bool { return x.cq.waiters.Load() == 3 })
	other := must(c.CreateCQ(CQOptions{MaxCQE: 1, Timestamps: true}))(t)
	k.event(EventCQErr, x.cq.id)
	for range 3 {
		if err := <-done; !errors.Is(err, ErrCQOverrun) {
			t.Errorf("waiting: %v", err)
		}
	}
	// What came before is not lost.
	c.prov.(*fakeProvider).cqs[0].ready = 3
	for name, poll := range map[string]func(*CQ) (int, error){
		"Poll":      func(cq *CQ) (int, error) { return cq.Poll(make([]WC, 1)) },
		"PollTimed": func(cq *CQ) (int, error) { return cq.PollTimed(make([]WC, 1), make([]uint64, 1)) },
		"poll":      func(cq *CQ) (int, error) { return cq.poll(make([]WC, 1)) },
	} {
		if n, err := poll(x.cq); n != 1 || err != nil {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		if n, err := poll(other); n != 0 || err != nil {
			t.Errorf("%s of another CQ: %d, %v", name, n, err)
		}
	}
	for name, poll := range map[string]func() (int, error){
		"Poll":      func() (int, error) { return x.cq.Poll(make([]WC, 1)) },
		"PollTimed": func() (int, error) { return x.cq.PollTimed(make([]WC, 1), make([]uint64, 1)) },
		"poll":      func() (int, error) { return x.cq.poll(make([]WC, 1)) },
		"PollWait":  func() (int, error) { return x.cq.PollWait(t.Context(), make([]WC, 1)) },
	} {
		if n, err := poll(); n != 0 || !errors.Is(err, ErrCQOverrun) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
}

// TestDeviceFatal: all are told that the device is broken, those who poll too, and
// its objects close though the kernel refuses to destroy them.
func TestDeviceFatal(t *testing.T) {
	for name, tell := range map[string]func(*Device, *fakeKernel){
		"event":       func(_ *Device, k *fakeKernel) { k.event(EventDeviceFatal, 0) },
		"end of file": func(_ *Device, k *fakeKernel) { k.events.Close() },
		"watch":       func(c *Device, _ *fakeKernel) { c.deviceGone() },
		"failed calls": func(c *Device, k *fakeKernel) {
			k.answerTo("alloc_pd", refuse(unix.EIO))
			k.answerTo("query_device", refuse(unix.EIO))
			if _, err := c.AllocPD(); !errors.Is(err, ErrDeviceRemoved) || !errors.Is(err, unix.EIO) {
				k.t.Errorf("the call that finds out: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, k := fakeContext(t)
			x := makeFakes(t, c)
			x.qp.setState(QPRTS)
			waits := make(chan error)
			go func() { _, err := x.cq.PollWait(t.Context(), make([]WC, 1)); waits <- err }()
			yield(func() bool { return x.cq.waiters.Load() == 1 })
			first := make(chan AsyncEvent)
			go func() {
				e, err := c.AsyncEvent(t.Context())
				if err != nil {
					t.Error(err)
				}
				first <- e
			}()
			tell(c, k)
			if e := <-first; e != (AsyncEvent{Type: EventDeviceFatal}) {
				t.Errorf("the event is %+v", e)
			}
			if err := <-waits; !errors.Is(err, ErrDeviceRemoved) {
				t.Errorf("waiting: %v", err)
			}
			for name, f := range map[string]func() error{
				"event":     func() error { _, err := c.AsyncEvent(t.Context()); return err },
				"poll":      func() error { _, err := x.cq.Poll(make([]WC, 1)); return err },
				"PollTimed": func() error { _, err := x.cq.PollTimed(make([]WC, 1), make([]uint64, 1)); return err },
				"wait":      func() error { _, err := x.ch.Wait(t.Context()); return err },
				"arm":       func() error { return x.cq.Arm(false) },
				"send":      func() error { _, err := x.qp.PostSend(SendWR{Opcode: OpRDMAWrite}); return err },
				"receive":   func() error { _, err := x.qp.PostRecv(RecvWR{}); return err },
				"SRQ":       func() error { _, err := x.srq.PostRecv(RecvWR{}); return err },
				"alloc PD":  func() error { _, err := c.AllocPD(); return err },
				"reg MR":    func() error { _, err := x.pd.RegMR(make([]byte, 1), MROptions{}); return err },
				"state":     func() error { x.qp.setState(QPRTS); _, err := x.qp.PostSend(SendWR{Opcode: OpRDMAWrite}); return err },
			} {
				if err := f(); !errors.Is(err, ErrDeviceRemoved) {
					t.Errorf("%s: %v", name, err)
				}
			}
			for _, verb := range []string{"dealloc_mw", "destroy_qp", "destroy_srq", "destroy_cq", "dereg_mr", "dealloc_pd"} {
				k.answerTo(verb, refuse(unix.EIO))
			}
			for _, o := range x.all() {
				if err := o.Close(); err != nil {
					t.Errorf("%T: %v", o, err)
				}
			}
			if x.mr.Bytes() != nil || c.prov.(*fakeProvider).qps[0].released != 1 {
				t.Error("something is kept")
			}
		})
	}
}

// TestFailedDestroy: a driver's EIO isn't the device's removal. The object stays, and
// the memory that the device may still write to.
func TestFailedDestroy(t *testing.T) {
	for _, errno := range []syscall.Errno{unix.EIO, unix.ENODEV, unix.EBUSY, unix.ETIMEDOUT} {
		c, k := fakeContext(t)
		x := makeFakes(t, c)
		for _, tt := range []struct {
			verb string
			o    interface {
				member
				Close() error
			}
		}{
			{"dealloc_mw", x.mw}, {"destroy_qp", x.qp}, {"destroy_srq", x.srq}, {"destroy_cq", x.cq}, {"dereg_mr", x.mr}, {"dealloc_pd", x.pd},
		} {
			k.answerTo(tt.verb, refuse(errno))
			for range 2 {
				if err := tt.o.Close(); !errors.Is(err, errno) || errors.Is(err, ErrDeviceRemoved) {
					t.Errorf("%s: %v, want %v", tt.verb, err, errno)
				}
			}
			if tt.o.base().closed() || c.member(tt.o.base().id) == nil {
				t.Errorf("%s: it is gone", tt.verb)
			}
			if err := c.Close(); !errors.Is(err, errno) {
				t.Errorf("%s: closing the context: %v", tt.verb, err)
			}
			k.answerTo(tt.verb, nil)
			if x.mr.Bytes() == nil && tt.verb != "dealloc_pd" {
				t.Fatalf("%s: the memory is no longer kept", tt.verb)
			}
			if err := tt.o.Close(); err != nil {
				t.Errorf("%s: %v", tt.verb, err)
			}
		}
		if c.removal.gone.Load() {
			t.Errorf("%v has the device removed", errno)
		}
	}
}

// TestExplain: EIO means removal where QUERY_DEVICE, in which no driver has a part,
// is refused like that.
func TestExplain(t *testing.T) {
	for _, tt := range []struct {
		first, second syscall.Errno
		want          bool
	}{
		{unix.EIO, 0, false},
		{unix.EIO, unix.EIO, true},
		{unix.EIO, unix.ENODEV, true},
		{unix.ENODEV, unix.EIO, true},
		{unix.EIO, unix.EINVAL, false},
		{unix.EINVAL, unix.EIO, false},
		{unix.ENOMEM, unix.EIO, false},
	} {
		c, k := fakeContext(t)
		k.answerTo("query_device", refuse(tt.second))
		k.answerTo("alloc_pd", refuse(tt.first))
		_, err := c.AllocPD()
		if got := errors.Is(err, ErrDeviceRemoved); got != tt.want || !errors.Is(err, tt.first) || c.removal.gone.Load() != tt.want {
			t.Errorf("%v, then %v: %v", tt.first, tt.second, err)
		}
		if asked := k.count("query_device") > 0; asked != (tt.first == unix.EIO || tt.first == unix.ENODEV) {
			t.Errorf("%v: asked %v", tt.first, asked)
		}
	}
}

// TestWatch: a number that vanishes, or becomes another device's, tells of the
// removal, whatever the node does.
func TestWatch(t *testing.T) {
	for name, remove := range map[string]func(path string) error{
		"gone": os.RemoveAll,
		"another's": func(path string) error {
			if err := os.Mkdir(path+"2", 0o755); err != nil {
				return err
			}
			return unix.Rename(path+"2", path)
		},
	} {
		path := filepath.Join(t.TempDir(), "231:192")
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		told := make(chan struct{})
		stop := watchNumber(path, time.Millisecond, func() { close(told) })
		select {
		case <-told:
			t.Fatalf("%s: told too early", name)
		default:
		}
		if err := remove(path); err != nil {
			t.Fatal(err)
		}
		<-told
		stop()
	}
	watchNumber(filepath.Join(t.TempDir(), "none"), time.Millisecond, func() { t.Error("there was none") })()
	path := t.TempDir()
	watchNumber(path, time.Hour, func() { t.Error("nothing happened") })() // ends at once
}
