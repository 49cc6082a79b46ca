package xfer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// A class has queue pairs of its own, so that its requests don't wait behind those of the other.
type class uint8

const (
	small class = iota
	bulk
	classes // those with lanes

	// Atomic operations have a queue of their own: they wait for a lane that reaches the one rail of
	// the peer's that carries them out.
	atomics = classes
	queued  = classes + 1
)

func (c class) String() string { return [...]string{"small", "bulk"}[c] }

// A scheduler hands a peer's operations to lanes. Its lock also protects the lanes, their links, and
// the batches that run.
type scheduler struct {
	p   *Peer
	mu  sync.Mutex
	now int64 // when it was locked: see lock

	begun   bool  // the lanes have been started
	stopped error // why nothing can be started any more

	lanes     []*lane
	up        int   // lanes with a link
	downSince int64 // when up became 0

	queues   [queued]queue
	again    [queued][]slice // slices that have failed on a lane
	waiting  queue           // parts whose attachment is being made
	notes    queue           // notifications that wait for a credit
	credits  int
	attached map[attachKey]*attachment
	recent   *attachment // that was looked up last
	lastLink uint32
	lastNote uint64
	theirs   []bool // the peer's rails that are up
	atomic   int    // the peer's rail for atomic operations, or -1
	reached  int64  // when a lane reached that last
	ended    *Batch // batches that are over, and whose programs have not been told

	running sync.WaitGroup // the lanes' goroutines
}

// A slice is a piece of a part that is handed to a lane.
type slice struct {
	part   *part
	off, n int
	posted int64 // when
	fenced bool  // its request is followed by a fence: see lane.stage
	fence  bool  // that has been staged
	over   bool  // the request has completed

	failures int            // how often it has broken a link
	failedOn *lane          // where it was not done last
	failure  *verbs.WCError // of a slice that has failed, if it has a completion
}

// culprit reports whether the slice has failed for a reason of its own, and not because one before it
// has.
func (x *slice) culprit() bool { return x.failure != nil && x.failure.Status != verbs.WCWRFlushErr }

func (s *scheduler) init(p *Peer, credits int) {
	s.p, s.credits, s.attached = p, credits, make(map[attachKey]*attachment)
	for _, r := range p.rails {
		s.theirs = append(s.theirs, r.Up)
	}
	s.atomic = slices.IndexFunc(p.rails, func(r railInfo) bool { return r.Atomic })
}

// lock locks the scheduler, and looks at the clock.
func (s *scheduler) lock() {
	s.mu.Lock()
	s.now = s.p.e.now()
}

// unlock unlocks the scheduler, and tells programs of the batches that are over.
func (s *scheduler) unlock() {
	list := s.ended
	s.ended = nil
	s.mu.Unlock()
	tell(list)
}

// leave is unlock for a goroutine of the program's. OnDone may start a batch again, and must not be
// called by a call of the program's, which may hold a lock that it wants.
func (s *scheduler) leave() {
	list := s.ended
	s.ended = nil
	s.mu.Unlock()
	for list != nil && list.OnDone == nil {
		b := list
		list, b.next = b.next, nil
		b.end()
	}
	if list != nil {
		go tell(list)
	}
}

func tell(list *Batch) {
	for list != nil {
		b := list
		list, b.next = b.next, nil
		b.end()
	}
}

// start queues the parts of a batch.
func (s *scheduler) start(b *Batch) {
	s.lock()
	if s.stopped == nil && !s.begun {
		s.begin()
	}
	for i := range b.parts {
		q := &b.parts[i]
		if q.n == 0 || b.err != nil {
			continue
		}
		b.open++
		s.trace(TraceStart, q, nil, 0, q.n, nil)
		if s.stopped != nil {
			s.fail(b, s.error(q, nil, slice{}, s.stopped))
			b.open--
		} else if err := s.attach(q); err != nil {
			s.fail(b, s.error(q, nil, slice{}, err))
			b.open--
		}
	}
	if s.stopped != nil && b.err == nil && b.noted {
		b.err = s.error(&b.note, nil, slice{}, s.stopped)
	}
	s.settle(b)
	s.dispatch()
	s.leave()
}

