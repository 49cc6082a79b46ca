//go:build amd64 || arm64

package probes

import (
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/calls"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// A builder is a batch of work requests on an extended QP, between wr_start and wr_complete or
// wr_abort. A batch is shown as one call.
type builder struct {
	qp  uint64
	wrs [][]ioctl.NamedValue
	n   int // number of work requests, including those that are not shown
}

// maxBuilding bounds a thread's unfinished batches.
const maxBuilding = 64

func (s *postState) builder(qp uint64) *builder {
	for _, b := range s.building {
		if b.qp == qp {
			return b
		}
	}
	return nil
}

func (s *postState) end(qp uint64) *builder {
	for i, b := range s.building {
		if b.qp == qp {
			s.building = append(s.building[:i], s.building[i+1:]...)
			return b
		}
	}
	return &builder{qp: qp}
}

func beforeStart(t *Probes, th *tracee.Thread, _ *tracee.Call, args [6]uint64) {
	t.patch(th, args[0], batchOps, ptrace.ExecutableOf(th.TID))
	s := t.doing(th)
	s.end(args[0])
	if len(s.building) < maxBuilding {
		s.building = append(s.building, &builder{qp: args[0]})
	}
}

// wr begins a work request. Its wr_id and flags are in the QP.
func (t *Probes) wr(th *tracee.Thread, args [6]uint64, opcode uapi.IbUverbsWrOpcode, more ...ioctl.NamedValue) {
	b := t.doing(th).builder(args[0])
	if b == nil {
		return
	}
	if b.n++; len(b.wrs) >= calls.MaxWRs {
		return
	}
	var at [16]byte
	f := []ioctl.NamedValue{}
	if err := ptrace.ReadMemory(th.TID, args[0]+qpExWRID, at[:]); err == nil {
		f = append(f, tracee.HexNumber("wr_id", calls.U64(at[:])), tracee.Enum("opcode", uapi.EnumIbUverbsWrOpcode, uint64(opcode)),
			tracee.Flags("send_flags", uapi.EnumIbSendFlags, calls.U32(at[8:])))
	}
	b.wrs = append(b.wrs, append(f, more...))
}

// add adds fields to the last work request.
func (t *Probes) add(th *tracee.Thread, qp uint64, more ...ioctl.NamedValue) {
	if b := t.doing(th).builder(qp); b != nil && len(b.wrs) > 0 && b.n == len(b.wrs) {
		last := &b.wrs[len(b.wrs)-1]
		*last = append(*last, more...)
	}
}

func remote(args [6]uint64) []ioctl.NamedValue {
	return []ioctl.NamedValue{tracee.Pointer("remote_addr", args[2]), tracee.HexNumber("rkey", args[1]&0xffffffff)}
}

func beforeAtomicCmpSwp(t *Probes, th *tracee.Thread, _ *tracee.Call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, append(remote(a), tracee.HexNumber("compare", a[3]), tracee.HexNumber("swap", a[4]))...)
}

func beforeAtomicFetchAdd(t *Probes, th *tracee.Thread, _ *tracee.Call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD, append(remote(a), tracee.HexNumber("add", a[3]))...)
}

func beforeBindMW(t *Probes, th *tracee.Thread, _ *tracee.Call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_BIND_MW, t.memoryWindow(th, a[1]), tracee.HexNumber("rkey", a[2]&0xffffffff))
}

func beforeLocalInv(t *Probes, th *tracee.Thread, _ *tracee.Call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_LOCAL_INV, tracee.HexNumber("invalidate_rkey", a[1]&0xffffffff))
}

func beforeRead(t *Probes, th *tracee.Thread, _ *tracee.Call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_RDMA_READ, remote(a)...)
}

func beforeWrite(t *Probes, th *tracee.Thread, _ *tracee.Call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_RDMA_WRITE, remote(a)...)
}

func beforeWriteImm(t *Probes, th *tracee.Thread, _ *tracee.Call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, append(remote(a), tracee.HexNumber("imm_data", calls.Wire(a[3])))...)
}

func beforeWRSend(t *Probes, th *tracee.Thread, _ *tracee.Call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_SEND)
}

func beforeSendImm(t *Probes, th *tracee.Thread, _ *tracee.Call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_SEND_WITH_IMM, tracee.HexNumber("imm_data", calls.Wire(a[1])))
}

