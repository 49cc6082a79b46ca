// Package transport is the HCA's engine: queue pairs that execute work queue
// entries and talk to each other in packets, as the InfiniBand specification
// has it, with entries laid out as in include/linux/mlx5/qp.h.
//
// An Engine has no goroutines and no clock. It is driven by doorbells,
// packets and the time that it is told, all from one goroutine, so that what
// it does can be repeated.
package transport

import (
	"time"

	"github.com/goverbs/goverbs/tests/hca/bus"
	"github.com/goverbs/goverbs/tests/hca/cq"
	"github.com/goverbs/goverbs/tests/hca/eq"
	"github.com/goverbs/goverbs/tests/hca/fabric"
	"github.com/goverbs/goverbs/tests/hca/mkey"
	"github.com/goverbs/goverbs/tests/hca/trace"
)

// Config is what an Engine is part of.
type Config struct {
	Memory bus.Memory
	Keys   *mkey.Table
	Ports  []*fabric.Port          // the first is number 1
	CQ     func(cqn uint32) *cq.CQ // nil if there is none
	Event  func(eq.Event)          // takes asynchronous events
	Log    trace.Log               // may be nil
	// Steer appends the numbers of the RQs that an Ethernet frame is for. It
	// may be nil.
	Steer func(rqns []uint32, port uint8, frame []byte) []uint32
	// Number of the first queue pair; 0 for a number that looks like one.
	FirstQPN uint32
}

// Engine is the transport of one HCA. It is for one goroutine.
type Engine struct {
	c   Config
	now time.Duration
}

// New returns an engine without queue pairs.
func New(c Config) *Engine { return &Engine{c: c} }

// CreateQP makes a queue pair in state Reset.
func (e *Engine) CreateQP(c QPContext) (qpn uint32, err error) { return 0, ErrLimit }

// ModifyQP takes a queue pair from one state to another. Of c counts what the
// transition requires, and what mask (Opt…) names.
func (e *Engine) ModifyQP(qpn uint32, op Transition, mask uint32, c *QPContext) error {
	return ErrNoRes
}

// QueryQP returns the live context.
func (e *Engine) QueryQP(qpn uint32) (QPContext, bool) { return QPContext{}, false }

// DestroyQP removes a queue pair.
func (e *Engine) DestroyQP(qpn uint32) error { return ErrNoRes }

// AttachMulticast makes a UD queue pair a member of the group, under lid as
// well (ATTACH_TO_MCG); DetachMulticast undoes it.
func (e *Engine) AttachMulticast(qpn uint32, g fabric.GID) error { return ErrNoRes }

// DetachMulticast ends a membership.
func (e *Engine) DetachMulticast(qpn uint32, g fabric.GID) error { return ErrNoRes }

// CreateSRQ makes an SRQ, an XRC SRQ or an RMP; they share their numbers.
func (e *Engine) CreateSRQ(c SRQContext) (srqn uint32, err error) { return 0, ErrLimit }

// ArmSRQ asks for an event when fewer than lwm WQEs are left (ARM_RQ,
// ARM_XRC_SRQ, MODIFY_RMP).
func (e *Engine) ArmSRQ(srqn uint32, lwm uint16) error { return ErrNoRes }

// QuerySRQ returns the live context.
func (e *Engine) QuerySRQ(srqn uint32) (SRQContext, bool) { return SRQContext{}, false }

// DestroySRQ removes an SRQ that no queue pair uses.
func (e *Engine) DestroySRQ(srqn uint32) error { return ErrNoRes }

// CreateDCT makes a DC target, active at once. It has a number among those of
// queue pairs.
func (e *Engine) CreateDCT(c DCTContext) (dctn uint32, err error) { return 0, ErrLimit }

// DrainDCT ends a target's connections; the event eq.TypeDCTDrained follows.
func (e *Engine) DrainDCT(dctn uint32) error { return ErrNoRes }

// QueryDCT returns the live context.
func (e *Engine) QueryDCT(dctn uint32) (DCTContext, bool) { return DCTContext{}, false }

// DestroyDCT removes a drained target.
func (e *Engine) DestroyDCT(dctn uint32) error { return ErrNoRes }

// CreateSQ makes a raw packet send queue.
func (e *Engine) CreateSQ(c SQContext) (sqn uint32, err error) { return 0, ErrLimit }

// ModifySQ changes its state.
func (e *Engine) ModifySQ(sqn uint32, from, to State) error { return ErrNoRes }

// QuerySQ returns the live context.
func (e *Engine) QuerySQ(sqn uint32) (SQContext, bool) { return SQContext{}, false }

// DestroySQ removes it.
func (e *Engine) DestroySQ(sqn uint32) error { return ErrNoRes }

// CreateRQ makes a raw packet receive queue.
func (e *Engine) CreateRQ(c RQContext) (rqn uint32, err error) { return 0, ErrLimit }

// ModifyRQ changes its state.
func (e *Engine) ModifyRQ(rqn uint32, from, to State) error { return ErrNoRes }

// QueryRQ returns the live context.
func (e *Engine) QueryRQ(rqn uint32) (RQContext, bool) { return RQContext{}, false }

// DestroyRQ removes it.
func (e *Engine) DestroyRQ(rqn uint32) error { return ErrNoRes }

// Counters returns the counters of a set, which exists as soon as it is used.
func (e *Engine) Counters(set uint8) *Counters { return new(Counters) }

// Doorbell is a write to a UAR at an offset of 0x800 and more: a doorbell of a
// send queue, or a piece of a WQE for BlueFlame.
func (e *Engine) Doorbell(uar, offset uint32, data []byte) {}

// Receive takes a packet from the fabric and frees it. port is a number from 1.
func (e *Engine) Receive(port uint8, p *fabric.Packet) { p.Free() }

// Tick tells the time, does what is due, and returns when the engine wants to
// be called again (0: not until something else happens).
func (e *Engine) Tick(now time.Duration) (next time.Duration) { e.now = now; return 0 }

// Run does pending work, at most about budget packets of it, and reports
// whether there is more.
func (e *Engine) Run(now time.Duration, budget int) (more bool) { e.now = now; return false }
