package rdmacm

import (
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// A PortSpace is a space of port numbers, and the kind of service behind them
// (enum rdma_port_space).
type PortSpace uint16

const (
	TCP   = PortSpace(uapi.RDMA_PS_TCP)   // reliable connections
	UDP   = PortSpace(uapi.RDMA_PS_UDP)   // datagrams
	IB    = PortSpace(uapi.RDMA_PS_IB)    // InfiniBand services; reliable connections
	IPoIB = PortSpace(uapi.RDMA_PS_IPOIB) // datagrams, as IP over InfiniBand has them
)

func (ps PortSpace) String() string { return uapi.EnumRdmaUcmPortSpace.Short(uint64(ps)) }

func (ps PortSpace) qpType() verbs.QPType {
	if ps == UDP || ps == IPoIB {
		return verbs.UD
	}
	return verbs.RC
}

// UDPQKey is the Q_Key of the queue pairs of the UDP port space
// (RDMA_UDP_QKEY).
const UDPQKey = 0x01234567

// ConnParam are the parameters of a connection, as struct rdma_conn_param: what
// Connect and Accept ask for, and what an Event says of the peer's wishes.
//
// In what Connect and Accept are given, 0 stands for the default of a number:
// all that the device can do, for Accept no more than the peer can, and all the
// retries there are. None stands for 0. In an Event, 0 is 0.
type ConnParam struct {
	// PrivateData goes to the peer with the request or the answer. In an Event
	// it is as long as the message has room for, zeros behind the data:
	// MaxConnectData and the others say how long.
	PrivateData []byte

	ResponderResources int    // RDMA reads and atomics that the peer may have outstanding
	InitiatorDepth     int    // those that this side may have outstanding
	FlowControl        bool   // the peer's hardware paces sends; few devices know it
	RetryCount         int    // up to 7 repeats without an answer; Connect only
	RNRRetryCount      int    // up to 6 repeats without a receive posted; 7, the default, repeats for ever
	SRQ                bool   // the QP takes receives from an SRQ; where the ID has a QP, that says it
	QPNum              uint32 // the QP's number; where the ID has a QP, that says it
}

// None is 0, for the numbers of a ConnParam whose 0 stands for the default. Any
// negative number is.
const None = -1

// mostRetries is the default of both counts of retries.
const mostRetries = 7

// The most private data that messages carry, in bytes. Services whose IDs have
// IP addresses share the space with a header.
const (
	MaxConnectData   = 56  // Connect
	MaxAcceptData    = 196 // Accept
	MaxRejectData    = 148 // Reject
	MaxUDConnectData = 180 // Connect of the datagram port spaces
	MaxUDAcceptData  = 136 // Accept and Reject of the datagram port spaces
)

// UDParam is where datagrams for a peer go, as struct rdma_ud_param: make an
// address handle of AH (PD.CreateAH), and name QPNum and QKey in the work
// request.
type UDParam struct {
	PrivateData []byte // as ConnParam.PrivateData
	AH          verbs.AHAttr
	QPNum       uint32
	QKey        uint32
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
		DLID: a.Dlid, SL: a.Sl, SrcPathBits: a.SrcPathBits, StaticRate: a.StaticRate, Port: int(a.PortNum),
	}
}
