package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/goverbs/goverbs/verbs"
)

// complete completes the oldest n sends.
func (f *fakeConn) complete(n int) {
	f.qp.mu.Lock()
	defer f.qp.mu.Unlock()
	for _, wr := range f.qp.sends[:n] {
		f.sendCQ.put(verbs.WC{WRID: wr.WRID, Opcode: verbs.WCSend})
	}
	f.qp.sends = f.qp.sends[n:]
}

// under returns the messages in flight.
func (f *fakeConn) under() (messages []string) {
	f.qp.mu.Lock()
	defer f.qp.mu.Unlock()
	for _, wr := range f.qp.sends {
		messages = append(messages, string(f.bytes(wr.SGL)))
	}
	return messages
}

func (f *fakeConn) wantUnder(t *testing.T, want ...string) {
	t.Helper()
	if got := f.under(); !slices.Equal(got, want) {
		t.Errorf("on their way: %q, want %q", got, want)
	}
}

// async runs a call in a goroutine, and returns a channel for its result.
func async(call func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- call() }()
	return result
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// Post returns without a completion, its bytes may be reused, and it waits only for a
// buffer.
func TestPost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(t, 3, 8)
		b := make([]byte, 5)
		for i := range 3 {
			copy(b, fmt.Sprint("no. ", i))
			if err := f.Post(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		f.wantUnder(t, "no. 0", "no. 1", "no. 2")
		ctx, cancel := context.WithCancel(t.Context())
		cancelled := async(func() error { return f.Post(ctx, []byte("not sent")) })
		synctest.Wait()
		none(t, cancelled)
		cancel()
		wantErr(t, <-cancelled, context.Canceled)
		fourth := async(func() error { return f.Post(t.Context(), []byte("no. 3")) })
		synctest.Wait()
		none(t, fourth)
		f.complete(1)
		if err := <-fourth; err != nil {
			t.Fatal(err)
		}
		f.wantUnder(t, "no. 1", "no. 2", "no. 3")
		wantErr(t, f.Post(t.Context(), make([]byte, 9)), ErrInvalid)
		wantErr(t, f.Post(noContext, nil), ErrInvalid)
	})
}

// Flush waits for messages that were posted before it, and for no others.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(t, 8, 8)
		post := func() {
			t.Helper()
			if err := f.Post(t.Context(), []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		flush := func(ctx context.Context) <-chan error {
			result := async(func() error { return f.Flush(ctx) })
			synctest.Wait()
			return result
		}
		if err := <-flush(t.Context()); err != nil {
			t.Errorf("nothing was posted: %v", err)
		}
		post()
		post()
		two := flush(t.Context())
		post()
		ctx, cancel := context.WithCancel(t.Context())
		cancelled := flush(ctx)
		post()
		four, fourToo := flush(t.Context()), flush(t.Context())
		f.complete(1)
		synctest.Wait()
		none(t, two)
		f.complete(1)
		if err := <-two; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		none(t, cancelled)
		cancel()
		wantErr(t, <-cancelled, context.Canceled)
		f.complete(1)
		synctest.Wait()
		none(t, four)
		post()
		f.complete(1)
		for _, result := range []<-chan error{four, fourToo} {
			if err := <-result; err != nil {
				t.Error(err)
			}
		}
		f.complete(1)
		if err := <-flush(t.Context()); err != nil {
			t.Error(err)
		}
		wantErr(t, f.Flush(noContext), ErrInvalid)
	})
}

// A Send between posts waits for itself only, and Flush includes it.
func TestFlushWithSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(t, 4, 8)
		if err := f.Post(t.Context(), []byte("first")); err != nil {
			t.Fatal(err)
		}
		sent := f.send(t.Context(), "second")
		synctest.Wait()
		flushed := async(func() error { return f.Flush(t.Context()) })
		synctest.Wait()
		if err := f.Post(t.Context(), []byte("third")); err != nil {
			t.Fatal(err)
		}
		f.wantUnder(t, "first", "second", "third")
		f.complete(1)
		synctest.Wait()
		none(t, sent)
		none(t, flushed)
		f.complete(1)
		for _, result := range []<-chan error{sent, flushed} {
			if err := <-result; err != nil {
				t.Error(err)
			}
		}
	})
}

