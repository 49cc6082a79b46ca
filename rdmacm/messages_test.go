package rdmacm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/goverbs/goverbs/verbs"
)

// A fakeCQ is a CQ whose completions come from the test.
type fakeCQ struct {
	mu    sync.Mutex
	wcs   []verbs.WC
	err   error
	armed bool
	arms  int
	event func()
}

func (cq *fakeCQ) put(wcs ...verbs.WC) {
	cq.mu.Lock()
	armed := cq.armed
	cq.wcs, cq.armed = append(cq.wcs, wcs...), false
	cq.mu.Unlock()
	if armed {
		cq.event()
	}
}

func (cq *fakeCQ) Poll(wcs []verbs.WC) (int, error) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	n := copy(wcs, cq.wcs)
	cq.wcs = cq.wcs[n:]
	if n == 0 {
		return 0, cq.err
	}
	return n, nil
}

func (cq *fakeCQ) Arm(bool) error {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	cq.armed = true
	cq.arms++
	return nil
}

// A fakeQP records the posted requests.
type fakeQP struct {
	mu      sync.Mutex
	sends   []verbs.SendWR
	recvs   []verbs.RecvWR
	refusal error
	onRecv  func(verbs.RecvWR)
}

func (qp *fakeQP) PostSend(wrs ...verbs.SendWR) (int, error) {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.refusal != nil {
		return 0, qp.refusal
	}
	for _, wr := range wrs {
		wr.SGL = slices.Clone(wr.SGL)
		qp.sends = append(qp.sends, wr)
	}
	return len(wrs), nil
}

func (qp *fakeQP) PostRecv(wrs ...verbs.RecvWR) (int, error) {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.refusal != nil {
		return 0, qp.refusal
	}
	for _, wr := range wrs {
		qp.recvs = append(qp.recvs, wr)
		if qp.onRecv != nil {
			qp.onRecv(wr)
		}
	}
	return len(wrs), nil
}

// sent returns how many sends were posted, and the last one.
func (qp *fakeQP) sent() (int, verbs.SendWR) {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if len(qp.sends) == 0 {
		return 0, verbs.SendWR{}
	}
	return len(qp.sends), qp.sends[len(qp.sends)-1]
}

// takeRecv removes the next posted receive.
func (qp *fakeQP) takeRecv(t testing.TB) verbs.RecvWR {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if len(qp.recvs) == 0 {
		t.Fatal("no receive is posted")
	}
	wr := qp.recvs[0]
	qp.recvs = qp.recvs[1:]
	return wr
}

// A fakeConn is a Conn with messages on fakes. An SGE's address is an offset in mem.
type fakeConn struct {
	*Conn
	qp             *fakeQP
	sendCQ, recvCQ *fakeCQ
	mem            []byte
}

func newFakeConn(t testing.TB, slots, size int) *fakeConn {
	f := &fakeConn{
		Conn: &Conn{slots: slots, slotSize: size},
		qp:   &fakeQP{}, sendCQ: new(fakeCQ), recvCQ: new(fakeCQ), mem: make([]byte, messageBytes(slots, size)),
	}
	f.peerNotified = true // there is no peer to notify
	f.life, f.endLife = context.WithCancelCause(context.Background())
	sge := func(off, n int) verbs.SGE { return verbs.SGE{Addr: uint64(off), Length: uint32(n)} }
	f.messages = newMessages(slots, size, f.life, f.fail)
	f.sendCQ.event, f.recvCQ.event = f.messages.sends.event, f.messages.recvs.event
	if err := f.messages.start(f.mem, sge, f.qp, f.sendCQ, f.recvCQ); err != nil {
		t.Fatal(err)
	}
	return f
}

// bytes returns the memory of the SGL.
func (f *fakeConn) bytes(sgl []verbs.SGE) []byte {
	if len(sgl) == 0 {
		return nil
	}
	return f.mem[sgl[0].Addr:][:sgl[0].Length]
}

