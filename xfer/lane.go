package xfer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// A lane is a way to a peer: a rail of each side, and a class of requests. Its goroutine makes a
// link for it, and another one whenever one breaks. All lanes of a peer are under the scheduler's
// lock.
type lane struct {
	s      *scheduler
	rail   *rail
	prefer int // the peer's rail that it connects to first
	class  class
	depth  int           // slices in flight, each of at most two requests
	kick   chan struct{} // holds a token if a new link may succeed now

	link  *link   // nil while there is none
	bytes int     // in flight
	rate  float64 // bytes in a nanosecond, as measured
	last  int64   // when the last completion was counted
	err   error   // why there is no link

	scratch *verbs.MR // what atomic operations and fences have read, by their places in link.ring

	staged int // requests that are not posted yet
	wrs    [16]verbs.SendWR
	sges   [16]verbs.SGE
	notes  [16][noteLen]byte

	stats laneCounters
}

const unmeasured = 1

// A link is a queue pair of a lane's, connected to a target. A lane has one at a time.
type link struct {
	lane   *lane
	qp     *verbs.QP
	post   func(...verbs.SendWR) (int, error) // qp.PostSend
	theirs int                                // the peer's rail
	since  int64                              // when it was made
	number uint32                             // on the control connection
	wr     uint32                             // on the rail: see completer
	ring   []slice                            // requests in flight, by their numbers modulo its length
	slices int                                // in flight
	fence  verbs.Remote                       // eight bytes of the target's that may be read
	head   uint32                             // the number of the oldest request in flight
	tail   uint32                             // of the next request
	notes  uint32                             // notifications posted

	up      bool          // the lane has taken it, once it was proven
	proven  chan struct{} // closed when its first request, a fence, has succeeded
	err     error         // why it broke, or nil
	broken  chan struct{} // closed when it breaks
	drained chan struct{} // closed when it is broken and nothing is in flight
	failed  []slice       // not done, as far as is known
}

// place returns the place of a request in the ring.
func (k *link) place(n uint32) int { return int(n & uint32(len(k.ring)-1)) }

func (k *link) at(n uint32) *slice { return &k.ring[k.place(n)] }

// word returns the place of a request's eight bytes in the lane's scratch memory.
func (k *link) word(n uint32) verbs.SGE { return k.lane.scratch.SGE(8*k.place(n), 8) }

// begin makes the lanes, and starts them. The caller holds the lock.
func (s *scheduler) begin() {
	s.begun, s.downSince = true, s.p.e.now()
	s.reached = s.downSince
	ours, theirs := s.p.e.rails, len(s.p.rails)
	for i := range max(len(ours), theirs) {
		for c := range classes {
			l := s.newLane(ours[i%len(ours)], i%theirs, c)
			s.lanes = append(s.lanes, l)
			s.running.Go(l.run)
		}
	}
}

func (s *scheduler) newLane(r *rail, prefer int, c class) *lane {
	l := &lane{s: s, rail: r, prefer: prefer, class: c, depth: 64, kick: make(chan struct{}, 1), rate: unmeasured}
	if c == bulk {
		l.depth = s.p.e.o.Window
	}
	return l
}

// newLink makes a link without a queue pair.
func (l *lane) newLink(theirs int) *link {
	return &link{
		lane: l, theirs: theirs, ring: make([]slice, 1<<bits.Len(uint(2*l.depth-1))),
		proven: make(chan struct{}), broken: make(chan struct{}), drained: make(chan struct{}),
	}
}

