package verbs

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A WC is a work completion (struct ibv_wc). If Status is not WCSuccess, only WRID,
// Status, VendorErr, QPNum and Hardware are valid.
type WC struct {
	WRID         uint64
	Status       WCStatus
	Opcode       WCOpcode
	VendorErr    uint32 // the device's own error code
	ByteLen      uint32 // for receives and RDMA reads; for UD it includes the GRH's 40 bytes
	ex           uint32 // Imm or InvalidatedRKey
	QPNum        uint32 // the number of the completing QP
	SrcQP        uint32 // the sender's QP number, for UD only
	Flags        WCFlags
	PKeyIndex    uint16
	SLID         uint16
	SL           uint8
	DLIDPathBits uint8
	PortNum      uint8
	_            uint8
}

// Imm returns the immediate data, in host byte order, and whether there is any.
func (wc *WC) Imm() (uint32, bool) {
	return bits.ReverseBytes32(wc.ex), wc.Flags&WCWithImm != 0
}

// InvalidatedRKey returns the key that a send with invalidate has invalidated, and
// whether the message was such a send.
func (wc *WC) InvalidatedRKey() (uint32, bool) {
	return wc.ex, wc.Flags&WCWithInv != 0
}

// Hardware returns what mlx5 adapters report about a failed request in addition to
// VendorErr: a hardware syndrome and its type (hw_err_synd and hw_synd_type).
func (wc *WC) Hardware() (typ, syndrome uint8) {
	if wc.Status == WCSuccess {
		return 0, 0
	}
	return uint8(wc.ex >> 8), uint8(wc.ex)
}

// Err returns nil if the work request succeeded, and otherwise a *WCError.
func (wc *WC) Err() error {
	if wc.Status == WCSuccess {
		return nil
	}
	return &WCError{Status: wc.Status, VendorErr: wc.VendorErr, WRID: wc.WRID, QPNum: wc.QPNum}
}

// A WCEx is a completion with fields that only some devices report (struct ibv_cq_ex).
// CQOptions.Fields selects them. A field that was not selected is zero, and so are all of
// them if Status is not WCSuccess.
type WCEx struct {
	WC

	// Timestamp is when the device completed the request, in cycles of the counter that
	// Device.RawClock reads.
	Timestamp uint64

	// WallClock is the same moment in the system's time. The kernel adjusts the
	// translation from time to time, so times may be off by microseconds.
	WallClock time.Time

	// FlowTag is the tag of the flow rule that steered the packet to a RawPacket QP, for
	// receives only; 0 if the rule has none.
	FlowTag uint32

	// VLAN is the VLAN tag that the device has removed from the received packet (see
	// QPStripCVLAN), for receives only; 0 without one. Its upper three bits are the
	// priority, the lower 12 the VLAN.
	VLAN uint16
}

// WCFields are the fields of a WCEx that a CQ reports beside those of a WC (enum
// ibv_create_cq_wc_flags).
type WCFields uint32

const (
	WCFieldTimestamp = WCFields(provider.FieldTimestamp) // WCEx.Timestamp
	WCFieldWallClock = WCFields(provider.FieldWallClock) // WCEx.WallClock
	WCFieldFlowTag   = WCFields(provider.FieldFlowTag)   // WCEx.FlowTag
	WCFieldVLAN      = WCFields(provider.FieldVLAN)      // WCEx.VLAN

	wcFieldsTime  = WCFieldTimestamp | WCFieldWallClock
	wcFieldsKnown = wcFieldsTime | WCFieldFlowTag | WCFieldVLAN
)

func (f WCFields) String() string {
	var names []string
	for i, name := range []string{"TIMESTAMP", "WALL_CLOCK", "FLOW_TAG", "VLAN"} {
		if f>>i&1 != 0 {
			names = append(names, name)
		}
	}
	if x := f &^ wcFieldsKnown; x != 0 || f == 0 {
		names = append(names, fmt.Sprintf("%#x", uint32(x)))
	}
	return strings.Join(names, "|")
}

// A WCError describes a work request that has failed.
type WCError struct {
	Status    WCStatus
	VendorErr uint32
	WRID      uint64
	QPNum     uint32
}

func (e *WCError) Error() string {
	return fmt.Sprintf("verbs: work request %#x on QP %#x: %v: %s", e.WRID, e.QPNum, e.Status, uapi.WCMeaning(uapi.IbWcStatus(e.Status)))
}

// WCStatus is the result of a work request (enum ibv_wc_status).
type WCStatus uint32

const (
	WCSuccess        = WCStatus(uapi.IB_WC_SUCCESS)
	WCLocLenErr      = WCStatus(uapi.IB_WC_LOC_LEN_ERR)
	WCLocQPOpErr     = WCStatus(uapi.IB_WC_LOC_QP_OP_ERR)
	WCLocEECOpErr    = WCStatus(uapi.IB_WC_LOC_EEC_OP_ERR)
	WCLocProtErr     = WCStatus(uapi.IB_WC_LOC_PROT_ERR)
	WCWRFlushErr     = WCStatus(uapi.IB_WC_WR_FLUSH_ERR)
	WCMWBindErr      = WCStatus(uapi.IB_WC_MW_BIND_ERR)
	WCBadRespErr     = WCStatus(uapi.IB_WC_BAD_RESP_ERR)
	WCLocAccessErr   = WCStatus(uapi.IB_WC_LOC_ACCESS_ERR)
	WCRemInvReqErr   = WCStatus(uapi.IB_WC_REM_INV_REQ_ERR)
	WCRemAccessErr   = WCStatus(uapi.IB_WC_REM_ACCESS_ERR)
	WCRemOpErr       = WCStatus(uapi.IB_WC_REM_OP_ERR)
	WCRetryExcErr    = WCStatus(uapi.IB_WC_RETRY_EXC_ERR)
	WCRNRRetryExcErr = WCStatus(uapi.IB_WC_RNR_RETRY_EXC_ERR)
	WCLocRDDViolErr  = WCStatus(uapi.IB_WC_LOC_RDD_VIOL_ERR)
	WCRemInvRDReqErr = WCStatus(uapi.IB_WC_REM_INV_RD_REQ_ERR)
	WCRemAbortErr    = WCStatus(uapi.IB_WC_REM_ABORT_ERR)
	WCInvEECNErr     = WCStatus(uapi.IB_WC_INV_EECN_ERR)
	WCInvEECStateErr = WCStatus(uapi.IB_WC_INV_EEC_STATE_ERR)
	WCFatalErr       = WCStatus(uapi.IB_WC_FATAL_ERR)
	WCRespTimeoutErr = WCStatus(uapi.IB_WC_RESP_TIMEOUT_ERR)
	WCGeneralErr     = WCStatus(uapi.IB_WC_GENERAL_ERR)
)

func (s WCStatus) String() string { return uapi.EnumIbWcStatus.Short(uint64(s)) }

// WCOpcode is the operation that completed (enum ibv_wc_opcode).
type WCOpcode uint32

const (
	WCSend            = WCOpcode(uapi.IB_UVERBS_WC_SEND)
	WCRDMAWrite       = WCOpcode(uapi.IB_UVERBS_WC_RDMA_WRITE)
	WCRDMARead        = WCOpcode(uapi.IB_UVERBS_WC_RDMA_READ)
	WCCompareSwap     = WCOpcode(uapi.IB_UVERBS_WC_COMP_SWAP)
	WCFetchAdd        = WCOpcode(uapi.IB_UVERBS_WC_FETCH_ADD)
	WCBindMW          = WCOpcode(uapi.IB_UVERBS_WC_BIND_MW)
	WCLocalInv        = WCOpcode(uapi.IB_UVERBS_WC_LOCAL_INV)
	WCTSO             = WCOpcode(uapi.IB_UVERBS_WC_TSO)
	WCFlush           = WCOpcode(uapi.IB_UVERBS_WC_FLUSH)
	WCAtomicWrite     = WCOpcode(uapi.IB_UVERBS_WC_ATOMIC_WRITE)
	WCRecv            = WCOpcode(uapi.IB_WC_RECV)
	WCRecvRDMAWithImm = WCOpcode(uapi.IB_WC_RECV_RDMA_WITH_IMM)
)

func (o WCOpcode) String() string {
	switch o {
	case WCRecv:
		return "RECV"
	case WCRecvRDMAWithImm:
		return "RECV_RDMA_WITH_IMM"
	}
	return uapi.EnumIbUverbsWcOpcode.Short(uint64(o))
}

// WCFlags say which parts of a completion are valid.
type WCFlags uint32

const (
	WCGRH     = WCFlags(uapi.IB_WC_GRH) // the receive buffer begins with a 40-byte GRH
	WCWithImm = WCFlags(uapi.IB_WC_WITH_IMM)
	WCWithInv = WCFlags(uapi.IB_WC_WITH_INVALIDATE)

	// WCIPChecksumOK: the device has verified the checksums of a raw IPv4 packet.
	WCIPChecksumOK = WCFlags(uapi.IB_WC_IP_CSUM_OK)
)

func (f WCFlags) String() string { return uapi.EnumIbWcFlags.Short(uint64(f)) }