// arrive delivers a message.
func (f *fakeConn) arrive(t testing.TB, message []byte) {
	wr := f.qp.takeRecv(t)
	copy(f.bytes(wr.SGL), message)
	f.recvCQ.put(verbs.WC{WRID: wr.WRID, Opcode: verbs.WCRecv, ByteLen: uint32(len(message))})
}

// send sends in a goroutine, and returns a channel for the result.
func (f *fakeConn) send(ctx context.Context, message string) <-chan error {
	result := make(chan error, 1)
	go func() { result <- f.Send(ctx, []byte(message)) }()
	return result
}

func none(t *testing.T, result <-chan error) {
	t.Helper()
	select {
	case err := <-result:
		t.Fatalf("it has ended, with %v", err)
	default:
	}
}

// Send waits for its own message's completion, whatever else completes. The caller's
// completions are passed to the caller.
func TestSendAmongOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(t, 2, 8)
		result := f.send(t.Context(), "hello")
		synctest.Wait()
		_, own := f.qp.sent()
		if string(f.bytes(own.SGL)) != "hello" || own.Opcode != verbs.OpSend || own.Flags != verbs.SendSignaled || own.WRID < ReservedWRIDs {
			t.Fatalf("posted %+v with %q", own, f.bytes(own.SGL))
		}
		others := []verbs.WC{
			{WRID: 0, Opcode: verbs.WCRDMAWrite},
			{WRID: own.WRID - ReservedWRIDs, Opcode: verbs.WCSend}, // the slot's number, without the tag
			{WRID: own.WRID, Opcode: verbs.WCRDMARead, ByteLen: 7}, // another request with such a WRID
			{WRID: ReservedWRIDs + 1, Opcode: verbs.WCSend},        // a slot without a message
			{WRID: ReservedWRIDs + 2, Opcode: verbs.WCSend},        // no slot
		}
		f.sendCQ.put(others...)
		synctest.Wait()
		none(t, result)
		f.sendCQ.put(verbs.WC{WRID: own.WRID, Opcode: verbs.WCSend})
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		if err := f.Err(); err != nil {
			t.Errorf("the connection has ended: %v", err)
		}
		var got []verbs.WC
		for len(got) < len(others) {
			wcs := make([]verbs.WC, 2)
			n, err := f.WaitSends(t.Context(), wcs)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, wcs[:n]...)
		}
		if !slices.Equal(got, others) {
			t.Errorf("the caller's completions: %+v, want %+v", got, others)
		}
	})
}

// A wait for the caller's completions also handles those of messages.
func TestOthersAmongMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(t, 2, 8)
		var wcs [4]verbs.WC
		got := make(chan int, 1)
		go func() {
			n, err := f.WaitRecvs(t.Context(), wcs[:])
			if err != nil {
				t.Error(err)
			}
			got <- n
		}()
		synctest.Wait()
		message := make(chan string, 1)
		go func() {
			var b [8]byte
			n, err := f.Recv(t.Context(), b[:])
			if err != nil {
				t.Error(err)
			}
			message <- string(b[:n])
		}()
		synctest.Wait()
		f.arrive(t, []byte("message"))
		if m := <-message; m != "message" {
			t.Errorf("received %q", m)
		}
		// The numbers of posted buffers, without the tag, and one that no buffer has.
		others := []verbs.WC{
			{WRID: 0, Opcode: verbs.WCRecv, ByteLen: 8},
			{WRID: 5, Opcode: verbs.WCRecvRDMAWithImm, ByteLen: 1 << 20},
		}
		f.recvCQ.put(others...)
		if n := <-got; !slices.Equal(wcs[:n], others) {
			t.Errorf("the caller's: %+v, want %+v", wcs[:n], others)
		}
		if err := f.Err(); err != nil {
			t.Errorf("the connection has ended: %v", err)
		}
	})
}