// settle counts that something of a batch is over. When all is, the notification comes, and then the
// end.
func (s *scheduler) settle(b *Batch) {
	if b.open--; b.open > 0 {
		return
	}
	if b.err == nil && b.noted && !b.told {
		b.told, b.open = true, 1
		b.note.handed, b.note.since = 0, s.now
		s.trace(TraceStart, &b.note, nil, 0, 0, nil)
		s.notes.push(&b.note)
		return
	}
	s.traceEnd(b)
	unuse(b.parts)
	b.next = s.ended
	s.ended = b
}

// fail ends a batch with an error. What has not been handed to a lane is dropped.
func (s *scheduler) fail(b *Batch, err error) {
	if b.err == nil {
		b.err = err
		s.sweep()
	}
}

// mark gives a part's batch its error. sweep must follow.
func (s *scheduler) mark(q *part, err error) {
	if q.b.err == nil {
		q.b.err = s.error(q, nil, slice{}, err)
	}
}

// sweep drops the queued parts and slices of batches that have failed.
func (s *scheduler) sweep() {
	for c := range queued {
		s.sweepQueue(&s.queues[c])
		list := s.again[c]
		s.again[c] = list[:0]
		for _, x := range list {
			if x.part.b.err == nil {
				s.again[c] = append(s.again[c], x)
				continue
			}
			s.giveBack(x.part)
			s.release(x.part)
			s.settle(x.part.b)
		}
		clear(list[len(s.again[c]):])
	}
	s.sweepQueue(&s.waiting)
	s.sweepQueue(&s.notes)
}

func (s *scheduler) sweepQueue(q *queue) {
	list := q.first
	*q = queue{}
	for list != nil {
		x := list
		list, x.next = x.next, nil
		if x.b.err == nil {
			q.push(x)
			continue
		}
		if q != &s.notes {
			s.giveBack(x)
		}
		s.settle(x.b)
	}
}

// giveBack returns the credit of a notification that isn't sent. If it has a number, the peer must
// be told that it doesn't come, and then gives the credit.
func (s *scheduler) giveBack(q *part) {
	switch {
	case q.op != opNotify:
	case q.number == 0:
		s.credits++
	default:
		s.p.mu.Lock()
		s.p.skips = append(s.p.skips, q.number)
		s.p.mu.Unlock()
		s.p.wake()
	}
}

// dispatch hands out all for which there is room.
func (s *scheduler) dispatch() {
	for s.credits > 0 && s.notes.first != nil {
		s.credits--
		s.queues[small].push(s.notes.pop())
	}
	for c := range queued {
		for {
			n, not, ok := s.peek(c)
			if !ok {
				break
			}
			l := s.choose(c, n, not)
			if l == nil {
				break
			}
			x := s.take(c)
			l.stage(&x)
		}
	}
	for _, l := range s.lanes {
		if l.staged > 0 {
			l.flush()
		}
	}
}

// peek returns the number of bytes of the next slice of a class, and the lane on which it has failed.
func (s *scheduler) peek(c class) (n int, failedOn *lane, ok bool) {
	if list := s.again[c]; len(list) > 0 {
		return list[0].n, list[0].failedOn, true
	}
	if q := s.queues[c].first; q != nil {
		return min(q.n-q.handed, s.p.e.o.SliceBytes), nil, true
	}
	return 0, nil, false
}

// take takes the next slice of a class.
func (s *scheduler) take(c class) slice {
	if list := s.again[c]; len(list) > 0 {
		x := list[0]
		s.again[c] = append(list[:0], list[1:]...)
		return x
	}
	q := s.queues[c].first
	x := slice{part: q, off: q.handed, n: min(q.n-q.handed, s.p.e.o.SliceBytes)}
	q.handed += x.n
	if q.att != nil {
		q.att.inFlight++
	}
	if q.handed == q.n {
		s.queues[c].pop() // its share in open becomes the last slice's
	} else {
		q.b.open++
	}
	return x
}

