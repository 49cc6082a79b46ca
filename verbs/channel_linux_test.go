package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// happen causes an event of a CQ. The fake kernel's channels are eventfds, which return the
// written value.
func happen(t *testing.T, cq *CQ) {
	t.Helper()
	if _, err := unix.Write(cq.chn.events.fd, binary.NativeEndian.AppendUint64(nil, cq.id)); err != nil {
		t.Error(err)
	}
}

// asleep waits until a CQ has been armed n times, which happens before a wait sleeps.
func asleep(cq *CQ, q *fakeCQ, n int) {
	yield(func() bool {
		cq.mu.Lock()
		defer cq.mu.Unlock()
		return q.armed >= n
	})
}

// complete adds completions that can be polled.
func complete(cq *CQ, q *fakeCQ, n int) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	q.ready += n
}

// TestWaitsShareOneChannel: CQs created without a channel share one, which is created with
// the first of them.
func TestWaitsShareOneChannel(t *testing.T) {
	d, k := openFake(t)
	if n := k.count("create_comp_channel"); n != 0 {
		t.Errorf("%d channels before there is a CQ", n)
	}
	var cqs [3]*CQ
	for i := range cqs {
		cqs[i] = must(d.CreateCQ(CQOptions{MaxCQE: 4}))(t)
	}
	if n := k.count("create_comp_channel"); n != 1 {
		t.Errorf("%d channels for %d CQs, want 1", n, len(cqs))
	}
	type found struct{ of, n int }
	finds := make(chan found)
	for i, cq := range cqs {
		go func() {
			n, err := cq.PollWait(t.Context(), make([]WC, 4))
			if err != nil {
				t.Error(err)
			}
			finds <- found{i, n}
		}()
		asleep(cq, d.prov.(*fakeProvider).cqs[i], 1)
	}
	for _, i := range []int{2, 0, 1} {
		complete(cqs[i], d.prov.(*fakeProvider).cqs[i], i+1)
		happen(t, cqs[i])
		if got := soon(t, finds); got != (found{i, i + 1}) {
			t.Errorf("CQ %d has %d completions, want CQ %d with %d", got.of, got.n, i, i+1)
		}
	}
	if err := cqs[0].Arm(false); !errors.Is(err, ErrInvalid) {
		t.Errorf("arming for nobody: %v", err)
	}
	fd := cqs[0].chn.events.fd
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	k.events.Close()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("the channel is open after Close: %v", err)
	}
}

// TestNoChannelToBeHad: if the channel can't be created, the CQ isn't created, and the next
// CQ tries again.
func TestNoChannelToBeHad(t *testing.T) {
	d, k := fakeContext(t)
	k.answerTo("create_comp_channel", refuse(unix.EMFILE))
	if cq, err := d.CreateCQ(CQOptions{MaxCQE: 1}); cq != nil || !errors.Is(err, unix.EMFILE) || k.count("create_cq") != 0 {
		t.Errorf("%v, %v", cq, err)
	}
	k.answerTo("create_comp_channel", nil)
	must(d.CreateCQ(CQOptions{MaxCQE: 1}))(t)
}

// TestChannelHasOneReader: Wait and PollWait refuse each other's channel, from the first
// call on.
func TestChannelHasOneReader(t *testing.T) {
	d, _ := fakeContext(t)
	for name, tt := range map[string]struct{ first, second func(*CQ) error }{
		"Wait":     {waitOnce, pollWaitOnce},
		"PollWait": {pollWaitOnce, waitOnce},
		"All":      {allOnce, waitOnce},
	} {
		ch := must(d.CreateCompChannel())(t)
		cqs := [2]*CQ{}
		for i := range cqs {
			cqs[i] = must(d.CreateCQ(CQOptions{MaxCQE: 1, Channel: ch}))(t)
		}
		for range 2 {
			if err := tt.first(cqs[0]); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
			for _, cq := range cqs {
				if err := tt.second(cq); !errors.Is(err, ErrInvalid) {
					t.Errorf("after %s: %v, want ErrInvalid", name, err)
				}
			}
		}
	}
	own := must(d.CreateCQ(CQOptions{MaxCQE: 1}))(t)
	if err := pollWaitOnce(own); !errors.Is(err, context.Canceled) {
		t.Errorf("without a channel of the caller's: %v", err)
	}
}

func waitOnce(cq *CQ) error { _, err := cq.chn.Wait(canceled); return err }

func pollWaitOnce(cq *CQ) error { _, err := cq.PollWait(canceled, make([]WC, 1)); return err }

func allOnce(cq *CQ) (last error) {
	for _, err := range cq.All(canceled) {
		last = err
	}
	return last
}

