//go:build amd64 || arm64

package trace

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// The tables of pointers, ascending by offset.

var contextOps = []operation{
	{"ibv_poll_cq", 96, kindPoll, beforeNothing, afterPoll},
	{"ibv_req_notify_cq", 104, kindPost, beforeNotify, afterResult},
	{"ibv_post_srq_recv", 168, kindPost, beforeSRQRecv, afterPost},
	{"ibv_post_send", 208, kindPost, beforeSend, afterPost},
	{"ibv_post_recv", 216, kindPost, beforeRecv, afterPost},
}

// Those of the extended QP build work requests between wr_start and wr_complete.
var qpOps = []operation{
	{"ibv_wr_atomic_cmp_swp", qpExFuncs + 0, kindCall, beforeAtomicCmpSwp, nil},
	{"ibv_wr_atomic_fetch_add", qpExFuncs + 8, kindCall, beforeAtomicFetchAdd, nil},
	{"ibv_wr_bind_mw", qpExFuncs + 16, kindCall, beforeBindMW, nil},
	{"ibv_wr_local_inv", qpExFuncs + 24, kindCall, beforeLocalInv, nil},
	{"ibv_wr_rdma_read", qpExFuncs + 32, kindCall, beforeRead, nil},
	{"ibv_wr_rdma_write", qpExFuncs + 40, kindCall, beforeWrite, nil},
	{"ibv_wr_rdma_write_imm", qpExFuncs + 48, kindCall, beforeWriteImm, nil},
	{"ibv_wr_send", qpExFuncs + 56, kindCall, beforeWRSend, nil},
	{"ibv_wr_send_imm", qpExFuncs + 64, kindCall, beforeSendImm, nil},
	{"ibv_wr_send_inv", qpExFuncs + 72, kindCall, beforeSendInv, nil},
	{"ibv_wr_send_tso", qpExFuncs + 80, kindCall, beforeTSO, nil},
	{"ibv_wr_set_ud_addr", qpExFuncs + 88, kindCall, beforeSetUD, nil},
	{"ibv_wr_set_xrc_srqn", qpExFuncs + 96, kindCall, beforeSetXRC, nil},
	{"ibv_wr_set_inline_data", qpExFuncs + 104, kindCall, beforeSetInline, nil},
	{"ibv_wr_set_inline_data_list", qpExFuncs + 112, kindCall, beforeSetInlineList, nil},
	{"ibv_wr_set_sge", qpExFuncs + 120, kindCall, beforeSetSGE, nil},
	{"ibv_wr_set_sge_list", qpExFuncs + 128, kindCall, beforeSetSGEList, nil},
	{"ibv_wr_start", qpExFuncs + 136, kindCall, beforeStart, nil},
	{"ibv_wr_abort", qpExFuncs + 152, kindCall, beforeAbort, nil},
	{"ibv_wr_atomic_write", qpExFuncs + 160, kindCall, beforeAtomicWrite, nil},
	{"ibv_wr_flush", qpExFuncs + 168, kindCall, beforeFlush, nil},
}

// batchOps are set when a batch begins: libmlx5 replaces the pointer once a QP was
// moved to RTS, after the last verb before the QP is used.
var batchOps = []operation{
	{"ibv_wr_complete", qpExFuncs + 144, kindPost, beforeComplete, afterResult},
}

var cqOps = []operation{
	{"ibv_start_poll", cqExFuncs + 0, kindStartPoll, beforeNothing, afterStartPoll},
	{"ibv_next_poll", cqExFuncs + 8, kindStartPoll, beforeNothing, afterStartPoll},
}

var wqOps = []operation{
	{"ibv_post_wq_recv", 48, kindPost, beforeWQRecv, afterPost},
}

// wcFlagNames are libibverbs' own; the kernel's have other values.
var wcFlagNames = &uapi.Enum{Prefix: "IBV_WC_", Flags: true, Values: []uapi.EnumValue{
	{Value: wcGRH, CName: "IBV_WC_GRH"}, {Value: wcWithImm, CName: "IBV_WC_WITH_IMM"},
	{Value: 1 << 2, CName: "IBV_WC_IP_CSUM_OK"}, {Value: wcWithInv, CName: "IBV_WC_WITH_INV"},
	{Value: 1 << 4, CName: "IBV_WC_TM_SYNC_REQ"}, {Value: 1 << 5, CName: "IBV_WC_TM_MATCH"},
	{Value: 1 << 6, CName: "IBV_WC_TM_DATA_VALID"},
}}