// fits reports whether a lane can take slices of a class, or of any if there is none of the class. It
// can't if it is not, or its device is gone, on which memory may then not be registered.
func (s *scheduler) fits(l *lane, c class, any bool, not *lane) bool {
	switch {
	case l.link == nil || l == not || l.rail.lost():
		return false
	case c == atomics:
		return l.link.theirs == s.atomic && (any || l.class == small)
	}
	return any || l.class == c
}

// choose returns a lane for n bytes of a class: that on which they would end first or, if it has no
// room now, another one, unless they would end too late there. It takes the lane not, on which they
// have failed, only if there is no other one of the class, and without lanes of the class those of any.
func (s *scheduler) choose(c class, n int, not *lane) *lane {
	if s.up == 0 {
		return nil
	}
	var best *lane
	least := math.Inf(1)
	any := false
	for {
		for _, l := range s.lanes {
			if !s.fits(l, c, any, not) {
				continue
			}
			if t := float64(l.bytes+n+1) / l.rate; t < least {
				best, least = l, t
			}
		}
		switch {
		case best != nil:
		case not != nil:
			not = nil
			continue
		case !any:
			any = true
			continue
		default:
			return nil
		}
		break
	}
	// A lane whose speed was misjudged, or has changed, would get nothing, and never be measured again.
	for _, l := range s.lanes {
		if s.fits(l, c, any, not) && l.link.head == l.link.tail && s.now-l.last > int64(judged) && l.link.end.ready() {
			return l
		}
	}
	if best.room() && best.link.end.ready() {
		return best
	}
	// A slower lane may take the slice if it ends there before the rest would on the best one.
	least += float64(s.rest(c)) / best.rate
	for _, l := range s.lanes {
		if s.fits(l, c, any, not) && l.room() && float64(l.bytes+n+1)/l.rate < least && l.link.end.ready() {
			return l
		}
	}
	return nil
}

// rest returns how many bytes of a class are queued, or fewer.
func (s *scheduler) rest(c class) (n int) {
	if q := s.queues[c].first; q != nil {
		if n = q.n - q.handed; q.next != nil {
			n += q.next.n
		}
	}
	return n
}

// judged is how long the speed of a lane is believed while nothing is in flight there.
const judged = 100 * time.Millisecond

// done counts a slice that has succeeded.
func (s *scheduler) done(x *slice) {
	x.part.b.finished += int64(x.n)
	s.release(x.part)
	s.settle(x.part.b)
}

// resolve decides what becomes of a slice that a link has not done. lost, if not nil, is why it can't be
// known whether the peer's side is closed. A notification that has come is sent again: the peer knows its
// number.
func (s *scheduler) resolve(k *link, x slice, lost error) {
	l, q := k.lane, x.part
	switch {
	case q.b.err != nil:
		if q.class == atomics && !errors.Is(q.b.err, ErrUncertain) {
			q.b.err = fmt.Errorf("%w; and %w", q.b.err, ErrUncertain)
		}
	case lost != nil:
		s.fail(q.b, s.error(q, l, x, lost))
	case q.att != nil && q.att.err != nil:
		s.fail(q.b, s.error(q, l, x, q.att.err))
	case x.culprit() && (permanent(x.failure.Status) || x.failures == tries || q.class == atomics):
		s.fail(q.b, s.error(q, l, x, nil))
	case x.failures == tries || q.class == atomics:
		s.fail(q.b, s.error(q, l, x, k.err))
	default:
		err := k.err
		if x.failure != nil {
			err = x.failure
		}
		s.trace(TraceAgain, q, l, x.off, x.n, err)
		x.failure, x.failedOn, x.fence = nil, l, false
		s.again[q.class] = append(s.again[q.class], x)
		l.stats.again.Add(1)
		return
	}
	s.giveBack(q)
	s.release(q)
	s.settle(q.b)
}

// tries is how often a slice may break a link before its batch fails.
const tries = 12

