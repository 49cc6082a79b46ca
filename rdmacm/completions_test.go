package rdmacm

import (
	"io"
	"testing"
	"testing/synctest"

	"github.com/goverbs/goverbs/verbs"
)

// A polledCQ calls a function once, after a poll that has found nothing.
type polledCQ struct {
	*fakeCQ
	empty func()
}

func (cq *polledCQ) Poll(wcs []verbs.WC) (int, error) {
	n, err := cq.fakeCQ.Poll(wcs)
	if f := cq.empty; n == 0 && f != nil {
		cq.empty = nil
		f()
	}
	return n, err
}

// TestCompletionBeforeTheEnd: a request that completes before the connection's end counts, even if
// both happen right after a poll that has found nothing.
func TestCompletionBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(t, 1, 8)
		f.messages.recvs.cq = &polledCQ{f.recvCQ, func() {
			f.arrive(t, []byte("last"))
			f.endLife(ErrDisconnected)
		}}
		var b [8]byte
		if n, err := f.Recv(t.Context(), b[:]); err != nil || string(b[:n]) != "last" {
			t.Errorf("received %q, %v", b[:n], err)
		}
		if _, err := f.Recv(t.Context(), b[:]); err != io.EOF {
			t.Errorf("then %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(t, 1, 8)
		f.messages.sends.cq = &polledCQ{f.sendCQ, func() {
			f.sendCQ.put(verbs.WC{WRID: ReservedWRIDs, Opcode: verbs.WCSend})
			f.endLife(ErrDisconnected)
		}}
		if err := f.Send(t.Context(), []byte("arrives")); err != nil {
			t.Errorf("sent: %v", err)
		}
	})
}

// TestEventUnarms: once an event is known, waiters arm the queue again, so that they don't miss
// completions after those that the event's goroutine takes.
func TestEventUnarms(t *testing.T) {
	f := newFakeConn(t, 1, 8)
	c := &f.messages.recvs
	if err := c.arm(); err != nil || f.recvCQ.arms != 1 {
		t.Fatalf("armed %d times, %v", f.recvCQ.arms, err)
	}
	c.cq = &polledCQ{f.recvCQ, func() {
		if err := c.arm(); err != nil || f.recvCQ.arms != 2 {
			t.Errorf("beside the event, who waits has armed the queue %d times, want 2: %v", f.recvCQ.arms, err)
		}
	}}
	c.event()
	if c.cq.(*polledCQ).empty != nil {
		t.Error("the event's goroutine didn't look at the queue")
	}
}

// TestReaderEnds: a reader that has ended has no members from then on: the next connection on the
// device starts another one.
func TestReaderEnds(t *testing.T) {
	dev, ended := new(verbs.Device), 0
	m := &messages{fail: func(err error) {
		if err == ErrDeviceRemoved {
			ended++
		}
	}}
	r := &reader{dev: dev, members: map[*messages]bool{m: true}}
	readers.of[dev] = r
	r.end(ErrDeviceRemoved)
	if readers.of[dev] != nil || ended != 1 {
		t.Errorf("another connection would have the reader %v; told %d members", readers.of[dev], ended)
	}
	// The members leave their own reader, which isn't the device's any more, and not the next one.
	next := &reader{dev: dev, members: map[*messages]bool{{}: true}}
	readers.of[dev] = next
	defer delete(readers.of, dev)
	if err := r.leave(m); err != nil || readers.of[dev] != next {
		t.Errorf("%v, and the next reader is %v", err, readers.of[dev])
	}
}

// TestRefusedReceive: a receive that can't be posted is not waited for by Drain.
func TestRefusedReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(t, 2, 8)
		f.arrive(t, []byte("first"))
		f.qp.refusal = verbs.ErrQueueFull
		_, err := f.Recv(t.Context(), make([]byte, 8))
		wantErr(t, err, verbs.ErrQueueFull)
		f.qp.refusal = nil
		f.messages.drains()
		drained := async(func() error { return f.messages.drain(t.Context()) })
		synctest.Wait()
		none(t, drained)
		f.recvCQ.put(verbs.WC{WRID: f.qp.takeRecv(t).WRID, Status: verbs.WCWRFlushErr})
		f.sendCQ.put(verbs.WC{WRID: f.messages.lastWRID(), Status: verbs.WCWRFlushErr})
		if err := <-drained; err != nil {
			t.Error(err)
		}
	})
}

// TestMemoryOfMessages: the results of atomic operations are aligned, whatever the size of the
// messages, and after all of these.
func TestMemoryOfMessages(t *testing.T) {
	for n := 1; n < 9; n++ {
		for size := 1; size < 20; size++ {
			at := resultsAt(n, size)
			if at%8 != 0 || at < 2*n*size || at > 2*n*size+7 || messageBytes(n, size) != at+8*n {
				t.Errorf("%d messages of %d bytes in each direction: results at %d of %d", n, size, at, messageBytes(n, size))
			}
		}
	}
}

// TestNumberOfAnother: a connection that is closed takes only itself from the table, though another
// one has the number of its queue pair by then.
func TestNumberOfAnother(t *testing.T) {
	a, b := &Conn{qp: new(verbs.QP)}, &Conn{qp: new(verbs.QP)}
	tr := &Transport{MaxConns: 2}
	for _, c := range []*Conn{a, b} {
		if err := tr.add(); err != nil {
			t.Fatal(err)
		}
		tr.addQP(c)
	}
	if err := tr.add(); err != errTooMany {
		t.Errorf("beyond the limit: %v", err)
	}
	if tr.remove(a); tr.Conn(0) != b || tr.count != 1 {
		t.Errorf("the number is that of %p, want %p; %d are left", tr.Conn(0), b, tr.count)
	}
	if tr.remove(b); tr.Conn(0) != nil || tr.count != 0 {
		t.Errorf("a closed connection is known; %d are left", tr.count)
	}
}
