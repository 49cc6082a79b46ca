//go:build amd64 || arm64

package calls

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// Sizes of structs that libibverbs and package verbs share, and the offset of a completion's
// status.
const (
	sgeBytes = 16
	WCBytes  = 48
	WCStatus = 8
)

// Limits for the elements that are shown of one call.
const (
	MaxWRs  = 512
	MaxSGEs = 64
	maxWCs  = 512
)

// U32 returns the 32-bit number that b begins with.
func U32(b []byte) uint64 { return uint64(binary.NativeEndian.Uint32(b)) }

// U64 returns the 64-bit number that b begins with.
func U64(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

// wcFlagNames are libibverbs' flags. The kernel's have other values.
var wcFlagNames = &uapi.Enum{Prefix: "IBV_WC_", Flags: true, Values: []uapi.EnumValue{
	{Value: wcGRH, CName: "IBV_WC_GRH"}, {Value: wcWithImm, CName: "IBV_WC_WITH_IMM"},
	{Value: 1 << 2, CName: "IBV_WC_IP_CSUM_OK"}, {Value: wcWithInv, CName: "IBV_WC_WITH_INV"},
	{Value: 1 << 4, CName: "IBV_WC_TM_SYNC_REQ"}, {Value: 1 << 5, CName: "IBV_WC_TM_MATCH"},
	{Value: 1 << 6, CName: "IBV_WC_TM_DATA_VALID"},
}}

// wcOpcodeNames adds the opcodes of receives, which the kernel's enum lacks.
var wcOpcodeNames = &uapi.Enum{Prefix: "IB_UVERBS_WC_", Values: append([]uapi.EnumValue{
	{Value: 1 << 7, CName: "IB_UVERBS_WC_RECV"}, {Value: 1<<7 + 1, CName: "IB_UVERBS_WC_RECV_RDMA_WITH_IMM"},
	{Value: 1<<7 + 2, CName: "IB_UVERBS_WC_TM_ADD"}, {Value: 1<<7 + 3, CName: "IB_UVERBS_WC_TM_DEL"},
	{Value: 1<<7 + 4, CName: "IB_UVERBS_WC_TM_SYNC"}, {Value: 1<<7 + 5, CName: "IB_UVERBS_WC_TM_RECV"},
	{Value: 1<<7 + 6, CName: "IB_UVERBS_WC_TM_NO_TAG"},
}, uapi.EnumIbUverbsWcOpcode.Values...)}

const (
	wcGRH     = 1 << 0
	wcWithImm = 1 << 1
	wcWithInv = 1 << 3
)

// SGEs decodes a scatter/gather list, and returns its total length too.
func SGEs(tid int, addr, n uint64) (ioctl.NamedValue, uint64) {
	n = min(n, MaxSGEs)
	b := make([]byte, n*sgeBytes)
	if err := ptrace.ReadMemory(tid, addr, b); err != nil {
		return ioctl.NamedValue{Name: "sge", Value: ioctl.Value{Addr: addr, Err: err}}, 0
	}
	var out []ioctl.Value
	var length uint64
	for ; len(b) > 0; b = b[sgeBytes:] {
		out = append(out, SGE(U64(b), U32(b[8:]), U32(b[12:])))
		length += U32(b[8:])
	}
	return tracee.List("sge", out...), length
}

// SGE returns an element of a scatter/gather list.
func SGE(addr, length, lkey uint64) ioctl.Value {
	return tracee.Group("", tracee.Pointer("addr", addr), tracee.Number("length", length), tracee.HexNumber("lkey", lkey)).Value
}

// Completion returns the fields of a completion, from any kind of poll.
func Completion(id, status, opcode, vendor, length, imm, qpn, wcFlags uint64) []ioctl.NamedValue {
	f := []ioctl.NamedValue{tracee.HexNumber("wr_id", id), tracee.Enum("status", uapi.EnumIbvWcStatus, status)}
	if status != uint64(uapi.IB_WC_SUCCESS) { // the other fields are not valid
		return append(f, tracee.HexNumber("vendor_err", vendor), tracee.HexNumber("qp_num", qpn))
	}
	f = append(f, tracee.Enum("opcode", wcOpcodeNames, opcode), tracee.Number("byte_len", length), tracee.HexNumber("qp_num", qpn))
	if wcFlags != 0 {
		f = append(f, tracee.Flags("wc_flags", wcFlagNames, wcFlags))
	}
	if wcFlags&wcWithImm != 0 {
		f = append(f, tracee.HexNumber("imm_data", imm))
	}
	if wcFlags&wcWithInv != 0 {
		f = append(f, tracee.HexNumber("invalidated_rkey", Wire(imm)))
	}
	return f
}

// Completions adds the n completions at addr to the call's results.
func Completions(t *tracee.Set, th *tracee.Thread, c *tracee.Call, addr, n uint64) {
	if t.Completed != nil {
		t.Completed(th, c, addr, n)
	}
	b := make([]byte, min(n, maxWCs)*WCBytes)
	if err := ptrace.ReadMemory(th.TID, addr, b); err != nil {
		c.Results = append(c.Results, ioctl.NamedValue{Name: "wc", Value: ioctl.Value{Addr: addr, Err: err}})
		return
	}
	var wcs []ioctl.Value
	for ; len(b) > 0; b = b[WCBytes:] {
		wcFlags := U32(b[36:])
		imm := uint64(binary.BigEndian.Uint32(b[24:]))
		f := Completion(U64(b), U32(b[WCStatus:]), U32(b[12:]), U32(b[16:]), U32(b[20:]), imm, U32(b[28:]), wcFlags)
		if src := U32(b[32:]); wcFlags&wcGRH != 0 && src != 0 { // a datagram's
			f = append(f, tracee.HexNumber("src_qp", src))
		}
		wcs = append(wcs, tracee.Group("", f...).Value)
	}
	c.Results = append([]ioctl.NamedValue{tracee.List("wc", wcs...)}, c.Results...)
}

// Wire converts a 32-bit number from network byte order.
func Wire(v uint64) uint64 {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], uint32(v))
	return uint64(binary.BigEndian.Uint32(b[:]))
}
