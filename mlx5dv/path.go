package mlx5dv

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/verbs"
)

// Commands and masks of the firmware (mlx5_ifc.h, and rdma-core's providers/mlx5).
const (
	opcodeQueryQP   = 0x50b
	opcodeRTS2RTSQP = 0x505

	// Offsets in bytes: of the masks and the context in RTS2RTS_QP, of the context in the
	// answer to QUERY_QP, and of the UDP source port in the context's primary path.
	maskAt, contextAt, moreMaskAt = 16, 24, 264
	queriedContextAt              = 24
	sourcePortAt                  = 24 + 34

	rts2rtsLength = 464 // with the context's extension
	queriedLength = 464

	changeLAGPort    = 1 << 15 // in the mask
	changeSourcePort = 1 << 2  // in the second mask
)

// SetLAGPort selects the physical port of a bond by which the QP sends, from 1
// (mlx5dv_modify_qp_lag_port). With 0 the adapter chooses. The QP must be in QPRTS, and its
// device must have been opened with Open. Without a bond, the firmware refuses or ignores
// the port.
func SetLAGPort(qp *verbs.QP, port uint8) error {
	const op = "set LAG port"
	if port > 15 {
		return invalid(op, "there is no port %d", port)
	}
	return toRTSAgain(op, qp, func(in []byte) {
		binary.BigEndian.PutUint32(in[maskAt:], changeLAGPort)
		in[contextAt] |= port // after 4 bits of the state
	})
}

// LAGPort returns the port that SetLAGPort has selected (mlx5dv_query_qp_lag_port). The QP's
// device must have been opened with Open.
func LAGPort(qp *verbs.QP) (uint8, error) {
	in, out := make([]byte, header), make([]byte, queriedLength)
	binary.BigEndian.PutUint16(in, opcodeQueryQP)
	binary.BigEndian.PutUint32(in[8:], qp.Num())
	if err := Query(qp, in, out); err != nil {
		return 0, err
	}
	return out[queriedContextAt] & 0xf, nil
}

// SetUDPSourcePort sets the UDP source port of the QP's packets, by which routers choose among
// equal paths (mlx5dv_modify_qp_udp_sport). The QP is of type RC or UC, over RoCE v2, and in
// QPRTS. Its device must have been opened with Open.
func SetUDPSourcePort(qp *verbs.QP, port uint16) error {
	const op = "set UDP source port"
	switch qp.Type() {
	case verbs.RC, verbs.UC, 0:
	default:
		return invalid(op, "the QP is %v: only an RC or UC QP has a UDP source port of its own", qp.Type())
	}
	return toRTSAgain(op, qp, func(in []byte) {
		binary.BigEndian.PutUint64(in[moreMaskAt:], changeSourcePort)
		binary.BigEndian.PutUint16(in[contextAt+sourcePortAt:], port)
	})
}

// toRTSAgain moves a QP from RTS to RTS, with the changes of change.
func toRTSAgain(op string, qp *verbs.QP, change func(in []byte)) error {
	call, err := beginDEVX(op, qp)
	if err != nil {
		return err
	}
	defer call.Done()
	if s := qp.State(); s != verbs.QPRTS {
		return invalid(op, "the QP is in %v, not in %v", s, verbs.QPRTS)
	}
	in, out := make([]byte, rts2rtsLength), make([]byte, header)
	binary.BigEndian.PutUint16(in, opcodeRTS2RTSQP)
	binary.BigEndian.PutUint32(in[8:], qp.Num())
	change(in)
	return modify(call, in, out)
}