// If a posted message fails, every later call returns the reason.
func TestPostFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(t, 4, 8)
		for range 3 {
			if err := f.Post(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		flushed := async(func() error { return f.Flush(t.Context()) })
		synctest.Wait()
		f.complete(1)
		f.sendCQ.put(verbs.WC{WRID: ReservedWRIDs + 1, Status: verbs.WCRNRRetryExcErr},
			verbs.WC{WRID: ReservedWRIDs + 2, Status: verbs.WCWRFlushErr})
		for range 2 {
			wantWC(t, <-flushed, verbs.WCRNRRetryExcErr)
			wantWC(t, f.Err(), verbs.WCRNRRetryExcErr)
			flushed = async(func() error { return f.Flush(t.Context()) })
		}
		wantWC(t, f.Post(t.Context(), nil), verbs.WCRNRRetryExcErr)
		_, err := f.SendBuffer(t.Context())
		wantWC(t, err, verbs.WCRNRRetryExcErr)
		_, err = f.RecvBuffer(t.Context())
		wantWC(t, err, verbs.WCRNRRetryExcErr)
	})
}

// Messages that arrived before the peer disconnected have arrived.
func TestFlushAfterEnd(t *testing.T) {
	f := newFakeConn(t, 4, 8)
	for range 2 {
		if err := f.Post(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	f.complete(2)
	f.endLife(ErrDisconnected)
	if err := f.Flush(t.Context()); err != nil {
		t.Errorf("they have arrived: %v", err)
	}
	wantErr(t, f.Post(t.Context(), nil), ErrDisconnected)
	f = newFakeConn(t, 4, 8)
	if err := f.Post(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	f.endLife(ErrDisconnected)
	wantErr(t, f.Flush(t.Context()), ErrDisconnected)
}

// Whichever queue is polled first, the reason for the end is the failure that caused the others.
func TestCauseOnOtherQueue(t *testing.T) {
	for _, polling := range []bool{false, true} {
		t.Run(fmt.Sprintf("other waits %t", polling), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeConn(t, 2, 8)
				if err := f.Post(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				var flushed <-chan error
				if polling {
					flushed = async(func() error { return f.Flush(t.Context()) })
					synctest.Wait()
				}
				// The waiter on the send queue gets its completion last.
				f.sendCQ.mu.Lock()
				f.sendCQ.wcs = append(f.sendCQ.wcs, verbs.WC{WRID: ReservedWRIDs, Status: verbs.WCRetryExcErr})
				f.sendCQ.mu.Unlock()
				f.recvCQ.put(verbs.WC{WRID: f.qp.takeRecv(t).WRID, Status: verbs.WCWRFlushErr})
				_, err := f.Recv(t.Context(), nil)
				if polling {
					wantWC(t, <-flushed, verbs.WCRetryExcErr)
				} else {
					wantWC(t, err, verbs.WCRetryExcErr)
				}
				wantWC(t, f.Err(), verbs.WCRetryExcErr)
			})
		})
		t.Run(fmt.Sprintf("receive, other waits %t", polling), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeConn(t, 2, 8)
				if err := f.Post(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				f.recvCQ.wcs = append(f.recvCQ.wcs, verbs.WC{WRID: f.qp.takeRecv(t).WRID, Opcode: verbs.WCRDMARead})
				f.sendCQ.put(verbs.WC{WRID: ReservedWRIDs, Status: verbs.WCWRFlushErr})
				wantErr(t, f.Flush(t.Context()), ErrNotMessage)
				wantErr(t, f.Err(), ErrNotMessage)
			})
		})
	}
}

