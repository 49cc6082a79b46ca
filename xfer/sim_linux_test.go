package xfer_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
	"github.com/goverbs/goverbs/xfer"
)

// TestSimulation has one seed decide what two machines do and what happens to them: batches of all
// kinds, several at a time; links that flap; requests that fail, hang, or lose packets; grants that
// are revoked; a peer that is lost. A model knows what each byte may be, and which notifications
// there may be. GOVERBS_SEED repeats the decisions of a run; GOVERBS_LONG=1 takes a hundred times as
// many steps.
func TestSimulation(t *testing.T) {
	steps := 10_000
	if os.Getenv("GOVERBS_LONG") == "1" {
		steps = 1_000_000
	}
	simulate(t, steps)
}

func simulate(t *testing.T, steps int) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("GOVERBS_SEED"); s != "" {
		seed = rdmatest.Must(strconv.ParseUint(s, 10, 64))(t)
	}
	t.Logf("GOVERBS_SEED=%d", seed)
	s := newSimulation(t, seed)
	for i := range steps {
		if s.step(i); t.Failed() {
			t.Fatalf("step %d of GOVERBS_SEED=%d", i, seed)
		}
	}
	s.settle()
	s.count()
	t.Logf("%d batches, %d of which failed; %d notifications; %d peers; %d queue pairs, %d of which failed; %d slices were sent again",
		s.batches, s.failures, s.notified, s.peers+1, s.links, s.failed, s.again)
	if steps < 10_000 {
		return // chance decides what happened
	}
	// On a loaded machine more batches find no rail for longer than their patience.
	if s.batches < steps/4 || s.batches-s.failures < s.batches/10 || s.notified == 0 || s.failed == 0 || s.again == 0 {
		t.Error("the simulation does too little, or too much fails")
	}
}

const (
	places    = 24
	placeSize = 24 << 10
)

// A simulation is the state of two machines, and a model of it.
type simulation struct {
	*machines
	t      *testing.T
	ctx    context.Context
	rand   *rand.Rand
	o      xfer.Options
	faulty struct { // the network's decisions; under its own lock, in the order of requests
		sync.Mutex
		rand    *rand.Rand
		often   float64
		answers uint32 // the queue pair whose answers are lost
	}

	mine   *xfer.Memory
	theirs *xfer.Memory
	places [places]place
	tags   map[uint64]*tag
	tag    uint64

	batches, failures, notified, peers int
	again, failed, links               uint64 // of the lanes of peers that were lost
}

// A place is a piece of the peer's memory, and as much of the own memory.
type place struct {
	number  int
	grant   *xfer.Grant
	running bool
	b       xfer.Batch
	what    int
	off, n  int
	was     []byte // the peer's bytes before a write
	tag     uint64
	word    uint64
}

// A tag is a notification.
type tag struct {
	place   int
	written []byte // what the peer must find in the place
	off     int
	came    bool
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	s := &simulation{t: t, ctx: t.Context(), rand: rand.New(rand.NewPCG(seed, 1)), tags: make(map[uint64]*tag)}
	s.faulty.rand = rand.New(rand.NewPCG(seed, 2))
	s.o = xfer.Options{SliceBytes: 4096, SmallBytes: 512, Window: 3, AckTimeout: time.Millisecond, Patience: 10 * time.Millisecond}
	s.machines = twoEngines(t, 2, s.o)
	s.mine, s.theirs = memory(t, s.a, places*placeSize, 1), memory(t, s.b, places*placeSize, 2)
	for i := range s.places {
		s.places[i].number = i
		s.renew(&s.places[i])
	}
	s.net.SetFault(s.fault)
	return s
}

// fault decides about a request.
func (s *simulation) fault(r verbstest.Request) verbstest.Fault {
	f := &s.faulty
	f.Lock()
	defer f.Unlock()
	if r.QPN == f.answers && f.often > 0 {
		return verbstest.LoseAnswer()
	}
	if f.rand.Float64() >= f.often {
		return verbstest.Fault{}
	}
	switch f.rand.IntN(8) {
	case 0:
		return verbstest.Fail(verbs.WCRetryExcErr)
	case 1:
		return verbstest.Fail(verbs.WCGeneralErr)
	case 2:
		return verbstest.Hold()
	case 3:
		return verbstest.NotReady()
	case 4:
		return verbstest.Late()
	case 5, 6:
		f.answers = r.QPN // and all further ones of this queue pair
		return verbstest.LoseAnswer()
	}
	return verbstest.Lose()
}

func (s *simulation) remotes(p *place) []byte {
	return s.theirs.Bytes()[p.number*placeSize:][:placeSize]
}
func (s *simulation) locals(p *place) []byte { return s.mine.Bytes()[p.number*placeSize:][:placeSize] }

