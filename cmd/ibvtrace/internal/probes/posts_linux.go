//go:build amd64 || arm64

package probes

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/calls"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// The tables of pointers, in ascending order of offsets.

var contextOps = []operation{
	{"ibv_poll_cq", 96, kindPoll, beforeNothing, afterPoll},
	{"ibv_req_notify_cq", 104, kindPost, beforeNotify, afterResult},
	{"ibv_post_srq_recv", 168, kindPost, beforeSRQRecv, afterPost},
	{"ibv_post_send", 208, kindPost, beforeSend, afterPost},
	{"ibv_post_recv", 216, kindPost, beforeRecv, afterPost},
}

// qpOps are functions of an extended QP. They build work requests between wr_start and
// wr_complete.
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

// batchOps are patched when a batch begins. libmlx5 replaces the pointer after modify_qp to
// RTS, when no verb follows at which to patch it.
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

// Sizes of libibverbs' structs.
const (
	sendWRBytes = 128
	recvWRBytes = 32
)

// onObject sets the file of a call on the object whose struct is at addr, and returns the
// struct. It begins with the address of the context.
func (t *Probes) onObject(th *tracee.Thread, c *tracee.Call, addr uint64) ([]byte, bool) {
	b := make([]byte, qpBytes)
	if err := ptrace.ReadMemory(th.TID, addr, b); err != nil {
		c.Problem = err
		c.FD = -1
		return nil, false
	}
	context := calls.U64(b)
	if f := t.data(th.Proc).contexts[context]; f != nil {
		c.File, c.FD = f, th.Proc.FDOf(f)
		return b, true
	}
	// An unknown context, for example of a file that another process passed.
	var fd [4]byte
	c.FD = -1
	if ptrace.ReadMemory(th.TID, context+contextCmdFD, fd[:]) == nil {
		c.FD = int(int32(calls.U32(fd[:])))
		if c.File = t.File(th, c.FD); c.File != nil {
			t.data(th.Proc).contexts[context] = c.File
		}
	}
	return b, true
}

func (t *Probes) onQP(th *tracee.Thread, c *tracee.Call, addr uint64) {
	if b, ok := t.onObject(th, c, addr); ok {
		h := calls.U32(b[qpHandle:])
		c.Args = append(c.Args, tracee.Handle("qp", uapi.UVERBS_OBJECT_QP, h))
		if c.File != nil {
			o := c.File.Seen(tracee.KeyOf(uapi.UVERBS_OBJECT_QP, h))
			o.Number = calls.U32(b[qpNumber:])
		}
		c.UD = calls.U32(b[qpType:]) == uint64(uapi.IB_UVERBS_QPT_UD)
		return
	}
	c.Args = append(c.Args, tracee.Pointer("qp", addr))
}

func (t *Probes) onCQ(th *tracee.Thread, c *tracee.Call, addr uint64) {
	if b, ok := t.onObject(th, c, addr); ok {
		c.Args = append(c.Args, tracee.Handle("cq", uapi.UVERBS_OBJECT_CQ, calls.U32(b[cqHandle:])))
		return
	}
	c.Args = append(c.Args, tracee.Pointer("cq", addr))
}

func beforeNothing(*Probes, *tracee.Thread, *tracee.Call, [6]uint64) {}

func afterResult(_ *Probes, _ *tracee.Thread, c *tracee.Call, _ [6]uint64) { failByResult(c) }

// failByResult sets the error of a function that returns an errno, which is positive in
// libibverbs and negative in some drivers.
func failByResult(c *tracee.Call) {
	switch e := c.Ret; {
	case e > 0 && e < 4096:
		c.Errno, c.Ret = unix.Errno(e), -1
	case e < 0 && e > -4096:
		c.Errno, c.Ret = unix.Errno(-e), -1
	}
}

func beforeNotify(t *Probes, th *tracee.Thread, c *tracee.Call, args [6]uint64) {
	t.onCQ(th, c, args[0])
	c.Args = append(c.Args, tracee.Number("solicited_only", args[1]&0xffffffff))
}

func beforeSend(t *Probes, th *tracee.Thread, c *tracee.Call, args [6]uint64) {
	t.onQP(th, c, args[0])
	t.chain(th, c, args[1], sendWRBytes, t.sendWR)
}

