// Package transport implements the HCA's transport engine: queue pairs that execute work
// queue entries and exchange packets as the InfiniBand specification defines. Entries have
// the layout in include/linux/mlx5/qp.h.
//
// An Engine has no goroutines and no clock. One goroutine drives it with doorbells,
// packets and the time, so that its behavior can be reproduced.
package transport

import (
	"encoding/binary"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/journal"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
	"github.com/goverbs/goverbs/rig/connectx/internal/mutant"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// Config connects an Engine to its HCA.
type Config struct {
	Memory bus.Memory
	Keys   *mkey.Table
	Ports  []*fabric.Port          // the first is port 1
	CQ     func(cqn uint32) *cq.CQ // nil if there is none
	Event  func(eq.Event)          // posts an asynchronous event
	// PageFault posts a page fault event, after which the driver calls Resume. It
	// reports false, or is nil, if no driver resolves page faults.
	PageFault func(eq.Event) bool
	Log       journal.Log // may be nil
	// Steer appends the receivers of an Ethernet frame. It may be nil.
	Steer func(to []Delivery, f Frame) []Delivery
	// PKey returns the partition key at an index of a port's table. If it is
	// nil, all are 0xffff.
	PKey func(port uint8, index uint16) uint16
	// Addresses is the size of a port's table of RoCE addresses, 0 for InfiniBand
	// ports.
	Addresses int
	// AtomicBigEndian makes atomic operations use big-endian words in memory, as
	// HCAs do that don't know the host's byte order.
	AtomicBigEndian bool
	// PlainAtomics: there are no atomic operations with masks.
	PlainAtomics bool
	// Checksums and LogLSO are the offloads of raw packet send queues: checksum
	// computation, and segmentation of messages up to 1<<LogLSO bytes (0: none).
	Checksums bool
	LogLSO    uint8
	// Numbered: completions identify QPs and SRQs by their numbers (CQE version 0),
	// and user indexes are undefined.
	Numbered bool
	// GRHRequired: packets without a GRH are neither sent nor received.
	GRHRequired bool
	// Hurry, if more than 1, divides the retransmission and RNR timers of queue
	// pairs.
	Hurry int
	// Violation reports errors of the driver that no status can report. It may be
	// nil.
	Violation func(error)
	// Mutant has the mistake to make. It may be nil.
	Mutant *mutant.Set
}

// Engine is the transport of one HCA. It is not safe for concurrent use.
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
	wqe       [maxWQE]byte // a receive WQE while it is parsed
	pieces    [][]byte
	stale     [64]byte // see mutate.go
	pause     pause
	copies    uint64 // WQEs executed from BlueFlame copies
}

// The first number that is assigned. The driver may use those below it.
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

// Counters returns the counters of a set, which is created at its first use.
func (e *Engine) Counters(set uint8) *Counters {
	c := e.counters[set]
	if c == nil {
		c = new(Counters)
		e.counters[set] = c
	}
	return c
}

// Doorbell handles a write to a UAR at an offset of 0x800 or more: a send queue's
// doorbell, which is the first 8 bytes of a WQE, or a whole WQE (BlueFlame), which is
// executed instead of the one in memory.
func (e *Engine) Doorbell(uar, offset uint32, data []byte) {
	if e.c.Log != nil {
		e.c.Log.Doorbell(uar, offset, data)
	}
	if offset&0xff != 0 || len(data) < 8 {
		return
	}
	q := e.qps[DoorbellQP(data)]
	if q == nil || q.deaf(data) || !q.announced(uar, data) {
		return
	}
	q.copied = q.copied[:0]
	if len(data) >= 64 && !q.mutates(mutant.CopyIgnored) {
		q.copied = append(q.copied, data...)
	}
	e.activate(q)
}

// DoorbellQP returns the number of the queue in a doorbell of at least 8 bytes.
func DoorbellQP(data []byte) uint32 { return binary.BigEndian.Uint32(data[4:]) >> 8 }

// Copies returns how many WQEs were executed from BlueFlame copies.
func (e *Engine) Copies() uint64 { return e.copies }

// Taken reports whether a number is used by a queue pair or another queue.
func (e *Engine) Taken(number uint32) bool { return e.qps[number] != nil }

// activate adds a queue pair to those with work to do.
func (e *Engine) activate(q *QP) {
	if !q.active {
		q.active = true
		e.active = append(e.active, q)
	}
}

// burst is how many packets a queue pair may send before another one's turn.
const burst = 16

// Run does pending work of up to about budget packets, and reports whether more is left.
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

// Tick sets the time and does what is due. The caller must call Run afterwards.
func (e *Engine) Tick(now time.Duration) {
	e.now = now
	e.timers.expire(now)
}

// Next returns when Tick must be called again, or 0 if no timer runs.
func (e *Engine) Next() time.Duration { return e.timers.next() }
