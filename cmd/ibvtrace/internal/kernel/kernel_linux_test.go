//go:build amd64 || arm64

package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/bpf"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

const (
	fileAddr  = 0xffff_8880_0000_1000
	inodeAddr = 0xffff_8880_0000_2000
	callAddr  = 0x7f00_0000_1000 // of the ioctl's memory
)

// aFile puts an open device into the kernel's memory.
func (m *machine) aFile(dev uint32) {
	file, inode := make([]byte, 64), make([]byte, 128)
	binary.NativeEndian.PutUint64(file[32:], inodeAddr)
	binary.NativeEndian.PutUint32(inode[76:], dev)
	m.kernel = append(m.kernel, area{fileAddr, file}, area{inodeAddr, inode})
}

type attr struct {
	id, n, flags uint16
	data         uint64
}

// anIoctl puts an ioctl's header and attributes into the process's memory.
func (m *machine) anIoctl(count int, attrs ...attr) []byte {
	b := make([]byte, headerBytes)
	put := func(v uint16) { b = binary.NativeEndian.AppendUint16(b, v) }
	b = b[:0]
	for _, v := range []uint16{uint16(headerBytes + attrBytes*count), uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE, uint16(count)} {
		put(v)
	}
	b = append(b, make([]byte, 8)...)
	b = binary.NativeEndian.AppendUint64(b, uint64(uapi.RDMA_DRIVER_RXE))
	for _, a := range attrs {
		put(a.id)
		put(a.n)
		put(a.flags)
		put(0)
		b = binary.NativeEndian.AppendUint64(b, a.data)
	}
	m.user = append(m.user, area{callAddr, b})
	return b
}

func (m *machine) enterIoctl(s *source) {
	m.t.Helper()
	m.syscall(unix.SYS_IOCTL, 7, uapi.RDMA_VERBS_IOCTL, callAddr)
	m.enter(s, "ib_uverbs_ioctl", fileAddr, uapi.RDMA_VERBS_IOCTL, callAddr)
}

func (m *machine) returnIoctl(s *source, result int64) {
	m.t.Helper()
	m.leave(s, "ib_uverbs_ioctl", result, fileAddr, uapi.RDMA_VERBS_IOCTL, callAddr)
}

const (
	capAddr = 0x7f00_0000_5000
	qpnAddr = 0x7f00_0000_6000
)

// TestVerb sees the creation of a QP, and decodes it from the records.
func TestVerb(t *testing.T) { both(t, seeVerb) }

func seeVerb(t *testing.T) {
	m, s := newMachine(t), testSource()
	m.watch(m.pid)
	m.aFile(231<<20 | 192)
	capability := uapi.IbUverbsQpCap{MaxSendWr: 1, MaxRecvWr: 2, MaxSendSge: 3, MaxRecvSge: 4, MaxInlineData: 5}
	n := int(unsafe.Sizeof(capability))
	call := m.anIoctl(4,
		attr{uapi.UVERBS_ATTR_CREATE_QP_HANDLE, 0, 1, 0},
		attr{uapi.UVERBS_ATTR_CREATE_QP_CAP, uint16(n), 1, capAddr},
		attr{uapi.UVERBS_ATTR_CREATE_QP_TYPE, 8, 1, uint64(uapi.IB_UVERBS_QPT_RC)},
		attr{uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, 4, 1, qpnAddr})
	number := make([]byte, 4)
	m.user = append(m.user, area{capAddr, bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&capability)), n))}, area{qpnAddr, number})
	m.enterIoctl(s)
	r := m.took()
	if r.Kind != Ioctl || r.Returns || r.Cut || r.PID != 100 || r.TID != 101 || r.Comm != "server" || r.FD != 7 ||
		r.File != fileAddr || r.Device != unix.Mkdev(231, 192) || r.Args[2] != callAddr || !r.Time.Equal(time.Unix(1005, 0)) {
		t.Fatalf("%+v", r)
	}
	c, err := ioctl.Decode(r.Args[2], r.Read)
	if err != nil || c.Err != nil || c.Verb() != "create_qp" {
		t.Fatalf("%+v, %v", c, err)
	}
	if in := c.Attrs[1].In; in == nil || in.Err != nil || in.Fields[0].Value.Num != 1 {
		t.Errorf("capabilities: %+v", in)
	}
	if in := c.Attrs[2].In; in == nil || in.Num != uint64(uapi.IB_UVERBS_QPT_RC) {
		t.Errorf("type: %+v", in)
	}
	// The kernel writes the results. The program changes what it can meanwhile.
	binary.NativeEndian.PutUint64(call[headerBytes+attrData:], 9)
	binary.NativeEndian.PutUint32(number, 0x11)
	m.user[1].b = nil
	m.returnIoctl(s, 0)
	r = m.took()
	if !r.Returns || r.Result != 0 || r.TID != 101 {
		t.Fatalf("%+v", r)
	}
	c.DecodeResults(r.Read)
	if v := c.Attrs[0].Out; v == nil || v.Num != 9 {
		t.Errorf("the QP is %+v", v)
	}
	if v := c.Attrs[3].Out; v == nil || v.Err != nil || v.Num != 0x11 {
		t.Errorf("the QP's number is %+v", v)
	}
	m.returnIoctl(s, -int64(unix.EINVAL))
	if r = m.took(); r.Result != -int64(unix.EINVAL) || len(r.pieces) != 0 {
		t.Errorf("a failure: %+v", r)
	}
}

