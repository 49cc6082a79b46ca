package selftest

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/scenario"
	"github.com/goverbs/goverbs/verbs"
)

// postsPlanned is how many requests the group doorbells posts.
const postsPlanned = 200_000

// doorbells posts requests of each size at each offset of the send ring, one by one and in
// batches, and then from many goroutines that move between processors. Each request writes
// bytes that show whether it was executed.
func doorbells(r *run) {
	r.planned(postsPlanned, "posts")
	if r.canary == nil {
		if err := r.hatch(); err != nil {
			r.check("canary", func(*check) error { return err })
			return
		}
	}
	// Laps over all sizes and offsets, each in two ways, take up to half of the time.
	half := time.Now().Add(time.Until(r.until) / 2)
	for lap := 0; lap < len(laps) || r.g.Done < postsPlanned/2 && time.Now().Before(half); lap++ {
		l := laps[lap%len(laps)]
		r.check("each size at each offset, "+l.name, func(c *check) error { return c.offsets(l, uint64(lap)) })
		if r.over() {
			return
		}
		if len(r.g.Failures) > 0 && lap >= len(laps) {
			break // further laps would find the same
		}
	}
	r.check("many goroutines, a pair each", func(c *check) error { return c.wandering(12, 1) })
	r.check("many goroutines on one pair", func(c *check) error { return c.wandering(1, 6) })
}

// A lap posts requests of all sizes at all offsets in one way. A missed doorbell
// is noticed only if no other follows. So in half of the laps, each post waits for the previous one.
type lap struct {
	name  string
	batch int // the most requests in a post
	waits bool
}

var laps = []lap{
	{"one by one, each after the last has completed", 1, true},
	{"in batches", maxBatch, false},
	{"in batches, each after the last has completed", maxBatch, true},
	{"one by one", 1, false},
}

// A ring computes the places of requests in an RC send queue.
type ring struct {
	slots int // its length in slots
	mlx5  bool
}

// Segments of 16 bytes that mlx5 reserves for each request of an RC queue: the control
// segment, and a bind's.
const (
	mlx5Overhead = 1 + 11
	mlx5Inline   = 4 // the length before inline data
)

// newRing returns the ring of a queue with the capabilities. A driver other than mlx5 has a
// slot for each request.
func newRing(mlx5 bool, cap verbs.QPCap) ring {
	if !mlx5 {
		return ring{slots: 1 << bits.Len(uint(cap.MaxSendWR)), mlx5: false}
	}
	segments := max(cap.MaxSendSGE, (mlx5Inline+cap.MaxInlineData+15)/16)
	blocks := (mlx5Overhead + segments + 3) / 4
	return ring{slots: 1 << bits.Len(uint(cap.MaxSendWR*blocks-1)), mlx5: true}
}

// inline returns the slots that a write of n inline bytes takes.
func (r ring) inline(n int) int {
	if !r.mlx5 {
		return 1
	}
	return (32 + (mlx5Inline+n+15)&^15 + 63) / 64
}

// pieces returns the slots that a write of k pieces takes.
func (r ring) pieces(k int) int {
	if !r.mlx5 {
		return 1
	}
	return (32 + 16*k + 63) / 64
}

// piecesFor returns a number of pieces with which a request takes slots slots, or 0 if it would exceed
// most.
func (r ring) piecesFor(slots, turn, most int) int {
	first, last := 1, most
	if r.mlx5 {
		first, last = max(1, 4*slots-5), min(4*slots-2, most)
	}
	if first > last {
		return 0
	}
	return first + turn%(last-first+1)
}

// inlineFor returns the longest inline data that a request of slots slots holds, or 0 if
// a request with most bytes takes fewer slots.
func (r ring) inlineFor(slots, most int) int {
	if !r.mlx5 {
		return min(8<<slots, most)
	}
	n := min(slots*64-32-mlx5Inline, most)
	if r.inline(n) < slots {
		return 0
	}
	return n
}

