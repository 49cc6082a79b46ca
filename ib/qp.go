package ib

import "github.com/goverbs/goverbs/uapi"

// A QPType is a type of queue pair (enum ibv_qp_type).
type QPType uint32

const (
	SMI QPType = 0 // the kernel's QP for subnet management
	GSI QPType = 1 // the kernel's QP for all other management

	RC QPType = QPType(uapi.IB_UVERBS_QPT_RC) // reliable connection
	UC QPType = QPType(uapi.IB_UVERBS_QPT_UC) // unreliable connection
	UD QPType = QPType(uapi.IB_UVERBS_QPT_UD) // unreliable datagram

	// RawPacket sends and receives Ethernet frames (CAP_NET_RAW).
	RawPacket QPType = QPType(uapi.IB_UVERBS_QPT_RAW_PACKET)

	// The two sides of the extended reliable connection transport (XRC). An XRCSend QP
	// sends to the SRQs of the XRC domain of its peer, an XRCRecv QP.
	XRCSend QPType = QPType(uapi.IB_UVERBS_QPT_XRC_INI)
	XRCRecv QPType = QPType(uapi.IB_UVERBS_QPT_XRC_TGT) // see XRCSend

	// The two sides of mlx5's dynamically connected transport (DC). A DCI sends to any
	// number of DCTs. A DCT receives into an SRQ.
	DCI QPType = 0x1d
	DCT QPType = 0x1e // see DCI

	// SRD is efa's scalable reliable datagram transport. Each request names its destination,
	// as on a UD queue pair, and arrives once. Requests may arrive and complete out of order.
	// SRD also supports RDMA reads and writes.
	SRD QPType = 0x1f

	// DriverQP is the kernel's type for DCI, DCT and SRD: a type that only the driver knows.
	DriverQP QPType = QPType(uapi.IB_UVERBS_QPT_DRIVER)
)

// String returns the type as the kernel's header names it, such as "RC" and "RAW_PACKET".
func (t QPType) String() string {
	switch t {
	case RC: // the common types need no search
		return "RC"
	case UD:
		return "UD"
	case DCI:
		return "DCI"
	case DCT:
		return "DCT"
	case SRD:
		return "SRD"
	case SMI:
		return "SMI"
	case GSI:
		return "GSI"
	}
	return uapi.EnumIbUverbsQpType.Short(uint64(t))
}

// A QPState is a QP's state (enum ibv_qp_state).
type QPState uint32

const (
	QPReset QPState = QPState(uapi.IB_QPS_RESET) // new: nothing can be posted
	QPInit  QPState = QPState(uapi.IB_QPS_INIT)  // receives can be posted
	QPRTR   QPState = QPState(uapi.IB_QPS_RTR)   // ready to receive
	QPRTS   QPState = QPState(uapi.IB_QPS_RTS)   // ready to send
	QPSQD   QPState = QPState(uapi.IB_QPS_SQD)   // the send queue drains
	QPSQE   QPState = QPState(uapi.IB_QPS_SQE)   // a send failed; UC and UD only
	QPErr   QPState = QPState(uapi.IB_QPS_ERR)   // all work requests are flushed
)

func (s QPState) String() string { return uapi.EnumIbQpState.Short(uint64(s)) }

// A MigState is the state of automatic path migration, in which a QP moves to its alternate
// path when the path fails (enum ibv_mig_state; InfiniBand Architecture Specification,
// volume 1, 17.2.8.1).
type MigState uint8

const (
	MigMigrated MigState = MigState(uapi.IB_MIG_MIGRATED) // on the path; no alternate path is set up
	MigRearm    MigState = MigState(uapi.IB_MIG_REARM)    // asks the peer to arm, too
	MigArmed    MigState = MigState(uapi.IB_MIG_ARMED)    // may migrate
)

func (s MigState) String() string { return uapi.EnumIbMigState.Short(uint64(s)) }
