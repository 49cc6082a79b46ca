package rdmacm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// A queuePair is a *verbs.QP.
type queuePair interface {
	PostSend(...verbs.SendWR) (int, error)
	PostRecv(...verbs.RecvWR) (int, error)
}

// messages are a Conn's messages: slots of registered memory, each with at most
// one request in flight, and the completions of these requests. A slot without a
// request is free, has a message that nobody has taken, or is lent to the caller.
// RDMA and atomic operations use the slots for sends, too.
type messages struct {
	qp    queuePair
	mem   []byte // the slots for receives, then those for sends, of size bytes each; then, aligned, 8 bytes for each atomic operation's result
	size  int
	sge   func(off, n int) verbs.SGE // of a piece of mem
	sends completions
	recvs completions
	fail  func(error) // ends the connection

	free    chan int     // slots for sends
	arrived chan arrival // messages, in order
	written chan written // writes with immediate data, in order
	last    sync.Once    // posts the request that drain waits for
	guarded sync.Once    // see Conn.Done

	mu       sync.Mutex // protects the fields below
	sendSlot []sendSlot
	recvSlot []recvSlot
	lent     int      // slots that are lent
	posted   int      // receives
	draining bool     // no receive is posted any more
	cause    error    // the first failure that is not the consequence of another one
	progress progress // of sends
}

type sendSlot struct {
	wr      [1]verbs.SendWR
	sge     [1]verbs.SGE
	posted  bool
	want    verbs.WCOpcode // of its completion
	awaited bool           // a caller waits for the result
	result  chan error     // has room for it
	done    func(error)    // called with the result, unless nil
	loan    loan
}

type recvSlot struct {
	wr     [1]verbs.RecvWR
	sge    [1]verbs.SGE
	posted bool
	loan   loan
}

// A loan counts how often a slot was lent to the caller. It rises when the slot is given
// back, so each handle is valid once.
type loan uint64

// An arrival is a received message: n bytes in a slot for receives.
type arrival struct{ slot, n int }

// A written is a peer's write of n bytes, whose immediate data has consumed a slot for receives.
type written struct {
	slot, n int
	imm     uint32
}

// WRIDs from ReservedWRIDs on are reserved for a Conn's own requests. The caller's
// requests on Conn.QP must have smaller ones.
const ReservedWRIDs = 1 << 63

// newMessages returns messages with n slots for each direction. sge returns the
// scatter/gather entry for a piece of mem.
func newMessages(n, size int, life context.Context, fail func(error)) *messages {
	m := &messages{
		size: size, fail: fail,
		free: make(chan int, n), arrived: make(chan arrival, n), written: make(chan written, n),
		sendSlot: make([]sendSlot, n), recvSlot: make([]recvSlot, n),
	}
	m.sends.init(life, &m.recvs, m.sent, func(err error) { m.callerFailed(err, &m.recvs) })
	m.recvs.init(life, nil, m.received, func(err error) { m.callerFailed(err, &m.sends) })
	return m
}

// messageBytes returns the size of the memory that n slots in each direction need.
func messageBytes(n, size int) int { return resultsAt(n, size) + 8*n }

// resultsAt returns where the results of atomic operations are.
func resultsAt(n, size int) int { return (2*n*size + 7) &^ 7 }

// start makes the slots, and posts all receives. sge returns the scatter/gather entry for a piece
// of mem.
func (m *messages) start(mem []byte, sge func(off, n int) verbs.SGE, qp queuePair, sendCQ, recvCQ completionQueue) error {
	n, size := len(m.sendSlot), m.size
	m.mem, m.sge, m.qp, m.sends.cq, m.recvs.cq = mem, sge, qp, sendCQ, recvCQ
	for slot := range n {
		s, r := &m.sendSlot[slot], &m.recvSlot[slot]
		s.result = make(chan error, 1)
		r.sge[0] = sge(slot*size, size)
		r.wr[0] = verbs.RecvWR{WRID: ReservedWRIDs + uint64(slot), SGL: r.sge[:]}
		m.free <- slot
	}
	for slot := range m.recvSlot {
		if err := m.postRecv(slot); err != nil {
			return err
		}
	}
	return nil
}