// TestFilter: only the calls of processes that are watched are reported, and only verbs.
func TestFilter(t *testing.T) { both(t, seeFilter) }

func seeFilter(t *testing.T) {
	m, s := newMachine(t), testSource()
	m.aFile(1)
	m.anIoctl(0)
	m.enterIoctl(s)
	m.returnIoctl(s, 0)
	m.none("another process")
	m.watch(m.pid)
	m.syscall(unix.SYS_IOCTL, 7, 1, callAddr)
	m.enter(s, "ib_uverbs_ioctl", fileAddr, 1, callAddr)
	m.leave(s, "ib_uverbs_ioctl", 0, fileAddr, 1, callAddr)
	m.none("another ioctl")
	m.enterIoctl(s)
	m.took()

	m, s = newMachine(t), testSource()
	s.all = true
	m.aFile(1)
	m.anIoctl(0)
	m.returnIoctl(s, 0)
	m.none("a return without an entry")
	m.enterIoctl(s)
	m.took()
	if m.processes.b[100] == 0 {
		t.Error("the process is not watched")
	}
	m.pid = uint32(s.self)
	m.enterIoctl(s)
	m.none("ibvtrace itself")

	m, s = newMachine(t), testSource()
	s.all, s.cgroup = true, &cgroup{level: 2, id: 1<<40 + 44}
	m.aFile(1)
	m.anIoctl(0)
	m.cgroupID = 1<<40 + 41 // and 2 for the level
	m.enterIoctl(s)
	m.none("a process of another cgroup")
	m.cgroupID++
	m.enterIoctl(s)
	m.took()
}

// TestLies: headers and attributes that contradict themselves or point nowhere.
func TestLies(t *testing.T) { both(t, seeLies) }

