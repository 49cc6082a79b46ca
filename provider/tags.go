package provider

import "github.com/goverbs/goverbs/uapi"

// A TagOp is an operation on the list of tags of an SRQ (struct ibv_ops_wr).
type TagOp struct {
	WRID       uint64
	Op         uint32 // TagAdd, TagDelete or TagSync
	Flags      uint32 // TagSignaled, TagCount
	Unexpected uint32 // with TagCount: the number of unexpected messages handled
	Handle     uint32 // of the tag to delete, or of the added tag
	RecvWRID   uint64
	Buffer     SGE
	Tag, Mask  uint64
}

// Operations (enum ibv_ops_wr_opcode) and their flags (enum ibv_ops_flags).
const (
	TagAdd    = 0
	TagDelete = 1
	TagSync   = 2

	TagSignaled = 1 << 0
	TagCount    = 1 << 1
)

// Values in completions about tags. They are libibverbs's; the kernel's headers lack them.
const (
	WCTagAdd    = uint32(uapi.IB_WC_RECV) + 2
	WCTagDelete = uint32(uapi.IB_WC_RECV) + 3
	WCTagSync   = uint32(uapi.IB_WC_RECV) + 4
	WCTagRecv   = uint32(uapi.IB_WC_RECV) + 5
	WCNoTag     = uint32(uapi.IB_WC_RECV) + 6

	WCTagSyncNeeded = uint32(1 << 4)
	WCTagMatched    = uint32(1 << 5)
	WCTagData       = uint32(1 << 6)
)