// error makes the error of a part. err may be nil for a failed request.
func (s *scheduler) error(q *part, l *lane, x slice, err error) error {
	e := &Error{Op: q.op.String(), Peer: s.p.Addr(), Err: err}
	if l != nil {
		e.Rail = l.rail.name
	}
	if x.failure != nil {
		e.Status, e.Vendor = x.failure.Status, x.failure.VendorErr
		if e.Err = x.failure; err != nil {
			e.Err = fmt.Errorf("%w: %w", err, x.failure)
		}
	}
	if l != nil && q.class == atomics && !permanent(e.Status) {
		e.Err = fmt.Errorf("%w: %w", ErrUncertain, e.Err)
	}
	return e
}

// release counts that a slice is not in flight any more.
func (s *scheduler) release(q *part) {
	if a := q.att; a != nil {
		if a.inFlight--; a.inFlight == 0 && a.err != nil {
			close(a.idle)
		}
	}
}

// credited is the peer's permission to send more notifications.
func (s *scheduler) credited(n uint64) error {
	s.lock()
	defer s.unlock()
	if s.credits += int(n); s.credits > maxCredit {
		return fmt.Errorf("the peer has given %d credits", s.credits)
	}
	s.dispatch()
	return nil
}

// failAll fails the batches of all that has been queued since a time, or for longer.
func (s *scheduler) failAll(since int64, err error) {
	for c := range queued {
		s.markClass(c, since, err)
	}
	s.markQueue(&s.waiting, since, err)
	s.markQueue(&s.notes, since, err)
	s.sweep()
}

// markClass marks what failAll fails of a class. sweep must follow.
func (s *scheduler) markClass(c class, since int64, err error) {
	s.markQueue(&s.queues[c], since, err)
	for _, x := range s.again[c] {
		if x.part.since <= since {
			s.mark(x.part, err)
		}
	}
}

func (s *scheduler) markQueue(list *queue, since int64, err error) {
	for q := list.first; q != nil; q = q.next {
		if q.since <= since {
			s.mark(q, err)
		}
	}
}

// check fails what waits for a rail in vain, and gives up links that have hung.
func (s *scheduler) check() {
	s.lock()
	defer s.unlock()
	now, patience := s.now, int64(s.p.e.o.Patience)
	for _, l := range s.lanes {
		if l.link != nil && l.link.theirs == s.atomic {
			s.reached = now
		}
		switch k := l.link; {
		case k == nil:
		case k.head != k.tail && now-k.at(k.head).posted > patience:
			s.broke(k, errHung)
		case k.theirs != l.prefer && s.theirs[l.prefer] && now-k.since > patience:
			s.broke(k, errMoved) // perhaps the preferred rail can be reached by now
		}
	}
	switch since := now - patience; {
	case !s.begun:
	case s.up == 0 && s.downSince < since:
		s.failAll(since, s.noRail())
	case s.atomic >= 0 && s.reached < since:
		s.markClass(atomics, since, fmt.Errorf("%q, which carries out all atomic operations: %w", s.p.rails[s.atomic].Name, s.noRail()))
		s.sweep()
	}
}

// noRail returns the error of what has found no rail for too long.
func (s *scheduler) noRail() error {
	for _, l := range s.lanes {
		if l.err != nil {
			return fmt.Errorf("%w: rail %s: %w", ErrNoRail, l.rail.name, l.err)
		}
	}
	return ErrNoRail
}

var errHung = errors.New("a request has not ended for too long")

// stop ends the lanes, and fails all batches.
func (s *scheduler) stop() {
	s.mu.Lock()
	s.stopped = s.p.lost()
	begun := s.begun
	s.unlock()
	s.running.Wait()
	if begun {
		s.p.e.use(-1)
	}
	s.mu.Lock()
	s.failAll(math.MaxInt64, s.stopped)
	s.unlock()
}

// A queue is a list of parts.
type queue struct{ first, last *part }

func (q *queue) push(x *part) {
	if x.next = nil; q.first == nil {
		q.first = x
	} else {
		q.last.next = x
	}
	q.last = x
}

