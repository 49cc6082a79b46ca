//go:build amd64 || arm64

package probes

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/text"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

// self returns a thread that stands for this process: its memory can be read, but it isn't
// traced, so that nothing can be written.
func self() *tracee.Thread {
	return &tracee.Thread{TID: os.Getpid(), Proc: tracee.NewProcess(os.Getpid())}
}

// memory returns memory that stays where it is. It begins with these numbers.
func memory(t *testing.T, words ...uint64) []byte {
	b, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	for i, w := range words {
		binary.NativeEndian.PutUint64(b[8*i:], w)
	}
	return b
}

func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// TestBuilt: each function that builds a work request shows its arguments.
func TestBuilt(t *testing.T) {
	th, p := self(), New(tracee.NewSet())
	qp := memory(t)
	binary.NativeEndian.PutUint64(qp[qpExWRID:], 0x77)
	binary.NativeEndian.PutUint32(qp[qpExFlags:], 2)
	object := memory(t) // an address handle, or a memory window
	binary.NativeEndian.PutUint32(object[ahHandle:], 5)
	binary.NativeEndian.PutUint32(object[mwHandle:], 6)
	buffers := memory(t, 0x1000, 3, 0x2000, 4)
	sges := memory(t, 0x1000, 9<<32|3, 0x2000, 8<<32|4)
	value := memory(t, 0x1122334455667788)
	big := uint64(binary.NativeEndian.Uint32([]byte{0, 0, 0x12, 0x34})) // as in the message
	const high = 0xabcd << 32                                           // what a register may have above 32 bits
	for _, test := range []struct {
		name string
		args [5]uint64 // behind the QP
		want string
	}{
		{"atomic_cmp_swp", [5]uint64{high | 7, 0x3000, 1, 2}, "opcode=ATOMIC_CMP_AND_SWP, remote_addr=0x3000, rkey=0x7, compare=0x1, swap=0x2"},
		{"atomic_fetch_add", [5]uint64{high | 7, 0x3000, 1}, "opcode=ATOMIC_FETCH_AND_ADD, remote_addr=0x3000, rkey=0x7, add=0x1"},
		{"bind_mw", [5]uint64{address(object), high | 7}, "opcode=BIND_MW, mw=6, rkey=0x7"},
		{"local_inv", [5]uint64{high | 7}, "opcode=LOCAL_INV, invalidate_rkey=0x7"},
		{"rdma_read", [5]uint64{high | 7, 0x3000}, "opcode=RDMA_READ, remote_addr=0x3000, rkey=0x7"},
		{"rdma_write", [5]uint64{high | 7, 0x3000}, "opcode=RDMA_WRITE, remote_addr=0x3000, rkey=0x7"},
		{"rdma_write_imm", [5]uint64{high | 7, 0x3000, big}, "opcode=RDMA_WRITE_WITH_IMM, remote_addr=0x3000, rkey=0x7, imm_data=0x1234"},
		{"send", [5]uint64{}, "opcode=SEND"},
		{"send_imm", [5]uint64{big}, "opcode=SEND_WITH_IMM, imm_data=0x1234"},
		{"send_inv", [5]uint64{high | 7}, "opcode=SEND_WITH_INV, invalidate_rkey=0x7"},
		{"send_tso", [5]uint64{0x3000, 1<<16 | 14, 1<<16 | 1400}, "opcode=TSO, hdr=0x3000, hdr_sz=14, mss=1400"},
		{"atomic_write", [5]uint64{high | 7, 0x3000, address(value)}, "opcode=ATOMIC_WRITE, remote_addr=0x3000, rkey=0x7, atomic_wr=0x1122334455667788"},
		{"flush", [5]uint64{high | 7, 0x3000, 64, 1, 0}, "opcode=FLUSH, remote_addr=0x3000, rkey=0x7, length=64, type=GLOBAL, level=RANGE"},
		{"set_ud_addr", [5]uint64{address(object), high | 17, high | 18}, "opcode=SEND, ah=5, remote_qpn=0x11, remote_qkey=0x12"},
		{"set_xrc_srqn", [5]uint64{high | 17}, "opcode=SEND, remote_srqn=0x11"},
		{"set_inline_data", [5]uint64{0x3000, 12}, "opcode=SEND, length=12, inline=0x3000"},
		{"set_inline_data_list", [5]uint64{2, address(buffers)}, "opcode=SEND, length=7, inline=[{addr=0x1000, length=3}, {addr=0x2000, length=4}]"},
		{"set_sge", [5]uint64{high | 9, 0x1000, high | 3}, "opcode=SEND, length=3, sge=[{addr=0x1000, length=3, lkey=0x9}]"},
		{"set_sge_list", [5]uint64{2, address(sges)}, "opcode=SEND, length=7, sge=[{addr=0x1000, length=3, lkey=0x9}, {addr=0x2000, length=4, lkey=0x8}]"},
	} {
		i := slices.IndexFunc(qpOps, func(op operation) bool { return op.name == "ibv_wr_"+test.name })
		if i < 0 {
			t.Errorf("%s is not traced", test.name)
			continue
		}
		args := [6]uint64{address(qp)}
		copy(args[1:], test.args[:])
		beforeStart(p, th, nil, args)
		if strings.HasPrefix(test.name, "set_") {
			beforeWRSend(p, th, nil, args)
		}
		qpOps[i].before(p, th, nil, args)
		c := p.NewCall(th, tracee.KindData, "ibv_wr_complete")
		beforeComplete(p, th, c, args)
		opcode, more, _ := strings.Cut(test.want, ",")
		if more != "" {
			more = "," + more
		}
		want := "[{wr_id=0x77, " + opcode + ", send_flags=SIGNALED" + more + "}]"
		if v := event.Find(c.Event().Args, "wr"); v == nil || text.Value(v) != want {
			t.Errorf("%s: got %+v, want %s", test.name, c.Event().Args, want)
		}
	}
}