func (m *messages) postRecv(slot int) error {
	r := &m.recvSlot[slot]
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draining {
		return nil
	}
	r.posted = true
	m.posted++
	_, err := m.qp.PostRecv(r.wr[:]...)
	if err != nil {
		r.posted = false
		m.posted--
	}
	return err
}

// slot returns the slot of one of the connection's own requests.
func (m *messages) slot(wrid uint64) (slot int, own bool) {
	if n := wrid - ReservedWRIDs; n < uint64(len(m.sendSlot)) {
		return int(n), true
	}
	return 0, false
}

// takeSlot waits for a free slot for a send.
func (m *messages) takeSlot(ctx context.Context) (slot int, err error) {
	slot, err = await(ctx, &m.sends, m.free)
	if err == nil && m.sends.life.Err() != nil {
		m.free <- slot
		return 0, errOver
	}
	return slot, err
}

// sendBytes returns the memory of a slot for sends.
func (m *messages) sendBytes(slot int) []byte {
	return m.mem[(len(m.sendSlot)+slot)*m.size:][:m.size:m.size]
}

// post sends the first n bytes of a slot. If it fails, the slot is free again.
// awaited says that the caller waits for the slot's result.
func (m *messages) post(slot, n int, awaited bool) error {
	r := request{SendWR: verbs.SendWR{Opcode: verbs.OpSend}, local: m.sge((len(m.sendSlot)+slot)*m.size, n), want: verbs.WCSend}
	return m.postRequest(slot, &r, awaited)
}

// A request is a work request for the send queue. Its completion has the opcode want.
type request struct {
	verbs.SendWR
	local verbs.SGE
	want  verbs.WCOpcode
	done  func(error)
}

// postRequest posts a request with a slot for sends. If it fails, the slot is free again. awaited
// says that the caller waits for the slot's result.
func (m *messages) postRequest(slot int, r *request, awaited bool) error {
	s := &m.sendSlot[slot]
	s.wr[0] = r.SendWR
	s.wr[0].WRID, s.wr[0].Flags = ReservedWRIDs+uint64(slot), verbs.SendSignaled
	if r.local.Length > 0 {
		s.sge[0] = r.local
		s.wr[0].SGL = s.sge[:]
	}
	// Under the lock, so that sends are counted in the order in which they complete.
	m.mu.Lock()
	_, err := m.qp.PostSend(s.wr[:]...)
	if err == nil {
		s.posted, s.want, s.awaited, s.done = true, r.want, awaited, r.done
		m.progress.posted++
	}
	m.mu.Unlock()
	if err != nil {
		m.free <- slot
	}
	return err
}

// postCopy sends a message of at most size bytes from a copy.
func (m *messages) postCopy(ctx context.Context, b []byte, awaited bool) (slot int, err error) {
	if slot, err = m.takeSlot(ctx); err != nil {
		return 0, err
	}
	return slot, m.post(slot, copy(m.sendBytes(slot), b), awaited)
}

// send sends a message of at most size bytes and waits for its completion.
func (m *messages) send(ctx context.Context, b []byte) error {
	slot, err := m.postCopy(ctx, b, true)
	if err != nil {
		return err
	}
	result, err := m.await(ctx, slot)
	if err != nil {
		return err
	}
	m.free <- slot
	return result
}

// do posts a request and waits for its completion. If it is an atomic operation, do returns its
// result.
func (m *messages) do(ctx context.Context, r *request) (before uint64, err error) {
	slot, err := m.takeSlot(ctx)
	if err != nil {
		return 0, err
	}
	at := resultsAt(len(m.sendSlot), m.size) + 8*slot
	if r.want == verbs.WCCompareSwap || r.want == verbs.WCFetchAdd {
		r.local = m.sge(at, 8)
	}
	if err := m.postRequest(slot, r, true); err != nil {
		return 0, err
	}
	result, err := m.await(ctx, slot)
	if err != nil {
		return 0, err
	}
	before = binary.NativeEndian.Uint64(m.mem[at:])
	m.free <- slot
	return before, result
}

