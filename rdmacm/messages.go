package rdmacm

import (
	"context"
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
type messages struct {
	qp    queuePair
	mem   []byte // size bytes for each slot: first those for receives, then those for sends
	size  int
	sends completions
	recvs completions
	fail  func(error) // ends the connection

	free    chan int     // slots for sends
	arrived chan arrival // messages, in order

	mu       sync.Mutex // for what follows
	sendSlot []sendSlot
	recvSlot []recvSlot
	lent     int      // slots that are lent
	cause    error    // the first failure that is not the consequence of another one
	progress progress // of sends
}

type sendSlot struct {
	wr      [1]verbs.SendWR
	sge     [1]verbs.SGE
	posted  bool
	awaited bool       // someone waits for the result
	result  chan error // has room for it
	loan    loan
}

type recvSlot struct {
	wr     [1]verbs.RecvWR
	sge    [1]verbs.SGE
	posted bool
	loan   loan
}

// A loan numbers the times that a slot is lent to the caller. It rises when the
// slot is given back, so each handle is good for once.
type loan uint64

// An arrival is a received message: n bytes in a slot for receives.
type arrival struct{ slot, n int }

// WRIDs from ReservedWRIDs on are reserved for a Conn's own requests. The caller's
// requests on Conn.QP must have smaller ones.
const ReservedWRIDs = 1 << 63

// newMessages returns messages with n slots for each direction. sge returns the
// scatter/gather entry for a piece of mem.
func newMessages(n, size int, mem []byte, sge func(off, n int) verbs.SGE, qp queuePair, sendCQ, recvCQ completionQueue, life context.Context, fail func(error)) *messages {
	m := &messages{
		qp: qp, mem: mem, size: size, fail: fail,
		free: make(chan int, n), arrived: make(chan arrival, n),
		sendSlot: make([]sendSlot, n), recvSlot: make([]recvSlot, n),
	}
	m.sends.init(sendCQ, life, m.sent, m.othersFailed)
	m.recvs.init(recvCQ, life, m.received, m.othersFailed)
	for slot := range n {
		s, r := &m.sendSlot[slot], &m.recvSlot[slot]
		s.result = make(chan error, 1)
		s.sge[0] = sge((n+slot)*size, size)
		s.wr[0] = verbs.SendWR{WRID: ReservedWRIDs + uint64(slot), Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
		r.sge[0] = sge(slot*size, size)
		r.wr[0] = verbs.RecvWR{WRID: ReservedWRIDs + uint64(slot), SGL: r.sge[:]}
		m.free <- slot
	}
	return m
}

// start posts all receives.
func (m *messages) start() error {
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
	r.posted = true
	m.mu.Unlock()
	_, err := m.qp.PostRecv(r.wr[:]...)
	return err
}

// slot returns the slot of one of the connection's own requests.
func (m *messages) slot(wrid uint64) (slot int, own bool) {
	if n := wrid - ReservedWRIDs; n < uint64(len(m.sendSlot)) {
		return int(n), true
	}
	return 0, false
}

// room waits for a free slot for a send.
func (m *messages) room(ctx context.Context) (slot int, err error) {
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
	s := &m.sendSlot[slot]
	s.wr[0].SGL = nil
	if n > 0 {
		s.sge[0].Length = uint32(n)
		s.wr[0].SGL = s.sge[:]
	}
	// Under the lock, so that sends are counted in the order in which they complete.
	m.mu.Lock()
	_, err := m.qp.PostSend(s.wr[:]...)
	if err == nil {
		s.posted, s.awaited = true, awaited
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
	if slot, err = m.room(ctx); err != nil {
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
	s := &m.sendSlot[slot]
	result, err := await(ctx, &m.sends, s.result)
	if err != nil && m.abandon(s) {
		return err
	}
	if err != nil {
		result = <-s.result // it completed meanwhile
	}
	m.free <- slot
	return result
}

// abandon leaves it to the completion to free the slot. It reports false if the
// completion has already come.
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
		return false
	}
	s := &m.sendSlot[slot]
	m.mu.Lock()
	if !s.posted || wc.Status == verbs.WCSuccess && wc.Opcode != verbs.WCSend {
		m.mu.Unlock()
		return false
	}
	s.posted = false
	err := wc.Err()
	m.note(err)
	awaited := s.awaited
	m.mu.Unlock()
	if err != nil {
		m.broken(err, &m.recvs)
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

// note keeps the first failure that is not the consequence of another one. The
// caller holds mu.
func (m *messages) note(err error) {
	if m.cause == nil && err != nil && !flushed(err) {
		m.cause = err
	}
}

// othersFailed notes that one of the caller's requests has failed, which breaks the
// queue pair.
func (m *messages) othersFailed(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(err)
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
		other.glance()
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
		return nil // the queue takes no more receives, and needs none
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
	err := wc.Err()
	switch {
	case err != nil:
	case wc.Opcode != verbs.WCRecv:
		err = fmt.Errorf("%w: %v consumed a receive buffer", ErrNotMessage, wc.Opcode)
	case uint64(wc.ByteLen) > uint64(m.size):
		err = fmt.Errorf("%w: it has %d bytes, the buffer has %d", ErrNotMessage, wc.ByteLen, m.size)
	}
	m.note(err)
	m.mu.Unlock()
	if err != nil {
		m.broken(err, &m.sends)
	} else {
		m.arrived <- arrival{slot, int(wc.ByteLen)}
	}
	return true
}

// lend lends a slot to the caller.
func (m *messages) lend(l *loan) loan {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lent++
	return *l
}

// lasts reports whether a slot is still lent under this number.
func (m *messages) lasts(l *loan, number loan) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *l == number
}

// back takes a slot back. It reports false if that has been done.
func (m *messages) back(l *loan, number loan) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if *l != number {
		return false
	}
	*l++
	m.lent--
	return true
}

// noneLent returns ErrBusy while slots are lent: their memory is in use.
func (m *messages) noneLent() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lent > 0 {
		return opErr("close connection", "", fmt.Errorf("%w: %d of its buffers are not released", ErrBusy, m.lent))
	}
	return nil
}
