package transport

import (
	"github.com/goverbs/goverbs/tests/hca/fabric"
)

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

func (e *Engine) receiveFrame(port uint8, p *fabric.Packet) {}
