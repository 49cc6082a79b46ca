package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/provider"
)

// happen is an event of a CQ. The fake kernel's channels are eventfds: what is written is
// what is read.
func happen(t *testing.T, cq *CQ) {
	t.Helper()
	if _, err := unix.Write(cq.chn.events.fd, binary.NativeEndian.AppendUint64(nil, cq.id)); err != nil {
		t.Error(err)
	}
}

// asleep waits until a CQ was armed n times, which is before a wait sleeps.
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

// TestWaitsShareOneChannel: CQs that the caller gives no channel have one, all the same,
// which is made with the first of them.
func TestWaitsShareOneChannel(t *testing.T) {
	c, k := openFake(t)
	if n := k.count("create_comp_channel"); n != 0 {
		t.Errorf("%d channels before there is a CQ", n)
	}
	var cqs [3]*CQ
	for i := range cqs {
		cqs[i] = must(c.CreateCQ(CQOptions{MaxCQE: 4}))(t)
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
		asleep(cq, c.prov.(*fakeProvider).cqs[i], 1)
	}
	for _, i := range []int{2, 0, 1} {
		complete(cqs[i], c.prov.(*fakeProvider).cqs[i], i+1)
		happen(t, cqs[i])
		if got := <-finds; got != (found{i, i + 1}) {
			t.Errorf("CQ %d has %d completions, want CQ %d with %d", got.of, got.n, i, i+1)
		}
	}
	if err := cqs[0].Arm(false); !errors.Is(err, ErrInvalid) {
		t.Errorf("arming for nobody: %v", err)
	}
	fd := cqs[0].chn.events.fd
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	k.events.Close()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("the channel is open after Close: %v", err)
	}
}

// TestNoChannelToBeHad: the CQ isn't created, and the next one tries again.
func TestNoChannelToBeHad(t *testing.T) {
	c, k := fakeContext(t)
	k.answerTo("create_comp_channel", refuse(unix.EMFILE))
	if cq, err := c.CreateCQ(CQOptions{MaxCQE: 1}); cq != nil || !errors.Is(err, unix.EMFILE) || k.count("create_cq") != 0 {
		t.Errorf("%v, %v", cq, err)
	}
	k.answerTo("create_comp_channel", nil)
	must(c.CreateCQ(CQOptions{MaxCQE: 1}))(t)
}

