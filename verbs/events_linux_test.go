package verbs

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/provider"
)

var canceled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// firstEvent takes one event.
func firstEvent(events iter.Seq2[Event, error]) (Event, error) {
	for e, err := range events {
		return e, err
	}
	return Event{}, errors.New("no event, and no reason")
}

// TestEvents: an event names its object or its port, is delivered once however often it
// recurs before that, and isn't lost when nobody waits. Every subscriber receives all
// events from its subscription on.
func TestEvents(t *testing.T) {
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	k.event(EventPathMig, x.qp.id) // before there is a subscriber
	mark := d.Events(t.Context())
	k.event(EventPortErr, 1)
	for e := range mark {
		if e.Port == 1 {
			break
		}
	}
	subscribers := []iter.Seq2[Event, error]{d.Events(t.Context()), d.Events(t.Context())}
	for range 3 {
		k.event(EventQPFatal, x.qp.id)
		k.event(EventCommEst, x.qp.id)
		k.event(EventCQErr, x.cq.id)
		k.event(EventSRQLimitReached, x.srq.id)
		k.event(EventPortErr, 2)
	}
	k.event(EventQPFatal, 1<<40)   // of no object
	k.event(EventQPFatal, x.cq.id) // no QP's
	k.event(EventPortErr, 1)       // the last one
	for _, events := range append(subscribers, mark) {
		times := make(map[Event]int)
		for e, err := range events {
			if err != nil {
				t.Fatal(err)
			}
			if times[e]++; e.Port == 1 {
				break
			}
		}
		for _, want := range []Event{
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
	}
}

// TestEventsEnd: a loop ends with the cause, and so does the next loop. An ended
// subscription is removed.
func TestEventsEnd(t *testing.T) {
	d, k := openFake(t)
	ctx, cancel := context.WithCancel(t.Context())
	canceled, other := d.Events(ctx), d.Events(t.Context())
	cancel()
	k.event(EventPortErr, 1)
	if e, err := firstEvent(other); err != nil || e.Port != 1 {
		t.Errorf("%+v, %v", e, err)
	}
	n := 0
	for range 2 {
		for e, err := range canceled {
			if n++; e != (Event{}) || !errors.Is(err, context.Canceled) {
				t.Errorf("canceled: %+v, %v", e, err)
			}
		}
	}
	yield(func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.events.subscribers) == 1
	})
	waits := make(chan error)
	go func() { _, err := firstEvent(other); waits <- err }()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	k.events.Close()
	if err := <-waits; !errors.Is(err, ErrClosed) {
		t.Errorf("a wait beside Close: %v", err)
	}
	for name, events := range map[string]iter.Seq2[Event, error]{
		"before Close": other, "after Close": d.Events(t.Context()), "nothing": new(Device).Events(t.Context()),
	} {
		for _, err := range events {
			if n++; !errors.Is(err, ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	var none context.Context
	for _, events := range []iter.Seq2[Event, error]{d.Events(none), (*Device)(nil).Events(t.Context())} {
		for _, err := range events {
			if n++; !errors.Is(err, ErrInvalid) {
				t.Errorf("without a context or a Device: %v", err)
			}
		}
	}
	if n != 7 {
		t.Errorf("%d errors, want 7", n)
	}
	if len(d.events.subscribers) != 0 {
		t.Errorf("%d subscribers of a closed Device", len(d.events.subscribers))
	}
}

// TestEventsInOrder: events are kept in their order, each once.
func TestEventsInOrder(t *testing.T) {
	s := &subscriber{more: make(chan struct{}, 1)}
	q := events{subscribers: []*subscriber{s}}
	qp, cq, srq := new(QP), new(CQ), new(SRQ)
	list := []Event{
		{Type: EventPortErr, Port: 1}, {Type: EventQPFatal, QP: qp}, {Type: EventCommEst, QP: qp},
		{Type: EventCQErr, CQ: cq}, {Type: EventSRQErr, SRQ: srq}, {Type: EventDeviceFatal},
	}
	for range 2 {
		for _, e := range list {
			q.add(e)
		}
	}
	q.forget(qp)
	for _, want := range []Event{list[0], list[3], list[4], list[5]} {
		if len(s.more) != 1 {
			t.Fatal("the remaining events wake no subscriber")
		}
		<-s.more
		if e, ok := s.take(); !ok || e != want {
			t.Errorf("%+v, want %+v", e, want)
		}
	}
	if e, ok := s.take(); ok || len(s.more) != 0 {
		t.Errorf("%+v is left", e)
	}
	for _, e := range list[3:5] {
		q.add(e)
	}
	q.forget(cq)
	q.forget(srq)
	if e, ok := s.take(); ok {
		t.Errorf("%+v is left", e)
	}
}

// TestEventOfClosed: no event of a closed object is delivered; an event delivered before
// still names the object.
func TestEventOfClosed(t *testing.T) {
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	fast, slow := d.Events(t.Context()), d.Events(t.Context())
	k.event(EventQPFatal, x.qp.id)
	e, err := firstEvent(fast)
	if err != nil || e.QP != x.qp {
		t.Fatalf("%+v, %v", e, err)
	}
	number := x.qp.Num()
	k.event(EventCommEst, x.qp.id)
	k.event(EventPortErr, 1)
	yield(func() bool { // until both have been read
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.events.subscribers[0].list) == 2
	})
	if err := x.qp.Close(); err != nil {
		t.Fatal(err)
	}
	if n := e.QP.Num(); n != number || n == 0 {
		t.Errorf("the closed QP's number is %d, was %d", n, number)
	}
	for _, events := range []iter.Seq2[Event, error]{fast, slow} {
		if e, err := firstEvent(events); err != nil || e != (Event{Type: EventPortErr, Port: 1}) {
			t.Errorf("%+v, %v", e, err)
		}
	}
}

// TestOverrun: pollers and waiters learn that completions are lost, even without a
// subscriber to events.
func TestOverrun(t *testing.T) {
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	done := make(chan error)
	for range 3 {
		go func() {
			_, err := x.cq.PollWait(t.Context(), make([]WC, 1))
			done <- err
		}()
	}
	yield(func() bool { return x.cq.waiters.Load() == 3 })
	other := must(d.CreateCQ(CQOptions{MaxCQE: 1, Fields: WCFieldTimestamp}))(t)
	k.event(EventCQErr, x.cq.id)
	for range 3 {
		if err := soon(t, done); !errors.Is(err, ErrCQOverrun) {
			t.Errorf("waiting: %v", err)
		}
	}
	// Earlier completions are not lost.
	d.prov.(*fakeProvider).cqs[0].ready = 3
	for name, poll := range polls {
		if n, err := poll(x.cq); n != 1 || err != nil {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		if n, err := poll(other); n != 0 || err != nil {
			t.Errorf("%s of another CQ: %d, %v", name, n, err)
		}
	}
	for name, poll := range map[string]func() (int, error){
		"Poll":       func() (int, error) { return x.cq.Poll(make([]WC, 1)) },
		"PollEx":     func() (int, error) { return x.cq.PollEx(make([]WCEx, 1)) },
		"PollWaitEx": func() (int, error) { return x.cq.PollWaitEx(t.Context(), make([]WCEx, 1)) },
		"poll":       func() (int, error) { return x.cq.poll(make([]WC, 1)) },
		"PollWait":   func() (int, error) { return x.cq.PollWait(t.Context(), make([]WC, 1)) },
	} {
		if n, err := poll(); n != 0 || !errors.Is(err, ErrCQOverrun) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
}

// polls are the ways to poll without waiting.
var polls = map[string]func(*CQ) (int, error){
	"Poll":   func(cq *CQ) (int, error) { return cq.Poll(make([]WC, 1)) },
	"PollEx": func(cq *CQ) (int, error) { return cq.PollEx(make([]WCEx, 1)) },
	"poll":   func(cq *CQ) (int, error) { return cq.poll(make([]WC, 1)) },
}

// An overrunCQ gets its last completion, and then overruns, just after the first poll has found
// nothing.
type overrunCQ struct {
	*fakeCQ
	overrun func()
}

func (q *overrunCQ) Poll(wc []provider.WC) (int, error) {
	defer q.happen()
	return q.fakeCQ.Poll(wc)
}

func (q *overrunCQ) PollEx(wc []provider.WCEx) (int, error) {
	defer q.happen()
	return q.fakeCQ.PollEx(wc)
}

func (q *overrunCQ) happen() {
	if q.overrun != nil {
		q.ready = 1
		q.overrun()
		q.overrun = nil
	}
}

// TestOverrunDuringPoll: a completion from before an overrun is returned first, whenever the
// overrun happens.
func TestOverrunDuringPoll(t *testing.T) {
	d, _ := fakeContext(t)
	for name, poll := range polls {
		cq := must(d.CreateCQ(CQOptions{MaxCQE: 1, Fields: WCFieldTimestamp}))(t)
		q := &overrunCQ{cq.prov.(*fakeCQ), cq.overrun}
		cq.prov, cq.ex = q, q
		n, err := poll(cq)
		if n == 0 && err == nil {
			n, err = poll(cq)
		}
		if n != 1 || err != nil {
			t.Errorf("%s: %d, %v, want the completion", name, n, err)
		}
		if n, err := poll(cq); n != 0 || !errors.Is(err, ErrCQOverrun) {
			t.Errorf("%s after it: %d, %v", name, n, err)
		}
	}
}

// TestDeviceFatal: all waiters and pollers learn that the device is broken, and its objects
// close although the kernel refuses to destroy them.
func TestDeviceFatal(t *testing.T) {
	for name, remove := range map[string]func(*Device, *fakeKernel){
		"event":       func(_ *Device, k *fakeKernel) { k.event(EventDeviceFatal, 0) },
		"end of file": func(_ *Device, k *fakeKernel) { k.events.Close() },
		"watch":       func(d *Device, _ *fakeKernel) { d.deviceGone() },
		"failed calls": func(d *Device, k *fakeKernel) {
			k.answerTo("alloc_pd", refuse(unix.EIO))
			k.answerTo("query_device", refuse(unix.EIO))
			if _, err := d.AllocPD(); !errors.Is(err, ErrDeviceRemoved) || !errors.Is(err, unix.EIO) {
				k.t.Errorf("the call that finds out: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, k := fakeContext(t)
			x := makeFakes(t, d)
			x.qp.setState(QPRTS)
			waits := make(chan error)
			go func() { _, err := x.cq.PollWait(t.Context(), make([]WC, 1)); waits <- err }()
			yield(func() bool { return x.cq.waiters.Load() == 1 })
			first := make(chan []any)
			for range 3 {
				events := d.Events(t.Context())
				go func() {
					var got []any
					for e, err := range events {
						if err != nil {
							got = append(got, errors.Is(err, ErrDeviceRemoved))
						} else {
							got = append(got, e)
						}
					}
					first <- got
				}()
			}
			late := d.Events(t.Context())
			remove(d, k)
			for range 3 {
				if got := <-first; !slices.Equal(got, []any{Event{Type: EventDeviceFatal}, true}) {
					t.Errorf("a subscriber gets %+v", got)
				}
			}
			if e, err := firstEvent(late); err != nil || e != (Event{Type: EventDeviceFatal}) {
				t.Errorf("who waits later gets %+v, %v", e, err)
			}
			if err := <-waits; !errors.Is(err, ErrDeviceRemoved) {
				t.Errorf("waiting: %v", err)
			}
			for name, f := range map[string]func() error{
				"event":    func() error { _, err := firstEvent(late); return err },
				"events":   func() error { _, err := firstEvent(d.Events(t.Context())); return err },
				"poll":     func() error { _, err := x.cq.Poll(make([]WC, 1)); return err },
				"PollEx":   func() error { _, err := x.cq.PollEx(make([]WCEx, 1)); return err },
				"wait":     func() error { _, err := x.ch.Wait(t.Context()); return err },
				"arm":      func() error { return x.cq.Arm(false) },
				"send":     func() error { _, err := x.qp.PostSend(SendWR{Opcode: OpRDMAWrite}); return err },
				"receive":  func() error { _, err := x.qp.PostRecv(RecvWR{}); return err },
				"SRQ":      func() error { _, err := x.srq.PostRecv(RecvWR{}); return err },
				"alloc PD": func() error { _, err := d.AllocPD(); return err },
				"reg MR":   func() error { _, err := x.pd.RegMR(make([]byte, 1), MROptions{}); return err },
				"state":    func() error { x.qp.setState(QPRTS); _, err := x.qp.PostSend(SendWR{Opcode: OpRDMAWrite}); return err },
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
			if x.mr.Bytes() != nil || d.prov.(*fakeProvider).qps[0].released != 1 {
				t.Error("something is kept")
			}
		})
	}
}

// TestFailedDestroy: a driver's EIO isn't the device's removal. The object stays, and
// the memory that the device may still write to.
func TestFailedDestroy(t *testing.T) {
	for _, errno := range []syscall.Errno{unix.EIO, unix.ENODEV, unix.EBUSY, unix.ETIMEDOUT} {
		d, k := fakeContext(t)
		x := makeFakes(t, d)
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
			if tt.o.base().closed() || !slices.Contains(d.membersOf(tt.o.base().kind), member(tt.o)) {
				t.Errorf("%s: it is gone", tt.verb)
			}
			if err := d.Close(); !errors.Is(err, errno) {
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
		if d.removal.gone.Load() {
			t.Errorf("%v has the device removed", errno)
		}
	}
}

// TestExplain: EIO means removal if QUERY_DEVICE, which needs no driver, also returns it.
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
		d, k := fakeContext(t)
		k.answerTo("query_device", refuse(tt.second))
		k.answerTo("alloc_pd", refuse(tt.first))
		_, err := d.AllocPD()
		if got := errors.Is(err, ErrDeviceRemoved); got != tt.want || !errors.Is(err, tt.first) || d.removal.gone.Load() != tt.want {
			t.Errorf("%v, then %v: %v", tt.first, tt.second, err)
		}
		if asked := k.count("query_device") > 0; asked != (tt.first == unix.EIO || tt.first == unix.ENODEV) {
			t.Errorf("%v: asked %v", tt.first, asked)
		}
	}
}

// TestWatch: a number that vanishes, or becomes another device's, shows the removal,
// whatever happens to the node.
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
		noticed := make(chan struct{})
		stop := watchNumber(path, time.Millisecond, func() { close(noticed) })
		select {
		case <-noticed:
			t.Fatalf("%s: noticed too early", name)
		default:
		}
		if err := remove(path); err != nil {
			t.Fatal(err)
		}
		<-noticed
		stop()
	}
	watchNumber(filepath.Join(t.TempDir(), "none"), time.Millisecond, func() { t.Error("there was none") })()
	path := t.TempDir()
	watchNumber(path, time.Hour, func() { t.Error("nothing happened") })() // ends at once
}
