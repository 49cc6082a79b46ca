package selftest

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// madeCQE returns an entry of a CQ, as the device writes it.
func madeCQE(qpn uint32, kind, opcode byte, n, length int) (e cqe) {
	binary.BigEndian.PutUint32(e[56:], uint32(opcode)<<24|qpn)
	binary.BigEndian.PutUint32(e[44:], uint32(length))
	binary.BigEndian.PutUint16(e[60:], uint16(n))
	e[63] = kind << 4
	return e
}

// CQEs are found in memory by their queue pair's number. Entries that were not written,
// and entries of other queue pairs, are not found. A difference is a failure with its bytes.
func TestOracle(t *testing.T) {
	const qpn = 0x1234
	var mem []byte
	for _, e := range []cqe{
		madeCQE(qpn, cqeSent, opcodeSend, 0, 0), madeCQE(qpn, cqeReceived, 0, 0, 4096), madeCQE(0, 15, 0, 0, 0),
		madeCQE(qpn+1, cqeSent, opcodeSend, 1, 0), madeCQE(qpn, cqeReceived, 0, 1, 4096), madeCQE(qpn, cqeSent, 8, 1, 0),
	} {
		mem = append(mem, e[:]...)
	}
	sends, receives := entries(append(mem, 1, 2, 3), qpn)
	if len(sends) != 1 || len(receives) != 2 || receives[1].String() != "receive 1 of 4096 bytes" || sends[0].String() != "send 0" {
		t.Fatalf("%v, %v", sends, receives)
	}
	right := [2][]cqe{sends, receives}
	ours := [2][]cqe{{madeCQE(7, cqeSent, opcodeSend, 0, 55)}, slices.Clone(receives)}
	if f := compareCQEs(ours, right); f != nil {
		t.Errorf("%+v", f)
	}
	ours[1][1] = madeCQE(7, cqeReceived, 0, 1, 4095)
	if f := compareCQEs(ours, right); f == nil || f.Seen != "receive 1 of 4095 bytes" || len(f.Details) != 2 || !strings.Contains(f.Details[0], "00001000") {
		t.Errorf("%+v", f)
	}
}

func TestRemoteQPN(t *testing.T) {
	const text = "  local address:  LID 0x0001, QPN 0x000108, PSN 0x1, GID ::\n  remote address: LID 0x0001, QPN 0x00010a, PSN 0x2, GID ::\n"
	if n, err := remoteQPN(text); n != 0x10a || err != nil {
		t.Errorf("%#x, %v", n, err)
	}
	if _, err := remoteQPN("nonsense"); err == nil {
		t.Error("found a QPN in nonsense")
	}
}