func (q *queue) pop() *part {
	x := q.first
	if q.first = x.next; q.first == nil {
		q.last = nil
	}
	x.next = nil
	return x
}

// An attachment is the right to use a peer's grant, with its keys.
type attachment struct {
	key      attachKey
	ready    bool
	err      error         // why it can't be used any more
	inFlight int           // slices handed to lanes
	idle     chan struct{} // closed when there is an error, and nothing is in flight

	address, length uint64
	access          Access
	keys            []uint32 // by the peer's rails
}

type attachKey struct {
	grant  uint64
	secret secret
}

// attach queues a part, behind its attachment if that must be made first.
func (s *scheduler) attach(q *part) error {
	key := attachKey{q.remote.grant, q.remote.secret}
	a := s.recent
	if a == nil || a.err != nil || a.key != key {
		a = s.attached[key]
	}
	if a == nil {
		a = &attachment{key: key, idle: make(chan struct{})}
		s.attached[key] = a
		go s.ask(a)
	}
	s.recent = a
	q.att, q.since = a, s.now
	if !a.ready {
		s.waiting.push(q)
		return nil
	}
	return s.enqueue(q)
}

// enqueue queues a part whose attachment is ready.
func (s *scheduler) enqueue(q *part) error {
	a := q.att
	switch {
	case q.remote.off > a.length || q.remote.n > a.length-q.remote.off:
		return fmt.Errorf("%w: the range is not part of the grant", ErrDenied)
	case a.access&needs[q.op] == 0:
		return errAccess
	case q.class == atomics && s.atomic < 0:
		return fmt.Errorf("%w: the peer's devices have no atomic operations", verbs.ErrNotSupported)
	case q.class == atomics && (a.address+q.remote.off)%8 != 0:
		return errWord
	}
	s.queues[q.class].push(q)
	return nil
}

// ask asks the peer for the keys of an attachment.
func (s *scheduler) ask(a *attachment) {
	m, err := s.p.call(s.p.ctx, &message{Kind: attach, Grant: a.key.grant, Secret: a.key.secret[:]})
	if err == nil && len(m.Keys) != len(s.p.rails) {
		err = fmt.Errorf("the peer has %d rails, and gives %d keys", len(s.p.rails), len(m.Keys))
	}
	s.lock()
	defer s.unlock()
	if err == nil {
		err = a.err // revoked meanwhile
	}
	if err != nil {
		a.err = err
		delete(s.attached, a.key)
	} else {
		a.ready, a.address, a.length, a.access, a.keys = true, m.Address, m.Length, m.Access, m.Keys
	}
	list := s.waiting.first
	s.waiting = queue{}
	for list != nil {
		q := list
		list = q.next
		switch {
		case q.att != a:
			s.waiting.push(q)
			continue
		case err == nil:
			bad := s.enqueue(q)
			if bad == nil {
				continue
			}
			s.mark(q, bad)
		default:
			s.mark(q, err)
		}
		s.settle(q.b)
	}
	s.sweep()
	s.dispatch()
}

// revoked is the news that a grant is revoked. It fails what is not in flight, and returns the
// attachments with something in flight.
func (s *scheduler) revoked(grant uint64) (busy []*attachment) {
	s.mu.Lock()
	defer s.unlock()
	for key, a := range s.attached {
		if key.grant != grant {
			continue
		}
		delete(s.attached, key)
		a.err = ErrRevoked
		if a.inFlight > 0 {
			busy = append(busy, a)
		}
		for c := range queued {
			for q := s.queues[c].first; q != nil; q = q.next {
				if q.att == a {
					s.mark(q, ErrRevoked)
				}
			}
			for _, x := range s.again[c] {
				if x.part.att == a {
					s.mark(x.part, ErrRevoked)
				}
			}
		}
	}
	s.sweep()
	return busy
}

// idle waits until nothing is in flight.
func (s *scheduler) idle(busy []*attachment) error {
	for _, a := range busy {
		select {
		case <-a.idle:
		case <-s.p.ctx.Done():
			return s.p.ctx.Err()
		}
	}
	return nil
}