// A posted is a request in flight.
type posted struct {
	id    uint64
	start int // slot since the queue was reset
	slots int
	n     int // bytes to write
	sges  int // entries, 0 for inline data
	batch int // its place in a batch, from 0
}

// cell is the size of each request's memory at the responder, and cells the number of cells, which is
// larger than the number of requests in flight.
const (
	cell  = 512
	cells = 128
)

// maxBatch is the maximum of requests in a batch, without the fillers.
const maxBatch = 6

// offsets posts writes of each size, so that each begins at each offset of the ring: after
// each comes a request of one slot if the size is even, because odd steps reach all offsets
// of a ring whose length is a power of two.
func (c *check) offsets(l lap, number uint64) error {
	p, err := c.pair(shape{typ: verbs.RC, sends: 32, recvs: 2, sges: 8, inline: 300, fewer: true, memory: cell * cells})
	if err != nil {
		return err
	}
	s := &stream{c: c, p: p, ring: newRing(p.a.side.mlx5, p.a.qp.Cap()), seed: c.o.Seed + number}
	s.deep = p.shape.sends
	scenario.Fill(p.a.mr.Bytes(), s.seed)
	rng := rand.New(rand.NewPCG(c.o.Seed, number))
	sges, inline := p.shape.sges, p.shape.inline
	sizes := max(s.ring.inline(inline), s.ring.pieces(sges))
	if !s.ring.mlx5 {
		sizes = 5 // of inline data
	}
	for size := 1; size <= sizes; size++ {
		slots := 1
		if s.ring.mlx5 {
			slots = size
		}
		n := s.ring.inlineFor(size, inline)
		if n == 0 && s.ring.piecesFor(slots, 0, sges) == 0 {
			continue
		}
		// The messages of compare shift the requests that follow. So more than one round may be
		// needed to reach all offsets.
		seen := make([]bool, s.ring.slots)
		for left, i := len(seen), 0; left > 0 && i < 4*len(seen); i++ {
			for range 1 + rng.IntN(l.batch) {
				if at := &seen[s.slot%len(seen)]; !*at {
					*at = true
					left--
				}
				if err := s.add(n, slots, l, rng.IntN(4) == 0); err != nil {
					return err
				}
			}
			if err := s.flush(l); err != nil {
				return err
			}
			if c.over() {
				return c.ctx.Err()
			}
		}
		c.done(s.posts)
		s.posts = 0
		if c.timeUp() {
			break
		}
	}
	if err := s.drain(0); err != nil {
		return err
	}
	return s.compare()
}

// A stream has the requests of one pair, which complete in order.
type stream struct {
	c     *check
	p     *pair
	ring  ring
	seed  uint64
	deep  int // requests in flight, at most
	id    uint64
	slot  int
	posts int
	open  []posted
	wrs   []verbs.SendWR
	buf   [2 * maxBatch][cell]byte
	last  [cells]posted

	compared uint64 // the last request whose bytes were compared
}

// request returns a write of n bytes inline, or of 8 bytes from each of some pieces. It
// records the request's place in the ring.
func (s *stream) request(n, batch, pieces int) verbs.SendWR {
	s.id++
	x := posted{id: s.id, start: s.slot, n: n, batch: batch, sges: pieces}
	at := int(s.id % cells * cell)
	wr := verbs.SendWR{WRID: s.id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, Remote: s.p.b.mr.Remote().At(uint64(at))}
	if pieces > 0 {
		x.slots, x.n = s.ring.pieces(pieces), 8*pieces
		for i := range pieces {
			wr.SGL = append(wr.SGL, s.p.a.mr.SGE(s.source(s.id)+8*i, 8))
		}
	} else {
		x.slots = s.ring.inline(n)
		data := s.buf[batch][:n]
		scenario.Fill(data, s.seed+s.id)
		wr.Inline = data
	}
	s.slot += x.slots
	s.open = append(s.open, x)
	s.last[s.id%cells] = x
	return wr
}

// source returns the offset of request id's pieces in the requester's memory, which has a pattern.
func (s *stream) source(id uint64) int { return int(id*8) % (cell*cells - 64) }