// With n buffers, n messages can be in flight. The next one waits for a buffer.
func TestSendsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 4
		f := newFakeConn(t, slots, 8)
		var results []<-chan error
		for i := range slots + 1 {
			results = append(results, f.send(t.Context(), fmt.Sprint("no. ", i)))
			synctest.Wait()
		}
		if n, _ := f.qp.sent(); n != slots {
			t.Fatalf("%d messages are under way, want %d", n, slots)
		}
		posted := slices.Clone(f.qp.sends)
		for i, wr := range posted {
			if got, want := string(f.bytes(wr.SGL)), fmt.Sprint("no. ", i); got != want {
				t.Errorf("message %d is %q, want %q", i, got, want)
			}
		}
		// Whatever the order, each Send returns the result of its own message.
		for _, i := range []int{2, 0, 3, 1} {
			f.sendCQ.put(verbs.WC{WRID: posted[i].WRID, Opcode: verbs.WCSend})
			if err := <-results[i]; err != nil {
				t.Error(err)
			}
			synctest.Wait()
			none(t, results[slots])
		}
		_, last := f.qp.sent()
		f.sendCQ.put(verbs.WC{WRID: last.WRID, Opcode: verbs.WCSend})
		if err := <-results[slots]; err != nil {
			t.Error(err)
		}
	})
}

// A message whose Send was cancelled keeps its buffer until the device has completed it.
func TestSendCalledOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(t, 1, 8)
		ctx, cancel := context.WithCancel(t.Context())
		result := f.send(ctx, "first")
		synctest.Wait()
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Fatalf("called off: %v", err)
		}
		result = f.send(t.Context(), "second")
		synctest.Wait()
		n, first := f.qp.sent()
		if n != 1 || string(f.bytes(first.SGL)) != "first" {
			t.Fatalf("%d messages are under way, and the first is now %q", n, f.bytes(first.SGL))
		}
		f.sendCQ.put(verbs.WC{WRID: first.WRID, Opcode: verbs.WCSend})
		synctest.Wait()
		none(t, result)
		n, second := f.qp.sent()
		if n != 2 || string(f.bytes(second.SGL)) != "second" {
			t.Fatalf("%d messages were sent, the last is %q", n, f.bytes(second.SGL))
		}
		f.sendCQ.put(verbs.WC{WRID: second.WRID, Opcode: verbs.WCSend})
		if err := <-result; err != nil {
			t.Error(err)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := f.Send(cancelled, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v", err)
		}
		if n, _ := f.qp.sent(); n != 2 {
			t.Errorf("a message was sent for a context that had ended")
		}
	})
}

// A Send that is called off just when its message completes leaves nothing to the next one.
func TestSendCalledOffAtCompletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(t, 1, 8)
		ctx, stop := context.WithCancel(t.Context())
		others := make(chan error, 1)
		go func() { // it has the token
			_, err := f.WaitSends(ctx, make([]verbs.WC, 1))
			others <- err
		}()
		synctest.Wait()
		for i := range 300 {
			ctx, cancel := context.WithCancel(t.Context())
			result := f.send(ctx, "x")
			synctest.Wait()
			none(t, result)
			cancel()
			f.sendCQ.put(verbs.WC{WRID: ReservedWRIDs, Opcode: verbs.WCSend})
			if err := <-result; err != nil && !errors.Is(err, context.Canceled) {
				t.Fatalf("round %d: %v", i, err)
			}
			synctest.Wait()
		}
		stop()
		<-others
	})
}

func TestSendRefused(t *testing.T) {
	f := newFakeConn(t, 1, 8)
	if err := f.Send(t.Context(), make([]byte, 9)); !errors.Is(err, ErrInvalid) {
		t.Errorf("a message that is too long: %v", err)
	}
	f.qp.refusal = verbs.ErrQueueFull
	for range 2 { // the buffer is free again
		if err := f.Send(t.Context(), nil); !errors.Is(err, verbs.ErrQueueFull) {
			t.Errorf("refused: %v", err)
		}
	}
	if _, err := f.WaitSends(t.Context(), nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("no room: %v", err)
	}
	none := &Conn{}
	if err := none.Send(t.Context(), nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("without buffers: %v", err)
	}
	if err := f.Send(noContext, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("without a context: %v", err)
	}
}

