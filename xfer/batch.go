package xfer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// A Batch is operations that are started together, and waited for together. The zero Batch is
// empty. Its methods add operations, which Peer.Start begins. Once it is over, it may be started
// again, as it is, or after Reset with other operations; that allocates nothing.
//
// A Batch must not be copied, changed or started while it runs. Its other methods may be called by any
// goroutine.
type Batch struct {
	// OnDone, if not nil, is called when the batch is over, in place of Wait and Done, by a
	// goroutine of the engine: it must not wait. It may start the batch again.
	OnDone func(*Batch)

	// mu is locked before that of the scheduler.
	mu      sync.Mutex
	running bool
	done    chan struct{} // holds a token once the batch is over
	s       *scheduler    // of the last Start

	parts []part
	note  part // the notification
	noted bool // there is one

	// Under the scheduler's lock while the batch runs.
	open     int // parts that are not all handed out, and slices that are
	finished int64
	total    int64
	err      error
	told     bool   // the notification was handed out
	next     *Batch // in scheduler.ended
}

// An op is the operation of a part.
type op uint8

const (
	opRead op = iota
	opWrite
	opFetchAdd
	opCompareSwap
	opNotify
)

func (o op) String() string {
	return [...]string{"read", "write", "fetch-and-add", "compare-and-swap", "notify"}[o]
}

// needs is the access that an operation needs.
var needs = [...]Access{opRead: Read, opWrite: Write, opFetchAdd: Atomic, opCompareSwap: Atomic}

// A part is an operation of a batch.
type part struct {
	b      *Batch
	op     op
	class  class
	index  int // in the batch; -1 for the notification
	local  Piece
	remote Remote
	n      int // bytes
	att    *attachment

	result       *uint64
	addOrCompare uint64
	swap         uint64
	tag          uint64
	number       uint64 // of a notification; 0 before it is sent for the first time
	since        int64  // when it was queued
	handed       int    // bytes handed to lanes
	next         *part  // in a queue
}

// Reset makes the batch empty. The batch must not be running.
func (b *Batch) Reset() {
	clear(b.parts)
	b.parts, b.noted = b.parts[:0], false
}

// Read adds a read of a peer's memory. Both sides must have the same length.
func (b *Batch) Read(into Piece, from Remote) {
	b.parts = append(b.parts, part{op: opRead, local: into, remote: from, n: into.n})
}

// Write adds a write to a peer's memory. Both sides must have the same length.
func (b *Batch) Write(to Remote, from Piece) {
	b.parts = append(b.parts, part{op: opWrite, local: from, remote: to, n: from.n})
}

// FetchAdd adds an atomic addition to a uint64 of a peer's, in the byte order of the peer's
// processor. The Remote has 8 bytes, at an address that is a multiple of 8. If was isn't nil, the
// value before the addition is written to it before the batch is over.
//
// Devices are atomic only against themselves. So all atomic operations on an engine's memory are
// carried out by one of its devices: that of its first rail whose device has them. They are atomic
// against each other, whoever starts them, but not against writes, nor against what the owner's
// processors do. When no rail reaches that device's for Options.Patience, they fail, even if other
// rails are up.
func (b *Batch) FetchAdd(was *uint64, word Remote, add uint64) {
	b.parts = append(b.parts, part{op: opFetchAdd, remote: word, result: was, addOrCompare: add, n: 8})
}

// CompareSwap adds an atomic exchange of a uint64 of a peer's: if its value is old, it becomes new.
// See FetchAdd.
func (b *Batch) CompareSwap(was *uint64, word Remote, old, new uint64) {
	b.parts = append(b.parts, part{op: opCompareSwap, remote: word, result: was, addOrCompare: old, swap: new, n: 8})
}

// Notify notifies the peer once all else in the batch has been done: see Engine.Notified. A batch
// has one notification: a second call changes its tag.
func (b *Batch) Notify(tag uint64) {
	b.note, b.noted = part{op: opNotify, tag: tag}, true
}

