package verbs

// An ECE describes a device's features beyond the specification (struct ibv_ece).
// Two devices of one vendor negotiate them while they connect: enhanced connection
// establishment.
type ECE struct {
	VendorID uint32 // the PCI vendor ID
	Options  uint32 // defined by the vendor
}

// QueryECE returns the QP's ECE, to be sent to the peer (ibv_query_ece). CreateQP sets it,
// and so does the Modify that follows SetECE. Options is 0 if the device has no such
// features. For drivers without ECE it returns ErrNotSupported.
func (qp *QP) QueryECE() (ECE, error) {
	const op = "query ECE"
	if err := hold(op, qp.base()); err != nil {
		return ECE{}, err
	}
	defer qp.drop()
	qp.modify.Lock()
	defer qp.modify.Unlock()
	vendor, options := qp.prov.ECE()
	if vendor == 0 {
		return ECE{}, opErr(op, "", ErrNotSupported)
	}
	return ECE{VendorID: vendor, Options: options}, nil
}

// SetECE sets the ECE to request from the device (ibv_set_ece): the ECE in the peer's request
// or reply. The next Modify of the state requests it from the device. QueryECE then returns
// the result. For devices without ECE it returns ErrNotSupported.
func (qp *QP) SetECE(ece ECE) error {
	const op = "set ECE"
	if err := hold(op, qp.base()); err != nil {
		return err
	}
	defer qp.drop()
	qp.modify.Lock()
	defer qp.modify.Unlock()
	vendor, _ := qp.prov.ECE()
	switch {
	case vendor == 0:
		return opErr(op, "", ErrNotSupported)
	case vendor != ece.VendorID:
		return invalid(op, "vendor %#x is not the device's, %#x", ece.VendorID, vendor)
	case !qp.prov.SetECE(ece.Options):
		return opErr(op, "", ErrNotSupported)
	}
	return nil
}
