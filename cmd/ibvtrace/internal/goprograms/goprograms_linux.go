//go:build amd64 || arm64

package goprograms

import (
	"bytes"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/calls"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/internal/tracing"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

var verbNames = map[tracing.Point]string{
	tracing.PostSend: "ibv_post_send", tracing.PostRecv: "ibv_post_recv", tracing.PostSRQRecv: "ibv_post_srq_recv",
	tracing.Poll: "ibv_poll_cq", tracing.Built: "ibv_wr_complete",
	tracing.Arm: "ibv_req_notify_cq",
}

// Offsets of On and Empty from the mark.
const (
	switchOn    = uint64(unsafe.Offsetof(tracing.Switch.On))
	switchEmpty = uint64(unsafe.Offsetof(tracing.Switch.Empty))
)

// A Programs makes the Go programs of a set report their data verbs, and handles the reports.
type Programs struct {
	*tracee.Set
	of map[*tracee.Process]*reporting
}

// New returns a Programs for a set.
func New(s *tracee.Set) *Programs { return &Programs{Set: s, of: make(map[*tracee.Process]*reporting)} }

// A reporting is the state of a process.
type reporting struct {
	mark uint64 // the address of the mark; 0 if the process does not use package verbs
	told uint64 // empty polls that have been shown
}

// emptyPolls returns the number of the process's polls that found nothing.
func (x *reporting) emptyPolls(pid int) uint64 {
	n, _ := ptrace.ReadPointer(pid, x.mark+switchEmpty)
	return n
}

// unreported returns the number of empty polls since the last call.
func (x *reporting) unreported(pid int) uint64 {
	if x.mark == 0 {
		return 0
	}
	n := x.emptyPolls(pid) - x.told
	if int64(n) <= 0 {
		return 0
	}
	x.told += n
	return n
}

// Forked copies the state of a process to its child, which has a copy of the memory.
func (t *Programs) Forked(parent, child *tracee.Process) {
	if x := t.of[parent]; x != nil {
		t.of[child] = &reporting{mark: x.mark}
		if x.mark != 0 {
			t.of[child].told = x.emptyPolls(child.PID) // these are shown for the parent
		}
	}
}

// Gone forgets a process.
func (t *Programs) Gone(p *tracee.Process) { delete(t.of, p) }

// End turns reports off in a process.
func (t *Programs) End(p *tracee.Process) {
	if x := t.of[p]; x != nil && x.mark != 0 {
		ptrace.WriteUint32(p.PID, x.mark+switchOn, 0)
		t.NoteEmpty(p)
		x.mark = 0
	}
}

// NoteEmpty emits a note about the polls of a process that found nothing and have not been
// shown yet.
func (t *Programs) NoteEmpty(p *tracee.Process) {
	if x := t.of[p]; x != nil {
		t.NoteEmptyPolls(p, x.unreported(p.PID))
	}
}

// Ask turns reports on in a process, and says whether the process can report. It searches a
// process only once.
func (t *Programs) Ask(p *tracee.Process) bool {
	x := t.of[p]
	if x == nil {
		x = new(reporting)
		t.of[p] = x
		if x.mark = findMark(p.PID); x.mark != 0 {
			x.told = x.emptyPolls(p.PID) // counted for an earlier tracer
			ptrace.WriteUint32(p.PID, x.mark+switchOn, 1)
		}
	}
	return x.mark != 0
}

// findMark returns the address of the mark in a process's data, or 0 if there is none.
func findMark(pid int) uint64 {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return 0
	}
	maps, err := ptrace.Mappings(pid)
	if err != nil {
		return 0
	}
	left := uint64(maxData)
	for _, m := range maps {
		if !m.Write || !m.Private || m.Path != exe || m.End-m.Start > left {
			continue
		}
		left -= m.End - m.Start
		b := make([]byte, m.End-m.Start)
		if ptrace.ReadMemory(pid, m.Start, b) != nil {
			continue
		}
		if i := bytes.Index(b, []byte(tracing.Mark)); i >= 0 {
			return m.Start + uint64(i)
		}
	}
	return 0
}

// maxData bounds the program's data that is searched.
const maxData = 256 << 20

