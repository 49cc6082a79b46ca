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

const (
	unmeasured = 1
	smallDepth = 64 // slices in flight on a lane for short operations
)

// A link is a way to a target. A lane has one at a time.
type link struct {
	lane   *lane
	kind   *transport
	end    initiator
	theirs int          // the peer's rail
	since  int64        // when it was made
	number uint32       // on the control connection
	wr     uint32       // on the rail: see completer
	ring   []slice      // requests in flight, by their numbers modulo its length
	slices int          // in flight
	token  token        // of the target
	fence  verbs.Remote // eight bytes of the target's that may be read
	head   uint32       // the number of the oldest request in flight
	tail   uint32       // of the next request

	up      bool          // the lane has taken it, once it was proven
	lent    chan struct{} // closed when the initiator is ready for the first request, if it was not at once
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
	s.begun, s.downSince = true, s.now
	s.reached = s.downSince
	s.p.e.use(1)
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
	l := &lane{s: s, rail: r, prefer: prefer, class: c, depth: smallDepth, kick: make(chan struct{}, 1), rate: unmeasured}
	if c == bulk {
		l.depth = s.p.e.o.Window
	}
	return l
}

// newLink makes a link without an initiator.
func (l *lane) newLink(kind *transport, theirs int) *link {
	return &link{
		lane: l, kind: kind, theirs: theirs, ring: make([]slice, 1<<bits.Len(uint(4*l.depth-1))),
		lent: make(chan struct{}), proven: make(chan struct{}), broken: make(chan struct{}), drained: make(chan struct{}),
	}
}

// Pauses between attempts to make a link. They double, and each is shortened by up to a half at
// random, so that the two sides of many links that broke together don't return together. News of a rail
// ends a pause, and a short one follows. Tests change the pauses.
var firstPause, lastPause = newsPause, time.Second

const newsPause = 5 * time.Millisecond

// patienceForPreferred is how long a lane waits for news of the preferred rail before it connects to another one
// while other lanes carry what there is. The ends of a cable come up one after the other, and where the other
// rail can't be reached, the peer may learn that only after seconds.
var patienceForPreferred = 100 * time.Millisecond

var errPreferred = errors.New("the peer's rail is down")

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
			lived = time.Since(began) > time.Second
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
		if err == errPreferred {
			if l.wait(patienceForPreferred, l.kick) {
				attempt = -1
			}
			continue
		}
		if err == errMoved || l.wait(pause, l.kick) {
			// The peer may say often that a rail is back.
			pause, attempt = firstPause, -1
			l.wait(newsPause, nil)
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
	kind, theirs, err := l.s.pick(l, attempt)
	if err != nil {
		return nil, err
	}
	k := l.newLink(kind, theirs)
	if l.scratch == nil {
		if l.scratch, err = l.rail.pd.AllocMR(8*len(k.ring), verbs.MROptions{Access: verbs.AccessLocalWrite}); err != nil {
			return nil, err
		}
	}
	if k.wr, err = l.rail.enter(k, k.completions()); err != nil {
		return nil, err
	}
	if k.end, err = kind.initiator(k); err != nil {
		l.rail.leave(k.wr, k.completions())
		return nil, err
	}
	if err := l.join(k); err != nil {
		return nil, err
	}
	p.e.o.Log.Info("xfer: link", "peer", p.Addr(), "rail", l.rail.name, "theirs", p.rails[theirs].Name, "class", l.class.String(), "transport", kind.name)
	l.s.lock()
	defer l.s.unlock()
	k.up, k.since = true, l.s.now
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

// pick returns the peer's rail for an attempt, and the transport: the preferred rail first, and then the
// others in turn.
func (s *scheduler) pick(l *lane, attempt int) (*transport, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.theirs)
	if attempt == 0 && s.up > 0 && !s.theirs[l.prefer] {
		return nil, 0, errPreferred
	}
	err := errors.New("all rails of the peer are down")
	for i := range n {
		theirs := (l.prefer + attempt + i) % n
		if !s.theirs[theirs] {
			continue
		}
		if kind := l.rail.common(s.p.rails[theirs].Transports); kind != nil {
			return kind, theirs, nil
		}
		err = fmt.Errorf("no transport to the peer's %q, which has %q", s.p.rails[theirs].Name, s.p.rails[theirs].Transports)
	}
	return nil, 0, err
}

// completions returns the room in the CQ that the link's requests take.
func (k *link) completions() int {
	if k.kind.shared {
		return 0 // its initiator has it
	}
	return 2 * k.lane.depth
}