// renew grants a place.
func (s *simulation) renew(p *place) {
	p.grant = grant(s.t, s.theirs.Slice(p.number*placeSize, placeSize), xfer.Read|xfer.Write|xfer.Atomic)
}

// step does one thing.
func (s *simulation) step(i int) {
	p := &s.places[s.rand.IntN(places)]
	switch r := s.rand.IntN(1000); {
	case r < 900:
		if p.running {
			s.finish(p)
		}
		s.begin(p)
	case r < 912:
		s.net.Device(s.rand.IntN(4)).SetPort(false)
	case r < 950:
		for d := range 4 {
			s.net.Device(d).SetPort(true)
		}
	case r < 965:
		s.faulty.Lock()
		s.faulty.often = []float64{0, 0, 0.003, 0.03}[s.rand.IntN(4)]
		s.faulty.Unlock()
		s.net.SetFault(s.fault) // what is held, goes on
	case r < 985:
		s.revoke(p)
	case r < 990 && p.running:
		p.b.Cancel()
	case r == 999:
		s.lose()
	}
	s.take()
}

// begin starts a batch on a place.
func (s *simulation) begin(p *place) {
	p.running, p.tag = true, 0
	p.what, p.off = s.rand.IntN(5), 8*s.rand.IntN(placeSize/16)
	p.n = 1 + s.rand.IntN(placeSize-p.off)
	if s.rand.IntN(2) == 0 {
		p.n = min(p.n, 300)
	}
	remote, local := p.grant.Remote().Slice(p.off, p.n), s.mine.Slice(p.number*placeSize+p.off, p.n)
	p.b.Reset()
	p.was = append(p.was[:0], s.remotes(p)...)
	switch p.what {
	case 0, 1: // write, and perhaps notify
		for i := range local.Bytes() {
			local.Bytes()[i] = byte(s.rand.Uint32())
		}
		half := s.rand.IntN(p.n + 1)
		p.b.Write(remote.Slice(0, half), local.Slice(0, half))
		p.b.Write(remote.Slice(half, p.n-half), local.Slice(half, p.n-half))
		if p.what == 1 {
			s.tag++
			p.tag = s.tag
			s.tags[p.tag] = &tag{place: p.number, off: p.off, written: bytes.Clone(local.Bytes())}
			p.b.Notify(p.tag)
		}
	case 2:
		p.b.Read(local, remote)
	case 3:
		p.b.FetchAdd(&p.word, p.grant.Remote().Slice(p.off, 8), 1)
	case 4: // a forged range: it reaches over the end of the grant
		bad := p.grant.Remote()
		b := rdmatest.Must(bad.MarshalBinary())(s.t)
		b[50+6]++ // length + 256
		rdmatest.Check(s.t, bad.UnmarshalBinary(b))
		p.b.Read(local.Slice(0, 1), bad.Slice(placeSize+s.rand.IntN(255), 1))
	}
	s.batches++
	if err := s.peer.Start(&p.b); err != nil {
		s.t.Errorf("start: %v", err)
	}
}

// finish waits for a place's batch, and compares the bytes with the model.
func (s *simulation) finish(p *place) {
	began := time.Now()
	for over := false; !over; { // a notification may have to wait for those before it
		short, cancel := context.WithTimeout(s.ctx, 50*time.Millisecond)
		var pending *xfer.PendingError
		err := p.b.Wait(short)
		cancel()
		if over = !errors.As(err, &pending); !over {
			if time.Since(began) > rdmatest.Patience {
				s.t.Fatalf("a batch doesn't end: %v; %+v", err, s.peer.Stats())
			}
			s.take()
			continue
		}
		p.running = false
		s.compare(p, err)
	}
}