// Trap handles a report.
func (t *Programs) Trap(th *tracee.Thread, told tracing.Call) {
	name, known := verbNames[told.Point]
	x := t.of[th.Proc]
	if x == nil || x.mark == 0 || !known {
		return
	}
	c := t.NewCall(th, tracee.KindData, name)
	c.Returned = true
	c.FD = int(int32(told.FD))
	c.File = t.File(th, c.FD)
	h := uint64(told.Handle)
	switch told.Point {
	case tracing.Poll:
		c.Args = append(c.Args, tracee.Handle("cq", uapi.UVERBS_OBJECT_CQ, h), tracee.Number("num_entries", uint64(told.Count)))
		c.Ret = int64(told.N)
		c.AddEmpty(x.unreported(th.TID))
		calls.Completions(t.Set, th, c, told.List, uint64(min(told.N, told.Count)))
	case tracing.Arm:
		c.Args = append(c.Args, tracee.Handle("cq", uapi.UVERBS_OBJECT_CQ, h), tracee.Number("solicited_only", uint64(told.Kind)))
	case tracing.PostSRQRecv:
		c.Args = append(c.Args, tracee.Handle("srq", uapi.UVERBS_OBJECT_SRQ, h))
	default:
		c.Args = append(c.Args, tracee.Handle("qp", uapi.UVERBS_OBJECT_QP, h))
		if c.File != nil {
			c.File.Seen(tracee.KeyOf(uapi.UVERBS_OBJECT_QP, h)).Number = uint64(told.Number)
		}
	}
	switch told.Point {
	case tracing.PostSend, tracing.Built:
		requests(th, c, told, func(wr *tracing.SendWR) ioctl.Value { return sendWR(th, told.Kind, wr) })
	case tracing.PostRecv, tracing.PostSRQRecv:
		requests(th, c, told, func(wr *tracing.RecvWR) ioctl.Value { return recvWR(th, wr) })
	}
	if told.Failed {
		c.Ret, c.Errno = -1, unix.EINVAL
		if told.Full {
			c.Errno = unix.ENOMEM // as libibverbs returns for a full queue
		}
		if told.Point != tracing.Poll && told.Point != tracing.Arm {
			c.Results = append(c.Results, tracee.Number("bad_wr", uint64(told.N)))
		}
	}
	t.Emit(c)
}

// requests decodes a slice of work requests.
func requests[T tracing.SendWR | tracing.RecvWR](th *tracee.Thread, c *tracee.Call, told tracing.Call, decode func(*T) ioctl.Value) {
	var wrs []ioctl.Value
	wr := new(T)
	b := tracing.Bytes(wr)
	for i := range min(told.Count, calls.MaxWRs) {
		at := told.List + uint64(i)*uint64(len(b))
		if err := ptrace.ReadMemory(th.TID, at, b); err != nil {
			wrs = append(wrs, ioctl.Value{Addr: at, Err: err})
			break
		}
		wrs = append(wrs, decode(wr))
	}
	if told.Count > calls.MaxWRs {
		wrs = append(wrs, tracee.Text("", "more").Value)
	}
	c.Args = append(c.Args, tracee.List("wr", wrs...))
}

func recvWR(th *tracee.Thread, wr *tracing.RecvWR) ioctl.Value {
	sges, length := calls.SGEs(th.TID, wr.SGL.Addr, wr.SGL.Len)
	return tracee.Group("", tracee.HexNumber("wr_id", wr.WRID), tracee.Number("length", length), sges).Value
}

// opcodeNames adds the opcodes that the kernel lacks.
var opcodeNames = &uapi.Enum{Prefix: "IB_UVERBS_WR_", Values: append([]uapi.EnumValue{
	{Value: tracing.OpNop, CName: "IB_UVERBS_WR_NOP"},
}, uapi.EnumIbUverbsWrOpcode.Values...)}

