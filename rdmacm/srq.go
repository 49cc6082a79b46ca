package rdmacm

import (
	"errors"

	"github.com/goverbs/goverbs/verbs"
)

// CreateSRQ creates a shared receive queue on the PD, or if that is nil on
// ID.PD (rdma_create_srq, rdma_create_srq_ex). A QP that CreateQP makes later
// takes its receives from there, unless its options name another one. Closing
// the ID closes it. QPs of other IDs may take from it too: they are to be closed
// first.
func (id *ID) CreateSRQ(pd *verbs.PD, o verbs.SRQOptions) (*verbs.SRQ, error) {
	const op = "create SRQ"
	if err := id.begin(op); err != nil {
		return nil, err
	}
	defer id.end()
	pd, err := id.pdFor(op, pd)
	if err != nil {
		return nil, err
	}
	srq, err := pd.CreateSRQ(o)
	if err != nil {
		return nil, opErr(op, "", err)
	}
	id.mu.Lock()
	taken := id.srq != nil
	if !taken {
		id.srq = srq
	}
	id.mu.Unlock()
	if taken {
		return nil, errors.Join(invalid(op, "the ID has an SRQ"), srq.Close())
	}
	return srq, nil
}

// SRQ returns the SRQ that CreateSRQ made, or nil.
func (id *ID) SRQ() *verbs.SRQ {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.srq
}

// DestroySRQ closes the SRQ that CreateSRQ made (rdma_destroy_srq), after the
// QPs that take from it. Closing the ID does it, too.
func (id *ID) DestroySRQ() error {
	const op = "destroy SRQ"
	if err := id.begin(op); err != nil {
		return err
	}
	defer id.end()
	if err := id.closeSRQ(); err != nil {
		return opErr(op, "", err)
	}
	return nil
}

func (id *ID) closeSRQ() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.srq == nil {
		return nil
	}
	if err := id.srq.Close(); err != nil {
		return err
	}
	id.srq = nil
	return nil
}
