package rdmacm

import "github.com/goverbs/goverbs/verbs"

// CreateSRQ creates a shared receive queue on the PD, or on ID.PD if pd is nil
// (rdma_create_srq, rdma_create_srq_ex). A QP that CreateQP makes later uses it,
// unless its options name another SRQ. Closing the ID closes the SRQ. QPs of
// other IDs may use it too; they must be closed first.
func (id *cmID) CreateSRQ(pd *verbs.PD, o verbs.SRQOptions) (*verbs.SRQ, error) {
	const op = "create SRQ"
	id.objects.Lock()
	defer id.objects.Unlock()
	if err := id.begin(op); err != nil {
		return nil, err
	}
	defer id.end()
	pd, err := id.pdFor(op, pd)
	if err != nil {
		return nil, err
	}
	if id.SRQ() != nil {
		return nil, invalid(op, "the ID has an SRQ")
	}
	srq, err := pd.CreateSRQ(o)
	if err != nil {
		return nil, opErr(op, "", err)
	}
	id.mu.Lock()
	id.srq = srq
	id.mu.Unlock()
	return srq, nil
}

// SRQ returns the SRQ that CreateSRQ made, or nil.
func (id *cmID) SRQ() *verbs.SRQ {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.srq
}

// DestroySRQ closes the SRQ that CreateSRQ made (rdma_destroy_srq). The QPs that
// use it must be closed first. Closing the ID does the same.
func (id *cmID) DestroySRQ() error {
	const op = "destroy SRQ"
	id.objects.Lock()
	defer id.objects.Unlock()
	if err := id.begin(op); err != nil {
		return err
	}
	defer id.end()
	if err := id.closeSRQ(); err != nil {
		return opErr(op, "", err)
	}
	return nil
}

// closeSRQ closes the SRQ. The caller holds objects.
func (id *cmID) closeSRQ() error {
	if err := id.SRQ().Close(); err != nil {
		return err
	}
	id.mu.Lock()
	id.srq = nil
	id.mu.Unlock()
	return nil
}
