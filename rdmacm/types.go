package rdmacm

import (
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// A PortSpace is a space of port numbers, and the kind of service behind them
// (enum rdma_port_space).
type PortSpace uint16

const (
	PortSpaceTCP   PortSpace = PortSpace(uapi.RDMA_PS_TCP)   // reliable connections
	PortSpaceUDP   PortSpace = PortSpace(uapi.RDMA_PS_UDP)   // datagrams
	PortSpaceIB    PortSpace = PortSpace(uapi.RDMA_PS_IB)    // InfiniBand services; reliable connections
	PortSpaceIPoIB PortSpace = PortSpace(uapi.RDMA_PS_IPOIB) // datagrams of IP over InfiniBand
)

func (ps PortSpace) String() string { return uapi.EnumRdmaUcmPortSpace.Short(uint64(ps)) }

func (ps PortSpace) qpType() verbs.QPType {
	if ps == PortSpaceUDP || ps == PortSpaceIPoIB {
		return verbs.UD
	}
	return verbs.RC
}

// UDPQKey is the Q_Key of the queue pairs of the UDP port space
// (RDMA_UDP_QKEY).
const UDPQKey = 0x01234567

// ConnParam has the parameters of a connection (struct rdma_conn_param): those that
// Connect and Accept request or, in an Event, those that the peer requests.
//
// For Connect and Accept, 0 stands for a default: the device's limit, which
// Accept lowers to the peer's, or the maximum number of retries. None stands for
// 0. In an Event, 0 is 0.
type ConnParam struct {
	// PrivateData goes to the peer with the request or the answer. In an Event it is
	// padded with zeros to the length of the message's field: MaxConnectData and so
	// on.
	PrivateData []byte

	ResponderResources int    // RDMA reads and atomics that the peer may have outstanding
	InitiatorDepth     int    // RDMA reads and atomics that this side may have outstanding
	FlowControl        bool   // hardware flow control; few devices support it
	RetryCount         int    // retries without an acknowledgement, 6 by default, at most 7, with which rxe retries for ever; Accept lowers the peer's number to it
	RNRRetryCount      int    // retries while the peer has no receive posted, at most 6; 7, the default, retries for ever
	SRQ                bool   // the QP uses an SRQ; ignored if the ID has a QP
	QPNum              uint32 // the QP's number; ignored if the ID has a QP
}

// None stands for 0 in the fields of a ConnParam where 0 stands for the default.
// So does any negative number.
const None = -1

const (
	maxRetries     = 7
	defaultRetries = 6 // so that a peer that vanishes is noticed on rxe, too
)

// The maximum sizes of private data, in bytes. With IP addresses, a header takes
// part of the message's field.
const (
	MaxConnectData   = 56  // Connect
	MaxAcceptData    = 196 // Accept
	MaxRejectData    = 148 // Reject
	MaxUDConnectData = 180 // Connect of the datagram port spaces
	MaxUDAcceptData  = 136 // Accept and Reject of the datagram port spaces
)

// UDParam says how to send datagrams to a peer (struct rdma_ud_param). Make an
// address handle from AH with PD.CreateAH, and put QPNum and QKey in the work
// request.
type UDParam struct {
	PrivateData []byte       // as ConnParam.PrivateData
	AH          verbs.AHAttr // the address of the peer
	QPNum       uint32       // the peer's queue pair number
	QKey        uint32       // the Q_Key that its queue pair expects
}

func connParam(p *uapi.RdmaUcmConnParam) ConnParam {
	return ConnParam{
		PrivateData:        privateData(p.PrivateData[:], p.PrivateDataLen),
		ResponderResources: int(p.ResponderResources), InitiatorDepth: int(p.InitiatorDepth),
		FlowControl: p.FlowControl != 0, RetryCount: int(p.RetryCount), RNRRetryCount: int(p.RnrRetryCount),
		SRQ: p.Srq != 0, QPNum: p.QpNum,
	}
}

func udParam(p *uapi.RdmaUcmUdParam) UDParam {
	return UDParam{
		PrivateData: privateData(p.PrivateData[:], p.PrivateDataLen),
		AH:          ahAttr(&p.AhAttr), QPNum: p.QpNum, QKey: p.Qkey,
	}
}

func privateData(b []byte, n uint8) []byte {
	if n == 0 {
		return nil
	}
	return append([]byte(nil), b[:n]...)
}

func ahAttr(a *uapi.IbUverbsAhAttr) verbs.AHAttr {
	return verbs.AHAttr{
		IsGlobal: a.IsGlobal != 0, DGID: a.Grh.Dgid, SGIDIndex: int(a.Grh.SgidIndex),
		HopLimit: a.Grh.HopLimit, TrafficClass: a.Grh.TrafficClass, FlowLabel: a.Grh.FlowLabel,
		DLID: a.Dlid, SL: a.Sl, SrcPathBits: a.SrcPathBits, StaticRate: verbs.Rate(a.StaticRate), Port: int(a.PortNum),
	}
}