// Pauses between attempts to make a link. They double, and each is shortened by up to a half at
// random, so that the two sides of many links that broke together don't return together.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// run keeps a link until the peer is lost.
func (l *lane) run() {
	p := l.s.p
	ctx := p.ctx
	pause := firstPause
	for attempt := 0; ctx.Err() == nil; attempt++ {
		if !l.rail.up.Load() {
			attempt = 0
		}
		k, err := l.connect(attempt)
		lived := false
		if err == nil {
			attempt = -1 // the next one tries the preferred rail first
			began := time.Now()
			select {
			case <-k.broken:
			case <-ctx.Done():
			}
			lived = time.Since(began) > lastPause
			l.s.mu.Lock()
			l.s.broke(k, errClosed)
			err = k.err
			l.s.mu.Unlock()
			l.disconnect(k)
		}
		l.s.mu.Lock()
		news := l.err == nil || l.err.Error() != err.Error()
		l.err = err
		l.s.mu.Unlock()
		if news {
			p.e.o.Log.Info("xfer: no link", "peer", p.Addr(), "rail", l.rail.name, "class", l.class.String(), "err", err)
		}
		if lived {
			pause = firstPause
			continue
		}
		if l.wait(pause, l.kick) {
			// The peer may say often that a rail is back.
			pause, attempt = firstPause, -1
			l.wait(pause, nil)
		}
		pause = min(2*pause, lastPause)
	}
	l.scratch.Close()
}

// wait waits for a pause, which is shortened at random. It reports whether a token has ended it.
func (l *lane) wait(pause time.Duration, kick <-chan struct{}) bool {
	wait := time.NewTimer(pause - rand.N(pause/2))
	defer wait.Stop()
	select {
	case <-kick:
		return true
	case <-wait.C:
	case <-l.s.p.ctx.Done():
	}
	return false
}

var errDown = errors.New("the port is down")

// connect makes a link.
func (l *lane) connect(attempt int) (*link, error) {
	p := l.s.p
	if l.rail.lost() || !l.rail.up.Load() {
		return nil, errDown
	}
	theirs, err := l.s.pick(l.prefer, attempt)
	if err != nil {
		return nil, err
	}
	k := l.newLink(theirs)
	if l.scratch == nil {
		if l.scratch, err = l.rail.pd.AllocMR(8*len(k.ring), verbs.MROptions{Access: verbs.AccessLocalWrite}); err != nil {
			return nil, err
		}
	}
	k.qp, err = l.rail.pd.CreateQP(verbs.QPOptions{
		Type: verbs.RC, SendCQ: l.rail.cq, RecvCQ: l.rail.cq, Cap: verbs.QPCap{MaxSendWR: 2 * l.depth, MaxInlineData: noteLen},
	})
	if err != nil {
		return nil, err
	}
	k.post = k.qp.PostSend
	if k.wr, err = l.rail.enter(k, 2*l.depth); err != nil {
		return nil, errors.Join(err, k.qp.Close())
	}
	if err := l.join(k); err != nil {
		err = errors.Join(err, k.qp.Close())
		l.rail.leave(k.wr, 2*l.depth)
		return nil, err
	}
	p.e.o.Log.Info("xfer: link", "peer", p.Addr(), "rail", l.rail.name, "theirs", p.rails[theirs].Name, "class", l.class.String())
	l.s.mu.Lock()
	defer l.s.unlock()
	k.up, k.since = true, p.e.now()
	l.link, l.err, l.bytes = k, nil, 0
	l.s.up++
	l.stats.links.Add(1)
	changed := attempt == 0
	select {
	case <-l.kick:
		changed = true
	default:
	}
	switch { // what has changed meanwhile was not told to this link
	case !l.rail.up.Load() || !l.s.theirs[theirs]:
		l.s.broke(k, errDown)
	case changed && theirs != l.prefer && l.s.theirs[l.prefer]:
		l.s.broke(k, errMoved)
	}
	l.s.dispatch()
	return k, nil
}

// pick returns the peer's rail for an attempt: the preferred one first, and then the others in turn.
func (s *scheduler) pick(prefer, attempt int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.theirs)
	for i := range n {
		if theirs := (prefer + attempt + i) % n; s.theirs[theirs] {
			return theirs, nil
		}
	}
	return 0, fmt.Errorf("all rails of the peer are down")
}