// If one of the caller's own requests breaks the connection, each call that waits ends, whichever
// queue it waits for, and Done and Err say so: also if nobody waits.
func TestCallersFailureEnds(t *testing.T) {
	failure := verbs.WC{WRID: 3, Status: verbs.WCRemAccessErr}
	var wcs [4]verbs.WC
	for name, call := range map[string]func(*fakeConn, context.Context) error{
		"Send":      func(f *fakeConn, ctx context.Context) error { return f.Send(ctx, nil) },
		"Flush":     func(f *fakeConn, ctx context.Context) error { return errors.Join(f.Post(ctx, nil), f.Flush(ctx)) },
		"Recv":      func(f *fakeConn, ctx context.Context) error { _, err := f.Recv(ctx, nil); return err },
		"RecvWrite": func(f *fakeConn, ctx context.Context) error { _, _, err := f.RecvWrite(ctx); return err },
		"Read":      func(f *fakeConn, ctx context.Context) error { return f.Read(ctx, verbs.SGE{}, verbs.Remote{}) },
		"WaitRecvs": func(f *fakeConn, ctx context.Context) error { _, err := f.WaitRecvs(ctx, wcs[:]); return err },
		"WaitSends": func(f *fakeConn, ctx context.Context) error {
			if n, err := f.WaitSends(ctx, wcs[:]); n != 1 || err != nil || wcs[0].WRID != 3 {
				return fmt.Errorf("%d completions, %w", n, err)
			}
			_, err := f.WaitSends(ctx, wcs[:])
			return err
		},
		"Done": func(f *fakeConn, ctx context.Context) error { <-f.Done(); return f.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeConn(t, 2, 8)
				result := async(func() error { return call(f, t.Context()) })
				synctest.Wait()
				none(t, result)
				f.sendCQ.put(failure)
				f.recvCQ.put(verbs.WC{WRID: f.qp.takeRecv(t).WRID, Status: verbs.WCWRFlushErr})
				wantWC(t, <-result, verbs.WCRemAccessErr)
				wantWC(t, f.Err(), verbs.WCRemAccessErr)
			})
		})
	}
	t.Run("Err", func(t *testing.T) {
		f := newFakeConn(t, 2, 8)
		if err := f.Err(); err != nil {
			t.Error(err)
		}
		f.sendCQ.put(failure)
		wantWC(t, f.Err(), verbs.WCRemAccessErr)
		if n, err := f.WaitSends(t.Context(), wcs[:]); n != 1 || err != nil || wcs[0].WRID != 3 {
			t.Errorf("%d completions, %v", n, err)
		}
	})
}

// TestArms: a goroutine that sends and then receives arms each CQ once for each event.
func TestArms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(t, 2, 8)
		const rounds = 10
		for range rounds {
			sent := f.send(t.Context(), "request")
			synctest.Wait()
			_, wr := f.qp.sent()
			f.sendCQ.put(verbs.WC{WRID: wr.WRID, Opcode: verbs.WCSend})
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			received := async(func() error { _, err := f.Recv(t.Context(), make([]byte, 8)); return err })
			synctest.Wait()
			f.arrive(t, []byte("answer"))
			if err := <-received; err != nil {
				t.Fatal(err)
			}
		}
		if f.sendCQ.arms != rounds || f.recvCQ.arms != rounds {
			t.Errorf("%d and %d arms for %d events each", f.sendCQ.arms, f.recvCQ.arms, rounds)
		}
	})
}

