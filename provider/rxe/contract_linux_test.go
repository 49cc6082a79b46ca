package rxe

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/syscalltest"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// verbsIoctl are the commands.
var verbsIoctl = syscalltest.Filter{Number: unix.SYS_IOCTL, Arg: 1, Value: uapi.RDMA_VERBS_IOCTL}

// attributes returns the first three attributes of a write command, as the kernel
// reads them.
func attributes(t *testing.T, call uint64) []byte {
	t.Helper()
	b, err := syscalltest.Read(call, 24+3*16)
	if err != nil {
		t.Error(err)
	}
	return b[24:]
}

// Each field of a work request, with values that differ, so that a swap shows.
func TestPutPutsEachFieldInItsPlace(t *testing.T) {
	q := memQP(t, 8)
	put := func(wr provider.SendWR) *uapi.RxeSendWqe {
		t.Helper()
		w := q.sq.sendWQE(q.prod)
		if err := q.put(&wr); err != nil {
			t.Fatal(err)
		}
		return w
	}
	a := put(provider.SendWR{Opcode: uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD, Remote: provider.Remote{Addr: 1, RKey: 2}, Add: 3, Swap: 4, Compare: 5})
	if got, want := *a.Wr.Wr.Atomic(), (uapi.RxeSendWrWrAtomic{RemoteAddr: 1, CompareAdd: 3, Rkey: 2}); got != want {
		t.Errorf("fetch and add: %+v, want %+v", got, want)
	}
	f := put(provider.SendWR{Opcode: uapi.IB_UVERBS_WR_FLUSH, Remote: provider.Remote{Addr: 1, RKey: 2}, FlushLength: 3, FlushType: 4, FlushLevel: 5})
	if got, want := *f.Wr.Wr.Flush(), (uapi.RxeSendWrWrFlush{RemoteAddr: 1, Rkey: 2, Type: 4, Level: 5}); got != want || f.Dma.Length != 3 {
		t.Errorf("flush: %+v of %d, want %+v", got, f.Dma.Length, want)
	}
	mw := window(0x11)
	bind := provider.SendWR{Opcode: uapi.IB_UVERBS_WR_BIND_MW, NewRKey: 0x12, MW: mw, Bind: provider.MWBind{Addr: 0x34}}
	if m := put(bind).Wr.Wr.Mw(); m.MwRkey != 0x11 || m.Rkey != 0x12 || mw.RKey.Load() != 0x12 || mw.Addr.Load() != 0x34 {
		t.Errorf("bind: %+v, then the window has key %#x at %#x", m, mw.RKey.Load(), mw.Addr.Load())
	}
	i := put(provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, Inline: []byte("x"), Flags: uint32(uapi.IB_SEND_SIGNALED)})
	if i.Wr.SendFlags != 2|8 { // IB_SEND_SIGNALED, IB_SEND_INLINE
		t.Errorf("inline: flags %#x, want 0xa", i.Wr.SendFlags)
	}
	q.init.Type = uapi.IB_UVERBS_QPT_UD
	u := put(provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, AH: &provider.AHRef{Number: 7}, RemoteQPN: 8, RemoteQKey: 9})
	if ud := u.Wr.Wr.Ud(); ud.AhNum != 7 || ud.RemoteQpn != 8 || ud.RemoteQkey != 9 {
		t.Errorf("UD: %+v", ud)
	}
}