// Err returns the error of a batch that is over, for OnDone.
func (b *Batch) Err() error { return b.err }

// Done returns a channel from which one value can be received when the batch is over. Its memory is
// then the program's again. Wait leaves the value there. Done is nil before the first Start.
func (b *Batch) Done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.done
}

// Wait waits until the batch is over, and returns nil if everything in it was done, or else an error
// that wraps an *Error or, after Cancel, matches ErrCanceled. If ctx ends first, Wait returns a
// *PendingError, and the batch goes on. If another goroutine starts the batch again meanwhile, Wait
// may wait for that, too.
func (b *Batch) Wait(ctx context.Context) error {
	done := b.Done()
	if done == nil {
		return invalid("Wait for a batch that was never started")
	}
	if err, over := b.look(); over {
		return err
	}
	for {
		if err, over := b.result(); over {
			return err
		}
		select {
		case <-done: // result puts it back, or the batch has been started again
		case <-ctx.Done():
			return b.pending(ctx.Err())
		}
	}
}

// looks is how often a goroutine that waits looks for completions before it sleeps, where the rails' goroutines
// don't sleep either. It takes some microseconds.
const looks = 50

// look looks for the end of the batch for a moment, if Options.Spin says that sleeping takes too long.
func (b *Batch) look() (err error, over bool) {
	b.mu.Lock()
	s, spin := b.s, b.running && b.s.p.e.o.Spin > 0
	b.mu.Unlock()
	for i := 0; spin && i < looks; i++ {
		for _, r := range s.p.e.rails {
			r.help()
		}
		if err, over = b.result(); over {
			break
		}
		runtime.Gosched()
	}
	return err, over
}

// result returns the error of a batch that is over, and leaves the token of Done.
func (b *Batch) result() (err error, over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running {
		return nil, false
	}
	b.leaveToken()
	return b.err, true
}

// leaveToken makes Done's channel hold its token.
func (b *Batch) leaveToken() {
	select {
	case b.done <- struct{}{}:
	default:
	}
}

// pending returns the error of a wait that ends, perhaps before the batch.
func (b *Batch) pending(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.running {
		b.leaveToken()
		return b.err
	}
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	return &PendingError{Done: b.finished, Total: b.total, Err: err}
}

// end ends a run of the batch.
func (b *Batch) end() {
	b.mu.Lock()
	b.running = false
	onDone := b.OnDone
	if onDone == nil {
		b.leaveToken()
	}
	b.mu.Unlock()
	if onDone != nil {
		onDone(b)
	}
}

// Cancel takes back what no device has begun. The batch is over soon, with an error that matches
// ErrCanceled, unless it was over before.
func (b *Batch) Cancel() {
	b.mu.Lock()
	s := b.s
	if !b.running {
		b.mu.Unlock()
		return
	}
	s.mu.Lock()
	if b.err == nil && b.open > 0 {
		s.fail(b, fmt.Errorf("xfer: %w, with %d of %d bytes done", ErrCanceled, b.finished, b.total))
	}
	s.mu.Unlock()
	b.mu.Unlock() // before the end of the batch is told
	s.mu.Lock()
	s.leave()
}

// Start begins the batch's operations, and returns at once. An error says that the batch is
// invalid, and nothing was begun. The memory of the batch must not be closed before it is over, and
// what is read and written must not be touched.
func (p *Peer) Start(b *Batch) error {
	if err := p.prepare(b); err != nil {
		return err
	}
	p.scheduler.start(b)
	return nil
}

