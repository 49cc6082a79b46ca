package mlx5

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// Commands of the firmware, and the positions of the bits for in-order data in their
// responses (rdma-core's mlx5_ifc.h). Bits count from the most significant bit of a byte.
const (
	queryCapabilities = 0x100 // QUERY_HCA_CAP; the modifier 1 selects the current capabilities
	queryQP           = 0x50b
	queryDCT          = 0x713

	answerHeader        = 16
	capabilitiesInOrder = 8*answerHeader + 0x62
	qpInOrder           = 8*24 + 0x5a
	dctInOrder          = 8*answerHeader + 0x1d
)

// Lengths of the responses in bytes.
const (
	capabilitiesLength = answerHeader + 4096
	qpLength           = 464
	dctLength          = 128
)

// DataOrder queries the firmware, which only a DEVX context may do. The firmware has no
// answer for raw packet QPs.
func (q *qp) DataOrder(handle uint32, _ uapi.IbUverbsWrOpcode) (provider.DataOrder, error) {
	if !q.ctx.devx || q.raw {
		return provider.DataUnordered, nil
	}
	in, out := make([]byte, answerHeader), make([]byte, capabilitiesLength)
	binary.BigEndian.PutUint16(in, queryCapabilities)
	in[7] = 1
	general := ioctl.NewMlx5DevxOther()
	defer general.Release()
	general.In(in)
	general.Out(out)
	if err := general.Run(q.ctx.file); err != nil {
		return provider.DataUnordered, err
	}
	if !bit(out, capabilitiesInOrder) {
		return provider.DataUnordered, nil
	}
	opcode, length, at := uint16(queryQP), qpLength, qpInOrder
	if q.target {
		opcode, length, at = queryDCT, dctLength, dctInOrder
	}
	clear(in)
	out = out[:length]
	clear(out)
	binary.BigEndian.PutUint16(in, opcode)
	binary.BigEndian.PutUint32(in[8:], q.number)
	cmd := ioctl.NewMlx5DevxObjQuery()
	defer cmd.Release()
	cmd.Handle(handle)
	cmd.CmdIn(in)
	cmd.CmdOut(out)
	if err := cmd.Run(q.ctx.file); err != nil {
		return provider.DataUnordered, err
	}
	if !bit(out, at) {
		return provider.DataUnordered, nil
	}
	return provider.DataInOrder, nil
}

func bit(b []byte, at int) bool { return b[at/8]&(0x80>>(at%8)) != 0 }