// postLater posts a request, whose completion frees the slot.
func (m *messages) postLater(ctx context.Context, r *request) error {
	slot, err := m.takeSlot(ctx)
	if err != nil {
		return err
	}
	return m.postRequest(slot, r, false)
}

// await waits for the result of a slot's request. If it fails, the completion frees the slot,
// otherwise the caller does.
func (m *messages) await(ctx context.Context, slot int) (result, err error) {
	s := &m.sendSlot[slot]
	result, err = await(ctx, &m.sends, s.result)
	if err != nil && !m.abandon(s) {
		return <-s.result, nil // it completed meanwhile
	}
	return result, err
}

// abandon makes the completion free the slot. It reports false if the request has already
// completed.
func (m *messages) abandon(s *sendSlot) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.posted {
		s.awaited = false
	}
	return s.posted
}

// flush waits for the completions of all sends posted so far.
func (m *messages) flush(ctx context.Context) error {
	m.mu.Lock()
	w := m.progress.watch()
	m.mu.Unlock()
	result, err := await(ctx, &m.sends, w.result)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && !m.progress.forget(w) {
		result, err = <-w.result, nil // they completed meanwhile
	}
	m.progress.unused = append(m.progress.unused, w)
	if err != nil {
		return err
	}
	return result
}

// sent handles the completion of a send.
func (m *messages) sent(wc *verbs.WC) bool {
	slot, own := m.slot(wc.WRID)
	if !own {
		return m.lastSend(wc)
	}
	s := &m.sendSlot[slot]
	m.mu.Lock()
	if !s.posted || wc.Status == verbs.WCSuccess && wc.Opcode != s.want {
		m.mu.Unlock()
		return false
	}
	s.posted = false
	err := wc.Err()
	m.recordFailure(err)
	awaited, done := s.awaited, s.done
	s.done = nil
	m.mu.Unlock()
	if err != nil {
		m.broken(err, &m.recvs)
	}
	if done != nil {
		done(err)
	}
	m.mu.Lock()
	m.progress.completed(err)
	m.mu.Unlock()
	if awaited {
		s.result <- err
	} else {
		m.free <- slot
	}
	return true
}

// recordFailure keeps the first failure that is not the consequence of another one. The
// caller holds mu.
func (m *messages) recordFailure(err error) {
	if m.cause == nil && err != nil && !flushed(err) {
		m.cause = err
	}
}

// callerFailed ends the connection because one of the caller's requests has failed, which breaks
// the queue pair.
func (m *messages) callerFailed(err error, other *completions) {
	m.mu.Lock()
	m.recordFailure(err)
	m.mu.Unlock()
	m.broken(err, other)
}

// flushed reports whether a request failed because another one had failed.
func flushed(err error) bool {
	var e *verbs.WCError
	return errors.As(err, &e) && e.Status == verbs.WCWRFlushErr
}

// broken ends the connection because of a completion. If that is the consequence
// of another one, the cause may lie on the other queue.
func (m *messages) broken(err error, other *completions) {
	if flushed(err) {
		other.pollNow()
	}
	m.fail(err)
}

// why returns the cause if err is its consequence.
func (m *messages) why(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cause != nil && flushed(err) {
		return m.cause
	}
	return err
}

// recvBytes returns the first n bytes of a slot for receives.
func (m *messages) recvBytes(slot, n int) []byte {
	return m.mem[slot*m.size:][:n:n]
}

// repost makes a slot available for another message.
func (m *messages) repost(slot int) error {
	err := m.postRecv(slot)
	if m.recvs.life.Err() != nil {
		return nil // the queue takes no receives, and needs none
	}
	if err != nil {
		m.fail(err)
	}
	return err
}

// recv waits for a message and copies it to b.
func (m *messages) recv(ctx context.Context, b []byte) (int, error) {
	a, err := await(ctx, &m.recvs, m.arrived)
	if err != nil {
		return 0, err
	}
	n := copy(b, m.recvBytes(a.slot, a.n))
	if err := m.repost(a.slot); err != nil {
		return n, err
	}
	if n < a.n {
		return n, io.ErrShortBuffer
	}
	return n, nil
}