// join connects the link to a new target, and proves the path there. If it fails, it closes the link.
func (l *lane) join(k *link) error {
	p := l.s.p
	l.s.mu.Lock()
	l.s.lastLink++
	k.number = l.s.lastLink
	l.s.mu.Unlock()
	m := &message{Kind: openLink, Link: k.number, Rail: k.theirs, Transport: k.kind.name}
	err := k.end.offer(m)
	opened := false
	if err == nil {
		m, err = p.call(p.ctx, m)
		opened = err == nil
	}
	switch {
	case err != nil:
	case len(m.Keys) != 1 || len(m.Token) != len(token{}):
		err = errors.New("the peer's answer has no key, or no token")
	default:
		k.fence, k.token = verbs.Remote{Addr: m.Address, RKey: m.Keys[0]}, token(m.Token)
		if err = k.end.connect(m); err == nil {
			err = l.prove(k)
		}
	}
	if err == nil {
		return nil
	}
	l.s.mu.Lock()
	l.s.broke(k, err)
	l.s.mu.Unlock()
	l.part(k)
	if opened {
		l.leave(k)
	}
	return err
}

// prove carries out a first request, a fence. That the queue pairs are connected says nothing of the path
// between them.
func (l *lane) prove(k *link) error {
	p := l.s.p
	limit := time.NewTimer(p.e.o.Patience)
	defer limit.Stop()
	l.s.mu.Lock()
	ready := k.end.ready()
	l.s.mu.Unlock()
	if !ready {
		select {
		case <-k.lent:
		case <-limit.C:
			return errors.New("no queue pair is free")
		case <-p.ctx.Done():
			return p.lost()
		}
	}
	l.s.mu.Lock()
	k.tail = 1
	_, err := k.end.post([]verbs.SendWR{{WRID: wrid(k.wr, 0), Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{k.word(0)}, Remote: k.fence}})
	if err != nil {
		k.tail = 0
	}
	l.s.mu.Unlock()
	if err != nil {
		return err
	}
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

// waitFor waits until a channel is closed, or for a time, and reports whether it is closed.
func waitFor(c <-chan struct{}, limit time.Duration) bool {
	wait := time.NewTimer(limit)
	defer wait.Stop()
	select {
	case <-c:
		return true
	case <-wait.C:
		return false
	}
}

// part closes this side of a broken link. From then on the device uses no memory for it.
func (l *lane) part(k *link) {
	if err := k.end.fail(); err == nil && !l.rail.lost() {
		waitFor(k.drained, drainTime)
	}
	if err := k.end.close(); err != nil {
		l.s.p.end(fmt.Errorf("close a queue pair on %s: %w", l.rail.name, err))
	}
	l.rail.leave(k.wr, k.completions())
}

// leave closes the peer's side of a broken link. From then on the peer's device uses no memory for it.
func (l *lane) leave(k *link) error {
	p := l.s.p
	if _, err := p.call(p.ctx, &message{Kind: closeLink, Link: k.number}); err != nil {
		p.end(err)
		return p.lost()
	}
	return nil
}

// disconnect closes a broken link on both sides, and then decides what becomes of the slices that
// it has not done.
func (l *lane) disconnect(k *link) {
	l.part(k)
	err := l.leave(k)
	l.s.lock()
	defer l.s.unlock()
	for ; k.head != k.tail; k.head++ {
		k.fail(*k.at(k.head))
	}
	l.bytes = 0
	k.blame()
	for _, x := range k.failed {
		l.s.resolve(k, x, err)
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

// room reports whether the lane can take a slice, once its initiator is ready. Where requests overtake
// each other, many may complete after one that doesn't, and each slice may need another one, for its fence.
func (l *lane) room() bool {
	k := l.link
	return k.slices < l.depth && int(k.tail-k.head)+k.slices+2 <= len(k.ring)
}

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
// writes before it on the same queue pair, or of all that have completed before, if requests overtake
// each other. So in a batch with a notification a read follows each slice that changes the peer's
// memory, as a fence. The slice ends with it. Where the completion of a write says nothing of the peer,
// each write has a fence.
func (l *lane) stage(x *slice) {
	k, q := l.link, x.part
	if !l.makeRoom() {
		k.fail(*x)
		return
	}
	wr, sge, n := l.request()
	k.slices++
	x.posted = l.s.now
	l.s.trace(TraceSlice, q, l, x.off, x.n, nil)
	x.fenced = (q.b.noted || !k.kind.delivers) && q.op != opRead && q.op != opNotify
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
		if q.number == 0 {
			l.s.lastNote++
			q.number = l.s.lastNote
		}
		note := l.notes[l.staged-1][:]
		copy(note, k.token[:])
		binary.BigEndian.PutUint64(note[8:], q.number)
		binary.BigEndian.PutUint64(note[16:], q.tag)
		wr.Opcode, wr.SGL, wr.Inline = verbs.OpSend, nil, note
	}
	l.bytes += x.n
	if x.fenced && k.kind.ordered {
		*k.at(n) = slice{fenced: true, posted: x.posted} // the next one has the slice
		l.fence(x)
		return
	}
	*k.at(n) = *x
}

// fence stages the fence of a slice, with which the slice ends.
func (l *lane) fence(x *slice) {
	wr, sge, n := l.request()
	wr.Opcode, wr.Remote, *sge = verbs.OpRDMARead, l.link.fence, l.link.word(n)
	x.fence = true
	*l.link.at(n) = *x
}

// makeRoom makes room for two more requests to be staged. It reports false if the link has broken.
func (l *lane) makeRoom() bool {
	k := l.link
	if l.staged > len(l.wrs)-2 {
		l.flush()
	}
	return k.err == nil
}

// flush posts what is staged. Of several requests only every fourth and the last have completions of
// their own: a completion stands for the requests before it.
func (l *lane) flush() {
	n := l.staged
	l.staged = 0
	for i := range n {
		if i%4 == 3 || i == n-1 || l.link.kind.signaled {
			l.wrs[i].Flags |= verbs.SendSignaled
		}
	}
	k := l.link
	posted, err := k.end.post(l.wrs[:n])
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

// complete counts completions.
func (k *link) complete(wcs []verbs.WC) {
	l := k.lane
	l.s.lock()
	if l.rail.helped {
		defer l.s.leave()
	} else {
		defer l.s.unlock()
	}
	began, bytes := max(l.last, k.at(k.head).posted), 0
	for i := range wcs {
		bytes += k.completed(&wcs[i])
	}
	l.measure(bytes, began)
	if k.head == k.tail {
		if k.err != nil {
			select {
			case <-k.drained:
			default:
				close(k.drained)
			}
		}
		k.end.idle()
	}
	l.s.dispatch()
}

// completed counts a completion, and those before it that have none of their own. It returns the number
// of bytes of the slices that have ended with it.
func (k *link) completed(wc *verbs.WC) (bytes int) {
	l := k.lane
	n := uint32(wc.WRID)
	if n-k.head >= k.tail-k.head || k.at(n).over {
		return 0 // not of a request in flight
	}
	if k.kind.ordered {
		for ; k.head != n; k.head++ {
			bytes += k.succeeded(k.head)
		}
	}
	if wc.Status == verbs.WCSuccess {
		bytes += k.succeeded(n)
		if !k.up {
			close(k.proven)
		}
	} else {
		at := k.at(n)
		if at.part == nil && at.fenced && n+1 != k.tail {
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
		if l.staged > 0 {
			l.flush() // fences of what has succeeded
		}
		l.s.broke(k, wc.Err())
	}
	k.at(n).over = true
	for k.head != k.tail && k.at(k.head).over {
		k.head++
	}
	return bytes
}

// succeeded ends a request that has succeeded, and returns the number of bytes of the slice that has ended
// with it.
func (k *link) succeeded(n uint32) int {
	l, x := k.lane, k.at(n)
	q := x.part
	switch {
	case q == nil:
		return 0
	case x.fenced && !x.fence:
		if k.err != nil || !l.makeRoom() {
			k.fail(*x)
		} else {
			l.fence(x)
		}
		x.part = nil
		return 0
	}
	switch q.op {
	case opRead:
		l.stats.read.Add(uint64(x.n))
	case opWrite:
		l.stats.written.Add(uint64(x.n))
	case opFetchAdd, opCompareSwap:
		if q.result != nil {
			if x.fence {
				n--
			}
			*q.result = binary.NativeEndian.Uint64(l.scratch.Bytes()[8*k.place(n):])
		}
	}
	l.stats.requests.Add(1)
	k.slices--
	l.bytes -= x.n
	l.s.trace(TraceDone, q, l, x.off, x.n, nil)
	l.s.done(x)
	x.part = nil
	return x.n
}

// measure updates the lane's speed: bytes have ended that the device could work on since began.
func (l *lane) measure(bytes int, began int64) {
	now := l.s.now
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