func beforeRecv(t *Probes, th *tracee.Thread, c *tracee.Call, args [6]uint64) {
	t.onQP(th, c, args[0])
	t.chain(th, c, args[1], recvWRBytes, t.recvWR)
}

func beforeSRQRecv(t *Probes, th *tracee.Thread, c *tracee.Call, args [6]uint64) {
	if b, ok := t.onObject(th, c, args[0]); ok {
		c.Args = append(c.Args, tracee.Handle("srq", uapi.UVERBS_OBJECT_SRQ, calls.U32(b[srqHandle:])))
	} else {
		c.Args = append(c.Args, tracee.Pointer("srq", args[0]))
	}
	t.chain(th, c, args[1], recvWRBytes, t.recvWR)
}

func beforeWQRecv(t *Probes, th *tracee.Thread, c *tracee.Call, args [6]uint64) {
	if b, ok := t.onObject(th, c, args[0]); ok {
		c.Args = append(c.Args, tracee.Handle("wq", uapi.UVERBS_OBJECT_WQ, calls.U32(b[wqHandle:])))
	} else {
		c.Args = append(c.Args, tracee.Pointer("wq", args[0]))
	}
	t.chain(th, c, args[1], recvWRBytes, t.recvWR)
}

// chain decodes a linked list of work requests. It is bounded, since the list may be circular.
func (t *Probes) chain(th *tracee.Thread, c *tracee.Call, addr uint64, size int, decode func(*tracee.Thread, *tracee.Call, []byte) ioctl.Value) {
	var wrs []ioctl.Value
	b := make([]byte, size)
	for addr != 0 {
		if len(wrs) == calls.MaxWRs {
			wrs = append(wrs, tracee.Text("", "more").Value)
			break
		}
		if err := ptrace.ReadMemory(th.TID, addr, b); err != nil {
			wrs = append(wrs, ioctl.Value{Addr: addr, Err: err})
			break
		}
		wrs = append(wrs, decode(th, c, b))
		c.Chain = append(c.Chain, addr)
		addr = calls.U64(b[8:])
	}
	c.Args = append(c.Args, tracee.List("wr", wrs...))
}

// afterPost adds the index of the work request that failed.
func afterPost(_ *Probes, th *tracee.Thread, c *tracee.Call, args [6]uint64) {
	if failByResult(c); c.Errno == 0 {
		return
	}
	bad, ok := ptrace.ReadPointer(th.TID, args[2])
	if !ok {
		return
	}
	for i, addr := range c.Chain {
		if addr == bad {
			c.Results = append(c.Results, tracee.Number("bad_wr", uint64(i)))
		}
	}
}

func (t *Probes) recvWR(th *tracee.Thread, _ *tracee.Call, b []byte) ioctl.Value {
	sges, length := calls.SGEs(th.TID, calls.U64(b[16:]), calls.U32(b[24:]))
	return tracee.Group("", tracee.HexNumber("wr_id", calls.U64(b)), tracee.Number("length", length), sges).Value
}

