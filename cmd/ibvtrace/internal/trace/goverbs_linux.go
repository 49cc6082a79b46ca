//go:build amd64 || arm64

package trace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/tracing"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// Programs on this project's own library have no tables of pointers. The library tells
// of posts and polls itself when it is asked to, see package tracing.

var goVerbs = map[tracing.Point]string{
	tracing.PostSend: "ibv_post_send", tracing.PostRecv: "ibv_post_recv", tracing.PostSRQRecv: "ibv_post_srq_recv",
	tracing.Poll: "ibv_poll_cq", tracing.Built: "ibv_wr_complete",
	tracing.Arm: "ibv_req_notify_cq",
}

// Where On and Empty are, from the mark on.
const (
	switchOn    = uint64(unsafe.Offsetof(tracing.Switch.On))
	switchEmpty = uint64(unsafe.Offsetof(tracing.Switch.Empty))
)

// askGo asks a program on the library to tell, once.
func (t *tracer) askGo(p *process, d *dataTrace) {
	if d.asked {
		return
	}
	d.asked = true
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.pid))
	if err != nil {
		return
	}
	maps, err := mappings(p.pid)
	if err != nil {
		return
	}
	left := uint64(maxGoData)
	for _, m := range maps {
		if !m.write || !m.private || m.path != exe || m.end-m.start > left {
			continue
		}
		left -= m.end - m.start
		b := make([]byte, m.end-m.start)
		if readMemory(p.pid, m.start, b) != nil {
			continue
		}
		if i := bytes.Index(b, []byte(tracing.Mark)); i >= 0 {
			d.goSwitch = m.start + uint64(i)
			d.told = d.emptyPolls(p.pid) // while another tracer was there
			writeUint32(p.pid, d.goSwitch+switchOn, 1)
			return
		}
	}
}

// maxGoData bounds the program's data that is searched.
const maxGoData = 256 << 20

func writeUint32(pid int, addr uint64, v uint32) error {
	return writeMemory(pid, addr, binary.NativeEndian.AppendUint32(nil, v))
}

// goTrap handles what the library tells.
func (t *tracer) goTrap(th *thread, told tracing.Call) {
	name, known := goVerbs[told.Point]
	if d := th.proc.data; d == nil || d.goSwitch == 0 || !known {
		return
	}
	c := t.newCall(th, kindData, name)
	c.returned = true
	c.fd = int(int32(told.FD))
	c.file = t.file(th, c.fd)
	h := uint64(told.Handle)
	switch told.Point {
	case tracing.Poll:
		c.args = append(c.args, handle("cq", uapi.UVERBS_OBJECT_CQ, h), number("num_entries", uint64(told.Count)))
		c.ret = int64(told.N)
		t.empty(th, c)
		t.completions(th, c, told.List, uint64(min(told.N, told.Count)))
	case tracing.Arm:
		c.args = append(c.args, handle("cq", uapi.UVERBS_OBJECT_CQ, h), number("solicited_only", uint64(told.Kind)))
	case tracing.PostSRQRecv:
		c.args = append(c.args, handle("srq", uapi.UVERBS_OBJECT_SRQ, h))
	default:
		c.args = append(c.args, handle("qp", uapi.UVERBS_OBJECT_QP, h))
		if c.file != nil {
			c.file.seen(objectKey{uapi.UVERBS_OBJECT_QP, h}).number = uint64(told.Number)
		}
	}
	switch told.Point {
	case tracing.PostSend, tracing.Built:
		goRequests(th, c, told, func(wr *tracing.SendWR) ioctl.Value { return t.goSendWR(th, told.Kind, wr) })
	case tracing.PostRecv, tracing.PostSRQRecv:
		goRequests(th, c, told, func(wr *tracing.RecvWR) ioctl.Value { return t.goRecvWR(th, wr) })
	}
	if told.Failed {
		c.ret, c.errno = -1, unix.EINVAL
		if told.Full {
			c.errno = unix.ENOMEM // what libibverbs says of a full queue
		}
		if told.Point != tracing.Poll && told.Point != tracing.Arm {
			c.results = append(c.results, number("bad_wr", uint64(told.N)))
		}
	}
	t.emit(c)
}

// goRequests decodes a slice of work requests.
func goRequests[T tracing.SendWR | tracing.RecvWR](th *thread, c *call, told tracing.Call, decode func(*T) ioctl.Value) {
	var wrs []ioctl.Value
	wr := new(T)
	b := tracing.Bytes(wr)
	for i := range min(told.Count, maxWRs) {
		at := told.List + uint64(i)*uint64(len(b))
		if err := readMemory(th.tid, at, b); err != nil {
			wrs = append(wrs, ioctl.Value{Addr: at, Err: err})
			break
		}
		wrs = append(wrs, decode(wr))
	}
	if told.Count > maxWRs {
		wrs = append(wrs, text("", "more").Value)
	}
	c.args = append(c.args, list("wr", wrs...))
}

func (t *tracer) goRecvWR(th *thread, wr *tracing.RecvWR) ioctl.Value {
	sges, length := t.sges(th, wr.SGL.Addr, wr.SGL.Len)
	return group("", hexNumber("wr_id", wr.WRID), number("length", length), sges).Value
}

// goOpcodeNames has those that are none of the kernel's.
var goOpcodeNames = &uapi.Enum{Prefix: "IB_UVERBS_WR_", Values: append([]uapi.EnumValue{
	{Value: tracing.OpNop, CName: "IB_UVERBS_WR_NOP"},
}, uapi.EnumIbUverbsWrOpcode.Values...)}