// Lists and inline data are refused from one more than the queue has room for.
func TestPostBounds(t *testing.T) {
	q := memQP(t, 8)
	send := func(wr provider.SendWR, want error) {
		t.Helper()
		if n, err := q.PostSend([]provider.SendWR{wr}, true); err != want || (n == 1) != (want == nil) {
			t.Errorf("%d pieces, %d bytes inline: %d, %v, want %v", len(wr.SGL), len(wr.Inline), n, err, want)
		}
	}
	send(provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, SGL: make([]provider.SGE, 4)}, nil)
	send(provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, SGL: make([]provider.SGE, 5)}, provider.ErrTooManySGEs)
	send(provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, Inline: make([]byte, 64)}, nil)
	send(provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, Inline: make([]byte, 65)}, provider.ErrInlineTooBig)
	recv := func(want error, lengths ...uint32) {
		t.Helper()
		var wr provider.RecvWR
		for _, n := range lengths {
			wr.SGL = append(wr.SGL, provider.SGE{Length: n})
		}
		if n, err := q.PostRecv([]provider.RecvWR{wr}); err != want || (n == 1) != (want == nil) {
			t.Errorf("pieces of %v: %d, %v, want %v", lengths, n, err, want)
		}
	}
	recv(nil, 1, 2, 3, 4)
	recv(provider.ErrTooManySGEs, 1, 2, 3, 4, 5)
	recv(nil, 1<<30, 1<<30-1)
	recv(provider.ErrRecvTooLong, 1<<30, 1<<30)
	recv(provider.ErrRecvTooLong, 1<<31)
	recv(provider.ErrRecvTooLong, 1<<31, 1<<31, 1)
	if _, err := new(qp).PostRecv(make([]provider.RecvWR, 1)); err != provider.ErrNoQueue {
		t.Errorf("without a receive queue: %v", err)
	}
}

// An element holds the list or the inline data, whichever is larger, to the byte.
func TestElementSizes(t *testing.T) {
	q := memRing(t, 4, 512)
	for _, n := range []uintptr{511, 512, 513} {
		if _, err := newQueue(q.mem, n); (err == nil) != (n <= 512) {
			t.Errorf("%d bytes in elements of 512: %v", n, err)
		}
	}
}

// The doorbell of an adopted QP names its handle. A QP with an SRQ maps no receive queue.
func TestAdoptQP(t *testing.T) {
	const ring = 1 << 16
	for _, srq := range []bool{false, true} {
		t.Run(fmt.Sprint("SRQ ", srq), func(t *testing.T) {
			f, mem := kernelFile(t, "goverbs-qp", 2*ring)
			lay(mem, 9, 3, 2, 2)
			lay(mem[ring:], 9, 3, 1, 1)
			resp := uapi.RxeCreateQpResp{SqMi: uapi.Mminfo{Size: 8192}, RqMi: uapi.Mminfo{Offset: ring, Size: 8192}}
			q := &qp{file: f, resp: &resp}
			want := 2
			if srq {
				q.init.SRQ, want = new(nobodysSRQ), 1
			}
			if err := q.Adopt(0x1122, 0x3344, &uapi.IbUverbsQpCap{MaxSendSge: 2, MaxRecvSge: 3, MaxInlineData: 64}); err != nil {
				t.Fatal(err)
			}
			if n := mappings(t, "goverbs-qp"); n != want {
				t.Errorf("%d rings are mapped", n)
			}
			if q.prod != 2 || !srq && q.rq.prod != 1 || q.Moved(uapi.IB_QPS_RTS) != 0x3344 {
				t.Errorf("we are at %d, %d, as QP %#x", q.prod, q.rq.prod, q.Moved(uapi.IB_QPS_RTS))
			}
			if n, err := q.PostRecv(make([]provider.RecvWR, 1)); srq && err != provider.ErrNoQueue || !srq && n != 1 {
				t.Errorf("post receive: %d, %v", n, err)
			}
			if handle := binary.NativeEndian.Uint32(q.bell.Bytes()[16:]); handle != 0x1122 {
				t.Errorf("the doorbell is for %#x", handle)
			}
			q.Release()
			if n := mappings(t, "goverbs-qp"); n != 0 {
				t.Errorf("%d rings stay mapped", n)
			}
		})
	}
}