func seeLies(t *testing.T) {
	seen := func(count int, attrs ...attr) (*Record, *machine) {
		t.Helper()
		m, s := newMachine(t), testSource()
		m.watch(m.pid)
		m.aFile(1)
		m.anIoctl(count, attrs...)
		m.user = append(m.user, area{capAddr, bytes.Repeat([]byte{7}, 1<<16)})
		for i := range m.buffer.b {
			m.buffer.b[i] = 0xee // of earlier records
		}
		m.enterIoctl(s)
		return m.took(), m
	}
	read := func(r *Record, addr uint64, n int) error {
		b := make([]byte, n)
		err := r.Read(addr, b)
		if err == nil && addr >= capAddr && !bytes.Equal(b, bytes.Repeat([]byte{7}, n)) {
			t.Errorf("read %x", b)
		}
		return err
	}

	r, m := seen(math.MaxUint16)
	if !r.Cut || read(r, callAddr, headerBytes) != nil || read(r, callAddr+headerBytes, attrBytes) == nil {
		t.Errorf("more attributes than there are: %+v", r)
	}
	m.user = nil
	m.enterIoctl(testSource())
	if r = m.took(); read(r, callAddr, headerBytes) != unix.EFAULT {
		t.Error("a header that can't be read")
	}
	r, _ = seen(1, attr{1, maxPiece + 1, 0, capAddr})
	if read(r, capAddr, maxPiece) != nil || !errors.Is(read(r, capAddr, maxPiece+1), ErrCut) {
		t.Error("a long attribute")
	}
	if read(r, capAddr, maxPiece+2) != unix.EFAULT {
		t.Error("more than was asked for is cut")
	}
	r, _ = seen(2, attr{1, 100, 0, 0x1234}, attr{2, 100, 0, capAddr})
	if read(r, 0x1234, 100) != unix.EFAULT || read(r, capAddr, 100) != nil || read(r, capAddr+50, 50) != nil || read(r, capAddr+51, 50) == nil {
		t.Error("an attribute that points nowhere, before another")
	}
	r, _ = seen(1, attr{1, 100, 0, math.MaxUint64 - 50})
	if read(r, math.MaxUint64-50, 100) != unix.EFAULT {
		t.Error("an attribute around the end of memory")
	}
	for _, n := range []uint16{inWord, inWord + 1} {
		r, _ = seen(1, attr{1, n, 0, capAddr})
		if got := read(r, capAddr, int(n)) == nil; got != (n > inWord) {
			t.Errorf("%d bytes: copied is %t", n, got)
		}
	}
	many := slices.Repeat([]attr{{1, 4096, 0, capAddr}}, maxAttrs)
	r, _ = seen(maxAttrs, many...)
	if !r.Cut || len(r.pieces) < 4 || read(r, capAddr, 4096) != nil || !errors.Is(read(r, 0x99, 1), ErrCut) {
		t.Errorf("much data: cut is %t, %d pieces", r.Cut, len(r.pieces))
	}
	many = slices.Repeat([]attr{{1, 9, 0, capAddr}}, maxAttrs+1)
	r, _ = seen(maxAttrs, many[:maxAttrs]...)
	if r.Cut || len(r.pieces) != maxAttrs+2 {
		t.Errorf("%d attributes: cut is %t, %d pieces", maxAttrs, r.Cut, len(r.pieces))
	}
	r, _ = seen(maxAttrs+1, many...)
	if !r.Cut || len(r.pieces) != maxAttrs+2 {
		t.Errorf("%d attributes: cut is %t, %d pieces", maxAttrs+1, r.Cut, len(r.pieces))
	}
}

// TestLost: what has no room is counted.
func TestLost(t *testing.T) { both(t, seeLost) }

func seeLost(t *testing.T) {
	m, s := newMachine(t), testSource()
	s.all, m.noRoom = true, true
	m.aFile(1)
	m.anIoctl(0)
	m.enterIoctl(s)
	m.none("a record without room")
	if n := binary.NativeEndian.Uint64(m.lost.b); n != 1 {
		t.Errorf("%d lost, want a record", n)
	}
}

const taskAddr, signalAddr = 0xffff_8880_0000_8000, 0xffff_8880_0000_9000

func (m *machine) aTask(tgid, live, code uint32) []byte {
	task, signal := make([]byte, 2048), make([]byte, 64)
	binary.NativeEndian.PutUint32(task[1268:], tgid)
	binary.NativeEndian.PutUint32(task[1164:], code)
	binary.NativeEndian.PutUint64(task[1848:], signalAddr)
	binary.NativeEndian.PutUint32(signal[4:], live)
	m.kernel = []area{m.kernel[0], {taskAddr, task}, {signalAddr, signal}}
	return binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, taskAddr), taskAddr)
}

func TestForksAndExits(t *testing.T) {
	m, s := newMachine(t), testSource()
	m.run(s.forks(), m.aTask(200, 1, 0))
	m.none("the fork of another process")
	m.watch(100)
	m.run(s.forks(), m.aTask(100, 1, 0))
	m.none("a new thread")
	m.run(s.forks(), m.aTask(200, 1, 0))
	if r := m.took(); r.Kind != Fork || r.PID != 100 || r.Result != 200 || m.processes.b[200] == 0 {
		t.Errorf("%+v", r)
	}
	m.pid, m.tid = 200, 201
	m.run(s.exits(), m.aTask(200, 1, 0))
	m.none("the end of a thread")
	m.run(s.exits(), m.aTask(200, 0, 3<<8))
	if r := m.took(); r.Kind != Exit || r.PID != 200 || unix.WaitStatus(r.Result).ExitStatus() != 3 || m.processes.b[200] != 0 {
		t.Errorf("%+v", r)
	}
	m.run(s.exits(), m.aTask(200, 0, 3<<8))
	m.none("the end of another process")
}

const commandAddr, responseAddr = 0x7f00_0001_0000, 0x7f00_0002_0000

// TestCommand sees commands to the connection manager.
func TestCommand(t *testing.T) { both(t, seeCommand) }