// add adds a write of slots slots, of n inline bytes or of pieces, and a filler if the number of slots
// is even. It posts them one by one if the lap does so.
func (s *stream) add(n, slots int, l lap, pieces bool) error {
	k := 0
	if pieces || n == 0 {
		k = s.ring.piecesFor(slots, int(s.id), s.p.shape.sges)
	}
	if err := s.put(s.request(n, len(s.wrs), k), l); err != nil || slots%2 != 0 {
		return err
	}
	return s.put(s.filler(), l)
}

// filler returns a write of one slot.
func (s *stream) filler() verbs.SendWR {
	if s.p.shape.inline == 0 {
		return s.request(0, len(s.wrs), 1)
	}
	return s.request(min(8, s.p.shape.inline), len(s.wrs), 0)
}

func (s *stream) put(wr verbs.SendWR, l lap) error {
	s.wrs = append(s.wrs, wr)
	if l.batch > 1 {
		return nil
	}
	return s.doorbell(l)
}

// flush posts the added requests, and compares memory before it is used again.
func (s *stream) flush(l lap) error {
	if len(s.wrs) > 0 {
		if err := s.doorbell(l); err != nil {
			return err
		}
	}
	if s.id-s.compared <= cells-2*maxBatch {
		return nil
	}
	if err := s.drain(0); err != nil {
		return err
	}
	return s.compare()
}

// doorbell posts the prepared requests, with one doorbell.
func (s *stream) doorbell(l lap) error {
	s.posts += len(s.wrs)
	if err := s.p.post(s.wrs...); err != nil {
		return err
	}
	s.wrs = s.wrs[:0]
	if l.waits {
		return s.drain(0)
	}
	return s.drain(s.deep - 2*maxBatch)
}

// drain polls until at most n requests are open. Each must be the next one.
func (s *stream) drain(n int) error {
	for len(s.open) > max(n, 0) {
		wcs, err := s.c.await(s.p.a.send, 1)
		if err != nil {
			return s.missing(err)
		}
		x := s.open[0]
		if wc := &wcs[0]; wc.WRID != x.id || wc.Status != verbs.WCSuccess || wc.QPNum != s.p.a.qp.Num() {
			return &Failure{Object: s.describe(x), Expected: fmt.Sprintf("its completion, of QP %#x", s.p.a.qp.Num()), Seen: describe(wc), Details: s.state()}
		}
		s.open = s.open[1:]
		if len(s.open) == 0 {
			s.open = nil
		}
	}
	return nil
}

// describe describes a request's place in the ring.
func (s *stream) describe(x posted) string {
	d := fmt.Sprintf("%v, request %d, %d slots from offset %d of a ring of %d, %d bytes", s.p, x.id, x.slots, x.start%s.ring.slots, s.ring.slots, x.n)
	if x.sges > 0 {
		d += fmt.Sprintf(" in %d pieces", x.sges)
	} else {
		d += " inline"
	}
	if x.batch > 0 {
		d += fmt.Sprintf(", after %d others of its batch", x.batch)
	}
	return d
}

// state lists the open requests, and whether each was executed.
func (s *stream) state() (list []string) {
	for i, x := range s.open {
		if i == 6 {
			return append(list, fmt.Sprintf("%d more are open", len(s.open)-i))
		}
		done := "was not executed"
		if s.written(x) {
			done = "was executed: its bytes have arrived"
		}
		list = append(list, fmt.Sprintf("request %d at offset %d, %d slots, %s", x.id, x.start%s.ring.slots, x.slots, done))
	}
	return list
}

// data returns the bytes that a request writes.
func (s *stream) data(x posted, b []byte) []byte {
	b = b[:x.n]
	if x.sges > 0 {
		copy(b, s.p.a.mr.Bytes()[s.source(x.id):])
	} else {
		scenario.Fill(b, s.seed+x.id)
	}
	return b
}

func (s *stream) written(x posted) bool {
	var b [cell]byte
	at := int(x.id % cells * cell)
	return slices.Equal(s.p.b.mr.Bytes()[at:at+x.n], s.data(x, b[:]))
}