// A message that is written to a SendBuffer is sent from there.
func TestSendBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(t, 2, 8)
		a, b := must(f.SendBuffer(t.Context()))(t), must(f.SendBuffer(t.Context()))(t)
		if len(a.Bytes()) != 8 || cap(a.Bytes()) != 8 || &a.Bytes()[0] == &b.Bytes()[0] {
			t.Errorf("buffers of %d and %d bytes", len(a.Bytes()), len(b.Bytes()))
		}
		copy(a.Bytes(), "first")
		copy(b.Bytes(), "second")
		third := f.send(t.Context(), "third")
		synctest.Wait()
		none(t, third)
		f.wantUnder(t)
		stale := a.Bytes()
		if err := b.Post(6); err != nil {
			t.Fatal(err)
		}
		if err := a.Post(5); err != nil {
			t.Fatal(err)
		}
		f.wantUnder(t, "second", "first")
		if &f.bytes(f.qp.sends[1].SGL)[0] != &stale[0] {
			t.Error("the message was copied")
		}
		for _, gone := range []SendBuffer{a, b} {
			wantErr(t, gone.Post(1), ErrInvalid)
			gone.Release()
			if gone.Bytes() != nil {
				t.Error("a buffer that was posted has bytes")
			}
		}
		f.complete(2)
		synctest.Wait()
		f.wantUnder(t, "third")
		f.complete(1)
		if err := <-third; err != nil {
			t.Error(err)
		}
		// Each buffer exists once.
		a, b = must(f.SendBuffer(t.Context()))(t), must(f.SendBuffer(t.Context()))(t)
		ctx, cancel := context.WithCancel(t.Context())
		waits := async(func() error { _, err := f.SendBuffer(ctx); return err })
		synctest.Wait()
		none(t, waits)
		cancel()
		wantErr(t, <-waits, context.Canceled)
		a.Release()
		a.Release()
		b.Release()
		a, b = must(f.SendBuffer(t.Context()))(t), must(f.SendBuffer(t.Context()))(t)
		if len(f.messages.free) != 0 {
			t.Error("a buffer that was released twice is there twice")
		}
		// A length that is refused gives the buffer back.
		wantErr(t, a.Post(-1), ErrInvalid)
		wantErr(t, b.Post(9), ErrInvalid)
		wantErr(t, b.Post(1), ErrInvalid)
		if n := len(f.messages.free); n != 2 {
			t.Errorf("%d buffers are free", n)
		}
		empty := must(f.SendBuffer(t.Context()))(t)
		if err := empty.Post(0); err != nil {
			t.Error(err)
		}
		f.wantUnder(t, "")
		f.qp.refusal = verbs.ErrQueueFull
		wantErr(t, must(f.SendBuffer(t.Context()))(t).Post(1), verbs.ErrQueueFull)
		if n := len(f.messages.free); n != 1 {
			t.Errorf("%d buffers are free, want all but one", n)
		}
	})
}

// A stale handle of a buffer that is lent again has no effect.
func TestStaleBuffers(t *testing.T) {
	f := newFakeConn(t, 1, 8)
	old := must(f.SendBuffer(t.Context()))(t)
	old.Release()
	now := must(f.SendBuffer(t.Context()))(t)
	copy(now.Bytes(), "mine")
	old.Release()
	wantErr(t, old.Post(1), ErrInvalid)
	if old.Bytes() != nil || len(f.messages.free) != 0 {
		t.Error("a stale handle has a buffer")
	}
	if err := now.Post(4); err != nil {
		t.Fatal(err)
	}
	f.wantUnder(t, "mine")

	f.arrive(t, []byte("one"))
	before := must(f.RecvBuffer(t.Context()))(t)
	before.Release()
	f.arrive(t, []byte("two"))
	after := must(f.RecvBuffer(t.Context()))(t)
	before.Release()
	if before.Bytes() != nil || string(after.Bytes()) != "two" || len(f.qp.recvs) != 0 {
		t.Errorf("the stale one has %q, the other one %q, and %d are posted", before.Bytes(), after.Bytes(), len(f.qp.recvs))
	}
	var s SendBuffer
	var r RecvBuffer
	s.Release()
	r.Release()
	wantErr(t, s.Post(0), ErrInvalid)
	if s.Bytes() != nil || r.Bytes() != nil {
		t.Error("the zero value has bytes")
	}
}

// A RecvBuffer's memory is that of the receive, which is posted again at Release.
func TestRecvBuffer(t *testing.T) {
	f := newFakeConn(t, 2, 8)
	f.arrive(t, []byte("first"))
	f.arrive(t, []byte("second"))
	a, b := must(f.RecvBuffer(t.Context()))(t), must(f.RecvBuffer(t.Context()))(t)
	if string(a.Bytes()) != "first" || string(b.Bytes()) != "second" || cap(a.Bytes()) != 5 || len(f.qp.recvs) != 0 {
		t.Errorf("received %q and %q, and %d receives are posted", a.Bytes(), b.Bytes(), len(f.qp.recvs))
	}
	if &b.Bytes()[0] != &f.mem[8] {
		t.Error("the message was copied")
	}
	b.Release()
	b.Release()
	f.arrive(t, []byte("third"))
	if len(f.qp.recvs) != 0 {
		t.Errorf("a buffer that was released twice is posted twice")
	}
	var recv [8]byte
	if n := must(f.Recv(t.Context(), recv[:]))(t); string(recv[:n]) != "third" || string(a.Bytes()) != "first" || b.Bytes() != nil {
		t.Errorf("received %q; before it %q", recv[:n], a.Bytes())
	}
	f.arrive(t, nil)
	empty := must(f.RecvBuffer(t.Context()))(t)
	if len(empty.Bytes()) != 0 || empty.Bytes() == nil {
		t.Errorf("an empty message is %q", empty.Bytes())
	}
	empty.Release()
	a.Release()
	if len(f.qp.recvs) != 2 {
		t.Errorf("%d receives are posted", len(f.qp.recvs))
	}
}