// TestContextOf: each file has its own context.
func TestContextOf(t *testing.T) {
	d := newDataTrace()
	a, b, none := new(tracee.File), new(tracee.File), new(tracee.File)
	d.contexts[1], d.contexts[2] = a, b
	for f, want := range map[*tracee.File]uint64{a: 1, b: 2, none: 0} {
		if got := d.contextOf(f); got != want {
			t.Errorf("context %d, want %d", got, want)
		}
	}
}

// TestPatchRefused: a pointer that points at no code stays as it is, and a probe that can't be
// written is an error.
func TestPatchRefused(t *testing.T) {
	th, p := self(), New(tracee.NewSet())
	d := p.data(th.Proc)
	table := memory(t)
	binary.NativeEndian.PutUint64(table[contextOps[1].offset:], 0x1234)
	code := func(addr uint64) bool { return addr == 0x5678 }
	if err := p.patch(th, address(table), contextOps, code); err != nil || len(d.probes) != 0 || len(d.patched) != 0 {
		t.Errorf("no code: %v, %d probes, %d pointers", err, len(d.probes), len(d.patched))
	}
	binary.NativeEndian.PutUint64(table[contextOps[2].offset:], 0x5678)
	if err := p.patch(th, address(table), contextOps, code); !errors.Is(err, unix.ESRCH) || len(d.probes) != 0 || len(d.patched) != 0 {
		t.Errorf("not traced: %v, %d probes, %d pointers", err, len(d.probes), len(d.patched))
	}
	if to, err := d.probeFor(th.TID, &contextOps[2], 0x5678); to != 0 || !errors.Is(err, unix.ESRCH) {
		t.Errorf("not traced: %#x, %v", to, err)
	}
}

// TestForkedPolls: a child isn't charged with its parent's polls that found nothing.
func TestForkedPolls(t *testing.T) {
	parent, p := self(), New(tracee.NewSet())
	counters := memory(t, 3, 4)
	d := p.data(parent.Proc)
	d.base, d.probes, d.told = address(counters), make([]probe, 2), 5
	child := tracee.NewProcess(os.Getpid())
	p.Forked(parent.Proc, child)
	p.NoteEmpty(child)
	if len(p.Done) != 0 {
		t.Errorf("the child is shown %s", text.Remark(p.Done[0].Event()))
	}
	binary.NativeEndian.PutUint64(counters, 9)
	if n := p.of[child].unreported(child.PID); n != 6 {
		t.Errorf("the child has polled %d times, want 6", n)
	}
	if n := d.unreported(parent.Proc.PID); n != 8 {
		t.Errorf("the parent has polled %d times, want 8", n)
	}
	p.Forked(tracee.NewProcess(1), tracee.NewProcess(2)) // of a process without probes
	if len(p.of) != 2 {
		t.Errorf("%d processes", len(p.of))
	}
}

// TestAttachNoContext: memory that looks like a context, but whose functions are none, is
// not one.
func TestAttachNoContext(t *testing.T) {
	th, p := self(), New(tracee.NewSet())
	const fd = 0x3c5a77e1
	th.Proc.SetFD(fd, &tracee.File{Kind: tracee.FileUverbs})
	like := memory(t)
	binary.NativeEndian.PutUint64(like[8:], 1)
	binary.NativeEndian.PutUint64(like[contextOps[0].offset:], 0x1234)
	binary.NativeEndian.PutUint32(like[contextCmdFD:], fd)
	binary.NativeEndian.PutUint64(like[contextCompat:], ^uint64(0))
	if !contextAt(th.TID, address(like), fd) {
		t.Error("it doesn't look like a context")
	}
	if err := p.Attach(th); err != nil || len(p.data(th.Proc).contexts) != 0 {
		t.Errorf("%d contexts, %v", len(p.data(th.Proc).contexts), err)
	}
}
