// Package eq implements event queues of the HCA. It writes event queue entries (struct
// mlx5_eqe in include/linux/mlx5/device.h) and raises interrupts.
package eq

import "github.com/goverbs/goverbs/rig/internal/bus"

// Config has the parameters of CREATE_EQ.
type Config struct {
	Number  uint8
	Memory  bus.Memory
	Buffer  bus.Buffer
	LogSize uint // entries of 64 bytes
	// Interrupt raises the queue's MSI-X vector.
	Interrupt func()
}

// EQ is an event queue. It is not safe for concurrent use.
type EQ struct {
	c        Config
	producer uint32 // counts all entries
	consumer uint32 // the driver's index, 24 bits
	armed    bool
	status   uint8
	waiting  []Event // events without room in the queue
}

// Values of eqc.status.
const (
	StatusOK         = 0
	StatusWriteError = 9
	StatusOverflow   = 10
)

const (
	entrySize  = 64
	index      = 1<<24 - 1 // the bits of a consumer index
	maxWaiting = 1 << 16
)

// New returns an empty queue, not armed.
func New(c Config) *EQ { return &EQ{c: c} }

// Number returns the queue's number.
func (q *EQ) Number() uint8 { return q.c.Number }

// Post writes an event, and raises an interrupt if the queue is armed. While the queue is
// full, events wait, because a lost completion event would silence its CQ forever. If
// maxWaiting events wait already, the queue's status becomes StatusOverflow.
func (q *EQ) Post(e Event) {
	if len(q.waiting) == maxWaiting {
		q.status = StatusOverflow
		return
	}
	if len(q.waiting) > 0 || q.full() {
		q.waiting = append(q.waiting, e)
		return
	}
	q.write(&e)
	q.notify()
}

func (q *EQ) full() bool { return (q.producer-q.consumer)&index >= 1<<q.c.LogSize }

func (q *EQ) write(e *Event) {
	at := uint64(q.producer&(1<<q.c.LogSize-1)) * entrySize
	b := q.c.Buffer.Bytes(q.c.Memory, at, entrySize)
	if b == nil {
		q.status = StatusWriteError
		return
	}
	clear(b[:32])
	b[1], b[3] = e.Type, e.Subtype
	copy(b[32:60], e.Data[:])
	bus.Store32(b[60:], q.producer>>q.c.LogSize&1) // the owner bit; the driver ignores the bits above it
	q.producer++
}

func (q *EQ) notify() {
	if q.armed && q.producer&index != q.consumer {
		q.armed = false
		q.c.Interrupt()
	}
}

// Doorbell handles the driver's write to the queue's UAR: at 0x40 (arm) or at 0x48.
// Arming a queue that has entries beyond consumer raises an interrupt at once.
func (q *EQ) Doorbell(arm bool, consumer uint32) {
	q.consumer = consumer & index
	if arm {
		q.armed = true
	}
	n := 0
	for n < len(q.waiting) && !q.full() && q.status != StatusWriteError {
		q.write(&q.waiting[n])
		n++
	}
	q.waiting = append(q.waiting[:0], q.waiting[n:]...)
	q.notify()
}

// State has the fields of the queue's context that change, for QUERY_EQ.
type State struct {
	Status             uint8
	ST                 uint8 // MLX5_EQ_STATE_ARMED or MLX5_EQ_STATE_FIRED
	Producer, Consumer uint32
}

// State returns the current state.
func (q *EQ) State() State {
	s := State{Status: q.status, ST: 0xa, Producer: q.producer & index, Consumer: q.consumer}
	if q.armed {
		s.ST = 9
	}
	return s
}