// join connects the link's queue pair to a new target, and proves the path there.
func (l *lane) join(k *link) error {
	p := l.s.p
	gid, err := l.rail.gid()
	if err != nil {
		return err
	}
	me, err := k.qp.Endpoint(gid)
	if err != nil {
		return err
	}
	l.s.mu.Lock()
	l.s.lastLink++
	k.number = l.s.lastLink
	l.s.mu.Unlock()
	m, err := p.call(p.ctx, &message{Kind: openLink, Link: k.number, Rail: k.theirs, Endpoint: &me})
	if err != nil {
		return err
	}
	if m.Endpoint == nil || len(m.Keys) != 1 {
		return errors.New("the peer's answer has no endpoint, or no key")
	}
	k.fence = verbs.Remote{Addr: m.Address, RKey: m.Keys[0]}
	// Some devices take 7 retries as a wish to try for ever.
	err = k.qp.Connect(*m.Endpoint, verbs.ConnectOptions{AckTimeout: p.e.o.AckTimeout, RetryCount: retries})
	if err == nil {
		err = l.prove(k)
	}
	if err != nil {
		if _, bad := p.call(p.ctx, &message{Kind: closeLink, Link: k.number}); bad != nil {
			p.end(bad)
		}
	}
	return err
}

// retries is how often a device repeats a packet that isn't acknowledged.
const retries = 6

// prove carries out a first request, a fence. That the queue pairs are connected says nothing of the path
// between them.
func (l *lane) prove(k *link) error {
	p := l.s.p
	l.s.mu.Lock()
	k.tail = 1
	l.s.mu.Unlock()
	_, err := k.post(verbs.SendWR{WRID: wrid(k.wr, 0), Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{k.word(0)}, Remote: k.fence})
	if err != nil {
		return err
	}
	limit := time.NewTimer(p.e.o.Patience)
	defer limit.Stop()
	select {
	case <-k.proven:
		return nil
	case <-k.broken:
		return k.err
	case <-limit.C:
		return errHung
	case <-p.ctx.Done():
		return p.lost()
	}
}

// broke breaks a link, unless it is broken. The caller holds the lock.
func (s *scheduler) broke(k *link, err error) {
	if k.err != nil {
		return
	}
	k.err = err
	if k.up {
		k.lane.link = nil
		if s.up--; s.up == 0 {
			s.downSince = s.p.e.now()
		}
	}
	close(k.broken)
	if k.head == k.tail {
		close(k.drained)
	}
}

// drainTime is how long a queue pair in the error state may take to flush its requests. Devices take
// microseconds.
const drainTime = 5 * time.Second

// disconnect closes a broken link on both sides, and then decides what becomes of the slices that
// it has not done.
func (l *lane) disconnect(k *link) {
	p := l.s.p
	if err := k.qp.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState); err == nil && !l.rail.lost() {
		wait := time.NewTimer(drainTime)
		select {
		case <-k.drained:
		case <-wait.C:
		}
		wait.Stop()
	}
	// From here on the device uses no memory for the link.
	if err := k.qp.Close(); err != nil {
		p.end(fmt.Errorf("close a queue pair on %s: %w", l.rail.name, err))
	}
	l.rail.leave(k.wr, 2*l.depth)
	// And after this, the peer's device doesn't.
	var received uint64
	m, err := p.call(p.ctx, &message{Kind: closeLink, Link: k.number})
	if err == nil {
		received = m.Count
	} else {
		p.end(err)
		err = p.lost()
	}
	l.s.mu.Lock()
	defer l.s.unlock()
	for ; k.head != k.tail; k.head++ {
		k.fail(*k.at(k.head))
	}
	l.bytes = 0
	k.blame()
	for _, x := range k.failed {
		l.s.resolve(k, x, received, err)
	}
	k.failed = nil
	l.s.dispatch()
}

// blame counts a failure of the slices that have broken the link. If none has a completion that says
// so, as when a request hangs, it is the first one.
func (k *link) blame() {
	n := 0
	for i := range k.failed {
		if x := &k.failed[i]; x.culprit() {
			x.failures++
			n++
		}
	}
	if n == 0 && len(k.failed) > 0 && k.err != errDown && k.err != errMoved && k.err != errClosed {
		k.failed[0].failures++
	}
}

