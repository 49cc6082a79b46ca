package rdmacm

import (
	"context"
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
// one request in flight, and the completions of these requests.
type messages struct {
	qp    queuePair
	mem   []byte // size bytes for each slot: first those for receives, then those for sends
	size  int
	sends completions
	recvs completions
	fail  func(error) // ends the connection

	free    chan int     // slots for sends without a request
	arrived chan arrival // messages, in order

	mu       sync.Mutex // for what follows
	sendSlot []sendSlot
	recvSlot []recvSlot
}

type sendSlot struct {
	wr      [1]verbs.SendWR
	sge     [1]verbs.SGE
	posted  bool
	awaited bool       // someone waits for the result
	result  chan error // has room for it
}

type recvSlot struct {
	wr     [1]verbs.RecvWR
	sge    [1]verbs.SGE
	posted bool
}

// An arrival is a received message: n bytes in a slot for receives.
type arrival struct{ slot, n int }

// WRIDs from OwnWRIDs on are reserved for a Conn's own requests. The caller's
// requests on Conn.QP must have smaller ones.
const OwnWRIDs = 1 << 63

// newMessages returns messages with n slots for each direction. sge returns the
// scatter/gather entry for a piece of mem.
func newMessages(n, size int, mem []byte, sge func(off, n int) verbs.SGE, qp queuePair, sendCQ, recvCQ completionQueue, life context.Context, fail func(error)) *messages {
	m := &messages{
		qp: qp, mem: mem, size: size, fail: fail,
		free: make(chan int, n), arrived: make(chan arrival, n),
		sendSlot: make([]sendSlot, n), recvSlot: make([]recvSlot, n),
	}
	m.sends.init(sendCQ, life, m.sent)
	m.recvs.init(recvCQ, life, m.received)
	for slot := range n {
		s, r := &m.sendSlot[slot], &m.recvSlot[slot]
		s.result = make(chan error, 1)
		s.sge[0] = sge((n+slot)*size, size)
		s.wr[0] = verbs.SendWR{WRID: OwnWRIDs + uint64(slot), Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
		r.sge[0] = sge(slot*size, size)
		r.wr[0] = verbs.RecvWR{WRID: OwnWRIDs + uint64(slot), SGL: r.sge[:]}
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
	if n := wrid - OwnWRIDs; n < uint64(len(m.sendSlot)) {
		return int(n), true
	}
	return 0, false
}

// send sends a message of at most size bytes and waits for its completion.
func (m *messages) send(ctx context.Context, b []byte) error {
	slot, err := await(ctx, &m.sends, m.free)
	if err != nil {
		return err
	}
	if m.sends.life.Err() != nil {
		m.free <- slot
		return errOver
	}
	s := &m.sendSlot[slot]
	copy(m.mem[(len(m.sendSlot)+slot)*m.size:][:m.size], b)
	s.wr[0].SGL = nil
	if len(b) > 0 {
		s.sge[0].Length = uint32(len(b))
		s.wr[0].SGL = s.sge[:]
	}
	m.mu.Lock()
	s.posted, s.awaited = true, true
	m.mu.Unlock()
	if _, err := m.qp.PostSend(s.wr[:]...); err != nil {
		m.mu.Lock()
		s.posted = false
		m.mu.Unlock()
		m.free <- slot
		return err
	}
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

// sent handles the completion of a send.
func (m *messages) sent(wc *verbs.WC) bool {
	slot, own := m.slot(wc.WRID)
	if !own {
		return false
	}
	s := &m.sendSlot[slot]
	m.mu.Lock()
	defer m.mu.Unlock()
	if !s.posted || wc.Status == verbs.WCSuccess && wc.Opcode != verbs.WCSend {
		return false
	}
	s.posted = false
	err := wc.Err()
	if err != nil {
		m.fail(err)
	}
	if s.awaited {
		s.result <- err
	} else {
		m.free <- slot
	}
	return true
}

// recv waits for a message and copies it to b.
func (m *messages) recv(ctx context.Context, b []byte) (int, error) {
	a, err := await(ctx, &m.recvs, m.arrived)
	if err != nil {
		return 0, err
	}
	n := copy(b, m.mem[a.slot*m.size:][:a.n])
	// After the connection has ended, the remaining messages can still be received.
	if err := m.postRecv(a.slot); err != nil && m.recvs.life.Err() == nil {
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
	defer m.mu.Unlock()
	if !r.posted {
		return false
	}
	r.posted = false
	switch err := wc.Err(); {
	case err != nil:
		m.fail(err)
	case wc.Opcode != verbs.WCRecv:
		m.fail(fmt.Errorf("%w: %v consumed a receive buffer", ErrNotMessage, wc.Opcode))
	case uint64(wc.ByteLen) > uint64(m.size):
		m.fail(fmt.Errorf("%w: it has %d bytes, the buffer has %d", ErrNotMessage, wc.ByteLen, m.size))
	default:
		m.arrived <- arrival{slot, int(wc.ByteLen)}
	}
	return true
}
