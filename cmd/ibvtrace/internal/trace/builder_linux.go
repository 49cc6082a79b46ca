//go:build amd64 || arm64

package trace

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// A builder is a batch of work requests on an extended QP, between wr_start and
// wr_complete or wr_abort. These are shown as one call.
type builder struct {
	qp  uint64
	wrs [][]ioctl.NamedValue
	n   int // of work requests, also those beyond what is shown
}

// maxBuilding bounds the batches that a thread has begun and not ended.
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

func beforeStart(t *tracer, th *thread, _ *call, args [6]uint64) {
	t.patch(th, args[0], batchOps, executableOf(th.tid))
	th.posts.end(args[0])
	if len(th.posts.building) < maxBuilding {
		th.posts.building = append(th.posts.building, &builder{qp: args[0]})
	}
}

// wr begins a work request: its id and flags are in the QP.
func (t *tracer) wr(th *thread, args [6]uint64, opcode uapi.IbUverbsWrOpcode, more ...ioctl.NamedValue) {
	b := th.posts.builder(args[0])
	if b == nil {
		return
	}
	if b.n++; len(b.wrs) >= maxWRs {
		return
	}
	var at [16]byte
	f := []ioctl.NamedValue{}
	if err := readMemory(th.tid, args[0]+qpExWRID, at[:]); err == nil {
		f = append(f, hexNumber("wr_id", u64(at[:])), enum("opcode", uapi.EnumIbUverbsWrOpcode, uint64(opcode)),
			flags("send_flags", uapi.EnumIbSendFlags, u32(at[8:])))
	}
	b.wrs = append(b.wrs, append(f, more...))
}

// add says more of the last work request.
func (th *thread) add(qp uint64, more ...ioctl.NamedValue) {
	if b := th.posts.builder(qp); b != nil && len(b.wrs) > 0 && b.n == len(b.wrs) {
		last := &b.wrs[len(b.wrs)-1]
		*last = append(*last, more...)
	}
}

func remote(args [6]uint64) []ioctl.NamedValue {
	return []ioctl.NamedValue{pointer("remote_addr", args[2]), hexNumber("rkey", args[1]&0xffffffff)}
}

// wire returns a number that is in network order in a register.
func wire(v uint64) uint64 {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], uint32(v))
	return uint64(binary.BigEndian.Uint32(b[:]))
}

func beforeAtomicCmpSwp(t *tracer, th *thread, _ *call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, append(remote(a), hexNumber("compare", a[3]), hexNumber("swap", a[4]))...)
}

func beforeAtomicFetchAdd(t *tracer, th *thread, _ *call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD, append(remote(a), hexNumber("add", a[3]))...)
}

func beforeBindMW(t *tracer, th *thread, _ *call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_BIND_MW, t.memoryWindow(th, a[1]), hexNumber("rkey", a[2]&0xffffffff))
}

func beforeLocalInv(t *tracer, th *thread, _ *call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_LOCAL_INV, hexNumber("invalidate_rkey", a[1]&0xffffffff))
}

func beforeRead(t *tracer, th *thread, _ *call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_RDMA_READ, remote(a)...)
}

func beforeWrite(t *tracer, th *thread, _ *call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_RDMA_WRITE, remote(a)...)
}

func beforeWriteImm(t *tracer, th *thread, _ *call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, append(remote(a), hexNumber("imm_data", wire(a[3])))...)
}

func beforeWRSend(t *tracer, th *thread, _ *call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_SEND)
}

func beforeSendImm(t *tracer, th *thread, _ *call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_SEND_WITH_IMM, hexNumber("imm_data", wire(a[1])))
}

func beforeSendInv(t *tracer, th *thread, _ *call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_SEND_WITH_INV, hexNumber("invalidate_rkey", a[1]&0xffffffff))
}

func beforeTSO(t *tracer, th *thread, _ *call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_TSO, pointer("hdr", a[1]), number("hdr_sz", a[2]&0xffff), number("mss", a[3]&0xffff))
}

func beforeAtomicWrite(t *tracer, th *thread, _ *call, a [6]uint64) {
	more := remote(a)
	var b [8]byte
	if readMemory(th.tid, a[3], b[:]) == nil {
		more = append(more, hexNumber("atomic_wr", u64(b[:])))
	}
	t.wr(th, a, uapi.IB_UVERBS_WR_ATOMIC_WRITE, more...)
}

func beforeFlush(t *tracer, th *thread, _ *call, a [6]uint64) {
	t.wr(th, a, uapi.IB_UVERBS_WR_FLUSH, append(remote(a), number("length", a[3]),
		flags("type", uapi.EnumIbPlacementType, a[4]&0xff), enum("level", uapi.EnumIbSelectivityLevel, a[5]))...)
}

func beforeSetUD(t *tracer, th *thread, _ *call, a [6]uint64) {
	th.add(a[0], t.addressHandle(th, a[1]), hexNumber("remote_qpn", a[2]&0xffffffff), hexNumber("remote_qkey", a[3]&0xffffffff))
}

func beforeSetXRC(_ *tracer, th *thread, _ *call, a [6]uint64) {
	th.add(a[0], hexNumber("remote_srqn", a[1]&0xffffffff))
}

func beforeSetInline(_ *tracer, th *thread, _ *call, a [6]uint64) {
	th.add(a[0], number("length", a[2]), pointer("inline", a[1]))
}

func beforeSetInlineList(_ *tracer, th *thread, _ *call, a [6]uint64) {
	n := min(a[1], maxSGEs)
	b := make([]byte, 16*n) // struct ibv_data_buf: address and length
	if err := readMemory(th.tid, a[2], b); err != nil {
		th.add(a[0], ioctl.NamedValue{Name: "inline", Value: ioctl.Value{Addr: a[2], Err: err}})
		return
	}
	var out []ioctl.Value
	var length uint64
	for ; len(b) > 0; b = b[16:] {
		out = append(out, group("", pointer("addr", u64(b)), number("length", u64(b[8:]))).Value)
		length += u64(b[8:])
	}
	th.add(a[0], number("length", length), list("inline", out...))
}

func beforeSetSGE(_ *tracer, th *thread, _ *call, a [6]uint64) {
	length := a[3] & 0xffffffff
	th.add(a[0], number("length", length), list("sge", sge(a[2], length, a[1]&0xffffffff)))
}

func beforeSetSGEList(t *tracer, th *thread, _ *call, a [6]uint64) {
	sges, length := t.sges(th, a[2], a[1])
	th.add(a[0], number("length", length), sges)
}

// built puts the batch into the call that ends it.
func (t *tracer) built(th *thread, c *call, qp uint64) {
	t.onQP(th, c, qp)
	b := th.posts.end(qp)
	var wrs []ioctl.Value
	for _, f := range b.wrs {
		wrs = append(wrs, group("", f...).Value)
	}
	if b.n > len(b.wrs) {
		wrs = append(wrs, text("", "more").Value)
	}
	c.args = append(c.args, list("wr", wrs...))
}

func beforeComplete(t *tracer, th *thread, c *call, a [6]uint64) { t.built(th, c, a[0]) }

func beforeAbort(t *tracer, th *thread, c *call, a [6]uint64) {
	t.built(th, c, a[0])
	c.returned = true
	t.emit(c)
}