// A QP whose elements are too short for its SGEs, or for its inline data, is refused.
func TestShortElements(t *testing.T) {
	f, mem := kernelFile(t, "goverbs-short", 1<<16)
	lay(mem, 9, 3, 2, 2)
	for _, tt := range []struct {
		sges, inline uint32
		ok           bool
	}{
		{(512 - uint32(sendWQESize)) / 16, 0, true}, {(512-uint32(sendWQESize))/16 + 1, 0, false},
		{1, 512 - uint32(sendWQESize), true}, {1, 513 - uint32(sendWQESize), false},
	} {
		q := &qp{file: f, resp: &uapi.RxeCreateQpResp{SqMi: uapi.Mminfo{Size: 8192}}}
		q.init.SRQ = new(nobodysSRQ)
		if err := q.Adopt(1, 2, &uapi.IbUverbsQpCap{MaxSendSge: tt.sges, MaxInlineData: tt.inline}); (err == nil) != tt.ok {
			t.Errorf("%d SGEs and %d bytes inline in an element of 512: %v", tt.sges, tt.inline, err)
		}
		q.Release()
	}
	if n := mappings(t, "goverbs-short"); n != 0 {
		t.Errorf("%d rings stay mapped", n)
	}
}

// The memory of the doorbell's command is the collector's once the QP is released.
func TestReleaseDoorbell(t *testing.T) {
	f, mem := kernelFile(t, "goverbs-bell", 1<<16)
	lay(mem, 9, 3, 2, 2)
	gone := make(chan struct{})
	func() {
		q := &qp{file: f, resp: &uapi.RxeCreateQpResp{SqMi: uapi.Mminfo{Size: 8192}}}
		q.init.SRQ = new(nobodysSRQ)
		if err := q.Adopt(1, 2, &uapi.IbUverbsQpCap{MaxSendSge: 1}); err != nil {
			t.Fatal(err)
		}
		runtime.AddCleanup(unsafe.SliceData(q.bell.Bytes()), func(gone chan struct{}) { close(gone) }, gone)
		q.Release()
	}()
	for range 1000 {
		runtime.GC()
		select {
		case <-gone:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Error("it stays pinned")
}

type nobodysSRQ struct{ provider.SRQ }

// A resized CQ is polled only in its new ring; CQEs of another kind are refused.
func TestResizeCQ(t *testing.T) {
	const ring = 1 << 16
	f, mem := kernelFile(t, "goverbs-cq", 2*ring)
	lay(mem, 6, 3, 2, 1)
	lay(mem[ring:], 6, 7, 1, 0)
	binary.NativeEndian.PutUint64(mem[ring+atElements:], 42)
	c := &cq{file: f, resp: &uapi.Mminfo{Size: 4096}}
	if err := c.Adopt(5); err != nil {
		t.Fatal(err)
	}
	c.resp = &uapi.Mminfo{Offset: ring, Size: 4096}
	if err := c.Remap(); err != nil {
		t.Fatal(err)
	}
	wc := make([]provider.WC, 4)
	if n, err := c.Poll(wc); n != 1 || err != nil || wc[0].WRID != 42 {
		t.Errorf("%d completions, %v, of %d", n, err, wc[0].WRID)
	}
	if n := mappings(t, "goverbs-cq"); n != 1 {
		t.Errorf("%d rings are mapped", n)
	}
	c.Release()
	c.Release()
	if n := mappings(t, "goverbs-cq"); n != 0 {
		t.Errorf("%d rings stay mapped", n)
	}
	if _, ok := any(c).(provider.ExPoller); ok {
		t.Error("its completions have more fields")
	}
	for _, init := range []provider.CQInit{{CQESize: 64}, {Compression: 1}} {
		if _, err := new(context).NewCQ(ioctl.NewCqCreate(), &init); err != errPlainCQ {
			t.Errorf("%+v: %v", init, err)
		}
	}
}

// Each arming command names the CQ and the kind of completions. The bytes are those of
// struct ib_uverbs_cmd_hdr and struct ib_uverbs_req_notify_cq.
func TestArmRequest(t *testing.T) {
	f, err := ioctl.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := &cq{file: f, handle: 0x11223344}
	var got [][4]uint32
	syscalltest.Answer(t, syscalltest.Filter{Number: unix.SYS_WRITE, Arg: 0, Value: uint32(f.FD())}, func(args [6]uint64) unix.Errno {
		b, err := syscalltest.Read(args[1], int(args[2]))
		if err != nil || len(b) != 16 {
			t.Errorf("%d bytes, %v", len(b), err)
			return unix.EINVAL
		}
		var words [4]uint32
		for i := range words {
			words[i] = binary.NativeEndian.Uint32(b[4*i:])
		}
		words[1] = uint32(binary.NativeEndian.Uint16(b[4:])) | uint32(binary.NativeEndian.Uint16(b[6:]))<<16
		got = append(got, words)
		return 0
	}, func() {
		for _, solicitedOnly := range []bool{false, true, true, false} {
			if err := c.Arm(solicitedOnly, 0); err != nil {
				t.Error(err)
			}
		}
	}, func() {
		next, solicited := [4]uint32{23, 4, 0x11223344, 0}, [4]uint32{23, 4, 0x11223344, 1} // REQ_NOTIFY_CQ, 4 words in
		if want := [][4]uint32{next, solicited, solicited, next}; !slices.Equal(got, want) {
			t.Errorf("armed with %#x, want %#x", got, want)
		}
	})
}

// The description of an SRQ's new ring goes through a pointer in the request.
func TestModifySRQ(t *testing.T) {
	cmd := ioctl.NewWriteModifySrq()
	defer cmd.Release()
	s := new(srq)
	if err := s.Modify(cmd); err != nil {
		t.Fatal(err)
	}
	f, err := ioctl.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syscalltest.Answer(t, verbsIoctl, func(args [6]uint64) unix.Errno {
		// UHW_IN is the third: mmap_info_addr, where a struct mminfo goes.
		at := binary.NativeEndian.Uint64(attributes(t, args[2])[2*16+8:])
		if err := syscalltest.Write(at, []byte{0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0}); err != nil {
			t.Error(err)
		}
		return 0
	}, func() {
		if err := cmd.Run(f); err != nil {
			t.Fatal(err)
		}
	}, func() {
		if want := (uapi.Mminfo{Offset: 0x1000, Size: 0x2000}); *s.mi != want {
			t.Errorf("the new ring is %+v, want %+v", *s.mi, want)
		}
	})
}

// TestResizedUnmapped: a resized queue that can't be mapped returns an error, and doesn't use the
// kernel's former ring. Another resize repairs it.
func TestResizedUnmapped(t *testing.T) {
	f, ring := kernelFile(t, "goverbs-unmapped", 1<<16)
	good, bad := uapi.Mminfo{Size: 4096}, uapi.Mminfo{}
	c, s := &cq{file: f}, &srq{file: f}
	s.rq.maxSGE = 1
	defer c.Release()
	defer s.Release()
	for _, mi := range []uapi.Mminfo{good, bad, good, bad, bad, good} {
		lay(ring, 6, 1, 1, 0) // one completion
		c.resp, s.mi = &mi, &mi
		if err := c.Remap(); (err == nil) != (mi == good) {
			t.Errorf("%+v: %v", mi, err)
		}
		n, err := c.Poll(make([]provider.WC, 2))
		if mi == good && (n != 1 || err != nil) || mi == bad && (n != 0 || err != errUnmapped) {
			t.Errorf("%+v: polled %d, %v", mi, n, err)
		}
		lay(ring, 6, 1, 0, 0)
		if err := s.Remap(); (err == nil) != (mi == good) {
			t.Errorf("%+v: %v", mi, err)
		}
		n, err = s.PostRecv([]provider.RecvWR{{WRID: 1}})
		if mi == good && (n != 1 || err != nil) || mi == bad && (n != 0 || err != errUnmapped) {
			t.Errorf("%+v: posted %d, %v", mi, n, err)
		}
	}
}