// fail keeps a slice that was not done, until the link is closed.
func (k *link) fail(x slice) {
	if x.part != nil {
		k.failed = append(k.failed, x)
	}
}

// room reports whether the lane can take a slice.
func (l *lane) room() bool { return l.link.slices < l.depth }

// request returns the next request to stage, and its number. There is room.
func (l *lane) request() (wr *verbs.SendWR, sge *verbs.SGE, n uint32) {
	k, i := l.link, l.staged
	n = k.tail
	k.tail++
	l.staged++
	l.wrs[i] = verbs.SendWR{WRID: wrid(k.wr, n), SGL: l.sges[i : i+1]}
	return &l.wrs[i], &l.sges[i], n
}

// stage takes a slice, which flush posts. There is room.
//
// That the peer's device has acknowledged a write doesn't say that the bytes are in memory already: a
// notification over another link could come before them. An answer to a read does say so of the
// writes before it on the same queue pair. So in a batch with a notification a read follows each
// slice that changes the peer's memory, as a fence. The slice ends with it.
func (l *lane) stage(x slice) {
	k, q := l.link, x.part
	if l.staged > len(l.wrs)-2 {
		l.flush()
		if k.err != nil {
			k.fail(x)
			return
		}
	}
	wr, sge, n := l.request()
	k.slices++
	x.posted = l.s.p.e.now()
	x.fenced = q.b.noted && q.op != opRead && q.op != opNotify
	if q.att != nil {
		wr.Remote = verbs.Remote{Addr: q.att.address + q.remote.off + uint64(x.off), RKey: q.att.keys[k.theirs]}
	}
	switch q.op {
	case opRead, opWrite:
		wr.Opcode = verbs.OpRDMAWrite
		if q.op == opRead {
			wr.Opcode = verbs.OpRDMARead
		}
		*sge = q.local.mem.mrs[l.rail.index].SGE(q.local.off+x.off, x.n)
	case opFetchAdd, opCompareSwap:
		wr.Opcode, wr.Add = verbs.OpFetchAdd, q.addOrCompare
		if q.op == opCompareSwap {
			wr.Opcode, wr.Add, wr.Compare, wr.Swap = verbs.OpCompareSwap, 0, q.addOrCompare, q.swap
		}
		*sge = k.word(n)
	case opNotify:
		k.notes++
		x.note = k.notes
		if q.number == 0 {
			l.s.lastNote++
			q.number = l.s.lastNote
		}
		note := l.notes[l.staged-1][:]
		binary.BigEndian.PutUint64(note, q.number)
		binary.BigEndian.PutUint64(note[8:], q.tag)
		wr.Opcode, wr.SGL, wr.Inline = verbs.OpSend, nil, note
	}
	if x.fenced {
		*k.at(n) = slice{fenced: true, posted: x.posted} // the next one has the slice
		wr, sge, n = l.request()
		wr.Opcode, wr.Remote, *sge = verbs.OpRDMARead, k.fence, k.word(n)
	}
	*k.at(n) = x
	l.bytes += x.n
}

// flush posts what is staged. Of several requests only every fourth and the last have completions of
// their own: a completion stands for the requests before it.
func (l *lane) flush() {
	n := l.staged
	if n == 0 {
		return
	}
	l.staged = 0
	for i := range n {
		if i%4 == 3 || i == n-1 {
			l.wrs[i].Flags |= verbs.SendSignaled
		}
	}
	k := l.link
	posted, err := k.post(l.wrs[:n]...)
	if err == nil {
		return
	}
	// The requests that were not posted have no completions.
	for i := k.tail - uint32(n-posted); i != k.tail; i++ {
		k.fail(*k.at(i))
	}
	k.tail -= uint32(n - posted)
	l.s.broke(k, err)
}

