package verbs

// An ECE names what a device can do beyond the specification, for two devices
// of one vendor to agree on while they connect (struct ibv_ece, enhanced
// connection establishment).
type ECE struct {
	VendorID uint32 // PCI's
	Options  uint32 // the vendor's
}

// QueryECE returns what the device has for the QP (ibv_query_ece), as of
// CreateQP or of the Modify that followed SetECE: what goes to the peer. Options
// are 0 if it has nothing. Drivers without ECE answer ErrNotSupported.
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

// SetECE has the next Modify of the state ask the device for what a peer has or
// answered (ibv_set_ece). QueryECE then says what came of it. Devices without ECE
// answer ErrNotSupported.
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