// prepare checks the batch, counts its uses of memory, and notes that it runs.
func (p *Peer) prepare(b *Batch) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running {
		return fmt.Errorf("xfer: start: %w by the batch, which is running", verbs.ErrBusy)
	}
	if b.done == nil {
		b.done = make(chan struct{}, 1)
	}
	select {
	case <-b.done:
	default:
	}
	// One is open until start has queued all.
	b.open, b.finished, b.total, b.err, b.told, b.next = 1, 0, 0, nil, false, nil
	for i := range b.parts {
		q := &b.parts[i]
		err := p.checkPart(q)
		if err == nil && q.local.mem != nil {
			err = q.local.mem.use()
		}
		if err != nil {
			unuse(b.parts[:i])
			b.err = fmt.Errorf("xfer: %v, operation %d of a batch: %w", q.op, i, err)
			return b.err
		}
		q.b, q.index, q.att, q.handed, q.next = b, i, nil, 0, nil
		switch q.class = bulk; {
		case q.op == opFetchAdd || q.op == opCompareSwap:
			q.class = atomics
		case q.n <= p.e.o.SmallBytes:
			q.class = small
		}
		b.total += int64(q.n)
	}
	b.note.number = 0
	b.note.b, b.note.index, b.note.next, b.note.class = b, -1, nil, small
	b.running, b.s = true, &p.scheduler
	return nil
}

// unuse ends the parts' uses of memory.
func unuse(parts []part) {
	for i := range parts {
		if m := parts[i].local.mem; m != nil {
			m.unuse()
		}
	}
}

var (
	errLengths = fmt.Errorf("%w: the lengths differ", verbs.ErrInvalid)
	errForeign = fmt.Errorf("%w: the memory belongs to another engine", verbs.ErrInvalid)
	errNoPiece = fmt.Errorf("%w: no memory", verbs.ErrInvalid)
	errRemote  = fmt.Errorf("%w: the Remote is zero, or was sliced out of range", verbs.ErrInvalid)
	errWord    = fmt.Errorf("%w: an atomic operation needs 8 bytes at a multiple of 8", verbs.ErrInvalid)
	errAccess  = fmt.Errorf("%w: the Remote doesn't allow that", ErrDenied)
	errLocal   = fmt.Errorf("%w: a read into memory that was registered read-only", verbs.ErrInvalid)
)

func (p *Peer) checkPart(q *part) error {
	atomically := q.op == opFetchAdd || q.op == opCompareSwap
	switch {
	case !q.remote.valid():
		return errRemote
	case q.remote.engine != p.engine:
		return ErrStale
	case q.remote.access&needs[q.op] == 0:
		return errAccess
	case uint64(q.n) != q.remote.n && atomically:
		return errWord
	case uint64(q.n) != q.remote.n:
		return errLengths
	case atomically:
		return nil
	case q.local.mem == nil:
		return errNoPiece
	case q.local.mem.e != p.e:
		return errForeign
	case q.op == opRead && q.local.mem.readOnly:
		return errLocal
	}
	return nil
}

// Do starts the batch and waits until it is over. When ctx ends, Do cancels the batch, and waits for
// what a device has begun. The batch must not have OnDone.
func (p *Peer) Do(ctx context.Context, b *Batch) error {
	if b.OnDone != nil {
		return invalid("Do of a batch with OnDone")
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("xfer: %w", err)
	}
	if err := p.Start(b); err != nil {
		return err
	}
	err := b.Wait(ctx)
	if _, pending := err.(*PendingError); pending {
		b.Cancel()
		if err = b.Wait(context.Background()); errors.Is(err, ErrCanceled) {
			err = fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
	return err
}

var batches = sync.Pool{New: func() any { return new(Batch) }}

// Read reads a peer's memory: it is Do of a batch with one operation.
func (p *Peer) Read(ctx context.Context, into Piece, from Remote) error {
	b := batches.Get().(*Batch)
	b.Read(into, from)
	return p.once(ctx, b)
}

// Write writes to a peer's memory: it is Do of a batch with one operation.
func (p *Peer) Write(ctx context.Context, to Remote, from Piece) error {
	b := batches.Get().(*Batch)
	b.Write(to, from)
	return p.once(ctx, b)
}

func (p *Peer) once(ctx context.Context, b *Batch) error {
	err := p.Do(ctx, b)
	b.Reset()
	batches.Put(b)
	return err
}