func seeCommand(t *testing.T) {
	for _, x := range []struct {
		command  uint32
		words    []uint64
		response bool
	}{
		{uapi.RDMA_USER_CM_CMD_CREATE_ID, []uint64{0x1111, responseAddr, 0x0106}, true},
		{uapi.RDMA_USER_CM_CMD_GET_EVENT, []uint64{responseAddr}, true},
		{uapi.RDMA_USER_CM_CMD_LISTEN, []uint64{5}, false},
		{uapi.RDMA_USER_CM_CMD_LISTEN, nil, false},
	} {
		m, s := newMachine(t), testSource()
		m.watch(m.pid)
		m.aFile(10<<20 | 56)
		b := binary.NativeEndian.AppendUint32(nil, x.command)
		b = append(b, 0, 0, 4, 0) // 4 bytes of response
		for _, w := range x.words {
			b = binary.NativeEndian.AppendUint64(b, w)
		}
		m.user = []area{{commandAddr, b}, {responseAddr, []byte{1, 2, 3, 4}}}
		m.syscall(unix.SYS_WRITE, 5, commandAddr, uint64(len(b)))
		m.enter(s, "ucma_write", fileAddr, commandAddr, uint64(len(b)))
		r := m.took()
		got := make([]byte, len(b))
		if r.Kind != Command || r.FD != 5 || r.Args[1] != commandAddr || r.Args[2] != uint64(len(b)) || r.Read(commandAddr, got) != nil || !bytes.Equal(got, b) {
			t.Errorf("command %d: %+v", x.command, r)
		}
		m.leave(s, "ucma_write", int64(len(b)), fileAddr, commandAddr, uint64(len(b)))
		r = m.took()
		got = make([]byte, 4)
		if err := r.Read(responseAddr, got); (err == nil) != x.response || x.response && !bytes.Equal(got, []byte{1, 2, 3, 4}) {
			t.Errorf("command %d: the response is %v, %v", x.command, got, err)
		}
	}
}

// TestEvents sees reads of events, mappings, and files that begin and end.
func TestEvents(t *testing.T) { both(t, seeEvents) }

func seeEvents(t *testing.T) {
	m, s := newMachine(t), testSource()
	m.watch(m.pid)
	m.aFile(1<<20 | 2)
	m.user = []area{{commandAddr, []byte("16 bytes of event")}}
	m.syscall(unix.SYS_READ, 9, commandAddr, 64)
	m.enter(s, "ib_uverbs_async_event_read", fileAddr, commandAddr, 64)
	if r := m.took(); r.Kind != Async || r.FD != 9 || r.Args[1] != commandAddr || r.Args[2] != 64 {
		t.Errorf("%+v", r)
	}
	m.leave(s, "ib_uverbs_async_event_read", 16, fileAddr, commandAddr, 64)
	got := make([]byte, 16)
	if r := m.took(); r.Result != 16 || r.Read(commandAddr, got) != nil || string(got) != "16 bytes of even" {
		t.Errorf("%+v, %q", r, got)
	}

	const vma = 0xffff_8880_0001_0000
	area1 := make([]byte, 64)
	binary.NativeEndian.PutUint64(area1[8:], 0x7f12_0000_0000)
	m.kernel = append(m.kernel, area{vma, area1})
	m.syscall(unix.SYS_MMAP, 0, 4096, 3, 1, 7, 0x1000)
	m.enter(s, "ib_uverbs_mmap", fileAddr, vma)
	if r := m.took(); r.Kind != Map || r.FD != 7 || r.Args[5] != 0x1000 || r.Addr != 0x7f12_0000_0000 {
		t.Errorf("%+v", r)
	}
	m.leave(s, "ib_uverbs_mmap", 0x1234<<32|int64(uint32(0xffff_ffea)), fileAddr, vma)
	if r := m.took(); r.Result != -int64(unix.EINVAL) {
		t.Errorf("%+v", r)
	}

	m.syscall(unix.SYS_OPENAT, 0, 1, 2, 3)
	m.enter(s, "ib_uverbs_open", inodeAddr, fileAddr)
	if r := m.took(); r.Kind != Open || r.FD != -1 || r.File != fileAddr || r.Device != unix.Mkdev(1, 2) {
		t.Errorf("%+v", r)
	}
	m.pid = 555 // any process may close it
	m.syscall(unix.SYS_CLOSE, 7)
	m.enter(s, "ib_uverbs_close", inodeAddr, fileAddr)
	if r := m.took(); r.Kind != Release || r.FD != 7 || r.PID != 555 || r.File != fileAddr {
		t.Errorf("%+v", r)
	}
}