// sendWR decodes a work request for a QP of type kind.
func sendWR(th *tracee.Thread, kind uint32, wr *tracing.SendWR) ioctl.Value {
	f := []ioctl.NamedValue{
		tracee.HexNumber("wr_id", wr.WRID),
		tracee.Enum("opcode", opcodeNames, uint64(wr.Opcode)),
		tracee.Flags("send_flags", uapi.EnumIbSendFlags, uint64(wr.Flags)),
	}
	if wr.Inline.Addr != 0 {
		f = append(f, tracee.Number("length", wr.Inline.Len), tracee.Pointer("inline", wr.Inline.Addr))
	} else {
		sges, length := calls.SGEs(th.TID, wr.SGL.Addr, wr.SGL.Len)
		f = append(f, tracee.Number("length", length), sges)
	}
	remote := func(more ...ioctl.NamedValue) {
		f = append(f, tracee.Pointer("remote_addr", wr.Remote.Addr), tracee.HexNumber("rkey", uint64(wr.Remote.RKey)))
		f = append(f, more...)
	}
	switch uapi.IbUverbsWrOpcode(wr.Opcode) {
	case uapi.IB_UVERBS_WR_SEND_WITH_IMM:
		f = append(f, tracee.HexNumber("imm_data", uint64(wr.Imm)))
	case uapi.IB_UVERBS_WR_SEND_WITH_INV, uapi.IB_UVERBS_WR_LOCAL_INV:
		f = append(f, tracee.HexNumber("invalidate_rkey", uint64(wr.InvalidateRKey)))
	case uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM:
		f = append(f, tracee.HexNumber("imm_data", uint64(wr.Imm)))
		remote()
	case uapi.IB_UVERBS_WR_RDMA_WRITE, uapi.IB_UVERBS_WR_RDMA_READ:
		remote()
	case uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP:
		remote(tracee.HexNumber("compare", wr.Compare), tracee.HexNumber("swap", wr.Swap))
	case uapi.IB_UVERBS_WR_MASKED_ATOMIC_CMP_AND_SWP:
		remote(tracee.HexNumber("compare", wr.Compare), tracee.HexNumber("compare_mask", wr.CompareMask),
			tracee.HexNumber("swap", wr.Swap), tracee.HexNumber("swap_mask", wr.SwapMask))
	case uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD:
		remote(tracee.HexNumber("add", wr.Add))
	case uapi.IB_UVERBS_WR_MASKED_ATOMIC_FETCH_AND_ADD:
		remote(tracee.HexNumber("add", wr.Add), tracee.HexNumber("field_boundary", wr.CompareMask))
	case uapi.IB_UVERBS_WR_ATOMIC_WRITE:
		remote()
		var b [8]byte
		if ptrace.ReadMemory(th.TID, wr.Inline.Addr, b[:]) == nil {
			f = append(f, tracee.HexNumber("atomic_wr", calls.U64(b[:])))
		}
	case uapi.IB_UVERBS_WR_FLUSH:
		remote(tracee.Number("flush_length", uint64(wr.FlushLength)),
			tracee.Flags("type", uapi.EnumIbPlacementType, uint64(wr.FlushType)), tracee.Enum("level", uapi.EnumIbSelectivityLevel, uint64(wr.FlushLevel)))
	case uapi.IB_UVERBS_WR_BIND_MW:
		f = append(f, handleOf(th, "mw", uapi.UVERBS_OBJECT_MW, wr.MW, tracing.MWHandle), tracee.HexNumber("rkey", uint64(wr.NewRKey)),
			tracee.Group("bind", handleOf(th, "mr", uapi.UVERBS_OBJECT_MR, wr.Bind.MR, tracing.MRHandle), tracee.Pointer("addr", wr.Bind.Addr),
				tracee.Number("length", wr.Bind.Length), tracee.Flags("access_flags", uapi.EnumIbUverbsAccessFlags, uint64(wr.Bind.Access))))
	case uapi.IB_UVERBS_WR_TSO:
		f = append(f, tracee.Pointer("hdr", wr.Header.Addr), tracee.Number("hdr_sz", wr.Header.Len), tracee.Number("mss", uint64(wr.MSS)))
	}
	switch kind {
	case uint32(uapi.IB_UVERBS_QPT_XRC_INI):
		f = append(f, tracee.HexNumber("remote_srqn", uint64(wr.RemoteSRQN)))
	case uint32(uapi.IB_UVERBS_QPT_UD), tracing.SRD:
		f = append(f, addressHandle(th, wr.AH), tracee.HexNumber("remote_qpn", uint64(wr.RemoteQPN)), tracee.HexNumber("remote_qkey", uint64(wr.RemoteQKey)))
	case tracing.DCI:
		f = append(f, addressHandle(th, wr.AH), tracee.HexNumber("remote_qpn", uint64(wr.RemoteQPN)), tracee.HexNumber("dc_key", wr.DCKey))
		if wr.DCStream != 0 {
			f = append(f, tracee.Number("stream_id", uint64(wr.DCStream)))
		}
	}
	return tracee.Group("", f...).Value
}

// handleOf returns the handle of the object of package verbs at addr.
func handleOf(th *tracee.Thread, name string, class uint16, addr, offset uint64) ioctl.NamedValue {
	var b [4]byte
	if addr == 0 || ptrace.ReadMemory(th.TID, addr+offset, b[:]) != nil {
		return tracee.Pointer(name, addr)
	}
	return tracee.Handle(name, class, calls.U32(b[:]))
}

// addressHandle returns the handle of an address handle, or its address if it has none.
func addressHandle(th *tracee.Thread, addr uint64) ioctl.NamedValue {
	var local [1]byte
	if ptrace.ReadMemory(th.TID, addr+tracing.AHLocal, local[:]) != nil || local[0] != 0 {
		return tracee.Pointer("ah", addr)
	}
	return handleOf(th, "ah", uapi.UVERBS_OBJECT_AH, addr, tracing.AHHandle)
}
