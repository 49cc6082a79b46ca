package rdmacm

import (
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// An ECE names what a device can do beyond the specification. Of the vendor 24
// bits travel; 0 is none.
type ECE = verbs.ECE

// SetLocalECE sets what goes to the peer with Connect or Accept
// (rdma_set_local_ece). It is for QPs of the caller's own: an ID with one that
// CreateQP made refuses.
func (id *ID) SetLocalECE(ece ECE) error {
	const op = "set local ECE"
	if err := id.begin(op); err != nil {
		return err
	}
	defer id.end()
	if ece.VendorID == 0 || ece.VendorID > 0xffffff {
		return invalid(op, "vendor %#x is not in 0x1 to 0xffffff", ece.VendorID)
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.queues.qp != nil {
		return invalid(op, "the ID has a QP")
	}
	id.ece.local = ece
	return nil
}

// RemoteECE returns what the peer sent with its request or its answer
// (rdma_get_remote_ece); zero if that was nothing.
func (id *ID) RemoteECE() ECE {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.ece.remote
}

// RejectECE is Reject, for the reason that the peer's ECE won't do
// (rdma_reject_ece): the peer's EventError has RejectVendorOption.
func (id *ID) RejectECE(privateData []byte) error {
	return id.reject(uint8(RejectVendorOption), privateData)
}

// localECE returns what to send: an answer names the vendor that asked.
func (id *ID) localECE(answer bool) uapi.RdmaUcmEce {
	id.mu.Lock()
	defer id.mu.Unlock()
	ece := uapi.RdmaUcmEce{VendorId: id.ece.local.VendorID, AttrMod: id.ece.local.Options}
	if answer {
		ece.VendorId = id.ece.remote.VendorID
	}
	return ece
}

// noteECE keeps what came with an event.
func (id *ID) noteECE(ece uapi.RdmaUcmEce) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.ece.remote = ECE{VendorID: ece.VendorId, Options: ece.AttrMod}
}