// missing reports the request that didn't complete. It finds out whether the request was executed,
// and whether the next doorbell brings the completion.
func (s *stream) missing(err error) error {
	var quiet *silence
	if !errors.As(err, &quiet) || len(s.open) == 0 {
		return err
	}
	x := s.open[0]
	f := &Failure{Object: s.describe(x), Expected: "its completion", Seen: quiet.Error(), Details: s.state()}
	was := len(s.open)
	if err := s.p.post(s.filler()); err != nil {
		f.Details = append(f.Details, "posting one more fails: "+err.Error())
		return f
	}
	wcs, err := s.c.await(s.p.a.send, 1)
	switch {
	case err != nil:
		f.Details = append(f.Details, "one more post brings nothing")
	case wcs[0].WRID == x.id:
		f.Details = append(f.Details, "one more post brings its completion: the doorbell was not seen")
	default:
		f.Details = append(f.Details, fmt.Sprintf("one more post brings the %s: the completions of %d to %d are lost (%d were open)", describe(&wcs[0]), x.id, wcs[0].WRID-1, was))
	}
	return f
}

// compare compares the memory of the last requests, after a message whose arrival shows that all writes have
// arrived.
func (s *stream) compare() error {
	if err := s.p.receive(verbs.RecvWR{WRID: 1}); err != nil {
		return err
	}
	if err := s.p.post(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled}); err != nil {
		return err
	}
	s.slot++
	if _, err := s.c.one(s.p.a.send, 0, verbs.WCSend, "request"); err != nil {
		return err
	}
	if _, err := s.c.one(s.p.b.recv, 1, verbs.WCRecv, "receive"); err != nil {
		return err
	}
	s.compared = s.id
	for _, x := range s.last {
		if x.id != 0 && !s.written(x) {
			var b [cell]byte
			at := int(x.id % cells * cell)
			want := s.data(x, b[:])
			seen, details := scenario.Differences(s.p.b.mr.Bytes()[at:at+x.n], want, make([]byte, x.n), []scenario.Piece{{N: x.n}})
			return &Failure{Object: s.describe(x), Expected: "its bytes at the responder", Seen: seen, Details: details}
		}
	}
	return nil
}

// wandering posts from many goroutines, which move between processors while the garbage
// collector and busy goroutines interrupt them. There are pairs pairs, with each goroutines
// on each. Each ID must complete once.
func (c *check) wandering(pairs, each int) error {
	left := (postsPlanned - c.g.Done) / 2
	if each > 1 {
		left = postsPlanned - c.g.Done
	}
	until := c.share(2)
	if each > 1 {
		until = c.share(1)
	}
	var ps []*pair
	for range pairs {
		p, err := c.pair(shape{typ: verbs.RC, sends: 16 * each, recvs: 2, sges: 2, inline: 200, fewer: true, memory: 1 << 14})
		if err != nil {
			return err
		}
		ps = append(ps, p)
	}
	stop := make(chan struct{})
	var busy, posters sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		busy.Go(func() { disturb(stop) })
	}
	errs := make([]error, pairs)
	var total atomic.Int64
	for i, p := range ps {
		posts := make([]int, each)
		for g := range posts {
			posts[g] = max(part(left, pairs*each, i*each+g), 50)
		}
		posters.Go(func() {
			// Each goroutine needs its own check, because await stores its state there.
			mine := &check{run: c.run, name: c.name}
			mine.at("%v", p)
			errs[i] = mine.crowd(p, posts, until, &total)
		})
	}
	posters.Wait()
	close(stop)
	busy.Wait()
	c.done(int(total.Load()))
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// part returns the i-th of n nearly equal parts of a whole, whose sum is the
// whole.
func part(whole, n, i int) int { return whole*(i+1)/n - whole*i/n }

// disturb collects garbage, and keeps a processor busy so that goroutines are preempted.
func disturb(stop chan struct{}) {
	garbage := make([][]byte, 64)
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		garbage[i%len(garbage)] = make([]byte, 4096)
		for range 20_000 {
			garbage[i%len(garbage)][0]++
		}
		if i%200 == 0 {
			runtime.GC()
		}
		if i%8 == 0 {
			time.Sleep(200 * time.Microsecond)
		}
	}
}