// goSendWR decodes a work request for a QP of a type.
func (t *tracer) goSendWR(th *thread, kind uint32, wr *tracing.SendWR) ioctl.Value {
	f := []ioctl.NamedValue{
		hexNumber("wr_id", wr.WRID),
		enum("opcode", goOpcodeNames, uint64(wr.Opcode)),
		flags("send_flags", uapi.EnumIbSendFlags, uint64(wr.Flags)),
	}
	if wr.Inline.Addr != 0 {
		f = append(f, number("length", wr.Inline.Len), pointer("inline", wr.Inline.Addr))
	} else {
		sges, length := t.sges(th, wr.SGL.Addr, wr.SGL.Len)
		f = append(f, number("length", length), sges)
	}
	remote := func(more ...ioctl.NamedValue) {
		f = append(f, pointer("remote_addr", wr.RemoteAddr), hexNumber("rkey", uint64(wr.RKey)))
		f = append(f, more...)
	}
	switch uapi.IbUverbsWrOpcode(wr.Opcode) {
	case uapi.IB_UVERBS_WR_SEND_WITH_IMM:
		f = append(f, hexNumber("imm_data", uint64(wr.Imm)))
	case uapi.IB_UVERBS_WR_SEND_WITH_INV, uapi.IB_UVERBS_WR_LOCAL_INV:
		f = append(f, hexNumber("invalidate_rkey", uint64(wr.InvalidateRKey)))
	case uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM:
		f = append(f, hexNumber("imm_data", uint64(wr.Imm)))
		remote()
	case uapi.IB_UVERBS_WR_RDMA_WRITE, uapi.IB_UVERBS_WR_RDMA_READ:
		remote()
	case uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP:
		remote(hexNumber("compare", wr.Compare), hexNumber("swap", wr.Swap))
	case uapi.IB_UVERBS_WR_MASKED_ATOMIC_CMP_AND_SWP:
		remote(hexNumber("compare", wr.Compare), hexNumber("compare_mask", wr.CompareMask),
			hexNumber("swap", wr.Swap), hexNumber("swap_mask", wr.SwapMask))
	case uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD:
		remote(hexNumber("add", wr.Add))
	case uapi.IB_UVERBS_WR_MASKED_ATOMIC_FETCH_AND_ADD:
		remote(hexNumber("add", wr.Add), hexNumber("field_boundary", wr.CompareMask))
	case uapi.IB_UVERBS_WR_ATOMIC_WRITE:
		remote()
		var b [8]byte
		if readMemory(th.tid, wr.Inline.Addr, b[:]) == nil {
			f = append(f, hexNumber("atomic_wr", u64(b[:])))
		}
	case uapi.IB_UVERBS_WR_FLUSH:
		remote(number("flush_length", uint64(wr.FlushLength)),
			flags("type", uapi.EnumIbPlacementType, uint64(wr.FlushType)), enum("level", uapi.EnumIbSelectivityLevel, uint64(wr.FlushLevel)))
	case uapi.IB_UVERBS_WR_BIND_MW:
		f = append(f, goHandle(th, "mw", uapi.UVERBS_OBJECT_MW, wr.MW, tracing.MWHandle), hexNumber("rkey", uint64(wr.NewRKey)),
			group("bind", goHandle(th, "mr", uapi.UVERBS_OBJECT_MR, wr.Bind.MR, tracing.MRHandle), pointer("addr", wr.Bind.Addr),
				number("length", wr.Bind.Length), flags("access_flags", uapi.EnumIbUverbsAccessFlags, uint64(wr.Bind.Access))))
	case uapi.IB_UVERBS_WR_TSO:
		f = append(f, pointer("hdr", wr.Header.Addr), number("hdr_sz", wr.Header.Len), number("mss", uint64(wr.MSS)))
	}
	switch kind {
	case uint32(uapi.IB_UVERBS_QPT_XRC_INI):
		f = append(f, hexNumber("remote_srqn", uint64(wr.RemoteSRQN)))
	case uint32(uapi.IB_UVERBS_QPT_UD):
		f = append(f, goAH(th, wr.AH), hexNumber("remote_qpn", uint64(wr.RemoteQPN)), hexNumber("remote_qkey", uint64(wr.RemoteQKey)))
	case tracing.DCI:
		f = append(f, goAH(th, wr.AH), hexNumber("remote_qpn", uint64(wr.RemoteQPN)), hexNumber("dc_key", wr.DCKey))
	}
	return group("", f...).Value
}

// goHandle returns the handle of an object of the library.
func goHandle(th *thread, name string, class uint16, addr, offset uint64) ioctl.NamedValue {
	var b [4]byte
	if addr == 0 || readMemory(th.tid, addr+offset, b[:]) != nil {
		return pointer(name, addr)
	}
	return handle(name, class, u32(b[:]))
}

// goAH returns the handle of an address handle, or its address if it has none.
func goAH(th *thread, addr uint64) ioctl.NamedValue {
	var local [1]byte
	if readMemory(th.tid, addr+tracing.AHLocal, local[:]) != nil || local[0] != 0 {
		return pointer("ah", addr)
	}
	return goHandle(th, "ah", uapi.UVERBS_OBJECT_AH, addr, tracing.AHHandle)
}