// A message that fails ends the connection: those after it can't arrive.
func TestSendFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(t, 2, 8)
		first, second := f.send(t.Context(), "1"), f.send(t.Context(), "2")
		synctest.Wait()
		f.sendCQ.put(verbs.WC{WRID: ReservedWRIDs, Status: verbs.WCRemInvReqErr})
		for _, result := range []<-chan error{first, second} {
			wantWC(t, <-result, verbs.WCRemInvReqErr)
		}
		wantWC(t, f.Err(), verbs.WCRemInvReqErr)
		<-f.Done()
		wantWC(t, f.Send(t.Context(), nil), verbs.WCRemInvReqErr)
		_, err := f.Recv(t.Context(), nil)
		wantWC(t, err, verbs.WCRemInvReqErr)
		_, err = f.WaitRecvs(t.Context(), make([]verbs.WC, 1))
		wantWC(t, err, verbs.WCRemInvReqErr)
	})
}

func wantWC(t *testing.T, err error, status verbs.WCStatus) {
	t.Helper()
	var e *verbs.WCError
	if !errors.As(err, &e) || e.Status != status {
		t.Errorf("got %v, want %v", err, status)
	}
}

// The next message may arrive in a buffer as soon as the buffer is posted again.
func TestRecvCopiesFirst(t *testing.T) {
	f := newFakeConn(t, 1, 8)
	f.arrive(t, []byte("first"))
	f.qp.onRecv = func(wr verbs.RecvWR) { copy(f.bytes(wr.SGL), "SECOND") }
	var b [8]byte
	n, err := f.Recv(t.Context(), b[:])
	if err != nil || string(b[:n]) != "first" {
		t.Errorf("received %q, %v", b[:n], err)
	}
	if wr := f.qp.takeRecv(t); wr.SGL[0].Length != 8 {
		t.Errorf("posted again: %+v", wr)
	}
}

// Any misuse of a receive by the peer causes an error, and no access to other memory.
func TestRecvHostile(t *testing.T) {
	const size = 8
	for _, test := range []struct {
		name string
		wc   verbs.WC
		want error
	}{
		{"longer than the buffer", verbs.WC{Opcode: verbs.WCRecv, ByteLen: size + 1}, ErrNotMessage},
		{"huge", verbs.WC{Opcode: verbs.WCRecv, ByteLen: ^uint32(0)}, ErrNotMessage},
		{"another opcode", verbs.WC{Opcode: verbs.WCRDMARead, ByteLen: 3}, ErrNotMessage},
		{"no opcode at all", verbs.WC{Opcode: 0xffff, ByteLen: 3}, ErrNotMessage},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFakeConn(t, 4, size)
			f.arrive(t, []byte("good"))
			test.wc.WRID = f.qp.takeRecv(t).WRID
			for i := range f.mem {
				if f.mem[i] == 0 {
					f.mem[i] = 'X' // another's
				}
			}
			f.recvCQ.put(test.wc)
			b := make([]byte, 4*size)
			if n, err := f.Recv(t.Context(), b); n != 4 || string(b[:n]) != "good" || err != nil {
				t.Errorf("what came before: %q, %v", b[:n], err)
			}
			for range 2 {
				clear(b)
				if n, err := f.Recv(t.Context(), b); n != 0 || !errors.Is(err, test.want) || bytes.Contains(b, []byte("X")) {
					t.Errorf("got %d bytes %q, %v", n, b, err)
				}
			}
			if err := f.Send(t.Context(), nil); !errors.Is(err, test.want) || !errors.Is(f.Err(), test.want) {
				t.Errorf("sending: %v, the connection: %v", err, f.Err())
			}
		})
	}
	t.Run("failure", func(t *testing.T) {
		f := newFakeConn(t, 2, size)
		f.recvCQ.put(verbs.WC{WRID: f.qp.takeRecv(t).WRID, Status: verbs.WCLocLenErr, Opcode: verbs.WCRecv, ByteLen: 100},
			verbs.WC{WRID: f.qp.takeRecv(t).WRID, Status: verbs.WCWRFlushErr})
		for range 4 { // more often than there are receives
			_, err := f.Recv(t.Context(), make([]byte, size))
			wantWC(t, err, verbs.WCLocLenErr)
		}
	})
	t.Run("with immediate data", func(t *testing.T) {
		f := newFakeConn(t, 2, size)
		f.arrive(t, []byte("good"))
		f.recvCQ.wcs[0].Flags = verbs.WCWithImm
		b := make([]byte, size)
		if n, err := f.Recv(t.Context(), b); err != nil || string(b[:n]) != "good" {
			t.Errorf("got %q, %v", b[:n], err)
		}
	})
}