// If a receive can't be posted again, the connection ends: the peer would wait for ever.
func TestReleaseFails(t *testing.T) {
	f := newFakeConn(t, 1, 8)
	f.arrive(t, []byte("x"))
	b := must(f.RecvBuffer(t.Context()))(t)
	f.qp.refusal = verbs.ErrQueueFull
	b.Release()
	wantErr(t, f.Err(), verbs.ErrQueueFull)
	_, err := f.RecvBuffer(t.Context())
	wantErr(t, err, verbs.ErrQueueFull)
}

// Buffers outlive the connection, but not Close, which waits for none: it returns ErrBusy.
func TestBuffersAtEnd(t *testing.T) {
	f := newFakeConn(t, 2, 8)
	closed := false
	f.opened = []closer{closeFunc(func() error { closed = true; return nil }), closeFunc(f.checkLent)}
	f.arrive(t, []byte("last"))
	f.arrive(t, []byte("untaken"))
	r, s := must(f.RecvBuffer(t.Context()))(t), must(f.SendBuffer(t.Context()))(t)
	copy(s.Bytes(), "unsent")
	f.endLife(ErrDisconnected)
	f.qp.refusal = verbs.ErrClosed
	if second := must(f.RecvBuffer(t.Context()))(t); string(second.Bytes()) != "untaken" {
		t.Errorf("after the end: %q", second.Bytes())
	} else {
		second.Release()
	}
	if _, err := f.RecvBuffer(t.Context()); err != io.EOF {
		t.Errorf("after the last: %v", err)
	}
	_, err := f.SendBuffer(t.Context())
	wantErr(t, err, ErrDisconnected)
	for range 2 {
		if err := f.Close(); !errors.Is(err, ErrBusy) || closed {
			t.Errorf("with buffers in use: %v, and their memory was freed: %t", err, closed)
		}
	}
	if string(r.Bytes()) != "last" || string(s.Bytes()[:6]) != "unsent" {
		t.Errorf("the buffers have %q and %q", r.Bytes(), s.Bytes())
	}
	wantErr(t, s.Post(6), ErrDisconnected)
	wantErr(t, f.Close(), ErrBusy)
	r.Release()
	if err := f.Close(); err != nil || !closed {
		t.Errorf("released: %v, freed: %t", err, closed)
	}
	r.Release()
	s.Release()
	if r.Bytes() != nil || s.Bytes() != nil {
		t.Error("a closed connection has bytes")
	}
	if _, err := f.RecvBuffer(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	wantErr(t, f.Flush(t.Context()), ErrClosed)
	wantErr(t, f.Post(t.Context(), nil), ErrClosed)
}

// Close ends calls that wait.
func TestCloseEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(t, 1, 8)
		if err := f.Post(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		// One of them waits for a completion, the others for their turn.
		var waits []<-chan error
		for _, call := range []func() error{
			func() error { return f.Flush(t.Context()) },
			func() error { return f.Flush(context.Background()) },
			func() error { return f.Post(t.Context(), nil) },
			func() error { _, err := f.SendBuffer(t.Context()); return err },
			func() error { _, err := f.RecvBuffer(context.Background()); return err },
			func() error { _, err := f.RecvBuffer(t.Context()); return err },
		} {
			waits = append(waits, async(call))
		}
		synctest.Wait()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		for _, wait := range waits {
			wantErr(t, <-wait, net.ErrClosed)
		}
	})
}