// crowd posts from several goroutines to one pair, from each the number in posts, and polls.
func (c *check) crowd(p *pair, posts []int, until time.Time, total *atomic.Int64) error {
	var wg sync.WaitGroup
	goroutines := len(posts)
	errs := make([]error, goroutines)
	counts := make([]int, goroutines)
	room := make(chan struct{}, p.shape.sends)
	var quit atomic.Bool
	finished := make(chan struct{})
	for g := range goroutines {
		wg.Go(func() { counts[g], errs[g] = c.poster(p, g, posts[g], until, room, &quit) })
	}
	go func() { wg.Wait(); close(finished) }()
	next := make([]int, goroutines)
	seen := 0
	var wc [16]verbs.WC
	for w := c.wait(); ; {
		m, err := p.a.send.Poll(wc[:])
		if err == nil {
			for i := range wc[:m] {
				if err = ordered(p, &wc[i], next); err != nil {
					break
				}
				<-room
			}
		}
		if err != nil {
			quit.Store(true)
			go func() { // wakes posters that wait for room
				for range room {
				}
			}()
			<-finished
			close(room)
			return err
		}
		if seen += m; m > 0 {
			w = c.wait()
			continue
		}
		select {
		case <-finished:
			all := 0
			for _, n := range counts {
				all += n
			}
			if seen == all {
				total.Add(int64(all))
				return errors.Join(errs...)
			}
		default:
		}
		if err := w.more(); err != nil {
			quit.Store(true)
			go func() {
				for range room {
				}
			}()
			<-finished
			close(room)
			return c.lost(err, fmt.Sprintf("completions of all requests of %d goroutines", goroutines), fmt.Sprintf("%d have completed; the next of each goroutine is %v of %v posted", seen, next, counts))
		}
	}
}

// ordered checks that a completion is the next one of its goroutine.
func ordered(p *pair, wc *verbs.WC, next []int) error {
	g, id := int(wc.WRID>>32), int(uint32(wc.WRID))
	if wc.Status != verbs.WCSuccess || g >= len(next) || id != next[g] {
		return &Failure{Object: p.String(), Expected: fmt.Sprintf("request %v of each goroutine to complete next, each once", next), Seen: fmt.Sprintf("request %d of goroutine %d: %s", id, g, describe(wc))}
	}
	next[g]++
	return nil
}

// poster posts n requests, one by one and in batches, with few and many bytes.
func (c *check) poster(p *pair, g, n int, until time.Time, room chan struct{}, quit *atomic.Bool) (posted int, err error) {
	w := wander()
	defer w.stop()
	rng := rand.New(rand.NewPCG(c.o.Seed, uint64(g)))
	data := make([]byte, 200)
	for posted < n && !quit.Load() && c.ctx.Err() == nil {
		if posted >= 50 && time.Now().After(until) {
			return posted, nil
		}
		if rng.IntN(16) == 0 {
			w.move()
		}
		batch := min(1+rng.IntN(3)*rng.IntN(2), n-posted)
		var wrs []verbs.SendWR
		for i := range batch {
			room <- struct{}{}
			wr := verbs.SendWR{WRID: uint64(g)<<32 | uint64(posted+i), Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, Remote: p.b.mr.Remote().At(uint64(g * 1024))}
			if p.shape.inline > 0 && rng.IntN(2) == 0 {
				wr.Inline = data[:1+rng.IntN(p.shape.inline)]
			} else {
				wr.SGL = []verbs.SGE{p.a.mr.SGE(64*g, 64), p.a.mr.SGE(64*g+8, 8)}[:1+rng.IntN(p.shape.sges)]
			}
			wrs = append(wrs, wr)
		}
		if err := p.post(wrs...); err != nil {
			quit.Store(true)
			return posted, err
		}
		posted += batch
	}
	return posted, nil
}
