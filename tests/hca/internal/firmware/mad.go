package firmware

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/tests/hca/internal/ifc"
)

// madInterface replies to a management datagram for this HCA. The HCA has no agents, so
// the reply's status says that nothing is supported.
func (h *HCA) madInterface(in, out ifc.View) Status {
	request, answer := in.Bytes("mad"), out.Bytes("response_mad_packet")
	if in.Get("port") > 1 {
		return BadParam
	}
	if request == nil {
		return BadInLen
	}
	if answer == nil {
		return BadOutLen
	}
	copy(answer, request)
	const (
		method, response    = 3, 0x80
		status, unsupported = 4, 3 << 2
	)
	answer[method] |= response
	binary.BigEndian.PutUint16(answer[status:], unsupported)
	return OK
}
