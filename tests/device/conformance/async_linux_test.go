package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// eventsOf returns the device's asynchronous events from now on.
func eventsOf(t *testing.T, c *verbs.Device) <-chan verbs.Event {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	events, ended := make(chan verbs.Event), make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	subscription := c.Events(ctx)
	go func() {
		defer close(ended)
		for e, err := range subscription {
			if err != nil {
				return
			}
			select {
			case events <- e:
			case <-ctx.Done():
			}
		}
	}()
	return events
}

// nextEvent waits for an asynchronous event.
func nextEvent(t *testing.T, events <-chan verbs.Event) (e verbs.Event) {
	t.Helper()
	select {
	case e = <-events:
	case <-time.After(rdmatest.Patience):
		t.Fatal("no asynchronous event")
	}
	return e
}

// noEvent checks that no asynchronous event is delivered.
func noEvent(t *testing.T, events <-chan verbs.Event) {
	t.Helper()
	select {
	case e := <-events:
		t.Errorf("got %+v, want no event", e)
	case <-time.After(20 * time.Millisecond):
	}
}

// TestCQOverrun: a CQ that is too small reports the overrun.
func TestCQOverrun(t *testing.T) {
	s := rdmatest.Default()
	s.CQE = 1
	p := rdmatest.NewPair(t, s)
	first, second := eventsOf(t, p.Ctx), eventsOf(t, p.Ctx)
	noEvent(t, first)
	wr := to(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{p.A.MR.SGE(0, 8)}}, p.B.MR, 0)
	for range 8 {
		p.A.Send(t, wr)
	}
	for _, events := range []<-chan verbs.Event{first, second} {
		if e := nextEvent(t, events); e.Type != verbs.EventCQErr || e.CQ != p.A.CQ || e.QP != nil || e.SRQ != nil {
			t.Errorf("%+v", e)
		}
	}
}

// TestOverrunWithoutEvents: pollers and waiters learn of an overrun without reading
// events.
func TestOverrunWithoutEvents(t *testing.T) {
	s := rdmatest.Default()
	s.CQE, s.Channel = 1, true
	p := rdmatest.NewPair(t, s)
	wr := to(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{p.A.MR.SGE(0, 8)}}, p.B.MR, 0)
	for range 8 {
		p.A.Send(t, wr)
	}
	wc := make([]verbs.WC, 1)
	var err error
	for deadline := time.Now().Add(rdmatest.Patience); err == nil && time.Now().Before(deadline); {
		_, err = p.A.CQ.Poll(wc)
	}
	if !errors.Is(err, verbs.ErrCQOverrun) {
		t.Errorf("polling ends with %v", err)
	}
	if n, err := p.A.CQ.PollWait(patience(t), wc); n != 0 || !errors.Is(err, verbs.ErrCQOverrun) {
		t.Errorf("waiting: %d, %v", n, err)
	}
}

// TestAccessEvent: the responder gets an event when a peer uses a wrong key.
func TestAccessEvent(t *testing.T) {
	e := expect(t)
	p := rdmatest.NewPair(t, rdmatest.Default())
	events := eventsOf(t, p.Ctx)
	wr := to(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{p.A.MR.SGE(0, 8)}}, p.B.MR, 0)
	wr.Remote.RKey++
	p.A.Send(t, wr)
	if wc := rdmatest.Poll(t, p.A.CQ, 1)[0]; wc.Status != verbs.WCRemAccessErr {
		t.Errorf("%+v", wc)
	}
	if !e.accessEvent {
		noEvent(t, events)
		return
	}
	if ev := nextEvent(t, events); ev.Type != verbs.EventQPAccessErr || ev.QP != p.B.QP {
		t.Errorf("%+v", ev)
	}
}

// TestLastWQE: a QP on an SRQ that goes to the error state reports its last receive.
func TestLastWQE(t *testing.T) {
	e := expect(t)
	p := rdmatest.NewPair(t, srqSpec())
	events := eventsOf(t, p.Ctx)
	rdmatest.Check(t, p.B.QP.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState))
	if !e.lastWQE {
		noEvent(t, events)
		return
	}
	if ev := nextEvent(t, events); ev.Type != verbs.EventQPLastWQEReached || ev.QP != p.B.QP {
		t.Errorf("%+v", ev)
	}
}

// TestEventOfClosedObject: an event that was not read before its object was closed does no
// harm.
func TestEventOfClosedObject(t *testing.T) {
	p := rdmatest.NewPair(t, srqSpec())
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Patience)
	defer cancel()
	events := p.Ctx.Events(ctx)
	for i := range 3 {
		p.B.Recv(t, uint64(i), 0, 64)
	}
	if err := p.B.SRQ.SetLimit(3); err != nil { // soon two are left
		t.Fatal(err)
	}
	p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, Inline: []byte{1}})
	rdmatest.PollOK(t, p.A.CQ, 1)
	rdmatest.PollOK(t, p.B.CQ, 1)
	rdmatest.Close(t, p.B.QP)
	rdmatest.Close(t, p.B.SRQ)
	// The kernel discards an object's events when it is destroyed, and so does the Device.
	time.AfterFunc(20*time.Millisecond, cancel)
	for e, err := range events {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %+v, %v, want no event", e, err)
		}
	}
}