func beforeSendInv(t *Probes, th *tracee.Thread, _ *tracee.Call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_SEND_WITH_INV, tracee.HexNumber("invalidate_rkey", a[1]&0xffffffff))
}

func beforeTSO(t *Probes, th *tracee.Thread, _ *tracee.Call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_TSO, tracee.Pointer("hdr", a[1]), tracee.Number("hdr_sz", a[2]&0xffff), tracee.Number("mss", a[3]&0xffff))
}

func beforeAtomicWrite(t *Probes, th *tracee.Thread, _ *tracee.Call, a [6]uint64) {
	more := remote(a)
	var b [8]byte
	if ptrace.ReadMemory(th.TID, a[3], b[:]) == nil {
		more = append(more, tracee.HexNumber("atomic_wr", calls.U64(b[:])))
	}
	t.wr(th, a, uapi.IB_UVERBS_WR_ATOMIC_WRITE, more...)
}

func beforeFlush(t *Probes, th *tracee.Thread, _ *tracee.Call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_FLUSH, append(remote(a), tracee.Number("length", a[3]),
		tracee.Flags("type", uapi.EnumIbPlacementType, a[4]&0xff), tracee.Enum("level", uapi.EnumIbSelectivityLevel, a[5]))...)
}

func beforeSetUD(t *Probes, th *tracee.Thread, _ *tracee.Call, a [6]uint64) {
	t.add(th, a[0], t.addressHandle(th, a[1]), tracee.HexNumber("remote_qpn", a[2]&0xffffffff), tracee.HexNumber("remote_qkey", a[3]&0xffffffff))
}

func beforeSetXRC(t *Probes, th *tracee.Thread, _ *tracee.Call, a [6]uint64) {
	t.add(th, a[0], tracee.HexNumber("remote_srqn", a[1]&0xffffffff))
}

func beforeSetInline(t *Probes, th *tracee.Thread, _ *tracee.Call, a [6]uint64) {
	t.add(th, a[0], tracee.Number("length", a[2]), tracee.Pointer("inline", a[1]))
}

func beforeSetInlineList(t *Probes, th *tracee.Thread, _ *tracee.Call, a [6]uint64) {
	n := min(a[1], calls.MaxSGEs)
	b := make([]byte, 16*n) // struct ibv_data_buf: address and length
	if err := ptrace.ReadMemory(th.TID, a[2], b); err != nil {
		t.add(th, a[0], ioctl.NamedValue{Name: "inline", Value: ioctl.Value{Addr: a[2], Err: err}})
		return
	}
	var out []ioctl.Value
	var length uint64
	for ; len(b) > 0; b = b[16:] {
		out = append(out, tracee.Group("", tracee.Pointer("addr", calls.U64(b)), tracee.Number("length", calls.U64(b[8:]))).Value)
		length += calls.U64(b[8:])
	}
	t.add(th, a[0], tracee.Number("length", length), tracee.List("inline", out...))
}

func beforeSetSGE(t *Probes, th *tracee.Thread, _ *tracee.Call, a [6]uint64) {
	length := a[3] & 0xffffffff
	t.add(th, a[0], tracee.Number("length", length), tracee.List("sge", calls.SGE(a[2], length, a[1]&0xffffffff)))
}

func beforeSetSGEList(t *Probes, th *tracee.Thread, _ *tracee.Call, a [6]uint64) {
	sges, length := calls.SGEs(th.TID, a[2], a[1])
	t.add(th, a[0], tracee.Number("length", length), sges)
}

// built adds the batch to the call that ends it.
func (t *Probes) built(th *tracee.Thread, c *tracee.Call, qp uint64) {
	t.onQP(th, c, qp)
	b := t.doing(th).end(qp)
	var wrs []ioctl.Value
	for _, f := range b.wrs {
		wrs = append(wrs, tracee.Group("", f...).Value)
	}
	if b.n > len(b.wrs) {
		wrs = append(wrs, tracee.Text("", "more").Value)
	}
	c.Args = append(c.Args, tracee.List("wr", wrs...))
}

func beforeComplete(t *Probes, th *tracee.Thread, c *tracee.Call, a [6]uint64) { t.built(th, c, a[0]) }

func beforeAbort(t *Probes, th *tracee.Thread, c *tracee.Call, a [6]uint64) {
	t.built(th, c, a[0])
	c.Returned = true
	t.Emit(c)
}