// wcOpcodeNames has those of receiving too, which are none of the kernel's.
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

// Sizes of libibverbs' structs.
const (
	sendWRBytes = 128
	recvWRBytes = 32
	sgeBytes    = 16
	wcBytes     = 48
)

// What one call is shown of at most.
const (
	maxWRs  = 512
	maxSGEs = 64
	maxWCs  = 512
)

func u32(b []byte) uint64 { return uint64(binary.NativeEndian.Uint32(b)) }
func u64(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

// onObject says which object a call is for, by the address of its struct: that begins
// with the context's.
func (t *tracer) onObject(th *thread, c *call, addr uint64) ([]byte, bool) {
	b := make([]byte, qpBytes)
	if err := readMemory(th.tid, addr, b); err != nil {
		c.problem = err
		c.fd = -1
		return nil, false
	}
	context := u64(b)
	if f := th.proc.data.contexts[context]; f != nil {
		c.file, c.fd = f, th.proc.fdOf(f)
		return b, true
	}
	// One that is not known by then: of a file that came in an unusual way.
	var fd [4]byte
	c.fd = -1
	if readMemory(th.tid, context+contextCmdFD, fd[:]) == nil {
		c.fd = int(int32(u32(fd[:])))
		if c.file = t.file(th, c.fd); c.file != nil {
			th.proc.data.contexts[context] = c.file
		}
	}
	return b, true
}

func (t *tracer) onQP(th *thread, c *call, addr uint64) {
	if b, ok := t.onObject(th, c, addr); ok {
		h := u32(b[qpHandle:])
		c.args = append(c.args, handle("qp", uapi.UVERBS_OBJECT_QP, h))
		if c.file != nil {
			o := c.file.seen(objectKey{uapi.UVERBS_OBJECT_QP, h})
			o.number = u32(b[qpNumber:])
		}
		c.ud = u32(b[qpType:]) == uint64(uapi.IB_UVERBS_QPT_UD)
		return
	}
	c.args = append(c.args, pointer("qp", addr))
}

func (t *tracer) onCQ(th *thread, c *call, addr uint64) {
	if b, ok := t.onObject(th, c, addr); ok {
		c.args = append(c.args, handle("cq", uapi.UVERBS_OBJECT_CQ, u32(b[cqHandle:])))
		return
	}
	c.args = append(c.args, pointer("cq", addr))
}

func beforeNothing(*tracer, *thread, *call, [6]uint64) {}

func afterResult(_ *tracer, _ *thread, c *call, _ [6]uint64) { c.failByResult() }

// failByResult notes the error of a function that returns one: an errno, which
// libibverbs has positive and some drivers negative.
func (c *call) failByResult() {
	switch e := c.ret; {
	case e > 0 && e < 4096:
		c.errno, c.ret = unix.Errno(e), -1
	case e < 0 && e > -4096:
		c.errno, c.ret = unix.Errno(-e), -1
	}
}

func beforeNotify(t *tracer, th *thread, c *call, args [6]uint64) {
	t.onCQ(th, c, args[0])
	c.args = append(c.args, number("solicited_only", args[1]&0xffffffff))
}

func beforeSend(t *tracer, th *thread, c *call, args [6]uint64) {
	t.onQP(th, c, args[0])
	t.chain(th, c, args[1], sendWRBytes, t.sendWR)
}

func beforeRecv(t *tracer, th *thread, c *call, args [6]uint64) {
	t.onQP(th, c, args[0])
	t.chain(th, c, args[1], recvWRBytes, t.recvWR)
}

func beforeSRQRecv(t *tracer, th *thread, c *call, args [6]uint64) {
	if b, ok := t.onObject(th, c, args[0]); ok {
		c.args = append(c.args, handle("srq", uapi.UVERBS_OBJECT_SRQ, u32(b[srqHandle:])))
	} else {
		c.args = append(c.args, pointer("srq", args[0]))
	}
	t.chain(th, c, args[1], recvWRBytes, t.recvWR)
}

func beforeWQRecv(t *tracer, th *thread, c *call, args [6]uint64) {
	if b, ok := t.onObject(th, c, args[0]); ok {
		c.args = append(c.args, handle("wq", uapi.UVERBS_OBJECT_WQ, u32(b[wqHandle:])))
	} else {
		c.args = append(c.args, pointer("wq", args[0]))
	}
	t.chain(th, c, args[1], recvWRBytes, t.recvWR)
}

// chain decodes a list of work requests, which a program may have made a ring.
func (t *tracer) chain(th *thread, c *call, addr uint64, size int, decode func(*thread, *call, []byte) ioctl.Value) {
	var wrs []ioctl.Value
	b := make([]byte, size)
	for addr != 0 {
		if len(wrs) == maxWRs {
			wrs = append(wrs, text("", "more").Value)
			break
		}
		if err := readMemory(th.tid, addr, b); err != nil {
			wrs = append(wrs, ioctl.Value{Addr: addr, Err: err})
			break
		}
		wrs = append(wrs, decode(th, c, b))
		c.chain = append(c.chain, addr)
		addr = u64(b[8:])
	}
	c.args = append(c.args, list("wr", wrs...))
}

// afterPost says which work request was refused.
func afterPost(_ *tracer, th *thread, c *call, args [6]uint64) {
	if c.failByResult(); c.errno == 0 {
		return
	}
	bad, ok := readPointer(th.tid, args[2])
	if !ok {
		return
	}
	for i, addr := range c.chain {
		if addr == bad {
			c.results = append(c.results, number("bad_wr", uint64(i)))
		}
	}
}

// sges decodes a scatter/gather list, and adds up its length.
func (t *tracer) sges(th *thread, addr, n uint64) (ioctl.NamedValue, uint64) {
	n = min(n, maxSGEs)
	b := make([]byte, n*sgeBytes)
	if err := readMemory(th.tid, addr, b); err != nil {
		return ioctl.NamedValue{Name: "sge", Value: ioctl.Value{Addr: addr, Err: err}}, 0
	}
	var out []ioctl.Value
	var length uint64
	for ; len(b) > 0; b = b[sgeBytes:] {
		out = append(out, sge(u64(b), u32(b[8:]), u32(b[12:])))
		length += u32(b[8:])
	}
	return list("sge", out...), length
}

func sge(addr, length, lkey uint64) ioctl.Value {
	return group("", pointer("addr", addr), number("length", length), hexNumber("lkey", lkey)).Value
}

func (t *tracer) recvWR(th *thread, _ *call, b []byte) ioctl.Value {
	sges, length := t.sges(th, u64(b[16:]), u32(b[24:]))
	return group("", hexNumber("wr_id", u64(b)), number("length", length), sges).Value
}

func (t *tracer) sendWR(th *thread, c *call, b []byte) ioctl.Value {
	opcode := uapi.IbUverbsWrOpcode(u32(b[28:]))
	sges, length := t.sges(th, u64(b[16:]), u32(b[24:]))
	f := []ioctl.NamedValue{
		hexNumber("wr_id", u64(b)),
		enum("opcode", uapi.EnumIbUverbsWrOpcode, uint64(opcode)),
		flags("send_flags", uapi.EnumIbSendFlags, u32(b[32:])),
		number("length", length),
		sges,
	}
	switch opcode {
	case uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, uapi.IB_UVERBS_WR_SEND_WITH_IMM:
		f = append(f, hexNumber("imm_data", uint64(binary.BigEndian.Uint32(b[36:]))))
	case uapi.IB_UVERBS_WR_LOCAL_INV, uapi.IB_UVERBS_WR_SEND_WITH_INV:
		f = append(f, hexNumber("invalidate_rkey", u32(b[36:])))
	}
	wr := b[40:]
	switch opcode {
	case uapi.IB_UVERBS_WR_RDMA_WRITE, uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, uapi.IB_UVERBS_WR_RDMA_READ:
		f = append(f, pointer("remote_addr", u64(wr)), hexNumber("rkey", u32(wr[8:])))
	case uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP:
		f = append(f, pointer("remote_addr", u64(wr)), hexNumber("rkey", u32(wr[24:])),
			hexNumber("compare", u64(wr[8:])), hexNumber("swap", u64(wr[16:])))
	case uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD:
		f = append(f, pointer("remote_addr", u64(wr)), hexNumber("rkey", u32(wr[24:])), hexNumber("add", u64(wr[8:])))
	case uapi.IB_UVERBS_WR_BIND_MW:
		f = append(f, t.memoryWindow(th, u64(b[80:])), hexNumber("rkey", u32(b[88:])))
	case uapi.IB_UVERBS_WR_TSO:
		f = append(f, pointer("hdr", u64(b[80:])), number("hdr_sz", u32(b[88:])&0xffff), number("mss", u32(b[88:])>>16))
	}
	if c.ud && opcode != uapi.IB_UVERBS_WR_LOCAL_INV {
		f = append(f, t.addressHandle(th, u64(wr)), hexNumber("remote_qpn", u32(wr[8:])), hexNumber("remote_qkey", u32(wr[12:])))
	}
	return group("", f...).Value
}

func (t *tracer) addressHandle(th *thread, addr uint64) ioctl.NamedValue {
	var b [4]byte
	if readMemory(th.tid, addr+ahHandle, b[:]) != nil {
		return pointer("ah", addr)
	}
	return handle("ah", uapi.UVERBS_OBJECT_AH, u32(b[:]))
}

func (t *tracer) memoryWindow(th *thread, addr uint64) ioctl.NamedValue {
	var b [4]byte
	if readMemory(th.tid, addr+mwHandle, b[:]) != nil {
		return pointer("mw", addr)
	}
	return handle("mw", uapi.UVERBS_OBJECT_MW, u32(b[:]))
}

// completion decodes what all kinds of polling give.
func completion(id, status, opcode, vendor, length, imm, qpn, wcFlags uint64) []ioctl.NamedValue {
	f := []ioctl.NamedValue{hexNumber("wr_id", id), enum("status", uapi.EnumIbWcStatus, status)}
	if status != uint64(uapi.IB_WC_SUCCESS) { // then no more is valid
		return append(f, hexNumber("vendor_err", vendor), hexNumber("qp_num", qpn))
	}
	f = append(f, enum("opcode", wcOpcodeNames, opcode), number("byte_len", length), hexNumber("qp_num", qpn))
	if wcFlags != 0 {
		f = append(f, flags("wc_flags", wcFlagNames, wcFlags))
	}
	if wcFlags&wcWithImm != 0 {
		f = append(f, hexNumber("imm_data", imm))
	}
	if wcFlags&wcWithInv != 0 {
		f = append(f, hexNumber("invalidated_rkey", wire(imm)))
	}
	return f
}

func afterPoll(t *tracer, th *thread, c *call, args [6]uint64) {
	t.onCQ(th, c, args[0])
	c.args = append(c.args, number("num_entries", args[1]&0xffffffff))
	t.empty(th, c)
	if c.ret <= 0 {
		c.failByResult()
		return
	}
	t.completions(th, c, args[2], min(uint64(c.ret), args[1]&0xffffffff))
}

// completions adds n completions at addr.
func (t *tracer) completions(th *thread, c *call, addr, n uint64) {
	b := make([]byte, min(n, maxWCs)*wcBytes)
	if err := readMemory(th.tid, addr, b); err != nil {
		c.results = append(c.results, ioctl.NamedValue{Name: "wc", Value: ioctl.Value{Addr: addr, Err: err}})
		return
	}
	var wcs []ioctl.Value
	for ; len(b) > 0; b = b[wcBytes:] {
		wcFlags := u32(b[36:])
		imm := uint64(binary.BigEndian.Uint32(b[24:]))
		f := completion(u64(b), u32(b[8:]), u32(b[12:]), u32(b[16:]), u32(b[20:]), imm, u32(b[28:]), wcFlags)
		if src := u32(b[32:]); wcFlags&wcGRH != 0 && src != 0 { // a datagram's
			f = append(f, hexNumber("src_qp", src))
		}
		wcs = append(wcs, group("", f...).Value)
	}
	c.results = append([]ioctl.NamedValue{list("wc", wcs...)}, c.results...)
}

// empty adds how often the process has polled in vain since it was last said.
func (t *tracer) empty(th *thread, c *call) {
	d := th.proc.data
	if n := d.emptyPolls(th.tid); n > d.told {
		c.results = append(c.results, number("empty_polls", n-d.told))
		d.told = n
	}
}

// readerBytes is what probeStartPoll collects.
const readerBytes = 24

func afterStartPoll(t *tracer, th *thread, c *call, args [6]uint64) {
	t.onCQ(th, c, args[0])
	t.empty(th, c)
	if c.failByResult(); c.errno != 0 {
		return
	}
	var b [readerBytes]byte
	var cq [16]byte
	if readMemory(th.tid, args[1], b[:]) != nil || readMemory(th.tid, args[0]+cqExStatus, cq[:]) != nil {
		return
	}
	f := completion(u64(cq[4:]), u32(cq[:]), u32(b[:]), u32(b[4:]), u32(b[12:]),
		uint64(binary.BigEndian.Uint32(b[20:])), u32(b[8:]), u32(b[16:]))
	c.results = append([]ioctl.NamedValue{list("wc", group("", f...).Value)}, c.results...)
}
