package rdmacm

import (
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// An ECE describes a device's enhanced connection establishment: a vendor and its
// options. The handshake carries 24 bits of the vendor; 0 means none.
type ECE = verbs.ECE

// SetLocalECE sets the ECE that Connect or Accept sends to the peer
// (rdma_set_local_ece). It is for QPs of the caller's own. If CreateQP made the
// ID's QP, it returns ErrInvalid.
func (id *cmID) SetLocalECE(ece ECE) error {
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

// RemoteECE returns the ECE that came with the peer's request or answer
// (rdma_get_remote_ece). It is zero if the peer sent none.
func (id *cmID) RemoteECE() ECE {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.ece.remote
}

// RejectECE is Reject because of the peer's ECE (rdma_reject_ece). The peer's
// EventError has the reason RejectVendorOption.
func (id *cmID) RejectECE(privateData []byte) error {
	return id.reject(uint8(RejectVendorOption), privateData)
}

// localECE returns the ECE to send. An answer has the vendor of the request.
func (id *cmID) localECE(answer bool) uapi.RdmaUcmEce {
	id.mu.Lock()
	defer id.mu.Unlock()
	ece := uapi.RdmaUcmEce{VendorId: id.ece.local.VendorID, AttrMod: id.ece.local.Options}
	if answer {
		ece.VendorId = id.ece.remote.VendorID
	}
	return ece
}

// noteECE keeps the ECE that came with an event.
func (id *cmID) noteECE(ece uapi.RdmaUcmEce) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.ece.remote = ECE{VendorID: ece.VendorId, Options: ece.AttrMod}
}
