package rdmacm

import (
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// SetTOS sets the type of service of the connection's packets (RFC 2474;
// RDMA_OPTION_ID_TOS). Call it before ResolveRoute.
func (id *cmID) SetTOS(tos uint8) error {
	return setOption(id, "set TOS", uapi.RDMA_OPTION_ID_TOS, tos)
}

// SetReuseAddr lets several IDs bind to one port (RDMA_OPTION_ID_REUSEADDR). Only
// one of them may listen. Call it before Bind.
func (id *cmID) SetReuseAddr(reuse bool) error {
	return setOption(id, "set reuse address", uapi.RDMA_OPTION_ID_REUSEADDR, int32(bool8(reuse)))
}

// SetAFOnly sets whether a listener on the unspecified IPv6 address is for IPv6
// only, and not for IPv4 too (RDMA_OPTION_ID_AFONLY). Call it before Bind.
func (id *cmID) SetAFOnly(only bool) error {
	return setOption(id, "set AF only", uapi.RDMA_OPTION_ID_AFONLY, int32(bool8(only)))
}

// SetAckTimeout sets how long the QP waits for an acknowledgement
// (RDMA_OPTION_ID_ACK_TIMEOUT). It is for reliable connections. Call it on both
// sides, before Connect or Accept.
func (id *cmID) SetAckTimeout(timeout verbs.AckTimeout) error {
	const op = "set ack timeout"
	if timeout > 31 {
		return invalid(op, "timeout %d is not in 0 to 31", uint8(timeout))
	}
	return setOption(id, op, uapi.RDMA_OPTION_ID_ACK_TIMEOUT, uint8(timeout))
}

// setOption sets an option whose C type is uint8_t or int.
func setOption[T uint8 | int32](id *cmID, op string, name uint32, value T) error {
	if err := id.begin(op); err != nil {
		return err
	}
	defer id.end()
	return doSetOption(id, op, uapi.RDMA_OPTION_ID, name, value)
}

func doSetOption[T any](id *cmID, op string, level, name uint32, value T) error {
	f := newFrame()
	defer f.release()
	// The value lies in the frame's room for an answer, where the kernel reads it.
	at, address := out[T](f, 0)
	*at = value
	*in[uapi.RdmaUcmSetOption](f) = uapi.RdmaUcmSetOption{
		Optval: address, Id: id.handle, Level: level, Optname: name, Optlen: uint32(f.hdr.Out),
	}
	if err := id.ch.run(uapi.RDMA_USER_CM_CMD_SET_OPTION, f); err != nil {
		return opErr(op, "", err)
	}
	return nil
}
