//go:build amd64 || arm64

package trace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// Programs on this project's own library have no tables of pointers. The library tells
// of posts and polls itself, by a getpid as the probes do, when it is asked to: by a
// word in its memory, behind a mark.

var goMark = []byte("goverbs tracing\x01")

// goEmpty is where the library counts the polls that found nothing, from the switch on.
const goEmpty = 8

// goProbe is what the library has in its traps in place of a probe's number.
const goProbe = 0xfffe

// The points, as package verbs numbers them.
const (
	goPostSend = iota + 1
	goPostRecv
	goPostSRQRecv
	goPoll
	goBuilt
	goArm
)

var goVerbs = map[uint64]string{
	goPostSend: "ibv_post_send", goPostRecv: "ibv_post_recv", goPostSRQRecv: "ibv_post_srq_recv",
	goPoll: "ibv_poll_cq", goBuilt: "ibv_wr_complete",
	goArm: "ibv_req_notify_cq",
}

// Sizes of package verbs' structs; a test there holds them and the offsets below.
const (
	goSendWRBytes = 240
	goRecvWRBytes = 32
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
		if i := bytes.Index(b, goMark); i >= 0 {
			d.goSwitch = m.start + uint64(i+len(goMark))
			d.told = d.emptyPolls(p.pid) // while another tracer was there
			writeUint32(p.pid, d.goSwitch, 1)
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
func (t *tracer) goTrap(th *thread, args [6]uint64) {
	what := args[0] >> 32
	name, known := goVerbs[what]
	if d := th.proc.data; d == nil || d.goSwitch == 0 || !known {
		return
	}
	c := t.newCall(th, kindData, name)
	c.returned = true
	c.fd = int(int32(args[0]))
	c.file = t.file(th, c.fd)
	h, qpn := args[1]&0xffffffff, args[1]>>32
	at, count, kind := args[2], args[3]&0xffffffff, args[3]>>32
	n := args[4] & 0xffffffff
	switch what {
	case goPoll:
		c.args = append(c.args, handle("cq", uapi.UVERBS_OBJECT_CQ, h), number("num_entries", count))
		c.ret = int64(n)
		t.empty(th, c)
		t.completions(th, c, at, min(n, count))
	case goArm:
		c.args = append(c.args, handle("cq", uapi.UVERBS_OBJECT_CQ, h), number("solicited_only", kind))
	case goPostSRQRecv:
		c.args = append(c.args, handle("srq", uapi.UVERBS_OBJECT_SRQ, h))
	default:
		c.args = append(c.args, handle("qp", uapi.UVERBS_OBJECT_QP, h))
		if c.file != nil {
			c.file.seen(objectKey{uapi.UVERBS_OBJECT_QP, h}).number = qpn
		}
		c.ud = kind == uint64(uapi.IB_UVERBS_QPT_UD)
	}
	switch what {
	case goPostSend, goBuilt:
		t.goRequests(th, c, at, count, goSendWRBytes, t.goSendWR)
	case goPostRecv, goPostSRQRecv:
		t.goRequests(th, c, at, count, goRecvWRBytes, t.goRecvWR)
	}
	if args[4]>>32&1 != 0 {
		c.ret, c.errno = -1, unix.EINVAL
		if args[4]>>33&1 != 0 {
			c.errno = unix.ENOMEM // what libibverbs says of a full queue
		}
		if what != goPoll && what != goArm {
			c.results = append(c.results, number("bad_wr", n))
		}
	}
	t.emit(c)
}

// goRequests decodes a slice of work requests.
func (t *tracer) goRequests(th *thread, c *call, addr, count uint64, size int, decode func(*thread, *call, []byte) ioctl.Value) {
	var wrs []ioctl.Value
	b := make([]byte, size)
	for i := range min(count, maxWRs) {
		at := addr + i*uint64(size)
		if err := readMemory(th.tid, at, b); err != nil {
			wrs = append(wrs, ioctl.Value{Addr: at, Err: err})
			break
		}
		wrs = append(wrs, decode(th, c, b))
	}
	if count > maxWRs {
		wrs = append(wrs, text("", "more").Value)
	}
	c.args = append(c.args, list("wr", wrs...))
}

func (t *tracer) goRecvWR(th *thread, _ *call, b []byte) ioctl.Value {
	sges, length := t.sges(th, u64(b[8:]), u64(b[16:]))
	return group("", hexNumber("wr_id", u64(b)), number("length", length), sges).Value
}

func (t *tracer) goSendWR(th *thread, c *call, b []byte) ioctl.Value {
	opcode := uapi.IbUverbsWrOpcode(u32(b[8:]))
	f := []ioctl.NamedValue{
		hexNumber("wr_id", u64(b)),
		enum("opcode", uapi.EnumIbUverbsWrOpcode, uint64(opcode)),
		flags("send_flags", uapi.EnumIbSendFlags, u32(b[12:])),
	}
	if inline := u64(b[40:]); inline != 0 {
		f = append(f, number("length", u64(b[48:])), pointer("inline", inline))
	} else {
		sges, length := t.sges(th, u64(b[16:]), u64(b[24:]))
		f = append(f, number("length", length), sges)
	}
	remote := func() {
		f = append(f, pointer("remote_addr", u64(b[72:])), hexNumber("rkey", u32(b[80:])))
	}
	switch opcode {
	case uapi.IB_UVERBS_WR_SEND_WITH_IMM:
		f = append(f, hexNumber("imm_data", u32(b[64:])))
	case uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM:
		f = append(f, hexNumber("imm_data", u32(b[64:])))
		remote()
	case uapi.IB_UVERBS_WR_LOCAL_INV, uapi.IB_UVERBS_WR_SEND_WITH_INV:
		f = append(f, hexNumber("invalidate_rkey", u32(b[68:])))
	case uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP:
		remote()
		f = append(f, hexNumber("compare", u64(b[88:])), hexNumber("swap", u64(b[96:])))
	case uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD:
		remote()
		f = append(f, hexNumber("add", u64(b[104:])))
	case uapi.IB_UVERBS_WR_RDMA_WRITE, uapi.IB_UVERBS_WR_RDMA_READ, uapi.IB_UVERBS_WR_FLUSH, uapi.IB_UVERBS_WR_ATOMIC_WRITE:
		remote()
	}
	if c.ud {
		f = append(f, hexNumber("remote_qpn", u32(b[136:])), hexNumber("remote_qkey", u32(b[140:])))
	}
	return group("", f...).Value
}
