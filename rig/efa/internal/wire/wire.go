// Package wire carries messages between the adapters. It delivers each at a time of its own,
// so that they arrive in another order than they were sent.
package wire

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// A GID is an adapter's address.
type GID [16]byte

// An Operation is what a message does where it arrives.
type Operation uint8

// The operations have the numbers of the send queue's entries.
const (
	Send Operation = iota
	Read
	Write
)

// A Message is what one send queue entry sends.
type Message struct {
	Op            Operation
	From, To      GID
	FromQP, ToQP  uint16
	QKey          uint32
	Imm           uint32
	HasImm        bool
	Data          []byte // of a read, the answer
	RemoteKey     uint32 // of RDMA
	RemoteAddress uint64
	RemoteLength  uint32

	Reliable bool
	// Patience is how often a reliable message tries again when no receive is posted. If it
	// is negative, there is no end.
	Patience int
	// Done is called once for a reliable message.
	Done func(m *Message, s Status)

	due   time.Duration
	order uint64
}

// A Receiver gets the messages for its GID. It returns what the sender of a reliable message
// is told.
type Receiver interface {
	Receive(m *Message) Status
}

// Faults are what goes wrong. Fractions are of 1.
type Faults struct {
	// Reorder is the fraction of messages that later ones may overtake.
	Reorder float64
	// Loss is the fraction of messages that get lost. Reliable ones are sent again.
	Loss float64
	// Duplicate is the fraction of unreliable messages that arrive twice.
	Duplicate float64
	// Delay is that of each message, Jitter the maximum random addition.
	Delay, Jitter time.Duration
}

// Stats count messages.
type Stats struct {
	Sent, Delivered, Lost, Duplicated, Overtaken, NotReady uint64
}

// A Wire joins adapters. It is not safe for concurrent use.
type Wire struct {
	Faults    Faults
	Stats     Stats
	now       func() time.Duration
	random    *rand.Rand
	receivers map[GID]Receiver
	waiting   queue
	order     uint64
	newest    uint64 // the last message in order that was delivered
}

// New returns a wire whose random decisions follow from the seed.
func New(seed uint64, now func() time.Duration) *Wire {
	return &Wire{now: now, random: rand.New(rand.NewPCG(seed, 0)), receivers: make(map[GID]Receiver)}
}

// Attach makes r the receiver at an address. Without one, the address is unreachable.
func (w *Wire) Attach(at GID, r Receiver) {
	if r == nil {
		delete(w.receivers, at)
		return
	}
	w.receivers[at] = r
}

const (
	// retryInterval is how long a reliable message waits that found no receive.
	retryInterval = 2 * time.Millisecond
	// retransmission is how much later a reliable message arrives that was lost first.
	retransmission = time.Millisecond
	// overtakenWithin is how long a message is under way at most that others may overtake.
	overtakenWithin = 400 * time.Microsecond
)

// Send sends a message. The wire owns it from then on.
func (w *Wire) Send(m *Message) {
	w.Stats.Sent++
	f := w.Faults
	m.due = w.now() + f.Delay
	if f.Jitter > 0 {
		m.due += time.Duration(w.random.Int64N(int64(f.Jitter)))
	}
	if w.chance(f.Reorder) {
		m.due += time.Duration(w.random.Int64N(int64(overtakenWithin)))
	}
	if w.chance(f.Loss) {
		w.Stats.Lost++
		if !m.Reliable {
			return
		}
		m.due += retransmission
	}
	w.push(m)
	if !m.Reliable && w.chance(f.Duplicate) {
		w.Stats.Duplicated++
		again := *m
		w.push(&again)
	}
}

func (w *Wire) chance(p float64) bool { return p > 0 && w.random.Float64() < p }

func (w *Wire) push(m *Message) {
	w.order++
	m.order = w.order
	heap.Push(&w.waiting, m)
}

// Deliver delivers what is due, and reports whether that was anything.
func (w *Wire) Deliver() bool {
	now, any := w.now(), false
	for len(w.waiting) > 0 && w.waiting[0].due <= now {
		any = true
		m := heap.Pop(&w.waiting).(*Message)
		status := Unreachable
		if r := w.receivers[m.To]; r != nil {
			status = r.Receive(m)
		}
		if status == NotReady && m.Reliable && m.Patience != 0 {
			w.Stats.NotReady++
			m.Patience--
			m.due = now + retryInterval
			heap.Push(&w.waiting, m)
			continue
		}
		w.Stats.Delivered++
		if m.order < w.newest {
			w.Stats.Overtaken++
		}
		w.newest = max(w.newest, m.order)
		if m.Done != nil {
			m.Done(m, status)
		}
	}
	return any
}

// Next returns when the next message is due, and false if there is none.
func (w *Wire) Next() (time.Duration, bool) {
	if len(w.waiting) == 0 {
		return 0, false
	}
	return w.waiting[0].due, true
}

// A queue is a heap, the message that is due first at its top.
type queue []*Message

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].due < q[j].due || q[i].due == q[j].due && q[i].order < q[j].order
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(m any)   { *q = append(*q, m.(*Message)) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	m := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return m
}