// TestOtherCalls: a function that was called by another system call has no descriptor.
func TestOtherCalls(t *testing.T) { both(t, seeOtherCalls) }

func seeOtherCalls(t *testing.T) {
	m, s := newMachine(t), testSource()
	m.watch(m.pid)
	m.aFile(1)
	m.anIoctl(0)
	m.syscall(4242, 7, 8, 9)
	m.enter(s, "ib_uverbs_ioctl", fileAddr, uapi.RDMA_VERBS_IOCTL, callAddr)
	if r := m.took(); r.FD != -1 || r.Args[2] != callAddr || r.Read(callAddr, make([]byte, headerBytes)) != nil {
		t.Errorf("%+v", r)
	}
}

// TestVerifier loads all programs for kprobes, as far as this user may. TestSeenInKernel loads and attaches
// them on each kernel of the rig.
func TestVerifier(t *testing.T) {
	w := &Watcher{source: source{self: 1}}
	defer w.Close()
	if err := w.makeMaps(); errors.Is(err, unix.EPERM) {
		t.Skip("this user may not load programs")
	} else if err != nil {
		t.Fatal(err)
	}
	info, err := os.ReadFile(btfFile)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("this kernel has no type information")
	} else if err != nil {
		t.Fatal(err)
	}
	types, err := bpf.ParseBTF(info)
	if err != nil {
		t.Fatal(err)
	}
	if w.offsets, err = types.Offsets(fields...); err != nil {
		t.Fatal(err)
	}
	load := func(kind int, name string, a *bpf.Asm) {
		t.Helper()
		if _, err := w.load(kind, name, a); err != nil {
			t.Errorf("%+v: %v", w.source, err)
		}
	}
	for _, whose := range []source{{}, {all: true}, {all: true, cgroup: &cgroup{level: 1, id: 1 << 40}}} {
		w.all, w.cgroup = whose.all, whose.cgroup
		load(bpf.RawTracepoint, "process_fork", w.forks())
		load(bpf.RawTracepoint, "process_exit", w.exits())
		for i := range points {
			x := &points[i]
			load(bpf.Kprobe, "e_"+x.function, w.enters(x, false))
			if x.returns != nil {
				load(bpf.Kprobe, "r_"+x.function, w.returned(x, false))
			}
		}
	}
	if n := w.Lost(); n != 0 {
		t.Errorf("%d records are lost", n)
	}
	if err := w.Add(1); err != nil {
		t.Error(err)
	}
	if err := w.Wake(); err != nil {
		t.Error(err)
	}
	none := func(r *Record) { t.Errorf("a record: %+v", r) }
	if err := w.Wait(none); err != nil { // returns, as Wake was called
		t.Error(err)
	}
	w.Detach(none)
}

// TestNoCgroup: the error names the folder.
func TestNoCgroup(t *testing.T) {
	if _, err := cgroupAt("/nosuch"); err == nil || !strings.Contains(err.Error(), "the cgroup /nosuch: ") {
		t.Error(err)
	}
}

// FuzzParse: records of any bytes are refused, or can be read.
func FuzzParse(f *testing.F) {
	f.Add(make([]byte, recordBytes))
	f.Add(append(binary.NativeEndian.AppendUint32(nil, uint32(Ioctl)), make([]byte, recordBytes+pieceBytes)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parse(b, time.Unix(0, 0))
		if err != nil {
			return
		}
		for _, p := range r.pieces {
			if r.Read(p.addr, make([]byte, len(p.b))) != nil && len(p.b) > 0 {
				t.Errorf("%d bytes at %#x can't be read", len(p.b), p.addr)
			}
		}
		ioctl.Decode(r.Args[2], r.Read)
	})
}

// maxInstructions is the limit of kernels before 5.2, far below that of others.
const maxInstructions = 4096

// TestAssembled assembles all programs.
func TestAssembled(t *testing.T) { both(t, seeAssembled) }

func seeAssembled(t *testing.T) {
	s := testSource()
	all := map[string]*bpf.Asm{"forks": s.forks(), "exits": s.exits()}
	for i := range points {
		x := &points[i]
		all["enters "+x.function] = s.enters(x, x.traced())
		if x.returns != nil {
			all["returns "+x.function] = s.returned(x, x.traced())
		}
	}
	for name, a := range all {
		code, err := a.Program()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := len(code) / 8; n > maxInstructions {
			t.Errorf("%s has %d instructions", name, n)
		}
	}
}