func TestRecvEnds(t *testing.T) {
	f := newFakeConn(t, 3, 8)
	f.arrive(t, []byte("long one"))
	f.arrive(t, nil)
	f.endLife(ErrDisconnected)
	f.qp.refusal = verbs.ErrClosed // nothing is posted any more
	var b [3]byte
	if n, err := f.Recv(t.Context(), b[:]); n != 3 || err != io.ErrShortBuffer || string(b[:]) != "lon" {
		t.Errorf("a message that is too long: %q, %v", b[:n], err)
	}
	if n, err := f.Recv(t.Context(), b[:]); n != 0 || err != nil {
		t.Errorf("an empty message: %d bytes, %v", n, err)
	}
	if _, err := f.Recv(t.Context(), b[:]); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
	if err := f.Send(t.Context(), nil); !errors.Is(err, ErrDisconnected) || f.qp.sends != nil {
		t.Errorf("sending after the end: %v", err)
	}
	f.closing.Store(true)
	if _, err := f.Recv(t.Context(), b[:]); !errors.Is(err, ErrClosed) {
		t.Errorf("once closed: %v", err)
	}
}

// Recv returns an error if the receive can't be posted again while the connection lasts.
func TestRecvNotPosted(t *testing.T) {
	f := newFakeConn(t, 1, 8)
	f.arrive(t, []byte("x"))
	f.qp.refusal = verbs.ErrQueueFull
	var b [8]byte
	if n, err := f.Recv(t.Context(), b[:]); n != 1 || b[0] != 'x' || !errors.Is(err, verbs.ErrQueueFull) {
		t.Errorf("got %d bytes, %v", n, err)
	}
}

// A failure of the CQ ends all waits.
func TestQueueFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(t, 2, 8)
		results := []<-chan error{f.send(t.Context(), "1"), f.send(t.Context(), "2")}
		synctest.Wait()
		f.sendCQ.mu.Lock()
		f.sendCQ.err = verbs.ErrDeviceRemoved
		f.sendCQ.mu.Unlock()
		f.sendCQ.put()
		for _, result := range results {
			if err := <-result; !errors.Is(err, ErrDeviceRemoved) || !strings.Contains(err.Error(), "rdmacm: send: ") {
				t.Errorf("got %v", err)
			}
		}
	})
}