// recvWrite waits for a write with immediate data.
func (m *messages) recvWrite(ctx context.Context) (imm uint32, n int, err error) {
	w, err := await(ctx, &m.recvs, m.written)
	if err != nil {
		return 0, 0, err
	}
	return w.imm, w.n, m.repost(w.slot)
}

// received handles the completion of a receive. The peer decides what kind of
// operation consumes it.
func (m *messages) received(wc *verbs.WC) bool {
	slot, own := m.slot(wc.WRID)
	if !own {
		return false
	}
	r := &m.recvSlot[slot]
	m.mu.Lock()
	if !r.posted {
		m.mu.Unlock()
		return false
	}
	r.posted = false
	if m.posted--; m.draining && m.posted == 0 {
		m.recvs.markDrained()
	}
	err := wc.Err()
	switch {
	case err != nil || wc.Opcode == verbs.WCRecvRDMAWithImm:
	case wc.Opcode != verbs.WCRecv:
		err = fmt.Errorf("%w: %v consumed a receive buffer", ErrNotMessage, wc.Opcode)
	case uint64(wc.ByteLen) > uint64(m.size):
		err = fmt.Errorf("%w: it has %d bytes, the buffer has %d", ErrNotMessage, wc.ByteLen, m.size)
	}
	m.recordFailure(err)
	m.mu.Unlock()
	switch {
	case err != nil:
		m.broken(err, &m.sends)
	case wc.Opcode == verbs.WCRecvRDMAWithImm:
		imm, _ := wc.Imm()
		m.written <- written{slot, int(wc.ByteLen), imm}
	default:
		m.arrived <- arrival{slot, int(wc.ByteLen)}
	}
	return true
}

// lastWRID returns the WRID of the send queue's last request, which drain posts.
func (m *messages) lastWRID() uint64 { return ReservedWRIDs + uint64(len(m.sendSlot)) }

// lastSend reports whether a completion is that of the send queue's last request.
func (m *messages) lastSend(wc *verbs.WC) bool {
	last := wc.WRID == m.lastWRID() && wc.Status == verbs.WCWRFlushErr
	if last {
		m.sends.markDrained()
	}
	return last
}

// drains starts draining: from now on, no receive is posted.
func (m *messages) drains() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draining = true; m.posted == 0 {
		m.recvs.markDrained()
	}
}

// drain waits until all requests of the queue pair have completed. The queue pair must be in the
// state ERR. drain posts a last send, which completes after all others. In this state, the queue
// pair needn't notice new receives, so drain waits only for those posted before.
func (m *messages) drain(ctx context.Context) (err error) {
	m.last.Do(func() {
		_, err = m.qp.PostSend(verbs.SendWR{WRID: m.lastWRID(), Opcode: verbs.OpSend, Flags: verbs.SendSignaled})
	})
	if err == nil {
		err = m.sends.drain(ctx)
	}
	if err == nil {
		err = m.recvs.drain(ctx)
	}
	return err
}

// gone ends the requests in flight after the queue pair was closed.
func (m *messages) gone() {
	for i := range m.sendSlot {
		m.mu.Lock()
		done := m.sendSlot[i].done
		m.sendSlot[i].done = nil
		m.mu.Unlock()
		if done != nil {
			done(ErrClosed)
		}
	}
}

// lend lends a slot to the caller.
func (m *messages) lend(l *loan) loan {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lent++
	return *l
}

// isLent reports whether a slot is still lent under this number.
func (m *messages) isLent(l *loan, number loan) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *l == number
}

// takeBack takes a slot back. It reports false if the slot is back already.
func (m *messages) takeBack(l *loan, number loan) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if *l != number {
		return false
	}
	*l++
	m.lent--
	return true
}

// checkLent returns ErrBusy while slots are lent: their memory is in use.
func (m *messages) checkLent() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lent > 0 {
		return opErr("close connection", "", fmt.Errorf("%w: %d of its buffers are not released", ErrBusy, m.lent))
	}
	return nil
}
