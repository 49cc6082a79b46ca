// Package transport is the HCA's engine: queue pairs that execute work queue
// entries and talk to each other in packets, as the InfiniBand specification
// has it, with entries laid out as in include/linux/mlx5/qp.h.
//
// An Engine has no goroutines and no clock. It is driven by doorbells,
// packets and the time that it is told, all from one goroutine, so that what
// it does can be repeated.
package transport

import (
	"encoding/binary"
	"time"

	"github.com/goverbs/goverbs/tests/hca/internal/bus"
	"github.com/goverbs/goverbs/tests/hca/internal/cq"
	"github.com/goverbs/goverbs/tests/hca/internal/eq"
	"github.com/goverbs/goverbs/tests/hca/internal/fabric"
	"github.com/goverbs/goverbs/tests/hca/internal/journal"
	"github.com/goverbs/goverbs/tests/hca/internal/mkey"
)

// Config is what an Engine is part of.
type Config struct {
	Memory bus.Memory
	Keys   *mkey.Table
	Ports  []*fabric.Port          // the first is number 1
	CQ     func(cqn uint32) *cq.CQ // nil if there is none
	Event  func(eq.Event)          // takes asynchronous events
	// PageFault takes events that Resume answers. It reports false, or is nil,
	// if there is nobody to bring in pages.
	PageFault func(eq.Event) bool
	Log       journal.Log // may be nil
	// Steer appends where an Ethernet frame is to be received. It may be nil.
	Steer func(to []Delivery, f Frame) []Delivery
	// PKey is the partition key at an index of a port's table; 0xffff
	// everywhere if it is nil.
	PKey func(port uint8, index uint16) uint16
	// Addresses is how many RoCE addresses a port has room for; 0 if ports are
	// of InfiniBand.
	Addresses int
	// AtomicBigEndian makes atomic operations take memory as big-endian
	// words, as HCAs do that were not told of the host's order.
	AtomicBigEndian bool
	// Checksums and LogLSO are what send queues of raw packets can do: compute
	// checksums, and cut up messages of so many bytes (0: none).
	Checksums bool
	LogLSO    uint8
	// Numbered: completions name QPs and SRQs by their numbers (CQE version 0), and
	// nobody has said what their indices are.
	Numbered bool
	// GRHRequired: what has no GRH neither leaves nor arrives.
	GRHRequired bool
	// Hurry is by how much shorter queue pairs wait before they try again than they
	// are told to, if more than 1.
	Hurry int
	// Violation takes what no driver may do and no status refuses. It may be nil.
	Violation func(error)
}

// Engine is the transport of one HCA. It is for one goroutine.
type Engine struct {
	c         Config
	now       time.Duration
	qps       map[uint32]*QP // by number; DCTs, raw SQs and raw RQs too
	srqs      map[uint32]*srq
	special   map[uint16]*QP // by port and whether it is QP1
	roce      bool           // it is enabled
	addresses [][]Address    // of each port
	groups    map[fabric.GID][]*QP
	counters  map[uint8]*Counters
	nextQPN   uint32
	nextSRQN  uint32
	active    []*QP // with work to do
	timers    timers
	steered   []Delivery
	wqe       [maxWQE]byte // of a receive queue, while it is parsed
	pieces    [][]byte
	copies    uint64 // WQEs executed from what came by BlueFlame
}

// Numbers from here on are given out; those below are the driver's.
const (
	firstQPN  = 0x50
	firstSRQN = 0x10
	maxNumber = 1<<24 - 2
)

// New returns an engine without queue pairs.
func New(c Config) *Engine {
	e := &Engine{
		c:        c,
		qps:      make(map[uint32]*QP),
		srqs:     make(map[uint32]*srq),
		special:  make(map[uint16]*QP),
		groups:   make(map[fabric.GID][]*QP),
		counters: make(map[uint8]*Counters),
		nextQPN:  firstQPN,
		nextSRQN: firstSRQN,
	}
	if e.ethernet() {
		for range c.Ports {
			e.addresses = append(e.addresses, make([]Address, c.Addresses))
		}
	}
	e.announce()
	return e
}

// Counters returns the counters of a set, which exists as soon as it is used.
func (e *Engine) Counters(set uint8) *Counters {
	c := e.counters[set]
	if c == nil {
		c = new(Counters)
		e.counters[set] = c
	}
	return c
}

// Doorbell is a write to a UAR at an offset of 0x800 and more: a doorbell of a
// send queue, which is the first 8 bytes of a WQE, or a whole WQE (BlueFlame),
// which is executed in the place of what is in memory.
func (e *Engine) Doorbell(uar, offset uint32, data []byte) {
	if e.c.Log != nil {
		e.c.Log.Doorbell(uar, offset, data)
	}
	if offset&0xff != 0 || len(data) < 8 {
		return
	}
	q := e.qps[DoorbellQP(data)]
	if q == nil || !q.announced(uar, data) {
		return
	}
	q.copied = q.copied[:0]
	if len(data) >= 64 {
		q.copied = append(q.copied, data...)
	}
	e.activate(q)
}

// DoorbellQP is the number of the queue that a doorbell of at least 8 bytes is
// for.
func DoorbellQP(data []byte) uint32 { return binary.BigEndian.Uint32(data[4:]) >> 8 }

// Copies is how many WQEs were executed from what came by BlueFlame.
func (e *Engine) Copies() uint64 { return e.copies }

// Taken reports whether a number is that of a queue pair or of a part of one.
func (e *Engine) Taken(number uint32) bool { return e.qps[number] != nil }

// activate puts a queue pair among those with work to do.
func (e *Engine) activate(q *QP) {
	if !q.active {
		q.active = true
		e.active = append(e.active, q)
	}
}

// burst is how many packets a queue pair may send before it is another's turn.
const burst = 16

// Run does pending work, at most about budget packets of it, and reports
// whether there is more.
func (e *Engine) Run(now time.Duration, budget int) (more bool) {
	e.now = now
	for budget > 0 && len(e.active) > 0 {
		q := e.active[0]
		copy(e.active, e.active[1:])
		e.active[len(e.active)-1] = nil
		e.active = e.active[:len(e.active)-1]
		q.active = false
		n, more := q.work(burst)
		budget -= n + 1
		if more && !q.dead {
			e.activate(q)
		}
	}
	return len(e.active) > 0
}

// Tick tells the time and does what is due. Run has to follow.
func (e *Engine) Tick(now time.Duration) {
	e.now = now
	e.timers.expire(now)
}

// Next is when Tick wants to be called again; 0: not until something else
// happens.
func (e *Engine) Next() time.Duration { return e.timers.next() }