func (t *Probes) sendWR(th *tracee.Thread, c *tracee.Call, b []byte) ioctl.Value {
	opcode := uapi.IbUverbsWrOpcode(calls.U32(b[28:]))
	sges, length := calls.SGEs(th.TID, calls.U64(b[16:]), calls.U32(b[24:]))
	f := []ioctl.NamedValue{
		tracee.HexNumber("wr_id", calls.U64(b)),
		tracee.Enum("opcode", uapi.EnumIbUverbsWrOpcode, uint64(opcode)),
		tracee.Flags("send_flags", uapi.EnumIbSendFlags, calls.U32(b[32:])),
		tracee.Number("length", length),
		sges,
	}
	switch opcode {
	case uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, uapi.IB_UVERBS_WR_SEND_WITH_IMM:
		f = append(f, tracee.HexNumber("imm_data", uint64(binary.BigEndian.Uint32(b[36:]))))
	case uapi.IB_UVERBS_WR_LOCAL_INV, uapi.IB_UVERBS_WR_SEND_WITH_INV:
		f = append(f, tracee.HexNumber("invalidate_rkey", calls.U32(b[36:])))
	}
	wr := b[40:]
	switch opcode {
	case uapi.IB_UVERBS_WR_RDMA_WRITE, uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, uapi.IB_UVERBS_WR_RDMA_READ:
		f = append(f, tracee.Pointer("remote_addr", calls.U64(wr)), tracee.HexNumber("rkey", calls.U32(wr[8:])))
	case uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP:
		f = append(f, tracee.Pointer("remote_addr", calls.U64(wr)), tracee.HexNumber("rkey", calls.U32(wr[24:])),
			tracee.HexNumber("compare", calls.U64(wr[8:])), tracee.HexNumber("swap", calls.U64(wr[16:])))
	case uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD:
		f = append(f, tracee.Pointer("remote_addr", calls.U64(wr)), tracee.HexNumber("rkey", calls.U32(wr[24:])), tracee.HexNumber("add", calls.U64(wr[8:])))
	case uapi.IB_UVERBS_WR_BIND_MW:
		f = append(f, t.memoryWindow(th, calls.U64(b[80:])), tracee.HexNumber("rkey", calls.U32(b[88:])))
	case uapi.IB_UVERBS_WR_TSO:
		f = append(f, tracee.Pointer("hdr", calls.U64(b[80:])), tracee.Number("hdr_sz", calls.U32(b[88:])&0xffff), tracee.Number("mss", calls.U32(b[88:])>>16))
	}
	if c.UD && opcode != uapi.IB_UVERBS_WR_LOCAL_INV {
		f = append(f, t.addressHandle(th, calls.U64(wr)), tracee.HexNumber("remote_qpn", calls.U32(wr[8:])), tracee.HexNumber("remote_qkey", calls.U32(wr[12:])))
	}
	return tracee.Group("", f...).Value
}

func (t *Probes) addressHandle(th *tracee.Thread, addr uint64) ioctl.NamedValue {
	var b [4]byte
	if ptrace.ReadMemory(th.TID, addr+ahHandle, b[:]) != nil {
		return tracee.Pointer("ah", addr)
	}
	return tracee.Handle("ah", uapi.UVERBS_OBJECT_AH, calls.U32(b[:]))
}

func (t *Probes) memoryWindow(th *tracee.Thread, addr uint64) ioctl.NamedValue {
	var b [4]byte
	if ptrace.ReadMemory(th.TID, addr+mwHandle, b[:]) != nil {
		return tracee.Pointer("mw", addr)
	}
	return tracee.Handle("mw", uapi.UVERBS_OBJECT_MW, calls.U32(b[:]))
}

func afterPoll(t *Probes, th *tracee.Thread, c *tracee.Call, args [6]uint64) {
	t.onCQ(th, c, args[0])
	c.Args = append(c.Args, tracee.Number("num_entries", args[1]&0xffffffff))
	t.empty(th, c)
	if c.Ret <= 0 {
		failByResult(c)
		return
	}
	calls.Completions(t.Set, th, c, args[2], min(uint64(c.Ret), args[1]&0xffffffff))
}

// empty adds the number of polls that found nothing and have not been shown yet.
func (t *Probes) empty(th *tracee.Thread, c *tracee.Call) {
	c.AddEmpty(t.data(th.Proc).unreported(th.TID))
}

// readerBytes is the size of the data that probeStartPoll collects.
const readerBytes = 24

func afterStartPoll(t *Probes, th *tracee.Thread, c *tracee.Call, args [6]uint64) {
	t.onCQ(th, c, args[0])
	t.empty(th, c)
	if failByResult(c); c.Errno != 0 {
		return
	}
	if t.Completed != nil {
		// The status is at another offset than in struct ibv_wc.
		t.Completed(th, c, args[0]+cqExStatus-calls.WCStatus, 1)
	}
	var b [readerBytes]byte
	var cq [16]byte
	if ptrace.ReadMemory(th.TID, args[1], b[:]) != nil || ptrace.ReadMemory(th.TID, args[0]+cqExStatus, cq[:]) != nil {
		return
	}
	f := calls.Completion(calls.U64(cq[4:]), calls.U32(cq[:]), calls.U32(b[:]), calls.U32(b[4:]), calls.U32(b[12:]),
		uint64(binary.BigEndian.Uint32(b[20:])), calls.U32(b[8:]), calls.U32(b[16:]))
	c.Results = append([]ioctl.NamedValue{tracee.List("wc", tracee.Group("", f...).Value)}, c.Results...)
}