// TestChannelDescriptor: the descriptor is readable when there is an event, and refuses all
// other uses.
func TestChannelDescriptor(t *testing.T) {
	d, _ := fakeContext(t)
	ch := must(d.CreateCompChannel())(t)
	cq := must(d.CreateCQ(CQOptions{MaxCQE: 1, Channel: ch}))(t)
	raw := must(ch.SyscallConn())(t)
	readable := func() bool {
		n := 0
		err := raw.Control(func(fd uintptr) {
			var err error
			if n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Error(err)
		}
		return n == 1
	}
	for range 2 {
		if readable() {
			t.Error("readable without an event")
		}
		happen(t, cq)
		if !readable() {
			t.Error("not readable with an event")
		}
		if got, err := ch.Wait(t.Context()); got != cq || err != nil {
			t.Errorf("%v, %v", got, err)
		}
	}
	for name, err := range map[string]error{
		"Read":  raw.Read(func(uintptr) bool { t.Error("called"); return true }),
		"Write": raw.Write(func(uintptr) bool { t.Error("called"); return true }),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, o := range []io.Closer{cq, ch} {
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := raw.Control(func(uintptr) { t.Error("called") }); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if _, err := ch.SyscallConn(); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestNoChannels: where the kernel makes no completion channels, CQs can be polled, but not be
// waited for.
func TestNoChannels(t *testing.T) {
	d, k := fakeContext(t)
	k.answerTo("create_comp_channel", refuse(unix.EINVAL))
	cq := must(d.CreateCQ(CQOptions{MaxCQE: 1}))(t)
	d.prov.(*fakeProvider).cqs[0].ready = 1
	wc := make([]WC, 2)
	if n, err := cq.Poll(wc); n != 1 || err != nil {
		t.Errorf("poll: %d, %v", n, err)
	}
	var e *OpError
	if n, err := cq.PollWait(context.Background(), wc); n != 0 || !errors.Is(err, ErrNotSupported) || !errors.As(err, &e) || e.hint == "" {
		t.Errorf("wait: %d, %v", n, err)
	}
	for _, err := range cq.All(context.Background()) {
		if !errors.Is(err, ErrNotSupported) {
			t.Errorf("all: %v", err)
		}
	}
	if err := cq.Arm(false); !errors.Is(err, ErrInvalid) {
		t.Errorf("arm: %v", err)
	}
	k.answerTo("create_comp_channel", refuse(unix.EMFILE))
	if _, err := d.CreateCQ(CQOptions{MaxCQE: 1}); !errors.Is(err, unix.EMFILE) {
		t.Errorf("out of descriptors: %v", err)
	}
	events := d.Events(t.Context())
	k.event(EventCQErr, cq.id)
	for e, err := range events {
		if err != nil || e.CQ != cq {
			t.Errorf("%+v, %v", e, err)
		}
		break
	}
	if err := cq.Close(); err != nil {
		t.Error(err)
	}
}

// TestCloseBesideWait: a Wait that is just beginning doesn't keep Close from closing.
func TestCloseBesideWait(t *testing.T) {
	d, _ := fakeContext(t)
	for range 1000 {
		ch := must(d.CreateCompChannel())(t)
		began, ended := make(chan struct{}), make(chan error)
		go func() {
			close(began)
			for {
				if _, err := ch.Wait(canceled); !errors.Is(err, context.Canceled) {
					ended <- err
					return
				}
			}
		}()
		<-began
		if err := ch.Close(); err != nil {
			t.Fatal(err)
		}
		if err := soon(t, ended); !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
	}
}

// TestTokenIsPassedOn: the goroutine that reads a channel's events passes the token on at the end
// of its wait, even after an error.
func TestTokenIsPassedOn(t *testing.T) {
	d, _ := fakeContext(t)
	for name, wait := range map[string]func(*CQ, context.Context) error{
		"PollWait": func(cq *CQ, ctx context.Context) error { _, err := cq.PollWait(ctx, make([]WC, 1)); return err },
		"Wait":     func(cq *CQ, ctx context.Context) error { _, err := cq.chn.Wait(ctx); return err },
		"All": func(cq *CQ, ctx context.Context) (last error) {
			for _, last = range cq.All(ctx) {
			}
			return last
		},
	} {
		cq := must(d.CreateCQ(CQOptions{MaxCQE: 1, Channel: must(d.CreateCompChannel())(t)}))(t)
		token := cq.chn.events.token
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- wait(cq, ctx) }()
			yield(func() bool { return len(token) == 0 })
			cancel()
			if err := soon(t, ended); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
			if len(token) != 1 {
				t.Fatalf("%s has ended, and nobody can read the channel", name)
			}
		}
	}
}
