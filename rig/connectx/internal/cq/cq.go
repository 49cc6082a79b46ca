// Package cq implements completion queues of the HCA. It writes completion queue entries
// in the layout of struct mlx5_cqe64 in include/linux/mlx5/device.h, and reports when an
// event is due. It has no clock of its own: its caller passes the time.
package cq

import (
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/mutant"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// Config has the parameters of CREATE_CQ.
type Config struct {
	Number        uint32
	Memory        bus.Memory
	Buffer        bus.Buffer
	LogSize       uint
	Size          Size
	DBR           uint64 // dbr_addr: the consumer index, then the arm word
	IgnoreOverrun bool   // oi
	Compress      bool   // cqe_comp_en, for CQEs of 64 bytes
	Format        Format // mini_cqe_res_format
	FromCQE       bool   // cq_period_mode: each CQE restarts the period
	Period        uint16 // microseconds
	MaxCount      uint16
	// Timestamp returns the HCA's clock, in ticks or in real time. If nil, CQEs have 0.
	Timestamp func(realTime bool) uint64
	// Counts may be shared by many queues. It may be nil.
	Counts *Counts
	// Event posts the queue's completion EQE.
	Event func()
	// Error posts MLX5_EVENT_TYPE_CQ_ERROR with the syndrome.
	Error func(syndrome uint8)
	// Violation reports errors of the driver that no status can report. It may be nil.
	Violation func(error)
	// Mutant has the mistake to make. It may be nil.
	Mutant *mutant.Set
}

// Counts counts completions.
type Counts struct {
	Completions int // all of them
	Blocks      int // blocks of compressed completions
	Compressed  int
}

// Size is the field cqe_sz of the queue's context.
type Size uint8

const (
	Size64     Size = 0
	Size128    Size = 1
	Size128Pad Size = 2 // all 128 bytes are written, even if 64 are enough
)

func (s Size) bytes() uint64 {
	if s == Size64 {
		return 64
	}
	return 128
}

// CQ is a completion queue. It is not safe for concurrent use.
type CQ struct {
	c        Config
	producer uint32 // the index of the next entry, 24 bits
	consumer uint32 // as last read from the doorbell record, 24 bits
	status   uint8

	armed     armed
	sn        int    // the sequence number of the last arming or of the last event; -1 at first
	solicited uint32 // the index after the last solicited entry
	notified  uint32 // the producer index when the last event was posted
	due       time.Duration

	held  []Completion // a compression session
	until time.Duration
}

// Values of cqc.status, and syndromes of the error event.
const (
	StatusOK         = 0
	StatusOverflow   = 9
	StatusWriteError = 10

	syndromeOverrun = 1
	syndromeAccess  = 2
)

// Errors of Resize. ErrOutstanding: the new size is smaller than the number of unconsumed
// entries (MLX5_CMD_STAT_BAD_SIZE_OUTS_CQES_ERR). ErrStatus: the queue is in error
// (MLX5_CMD_STAT_BAD_RES_STATE_ERR).
var (
	ErrOutstanding = errors.New("more entries outstanding than the new size holds")
	ErrStatus      = errors.New("CQ in error")
)

const indexMask = 1<<24 - 1

// New returns an empty queue, not armed.
func New(c Config) *CQ { return &CQ{c: c, sn: -1} }

// Number returns the queue's number.
func (q *CQ) Number() uint32 { return q.c.Number }

// Post writes a completion. It doesn't retain c or c.Inline.
func (q *CQ) Post(c *Completion, now time.Duration) {
	if q.c.Counts != nil {
		q.c.Counts.Completions++
	}
	if q.hold(c, now) {
		return
	}
	q.write(c)
	q.notify(1, c.wants(), now)
}

// write writes the next entry.
func (q *CQ) write(c *Completion) {
	entry, cqe := q.slot(0)
	if cqe == nil {
		return
	}
	if q.c.Size == Size128Pad {
		clear(entry[:64])
	}
	var ts uint64
	if q.c.Timestamp != nil {
		ts = q.c.Timestamp(c.RealTime)
	}
	if q.c.Mutant.Is(mutant.StampAhead) {
		ts += uint64(time.Hour)
	}
	if q.c.Mutant.Is(mutant.OwnerEarly) {
		q.ownEarly(c, cqe)
	}
	c.put(entry, cqe, ts, q.owner(0))
	q.producer = (q.producer + 1) & indexMask
}

// slot returns the memory of the i-th entry from the producer index on: the whole entry
// and its struct mlx5_cqe64. If the queue has no room for it, the queue goes to error.
func (q *CQ) slot(i uint32) (entry, cqe []byte) {
	if q.status != StatusOK {
		return nil, nil
	}
	if !q.c.IgnoreOverrun && q.free() <= i && !q.c.Mutant.Is(mutant.OverrunUnreported) {
		q.fail(StatusOverflow, syndromeOverrun)
		return nil, nil
	}
	size := q.c.Size.bytes()
	entry = q.c.Buffer.Bytes(q.c.Memory, uint64((q.producer+i)&(1<<q.c.LogSize-1))*size, int(size))
	if entry == nil {
		q.fail(StatusWriteError, syndromeAccess)
		return nil, nil
	}
	return entry, entry[size-64:]
}

// owner returns the owner bit of the i-th entry from the producer index on.
func (q *CQ) owner(i uint32) byte { return byte((q.producer + i) >> q.c.LogSize & 1) }

// free returns how many entries fit. It reads the doorbell record only if the last value
// isn't enough.
func (q *CQ) free() uint32 {
	size := uint32(1) << q.c.LogSize
	if n := (q.producer - q.consumer) & indexMask; n < size/2 {
		return size - n
	}
	n := q.outstanding()
	return size - min(n, size)
}

// outstanding reads the doorbell record and returns the number of unconsumed entries.
func (q *CQ) outstanding() uint32 {
	b := q.c.Memory.Bytes(q.c.DBR, 4)
	if b == nil {
		q.fail(StatusWriteError, syndromeAccess)
		return indexMask
	}
	v := bus.Load32(b)
	if v&^indexMask != 0 && q.c.Violation != nil {
		q.c.Violation(fmt.Errorf("doorbell record of CQ %#x: %#x has more than 24 bits", q.c.Number, v))
	}
	q.consumer = v & indexMask
	return (q.producer - q.consumer) & indexMask
}

func (q *CQ) fail(status, syndrome uint8) {
	if q.status == StatusOK {
		q.status = status
		q.held = q.held[:0]
		q.c.Error(syndrome)
	}
}

// Tick does what is due: it ends a compression session, or posts a moderated event. It
// returns the time of the next such action, or 0 if there is none.
func (q *CQ) Tick(now time.Duration) (next time.Duration) {
	if len(q.held) > 0 && now >= q.until {
		q.Flush(now)
	}
	if q.due != 0 && now >= q.due {
		q.fire()
	}
	next = q.due
	if len(q.held) > 0 && (next == 0 || q.until < next) {
		next = q.until
	}
	return next
}

// Resize moves the queue to another buffer (MODIFY_CQ with MLX5_CQ_OPMOD_RESIZE). The
// last entry in the old buffer has kind ResizeCQ. The consumer copies the entries before
// it to the new buffer itself, each to the next slot, because the ResizeCQ entry counts
// too.
func (q *CQ) Resize(b bus.Buffer, logSize uint, s Size, now time.Duration) error {
	q.Flush(now)
	if q.status != StatusOK {
		return ErrStatus
	}
	if n := q.outstanding(); n > 1<<logSize || n >= 1<<q.c.LogSize {
		return ErrOutstanding
	}
	if !q.c.Mutant.Is(mutant.ResizeUnmarked) {
		q.write(&Completion{Kind: ResizeCQ})
	}
	q.c.Buffer, q.c.LogSize, q.c.Size = b, logSize, s
	return nil
}

// IgnoreOverrun implements MODIFY_CQ with MLX5_CQ_MODIFY_OVERRUN.
func (q *CQ) IgnoreOverrun(on bool) { q.c.IgnoreOverrun = on }

// State has the fields of the queue's context that change, for QUERY_CQ.
type State struct {
	Status       uint8
	ST           uint8 // 6 armed for solicited entries, 9 for any, 10 fired
	Producer     uint32
	Consumer     uint32
	LastNotified uint32
	LastSolicit  uint32
}

// State returns the current state.
func (q *CQ) State() State {
	st := map[armed]uint8{armedNot: 0xa, armedSolicited: 6, armedAny: 9}[q.armed]
	return State{q.status, st, q.producer, q.consumer, q.notified, q.solicited}
}