// Goroutines send in every way, the device completes in order, and some calls are
// cancelled. Each message whose call succeeds is sent once, and when Flush returns, those
// of its goroutine have completed.
func TestSendsAtRandom(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			const slots, senders, each = 3, 4, 40
			f := newFakeConn(t, slots, 16)
			stop := make(chan struct{})
			var mu sync.Mutex
			completed := make(map[string]int)
			var device, sending sync.WaitGroup
			device.Go(func() {
				r := rand.New(rand.NewPCG(seed, 0))
				for {
					f.qp.mu.Lock()
					n := r.IntN(len(f.qp.sends) + 1)
					for _, wr := range f.qp.sends[:n] {
						mu.Lock()
						completed[string(f.bytes(wr.SGL))]++
						mu.Unlock()
						f.sendCQ.put(verbs.WC{WRID: wr.WRID, Opcode: verbs.WCSend})
					}
					f.qp.sends = f.qp.sends[n:]
					over := len(f.qp.sends) == 0
					f.qp.mu.Unlock()
					synctest.Wait()
					select {
					case <-stop:
						if over {
							return
						}
					default:
					}
				}
			})
			for sender := range senders {
				sending.Go(func() {
					r := rand.New(rand.NewPCG(seed, uint64(sender)+1))
					var mine []string
					flush := func() {
						if err := f.Flush(t.Context()); err != nil {
							t.Error(err)
						}
						mu.Lock()
						defer mu.Unlock()
						for _, m := range mine {
							if completed[m] != 1 {
								t.Errorf("flushed, but %q has completed %d times", m, completed[m])
							}
						}
					}
					for i := range each {
						m := fmt.Sprint(sender, "/", i)
						ctx, cancel := context.WithCancel(t.Context())
						if r.IntN(8) == 0 {
							go cancel()
						}
						var err error
						switch r.IntN(4) {
						case 0:
							err = f.Post(ctx, []byte(m))
						case 1:
							var b SendBuffer
							if b, err = f.SendBuffer(ctx); err == nil {
								err = b.Post(copy(b.Bytes(), m))
								b.Release()
							}
						case 2:
							if err = f.Send(ctx, []byte(m)); err != nil {
								break
							}
							mu.Lock()
							if completed[m] != 1 {
								t.Errorf("sent, but %q has completed %d times", m, completed[m])
							}
							mu.Unlock()
						case 3:
							flush()
							m = ""
						}
						cancel()
						switch {
						case err == nil && m != "":
							mine = append(mine, m)
						case err != nil && !errors.Is(err, context.Canceled):
							t.Error(err)
						}
					}
					flush()
				})
			}
			sending.Wait()
			close(stop)
			device.Wait()
			if err := f.Flush(t.Context()); err != nil || len(f.messages.free) != slots {
				t.Errorf("at the end: %v, and %d buffers are free", err, len(f.messages.free))
			}
			for m, n := range completed {
				if n != 1 {
					t.Errorf("%q was sent %d times", m, n)
				}
			}
		})
	}
}

// No way to send or receive allocates anything if no call has to wait.
func TestBuffersAllocateNothing(t *testing.T) {
	f := newFakeConn(t, 2, 8)
	var sends, recvs oneCQ
	f.messages.sends.cq, f.messages.recvs.cq = &sends, &recvs
	f.messages.qp = immediateQP{&sends}
	message, ctx, wcs := []byte("x"), t.Context(), make([]verbs.WC, 1)
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		check(f.Post(ctx, message))
		check(f.Flush(ctx))
		s, err := f.SendBuffer(ctx)
		check(err)
		check(s.Post(copy(s.Bytes(), message)))
		check(f.Flush(ctx))
		recvs = oneCQ{verbs.WC{WRID: ReservedWRIDs, Opcode: verbs.WCRecv, ByteLen: 1}, true}
		r, err := f.RecvBuffer(ctx)
		check(err)
		if len(r.Bytes()) != 1 {
			t.Fatalf("received %q", r.Bytes())
		}
		r.Release()
		sends = oneCQ{verbs.WC{WRID: 5, Opcode: verbs.WCRDMAWrite}, true}
		if n, err := f.WaitSends(ctx, wcs[:]); n != 1 || err != nil || wcs[0].WRID != 5 {
			t.Fatalf("%d completions, %v", n, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
