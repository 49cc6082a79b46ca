package verbs

import "errors"

// The errors for verbs that iWARP lacks. The provider refuses the work requests that it lacks.
var (
	errIWARPTypes     = errors.New("iWARP has only RC queue pairs")
	errIWARPDatagrams = errors.New("iWARP has no datagrams, and so no address handles")
	errIWARPConnect   = errors.New("iWARP connects queue pairs through the connection manager: use package rdmacm")
	errIWARPReset     = errors.New("an iWARP queue pair can't be reset: create another one")
	errIWARPState     = errors.New("an iWARP queue pair has only the states INIT, RTS, SQD and ERR")
)

// iwarp reports whether the device speaks iWARP.
func (d *Device) iwarp() bool { return d.info.Transport() == TransportIWARP }

// checkIWARPMove refuses moves to states that iWARP lacks. Moves to the other states need
// no attributes. The kernel's connection manager makes most of them itself.
func checkIWARPMove(op string, to QPState, mask QPAttrMask) error {
	switch {
	case mask&QPAttrState == 0:
		return nil
	case to == QPReset:
		return lacking(op, errIWARPReset)
	case to == QPRTR || to == QPSQE:
		return lacking(op, errIWARPState)
	}
	return nil
}