// complete counts a completion, and those before it that have none of their own.
func (k *link) complete(wc *verbs.WC) {
	l := k.lane
	l.s.mu.Lock()
	defer l.s.unlock()
	n := uint32(wc.WRID)
	if n-k.head >= k.tail-k.head {
		return // not of a request in flight
	}
	bytes := 0
	began := max(l.last, k.at(k.head).posted)
	for ; k.head != n; k.head++ {
		bytes += k.succeeded(k.head)
	}
	k.head++
	if wc.Status == verbs.WCSuccess {
		bytes += k.succeeded(n)
		if !k.up {
			close(k.proven)
		}
	} else {
		at := k.at(n)
		if at.part == nil && at.fenced && k.head != k.tail {
			at = k.at(n + 1)
		}
		x := *at
		*at = slice{}
		x.failure = &verbs.WCError{Status: wc.Status, VendorErr: wc.VendorErr, WRID: wc.WRID, QPNum: wc.QPNum}
		k.fail(x)
		l.bytes -= x.n
		if k.up && k.err == nil {
			l.stats.failed.Add(1)
		}
		l.s.broke(k, wc.Err())
	}
	*k.at(n) = slice{}
	l.measure(bytes, began)
	if k.err != nil && k.head == k.tail {
		select {
		case <-k.drained:
		default:
			close(k.drained)
		}
	}
	l.s.dispatch()
}

// succeeded ends a request that has succeeded, and returns its number of bytes.
func (k *link) succeeded(n uint32) int {
	l, x := k.lane, k.at(n)
	q := x.part
	if q == nil {
		*x = slice{}
		return 0
	}
	switch q.op {
	case opRead:
		l.stats.read.Add(uint64(x.n))
	case opWrite:
		l.stats.written.Add(uint64(x.n))
	case opFetchAdd, opCompareSwap:
		if q.result != nil {
			if x.fenced {
				n--
			}
			*q.result = binary.NativeEndian.Uint64(l.scratch.Bytes()[8*k.place(n):])
		}
	}
	l.stats.requests.Add(1)
	k.slices--
	l.bytes -= x.n
	bytes := x.n
	l.s.done(x)
	*x = slice{}
	return bytes
}

// measure updates the lane's speed: bytes have ended that the device could work on since began.
func (l *lane) measure(bytes int, began int64) {
	now := l.s.p.e.now()
	l.last = now
	if bytes == 0 {
		return
	}
	rate := float64(bytes) / float64(max(now-began, 1))
	switch {
	case l.rate == unmeasured:
		l.rate = rate
	case rate > l.rate: // it was slowed down before, if only by this program
		l.rate += (rate - l.rate) / 2
	default:
		l.rate += (rate - l.rate) / 8
	}
}

// railChanged is the news that a rail of this engine's is up or down.
func (p *Peer) railChanged(r *rail, up bool) {
	p.wake()
	s := &p.scheduler
	s.mu.Lock()
	defer s.unlock()
	for _, l := range s.lanes {
		if l.rail == r {
			l.changed(up)
		}
	}
}

// theirRail is the news that a rail of the peer's is up or down.
func (p *Peer) theirRail(rail int, up bool) {
	s := &p.scheduler
	s.mu.Lock()
	defer s.unlock()
	if rail >= len(s.theirs) {
		return
	}
	s.theirs[rail] = up
	for _, l := range s.lanes {
		switch {
		case l.link != nil && l.link.theirs == rail, l.link == nil:
			l.changed(up)
		case up && l.prefer == rail: // back from the rail that it went to meanwhile
			s.broke(l.link, errMoved)
		}
	}
}

var errMoved = errors.New("the preferred rail is back")

// changed is the news that a rail of the lane's is up or down.
func (l *lane) changed(up bool) {
	switch {
	case !up && l.link != nil:
		l.s.broke(l.link, errDown)
	case up:
		select {
		case l.kick <- struct{}{}:
		default:
		}
	}
}