// TestChannelHasOneReader: Wait and PollWait refuse each other's channel, from the first
// call on.
func TestChannelHasOneReader(t *testing.T) {
	c, _ := fakeContext(t)
	for name, tt := range map[string]struct{ first, second func(*CQ) error }{
		"Wait":     {waitOnce, pollWaitOnce},
		"PollWait": {pollWaitOnce, waitOnce},
		"All":      {allOnce, waitOnce},
	} {
		ch := must(c.CreateCompChannel())(t)
		cqs := [2]*CQ{}
		for i := range cqs {
			cqs[i] = must(c.CreateCQ(CQOptions{MaxCQE: 1, Channel: ch}))(t)
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
	own := must(c.CreateCQ(CQOptions{MaxCQE: 1}))(t)
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

// numberedCQ has completions with rising WRIDs, and reports broken entries as errors.
type numberedCQ struct {
	*fakeCQ
	next   uint64
	broken uint64 // the number of an entry that is an error
}

func (q *numberedCQ) Poll(wc []provider.WC) (int, error) {
	n, _ := q.fakeCQ.Poll(wc[:min(len(wc), 1)])
	if n == 0 {
		return 0, nil
	}
	q.next++
	if q.next == q.broken {
		return 0, &CQEError{Why: "is broken"}
	}
	wc[0] = provider.WC{WRID: q.next}
	return 1, nil
}

// TestAll: all completions come, one after the other. A loop that ends leaves the
// others to the next one. A broken entry doesn't end a loop, a cancellation does.
func TestAll(t *testing.T) {
	c, _ := fakeContext(t)
	cq := must(c.CreateCQ(CQOptions{MaxCQE: 8}))(t)
	q := &numberedCQ{fakeCQ: cq.prov.(*fakeCQ), broken: 3}
	cq.prov = q
	q.ready = 6
	ctx, cancel := context.WithCancel(t.Context())
	var got []uint64
	var e *CQEError
	for wc, err := range cq.All(ctx) {
		if err != nil && !errors.As(err, &e) {
			t.Fatal(err)
		}
		if got = append(got, wc.WRID); len(got) == 4 {
			break
		}
	}
	if e == nil || q.ready != 2 {
		t.Errorf("%d left, broken entry: %v", q.ready, e)
	}
	go func() {
		asleep(cq, q.fakeCQ, 1)
		complete(cq, q.fakeCQ, 1)
		happen(t, cq)
		asleep(cq, q.fakeCQ, 2)
		cancel()
	}()
	var last error
	for wc, err := range cq.All(ctx) {
		if last = err; err == nil {
			got = append(got, wc.WRID)
		}
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("the loop ends with %v", last)
	}
	for i, id := range []uint64{1, 2, 0, 4, 5, 6, 7} {
		if i >= len(got) || got[i] != id {
			t.Errorf("the completions are %v", got)
			break
		}
	}
	if err := cq.Close(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range cq.All(t.Context()) {
		if n++; !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	}
	for _, err := range cq.All(nil) {
		if n++; !errors.Is(err, ErrInvalid) {
			t.Errorf("without a context: %v", err)
		}
	}
	if n != 2 {
		t.Errorf("%d errors, want 2", n)
	}
}

// TestCancelBesideAll: of two loops on one CQ, only that whose context ends does.
func TestCancelBesideAll(t *testing.T) {
	c, _ := fakeContext(t)
	cq := must(c.CreateCQ(CQOptions{MaxCQE: 8}))(t)
	q := cq.prov.(*fakeCQ)
	for _, first := range []int{0, 1} { // the one that reads the channel, and the other
		var cancels [2]func()
		ends := [2]chan error{make(chan error, 1), make(chan error, 1)}
		q.armed = 0
		for i := range ends {
			ctx, cancel := context.WithCancel(t.Context())
			cancels[i] = cancel
			go func() {
				var last error
				for _, last = range cq.All(ctx) {
				}
				ends[i] <- last
			}()
			asleep(cq, q, 1+i)
		}
		cancels[first]()
		if err := <-ends[first]; !errors.Is(err, context.Canceled) {
			t.Errorf("the loop ends with %v", err)
		}
		select {
		case err := <-ends[1-first]:
			t.Errorf("the other loop ends with %v", err)
		default:
		}
		cancels[1-first]()
		if err := <-ends[1-first]; !errors.Is(err, context.Canceled) {
			t.Errorf("the other loop ends with %v", err)
		}
	}
}

// wakingCQ has a completion after each sleep.
type wakingCQ struct {
	*fakeCQ
	event func()
}

func (q *wakingCQ) Poll([]provider.WC) (int, error) {
	if q.ready++; q.ready%3 == 0 {
		return 1, nil
	}
	return 0, nil
}

func (q *wakingCQ) Arm(bool, uint32) error {
	q.event()
	return nil
}

// TestAllAllocates: a loop allocates the same for many completions as for one, whether
// it sleeps before each or finds them.
func TestAllAllocates(t *testing.T) {
	c, _ := fakeContext(t)
	cq := must(c.CreateCQ(CQOptions{MaxCQE: 8}))(t)
	q := cq.prov.(*fakeCQ)
	event := binary.NativeEndian.AppendUint64(nil, cq.id)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, prov := range map[string]provider.CQ{
		"found": &numberedCQ{fakeCQ: q},
		"woken": &wakingCQ{fakeCQ: q, event: func() { unix.Write(cq.chn.events.fd, event) }},
	} {
		cq.prov = prov
		q.ready = 0
		if name == "found" {
			q.ready = 1 << 30
		}
		loop := func(n int) float64 {
			return testing.AllocsPerRun(10, func() {
				i := 0
				for _, err := range cq.All(ctx) {
					if err != nil {
						t.Error(err)
					}
					if i++; i == n {
						break
					}
				}
			})
		}
		if one, many := loop(1), loop(1000); many > one+10 {
			t.Errorf("%s: a loop over 1000 completions allocates %v times, over one %v times", name, many, one)
		}
	}
	cq.prov = q
}

// TestChannelDescriptor: it is readable when there is an event, and nothing else can be
// done with it.
func TestChannelDescriptor(t *testing.T) {
	c, _ := fakeContext(t)
	ch := must(c.CreateCompChannel())(t)
	cq := must(c.CreateCQ(CQOptions{MaxCQE: 1, Channel: ch}))(t)
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
	if _, err := ch.SyscallConn(); !errors.Is(err, ErrClosed) || errors.Is(err, os.ErrInvalid) {
		t.Errorf("closed: %v", err)
	}
}

// TestQPByNum: a completion leads to its QP and to what the caller knows of it, as long
// as there is the QP.
func TestQPByNum(t *testing.T) {
	type conn struct{ name string }
	c, k := fakeContext(t)
	x := makeFakes(t, c)
	numbers := []uint32{1, 0x11, 0x100, 0x1ff, 0x10000, 0x123456, 0xffffff}
	qps := make(map[uint32]*QP)
	conns := make(map[uint32]*conn)
	for _, num := range numbers {
		k.answerTo("create_qp", func(f *fakeCall) error {
			if err := k.usual(f, "create_qp", num); err != nil {
				return err
			}
			return nil
		})
		conns[num] = new(conn)
		qps[num] = must(x.pd.CreateQP(QPOptions{Type: UC, SendCQ: x.cq, RecvCQ: x.cq, Value: conns[num]}))(t)
	}
	k.answerTo("create_qp", nil)
	for _, num := range numbers {
		qp := c.QPByNum(num)
		if qp == nil || qp != qps[num] || qp.Num() != num || qp.Value().(*conn) != conns[num] {
			t.Errorf("QP %#x is %p, want %p", num, qp, qps[num])
		}
	}
	for _, num := range []uint32{0, 2, 0x101, 0x20000, 1 << 24, 1<<24 + 1, 1<<32 - 1} {
		if qp := c.QPByNum(num); qp != nil {
			t.Errorf("there is a QP %#x", num)
		}
	}
	num := numbers[5]
	if n := testing.AllocsPerRun(100, func() { c.QPByNum(num).Value() }); n != 0 {
		t.Errorf("a lookup allocates %v times", n)
	}
	if err := qps[num].Close(); err != nil {
		t.Fatal(err)
	}
	if qp := c.QPByNum(num); qp != nil || qps[num].Value() != conns[num] {
		t.Errorf("the closed QP: %v", qp)
	}
	// A number that was given to another QP before the first one was forgotten.
	next := new(QP)
	c.qps.enter(next, num)
	c.qps.leave(qps[num], num)
	if qp := c.QPByNum(num); qp != next {
		t.Error("another QP's number was dropped")
	}
	c.qps.leave(next, num)
	if x.cq.Value() != nil || (*QP)(nil).Value() != nil {
		t.Error("values of nobody")
	}
	cq := must(c.CreateCQ(CQOptions{MaxCQE: 1, Value: 5}))(t)
	if cq.Value() != 5 {
		t.Errorf("the CQ's value is %v", cq.Value())
	}
}

// TestQPByNumBesideChanges: lookups see a QP or none while QPs come and go.
func TestQPByNumBesideChanges(t *testing.T) {
	var c Device
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for num := range uint32(1000) {
				if qp := c.QPByNum(num); qp != nil && qp.value != num {
					t.Errorf("QP %d is %v", num, qp.value)
				}
			}
		}
	}()
	for range 4 {
		done := make(chan struct{})
		for part := range uint32(4) {
			go func() {
				for num := part; num < 1000; num += 4 {
					qp := &QP{value: num}
					c.qps.enter(qp, num)
					if got := c.QPByNum(num); num != 0 && got != qp {
						t.Errorf("QP %d is %v", num, got)
					}
					c.qps.leave(qp, num)
				}
				done <- struct{}{}
			}()
		}
		for range 4 {
			<-done
		}
	}
	close(stop)
	<-ended
}

func BenchmarkQPByNum(b *testing.B) {
	var c Device
	c.qps.enter(new(QP), 0x1234)
	for b.Loop() {
		if c.QPByNum(0x1234) == nil {
			b.Fatal("gone")
		}
	}
}