// Completions of any kind, in any order, of requests that were posted and of others. Only
// real messages are received, and all completions of other requests go to the caller.
func TestCompletionsAtRandom(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		synctest.Test(t, func(t *testing.T) {
			const slots, size = 3, 16
			f := newFakeConn(t, slots, size)
			var wantMessages, gotMessages []string
			var wantOthers, gotOthers []verbs.WC
			free := slots
			for range 50 {
				switch r.IntN(4) {
				case 0: // a message
					if free == 0 {
						break
					}
					free--
					m := fmt.Sprint("message ", len(wantMessages))
					wantMessages = append(wantMessages, m)
					f.arrive(t, []byte(m))
				case 1: // what the caller posted
					wc := verbs.WC{WRID: r.Uint64() >> (1 + r.IntN(63)), Status: verbs.WCStatus(r.IntN(22)), Opcode: verbs.WCOpcode(r.IntN(200)), ByteLen: r.Uint32()}
					wantOthers = append(wantOthers, wc)
					f.recvCQ.put(wc)
				case 2:
					for len(gotMessages) < len(wantMessages) {
						b := make([]byte, size)
						n, err := f.Recv(t.Context(), b)
						if err != nil {
							t.Fatal(err)
						}
						gotMessages = append(gotMessages, string(b[:n]))
						free++
					}
				case 3:
					for len(gotOthers) < len(wantOthers) {
						wcs := make([]verbs.WC, 1+r.IntN(20))
						n, err := f.WaitRecvs(t.Context(), wcs)
						if err != nil {
							t.Fatal(err)
						}
						gotOthers = append(gotOthers, wcs[:n]...)
					}
				}
			}
			if !slices.Equal(gotMessages, wantMessages[:len(gotMessages)]) || !slices.Equal(gotOthers, wantOthers[:len(gotOthers)]) {
				t.Fatalf("seed %d: messages %q, want %q; the caller's %+v, want %+v", seed, gotMessages, wantMessages, gotOthers, wantOthers)
			}
		})
	}
}

// Sending and receiving allocate nothing when nobody has to wait.
func TestMessagesAllocateNothing(t *testing.T) {
	f := newFakeConn(t, 1, 8)
	var sends, recvs oneCQ
	f.messages.sends.cq, f.messages.recvs.cq = &sends, &recvs
	f.messages.qp = immediateQP{&sends}
	message, b, ctx := []byte("x"), make([]byte, 8), t.Context()
	if n := testing.AllocsPerRun(100, func() {
		if err := f.Send(ctx, message); err != nil {
			t.Fatal(err)
		}
		recvs = oneCQ{verbs.WC{WRID: ReservedWRIDs, Opcode: verbs.WCRecv, ByteLen: 1}, true}
		if _, err := f.Recv(ctx, b); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A oneCQ has one completion, or none.
type oneCQ struct {
	wc   verbs.WC
	full bool
}

func (cq *oneCQ) Poll(wcs []verbs.WC) (int, error) {
	if !cq.full {
		return 0, nil
	}
	wcs[0], cq.full = cq.wc, false
	return 1, nil
}

func (cq *oneCQ) Arm(bool) error { panic("nothing to wait for") }

// An immediateQP completes sends at once.
type immediateQP struct{ sends *oneCQ }

func (qp immediateQP) PostSend(wrs ...verbs.SendWR) (int, error) {
	*qp.sends = oneCQ{verbs.WC{WRID: wrs[0].WRID, Opcode: verbs.WCSend}, true}
	return 1, nil
}

func (immediateQP) PostRecv(...verbs.RecvWR) (int, error) { return 1, nil }

var noContext context.Context

// An endingContext ends when a caller waits for its end, just after before was called.
type endingContext struct {
	context.Context
	before func()
}

func (c endingContext) Done() <-chan struct{} {
	c.before()
	ended := make(chan struct{})
	close(ended)
	return ended
}

func (c endingContext) Err() error { return context.Canceled }

// TestCompletesAsContextEnds: a slot whose send completes just as its context ends is free again.
func TestCompletesAsContextEnds(t *testing.T) {
	f := newFakeConn(t, 1, 8)
	for range 100 {
		posted, _ := f.qp.sent()
		err := f.messages.send(endingContext{t.Context(), func() {
			if n, wr := f.qp.sent(); n > posted {
				f.messages.sent(&verbs.WC{WRID: wr.WRID, Opcode: verbs.WCSend})
			}
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.messages.free) != 1 {
			t.Fatal("the slot is lost")
		}
	}
}