// compare compares the bytes of a place whose batch is over with what they may be.
func (s *simulation) compare(p *place, err error) {
	if err != nil {
		s.failures++
		var e *xfer.Error
		if !errors.As(err, &e) && !errors.Is(err, xfer.ErrCanceled) {
			s.t.Errorf("an error that names nothing: %v", err)
		}
	}
	is, mine := s.remotes(p), s.locals(p)
	lo, hi := p.off, p.off+p.n
	switch p.what {
	case 0, 1:
		if !bytes.Equal(is[:lo], p.was[:lo]) || !bytes.Equal(is[hi:], p.was[hi:]) {
			s.t.Errorf("bytes beside those written have changed: place %d", p.number)
		}
		for i := lo; i < hi; i++ {
			if is[i] != mine[i] && (err == nil || is[i] != p.was[i]) {
				s.t.Errorf("byte %d of place %d is %#x, and %#x was written to %#x: %v", i, p.number, is[i], mine[i], p.was[i], err)
				return
			}
		}
	case 2:
		if !bytes.Equal(is, p.was) || err == nil && !bytes.Equal(is[lo:hi], mine[lo:hi]) {
			s.t.Errorf("place %d was read wrongly: %v", p.number, err)
		}
	case 3:
		was, now := wordOf(p.was[lo:]), wordOf(is[lo:])
		switch {
		case err == nil && (p.word != was || now != was+1):
			s.t.Errorf("fetch-and-add: %#x was %#x before, and is %#x", p.word, was, now)
		case err != nil && now != was && (now != was+1 || !errors.Is(err, xfer.ErrUncertain) && !errors.Is(err, xfer.ErrPeerLost) && !errors.Is(err, xfer.ErrCanceled)):
			s.t.Errorf("a failed fetch-and-add: %#x is %#x: %v", was, now, err)
		}
	case 4:
		if err == nil {
			s.t.Error("a forged range was read")
		}
	}
	if err == nil && p.tag != 0 {
		s.wait(p.tag)
	}
}

// take takes the notifications that are there.
func (s *simulation) take() {
	for {
		short, cancel := context.WithCancel(s.ctx)
		cancel()
		n, err := s.b.Notified(short)
		if err != nil {
			return
		}
		s.came(n)
	}
}

// wait waits for a notification.
func (s *simulation) wait(number uint64) {
	ctx, cancel := context.WithTimeout(s.ctx, rdmatest.Patience)
	defer cancel()
	for !s.tags[number].came {
		n, err := s.b.Notified(ctx)
		if err != nil {
			s.t.Fatalf("notification %d: %v", number, err)
		}
		s.came(n)
	}
}

// came compares the bytes that a notification tells of, unless its place was used again.
func (s *simulation) came(n xfer.Notification) {
	x := s.tags[n.Tag]
	if x == nil || x.came {
		s.t.Fatalf("notification %d has come twice, or was never sent", n.Tag)
	}
	s.notified++
	x.came = true
	p := &s.places[x.place]
	if p.tag == n.Tag && !bytes.Equal(s.remotes(p)[x.off:x.off+len(x.written)], x.written) {
		s.t.Errorf("notification %d has come before its bytes", n.Tag)
	}
	x.written = nil
}

// revoke takes a place back, and looks that nothing is written into it then.
func (s *simulation) revoke(p *place) {
	ctx, cancel := context.WithTimeout(s.ctx, time.Duration(s.rand.IntN(3))*time.Millisecond)
	defer cancel()
	rdmatest.Check(s.t, p.grant.Revoke(ctx))
	after := bytes.Clone(s.remotes(p))
	if p.running {
		s.finish(p)
	}
	if !bytes.Equal(after, s.remotes(p)) {
		s.t.Errorf("place %d has changed after Revoke", p.number)
	}
	s.renew(p)
}

// lose ends the connection to the peer, and makes a new one.
func (s *simulation) lose() {
	if s.rand.IntN(2) == 0 {
		rdmatest.Check(s.t, s.peer.Close())
	} else {
		for _, p := range s.b.Peers() {
			rdmatest.Check(s.t, p.Close())
		}
		<-s.peer.Done()
	}
	for i := range s.places {
		if p := &s.places[i]; p.running {
			s.finish(p)
		}
	}
	s.count()
	s.peers++
	s.peer = rdmatest.Must(s.a.Dial(s.ctx, s.l.Addr().String()))(s.t)
}

// settle ends all faults, and all batches. All works again then.
func (s *simulation) settle() {
	s.net.SetFault(nil)
	for d := range 4 {
		s.net.Device(d).SetPort(true)
	}
	for i := range s.places {
		p := &s.places[i]
		if p.running {
			s.finish(p)
		}
	}
	s.allUp(s.t)
	for i := range s.places {
		p := &s.places[i]
		p.was = append(p.was[:0], s.remotes(p)...)
		p.what, p.off, p.n, p.tag = 0, 0, placeSize, 0
		fill(s.locals(p), byte(i))
		var err error
		eventually(s.t, "a rail reaches the peer for long enough", func() bool {
			err = s.peer.Write(s.ctx, p.grant.Remote(), s.mine.Slice(i*placeSize, placeSize))
			return !errors.Is(err, xfer.ErrNoRail) // a loaded machine takes longer than the Patience
		})
		if s.compare(p, err); err != nil {
			s.t.Errorf("after all faults: %v", err)
		}
	}
	s.take()
}

// count adds the counters of the peer.
func (s *simulation) count() {
	for _, l := range s.peer.Stats().Lanes {
		s.again += l.Again
		s.failed += l.Failed
		s.links += l.Links
	}
}

func wordOf(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }
