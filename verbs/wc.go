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
	WRID         uint64   // of the work request
	Status       WCStatus // WCSuccess, or why the request failed
	Opcode       WCOpcode // the operation that completed
	VendorErr    uint32   // the device's own error code
	ByteLen      uint32   // for receives and RDMA reads; for UD it includes the GRH's 40 bytes
	ex           uint32   // Imm or InvalidatedRKey
	QPNum        uint32   // the number of the completing QP
	SrcQP        uint32   // the sender's QP number, for UD only
	Flags        WCFlags  // zero or more flags
	PKeyIndex    uint16   // of the P_Key; UD only
	SLID         uint16   // the sender's LID; UD over InfiniBand only
	SL           uint8    // service level; UD only
	DLIDPathBits uint8    // the lowest bits of the port's LID that was addressed; UD only
	PortNum      uint8    // 0, unless the driver reports it
	_            uint8
}

// Imm returns the immediate data, in host byte order, and whether there is any.
func (wc *WC) Imm() (uint32, bool) {
	return bits.ReverseBytes32(wc.ex), wc.Flags&WCWithImm != 0
}

// InvalidatedRKey returns the key that the message has invalidated, and whether it was a
// send with invalidate.
func (wc *WC) InvalidatedRKey() (uint32, bool) {
	return wc.ex, wc.Flags&WCWithInv != 0
}

// Hardware returns the details that mlx5 adapters report about a failed request in addition
// to VendorErr: a hardware syndrome and its type (hw_err_synd and hw_synd_type).
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
// CQOptions.Fields selects them. Fields that were not selected are zero. If Status is not
// WCSuccess, all are zero.
type WCEx struct {
	WC

	// Timestamp is the time of the completion, in cycles of the counter that
	// Device.RawClock reads.
	Timestamp uint64

	// WallClock is the same time on the system's clock. The kernel adjusts the translation from
	// time to time, so times may be off by microseconds. Without WCFieldTimestamp, an mlx5 adapter
	// with a real-time clock, which PTP may have set, reports that clock without translation.
	WallClock time.Time

	// FlowTag is the tag of the flow rule that steered the packet to a RawPacket QP, for
	// receives only; 0 if the rule has none.
	FlowTag uint32

	// VLAN is the VLAN tag that the device has removed from the received packet (see
	// QPStripCVLAN), for receives only; 0 without one. Its upper three bits are the
	// priority, the lower 12 the VLAN.
	VLAN uint16

	// Unsolicited says that an RDMA write with immediate data has completed without a receive:
	// see efadv.QPOptions. WRID is then 0. Only efa has such completions.
	Unsolicited bool

	// SGID is the GID of a sender for which the device has no address handle, for receives on
	// efa only. SLID is 0xffff then. Otherwise SGID is zero, and SLID is the address handle's
	// efadv.AHNumber.
	SGID GID

	Tag        uint64 // the tag of a message that matched a tag of the SRQ (struct ibv_wc_tm_info); otherwise 0
	TagContext uint32 // the TagHeader.Context of such a message
}

// WCFields selects the fields of a WCEx that a CQ reports beside those of a WC (enum
// ibv_create_cq_wc_flags).
type WCFields uint32

const (
	WCFieldTimestamp WCFields = WCFields(provider.FieldTimestamp) // WCEx.Timestamp
	WCFieldWallClock WCFields = WCFields(provider.FieldWallClock) // WCEx.WallClock
	WCFieldFlowTag   WCFields = WCFields(provider.FieldFlowTag)   // WCEx.FlowTag
	WCFieldVLAN      WCFields = WCFields(provider.FieldVLAN)      // WCEx.VLAN

	WCFieldSGID        WCFields = WCFields(provider.FieldSGID)        // WCEx.SGID
	WCFieldUnsolicited WCFields = WCFields(provider.FieldUnsolicited) // WCEx.Unsolicited

	WCFieldTag WCFields = WCFields(provider.FieldTag) // WCEx.Tag and WCEx.TagContext

	wcFieldsTime  = WCFieldTimestamp | WCFieldWallClock
	wcFieldsKnown = wcFieldsTime | WCFieldFlowTag | WCFieldVLAN | WCFieldSGID | WCFieldUnsolicited | WCFieldTag
)

func (f WCFields) String() string {
	var names []string
	for i, name := range []string{"TIMESTAMP", "WALL_CLOCK", "FLOW_TAG", "VLAN", "SGID", "UNSOLICITED", "TAG"} {
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
	Status    WCStatus // why
	VendorErr uint32   // as WC.VendorErr
	WRID      uint64   // of the request
	QPNum     uint32   // of its QP
}

func (e *WCError) Error() string {
	return fmt.Sprintf("verbs: work request %#x on QP %#x: %v: %s", e.WRID, e.QPNum, e.Status, uapi.WCMeaning(uapi.IbWcStatus(e.Status)))
}

// WCStatus is the result of a work request (enum ibv_wc_status).
type WCStatus uint32

const (
	WCSuccess        WCStatus = WCStatus(uapi.IB_WC_SUCCESS)            // it succeeded
	WCLocLenErr      WCStatus = WCStatus(uapi.IB_WC_LOC_LEN_ERR)        // a message is longer than the receive's memory, or than the transport allows
	WCLocQPOpErr     WCStatus = WCStatus(uapi.IB_WC_LOC_QP_OP_ERR)      // the device found an error in the QP or the request
	WCLocEECOpErr    WCStatus = WCStatus(uapi.IB_WC_LOC_EEC_OP_ERR)     // for reliable datagrams, which no device has
	WCLocProtErr     WCStatus = WCStatus(uapi.IB_WC_LOC_PROT_ERR)       // the request's memory is not registered for the operation
	WCWRFlushErr     WCStatus = WCStatus(uapi.IB_WC_WR_FLUSH_ERR)       // the QP has failed or was moved to QPErr
	WCMWBindErr      WCStatus = WCStatus(uapi.IB_WC_MW_BIND_ERR)        // a window could not be bound
	WCBadRespErr     WCStatus = WCStatus(uapi.IB_WC_BAD_RESP_ERR)       // the peer's response is invalid
	WCLocAccessErr   WCStatus = WCStatus(uapi.IB_WC_LOC_ACCESS_ERR)     // a peer's write with immediate data addressed memory that doesn't allow it
	WCRemInvReqErr   WCStatus = WCStatus(uapi.IB_WC_REM_INV_REQ_ERR)    // the peer could not accept the request
	WCRemAccessErr   WCStatus = WCStatus(uapi.IB_WC_REM_ACCESS_ERR)     // the peer's memory doesn't allow the operation
	WCRemOpErr       WCStatus = WCStatus(uapi.IB_WC_REM_OP_ERR)         // the peer failed to execute the request
	WCRetryExcErr    WCStatus = WCStatus(uapi.IB_WC_RETRY_EXC_ERR)      // the peer did not answer, for all retries
	WCRNRRetryExcErr WCStatus = WCStatus(uapi.IB_WC_RNR_RETRY_EXC_ERR)  // the peer had no receive, for all retries
	WCLocRDDViolErr  WCStatus = WCStatus(uapi.IB_WC_LOC_RDD_VIOL_ERR)   // as WCLocEECOpErr
	WCRemInvRDReqErr WCStatus = WCStatus(uapi.IB_WC_REM_INV_RD_REQ_ERR) // as WCLocEECOpErr
	WCRemAbortErr    WCStatus = WCStatus(uapi.IB_WC_REM_ABORT_ERR)      // the peer aborted the request
	WCInvEECNErr     WCStatus = WCStatus(uapi.IB_WC_INV_EECN_ERR)       // as WCLocEECOpErr
	WCInvEECStateErr WCStatus = WCStatus(uapi.IB_WC_INV_EEC_STATE_ERR)  // as WCLocEECOpErr
	WCFatalErr       WCStatus = WCStatus(uapi.IB_WC_FATAL_ERR)          // the device failed
	WCRespTimeoutErr WCStatus = WCStatus(uapi.IB_WC_RESP_TIMEOUT_ERR)   // no answer in time
	WCGeneralErr     WCStatus = WCStatus(uapi.IB_WC_GENERAL_ERR)        // any other error

	WCTagErr        WCStatus = WCStatus(uapi.IBV_WC_TM_ERR)             // the tag to delete is no longer in the list: a message has matched it
	WCTagIncomplete WCStatus = WCStatus(uapi.IBV_WC_TM_RNDV_INCOMPLETE) // a message matched a tag, but the device didn't get the message's data
)

func (s WCStatus) String() string { return uapi.EnumIbvWcStatus.Short(uint64(s)) }

// WCOpcode is the operation that completed (enum ibv_wc_opcode).
type WCOpcode uint32

const (
	WCSend            WCOpcode = WCOpcode(uapi.IB_UVERBS_WC_SEND)         // a send of any kind, and OpNop
	WCRDMAWrite       WCOpcode = WCOpcode(uapi.IB_UVERBS_WC_RDMA_WRITE)   // an RDMA write
	WCRDMARead        WCOpcode = WCOpcode(uapi.IB_UVERBS_WC_RDMA_READ)    // an RDMA read
	WCCompareSwap     WCOpcode = WCOpcode(uapi.IB_UVERBS_WC_COMP_SWAP)    // a compare-and-swap
	WCFetchAdd        WCOpcode = WCOpcode(uapi.IB_UVERBS_WC_FETCH_ADD)    // a fetch-and-add
	WCBindMW          WCOpcode = WCOpcode(uapi.IB_UVERBS_WC_BIND_MW)      // a bind of a window
	WCLocalInv        WCOpcode = WCOpcode(uapi.IB_UVERBS_WC_LOCAL_INV)    // OpLocalInv
	WCTSO             WCOpcode = WCOpcode(uapi.IB_UVERBS_WC_TSO)          // OpTSO
	WCFlush           WCOpcode = WCOpcode(uapi.IB_UVERBS_WC_FLUSH)        // OpFlush
	WCAtomicWrite     WCOpcode = WCOpcode(uapi.IB_UVERBS_WC_ATOMIC_WRITE) // OpAtomicWrite
	WCRecv            WCOpcode = WCOpcode(uapi.IB_WC_RECV)                // a receive of a message
	WCRecvRDMAWithImm WCOpcode = WCOpcode(uapi.IB_WC_RECV_RDMA_WITH_IMM)  // a receive that a peer's RDMA write with immediate data has consumed

	WCTagAdd    WCOpcode = WCOpcode(provider.WCTagAdd)    // TagAdd
	WCTagDelete WCOpcode = WCOpcode(provider.WCTagDelete) // TagDelete
	WCTagSync   WCOpcode = WCOpcode(provider.WCTagSync)   // TagSync
	WCTagRecv   WCOpcode = WCOpcode(provider.WCTagRecv)   // a message with a tag: for an added tag with WCTagMatched or WCTagData, otherwise a receive
	WCNoTag     WCOpcode = WCOpcode(provider.WCNoTag)     // a receive of a message without a tag
)

func (o WCOpcode) String() string {
	switch o {
	case WCRecv:
		return "RECV"
	case WCRecvRDMAWithImm:
		return "RECV_RDMA_WITH_IMM"
	case WCTagAdd:
		return "TM_ADD"
	case WCTagDelete:
		return "TM_DEL"
	case WCTagSync:
		return "TM_SYNC"
	case WCTagRecv:
		return "TM_RECV"
	case WCNoTag:
		return "TM_NO_TAG"
	}
	return uapi.EnumIbUverbsWcOpcode.Short(uint64(o))
}

// WCFlags say which parts of a completion are valid.
type WCFlags uint32

const (
	WCGRH     WCFlags = WCFlags(uapi.IB_WC_GRH)             // the receive buffer begins with a 40-byte GRH
	WCWithImm WCFlags = WCFlags(uapi.IB_WC_WITH_IMM)        // WC.Imm returns the immediate data
	WCWithInv WCFlags = WCFlags(uapi.IB_WC_WITH_INVALIDATE) // WC.InvalidatedRKey returns a key

	// WCIPChecksumOK: the device has verified the checksums of a raw IPv4 packet.
	WCIPChecksumOK WCFlags = WCFlags(uapi.IB_WC_IP_CSUM_OK)

	// WCTagSyncNeeded: the device asks for a TagOp with TagCount: see SRQ.PostTagOps.
	WCTagSyncNeeded WCFlags = WCFlags(provider.WCTagSyncNeeded)
	WCTagMatched    WCFlags = WCFlags(provider.WCTagMatched) // the message has matched a tag
	WCTagData       WCFlags = WCFlags(provider.WCTagData)    // the message's data is in the tag's buffer
)

func (f WCFlags) String() string {
	var names []string
	for _, n := range []struct {
		flag WCFlags
		name string
	}{{WCTagSyncNeeded, "TM_SYNC_REQ"}, {WCTagMatched, "TM_MATCH"}, {WCTagData, "TM_DATA_VALID"}} {
		if f&n.flag != 0 {
			names = append(names, n.name)
			f &^= n.flag
		}
	}
	if f != 0 || len(names) == 0 {
		names = append([]string{uapi.EnumIbWcFlags.Short(uint64(f))}, names...)
	}
	return strings.Join(names, "|")
}
