package siw

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// memQueue makes a queue as the kernel would map it, in ordinary memory.
func memQueue[E any](n int, tail uintptr) queue[E] {
	var e E
	words := make([]uint64, (uintptr(n)*unsafe.Sizeof(e)+tail)/8)
	return queue[E]{unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8), uint32(n - 1)}
}

func memCQ(n int) *cq {
	c := &cq{queue: memQueue[uapi.SiwCqe](n, unsafe.Sizeof(uapi.SiwCqCtrl{}))}
	c.ctrl = (*uapi.SiwCqCtrl)(c.after())
	return c
}

// A bell counts the bytes written to it.
type bell struct {
	t    testing.TB
	read *os.File
}

const bellLen = 32 // of an empty POST_SEND

// rung returns the number of doorbells since its last call.
func (b bell) rung() int {
	b.t.Helper()
	buf := make([]byte, 1<<16)
	n, err := unix.Read(int(b.read.Fd()), buf)
	if err == unix.EAGAIN {
		return 0
	}
	if err != nil || n%bellLen != 0 {
		b.t.Fatalf("the doorbell's file has %d bytes, %v", n, err)
	}
	return n / bellLen
}

// memQP is a QP over queues in memory, whose doorbell is a pipe.
func memQP(t testing.TB, n int) (*qp, bell) {
	t.Helper()
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	f := ioctl.NewFile(ends[1])
	read := os.NewFile(uintptr(ends[0]), "doorbell")
	t.Cleanup(func() { f.Close(); read.Close() })
	q := &qp{file: f, number: 7, maxSGE: 4, words: make([]uint32, n)}
	q.sq = memQueue[uapi.SiwSqe](n, 0)
	q.rq.queue, q.rq.maxSGE = memQueue[uapi.SiwRqe](n, 0), 4
	q.bell.Init(0)
	t.Cleanup(q.bell.Release)
	return q, bell{t, read}
}

// clearFlags clears 16 bits of a request, as the kernel does when it takes the request.
func clearFlags[E any](q *queue[E], position uint32) {
	binary.LittleEndian.PutUint16(unsafe.Slice((*byte)(unsafe.Pointer(q.elem(position))), 16)[8:], 0)
}

func raw[E any](e *E) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(e)), unsafe.Sizeof(*e)) }

// The requests' bytes have the layout of siw-abi.h.
func TestRequests(t *testing.T) {
	const signaled, solicited, fence = uint32(uapi.IB_SEND_SIGNALED), uint32(uapi.IB_SEND_SOLICITED), uint32(uapi.IB_SEND_FENCE)
	sgl := []provider.SGE{{Addr: 0x1000, Length: 100, LKey: 7}, {Addr: 0x2000, Length: 28, LKey: 8}}
	remote := provider.Remote{Addr: 0x3000, RKey: 9}
	for _, test := range []struct {
		name string
		wr   provider.SendWR
		want uapi.SiwSqe
	}{
		{"send", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, SGL: sgl, Flags: signaled},
			uapi.SiwSqe{Flags: 1 | 4, NumSge: 2, Opcode: 3, Sge: [6]uapi.SiwSge{{Laddr: 0x1000, Length: 100, Lkey: 7}, {Laddr: 0x2000, Length: 28, Lkey: 8}}}},
		{"solicited and fenced, without data", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, Flags: solicited | fence},
			uapi.SiwSqe{Flags: 1 | 8 | 16, Opcode: 3}},
		{"send with invalidation", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND_WITH_INV, SGL: sgl[:1], InvalidateRKey: 0x55},
			uapi.SiwSqe{Flags: 1, NumSge: 1, Opcode: 5, Rkey: 0x55, Sge: [6]uapi.SiwSge{{Laddr: 0x1000, Length: 100, Lkey: 7}}}},
		{"write", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE, SGL: sgl[:1], Remote: remote},
			uapi.SiwSqe{Flags: 1, NumSge: 1, Opcode: 0, Rkey: 9, Raddr: 0x3000, Sge: [6]uapi.SiwSge{{Laddr: 0x1000, Length: 100, Lkey: 7}}}},
		{"read", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_READ, SGL: sgl[:1], Remote: remote},
			uapi.SiwSqe{Flags: 1, NumSge: 1, Opcode: 1, Rkey: 9, Raddr: 0x3000, Sge: [6]uapi.SiwSge{{Laddr: 0x1000, Length: 100, Lkey: 7}}}},
		{"empty read", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_READ, Remote: remote},
			uapi.SiwSqe{Flags: 1, NumSge: 1, Opcode: 1, Rkey: 9, Raddr: 0x3000}},
		{"empty pieces", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, SGL: []provider.SGE{{Addr: 1, LKey: 2}, sgl[0], {Addr: 3, LKey: 4}}},
			uapi.SiwSqe{Flags: 1, NumSge: 1, Opcode: 3, Sge: [6]uapi.SiwSge{{Laddr: 0x1000, Length: 100, Lkey: 7}}}},
		{"empty inline", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, Inline: []byte{}}, uapi.SiwSqe{Flags: 1, Opcode: 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			q, _ := memQP(t, 4)
			test.wr.WRID, test.want.Id = 42, 42
			if n, err := q.PostSend([]provider.SendWR{test.wr}, false); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			if got := *q.sq.elem(0); got != test.want {
				t.Errorf("it is %+v,\nwant %+v", got, test.want)
			}
		})
	}
	t.Run("inline", func(t *testing.T) {
		q, _ := memQP(t, 4)
		data := bytes.Repeat([]byte("12345678"), 10) // the maximum length
		if n, err := q.PostSend([]provider.SendWR{{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE, Inline: data, Remote: remote}}, false); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		b := raw(q.sq.elem(0))
		if flags, sges, n := b[8], b[10], binary.LittleEndian.Uint32(b[32:]); flags != 1|2 || sges != 1 || n != 80 || !bytes.Equal(b[40:], data) {
			t.Errorf("flags %d, %d entries, %d bytes: %q", flags, sges, n, b[40:])
		}
	})
	t.Run("signal all", func(t *testing.T) {
		q, _ := memQP(t, 4)
		q.init.SignalAll = true
		if _, err := q.PostSend([]provider.SendWR{{Opcode: uapi.IB_UVERBS_WR_SEND}}, false); err != nil || q.sq.elem(0).Flags != 1|4 {
			t.Errorf("flags %d, %v", q.sq.elem(0).Flags, err)
		}
	})
}

// Requests that would stop the driver for ever are refused when they are posted, and don't
// reach the kernel.
func TestRefusedRequests(t *testing.T) {
	sge := provider.SGE{Length: 1}
	for name, test := range map[string]struct {
		wr   provider.SendWR
		want error
	}{
		"send with immediate":    {provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND_WITH_IMM}, provider.ErrNoImmediate},
		"write with immediate":   {provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM}, provider.ErrNoImmediate},
		"compare and swap":       {provider.SendWR{Opcode: uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP}, provider.ErrNoAtomics},
		"fetch and add":          {provider.SendWR{Opcode: uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD}, provider.ErrNoAtomics},
		"atomic write":           {provider.SendWR{Opcode: uapi.IB_UVERBS_WR_ATOMIC_WRITE}, provider.ErrNoAtomics},
		"local invalidation":     {provider.SendWR{Opcode: uapi.IB_UVERBS_WR_LOCAL_INV}, provider.ErrOpcode},
		"bind":                   {provider.SendWR{Opcode: uapi.IB_UVERBS_WR_BIND_MW}, provider.ErrOpcode},
		"flush":                  {provider.SendWR{Opcode: uapi.IB_UVERBS_WR_FLUSH}, provider.ErrOpcode},
		"nop":                    {provider.SendWR{Opcode: provider.WRNop}, provider.ErrOpcode},
		"inline invalidation":    {provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND_WITH_INV, Inline: []byte{1}}, provider.ErrInlineOp},
		"a read into two pieces": {provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_READ, SGL: []provider.SGE{sge, sge}}, provider.ErrTooManySGEs},
		"no operation":           {provider.SendWR{SGL: []provider.SGE{sge}}, provider.ErrNowhere},
		"a fenced read":          {provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_READ, Flags: uint32(uapi.IB_SEND_FENCE)}, provider.ErrFencedRead},
		"five pieces":            {provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, SGL: make([]provider.SGE, 5)}, provider.ErrTooManySGEs},
		"81 bytes inline":        {provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, Inline: make([]byte, 81)}, provider.ErrInlineTooBig},
	} {
		q, bell := memQP(t, 4)
		if n, err := q.PostSend([]provider.SendWR{test.wr}, false); n != 0 || err != test.want {
			t.Errorf("%s: %d, %v, want %v", name, n, err, test.want)
		}
		if q.next != 0 || q.sq.elem(0).Flags != 0 || bell.rung() != 0 {
			t.Errorf("%s: it left something", name)
		}
	}
	q, _ := memQP(t, 4)
	for n, want := range map[int]error{4: nil, 5: provider.ErrTooManySGEs} { // as many as there are, empty or not
		if _, err := q.PostRecv([]provider.RecvWR{{SGL: make([]provider.SGE, n)}}); err != want {
			t.Errorf("a receive of %d pieces: %v", n, err)
		}
	}
	for _, n := range []uint32{1 << 30, 1 << 31} {
		if _, err := q.PostRecv([]provider.RecvWR{{SGL: []provider.SGE{{Length: n}, {Length: n}}}}); err != provider.ErrRecvTooLong {
			t.Errorf("a receive of twice %d bytes: %v", n, err)
		}
	}
	if _, err := new(qp).PostRecv(make([]provider.RecvWR, 1)); err != provider.ErrNoQueue {
		t.Errorf("without a receive queue: %v", err)
	}
}

// The doorbell is rung only if the kernel may have stopped before the new requests.
func TestDoorbellWhenNeeded(t *testing.T) {
	q, bell := memQP(t, 4)
	wr := provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND}
	post := func(n int, more bool, rings int) {
		t.Helper()
		if m, err := q.PostSend([]provider.SendWR{wr, wr, wr, wr, wr}[:n], more); m != n || err != nil {
			t.Fatal(m, err)
		}
		if got := bell.rung(); got != rings {
			t.Errorf("%d requests: the doorbell was rung %d times, want %d", n, got, rings)
		}
	}
	post(1, false, 1) // the first
	post(1, false, 0) // the kernel has not taken the previous request
	clearFlags(&q.sq, 0)
	post(1, false, 0) // it still has not
	clearFlags(&q.sq, 1)
	clearFlags(&q.sq, 2)
	post(2, true, 0)
	post(0, false, 1) // the last of the earlier requests is taken
	clearFlags(&q.sq, 3)
	clearFlags(&q.sq, 4)
	post(4, false, 1) // they fill the queue: there is no request before them
	post(0, false, 0)
}

// Requests posted with more set are not published, not by any flag, and can be taken back.
func TestRingOnceForMore(t *testing.T) {
	q, bell := memQP(t, 4)
	wr := provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, Flags: uint32(uapi.IB_SEND_SIGNALED)}
	if n, err := q.PostSend([]provider.SendWR{wr, wr}, true); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	for i := range uint32(2) {
		if f := q.sq.elem(i).Flags; f != 0 {
			t.Errorf("request %d shows flags %#x", i, f)
		}
	}
	q.TakeBack()
	if n, err := q.PostSend([]provider.SendWR{wr, wr, wr, wr, wr}, true); n != 4 || err != provider.ErrQueueFull {
		t.Errorf("five requests in a queue of four: %d, %v", n, err)
	}
	if n, err := q.PostSend(nil, false); n != 0 || err != nil || bell.rung() != 1 {
		t.Errorf("show them: %d, %v", n, err)
	}
	for i := range uint32(4) {
		if f := q.sq.elem(i).Flags; f != 1|4 {
			t.Errorf("request %d has flags %#x", i, f)
		}
	}
	if n, err := q.PostSend([]provider.SendWR{wr}, false); n != 0 || err != provider.ErrQueueFull {
		t.Errorf("one more: %d, %v", n, err)
	}
	clearFlags(&q.sq, 0)
	if n, err := q.PostSend([]provider.SendWR{wr}, false); n != 1 || err != nil {
		t.Errorf("in the place of the first: %d, %v", n, err)
	}
}

// The requests before a refused one are published.
func TestShowsBeforeRefused(t *testing.T) {
	q, bell := memQP(t, 4)
	good, bad := provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND}, provider.SendWR{Opcode: 255}
	if n, err := q.PostSend([]provider.SendWR{good, good, bad, good}, false); n != 2 || err == nil || bell.rung() != 1 {
		t.Errorf("the third of four is refused: %d, %v", n, err)
	}
	for i := range uint32(4) {
		if published := q.sq.elem(i).Flags&1 != 0; published != (i < 2) {
			t.Errorf("request %d is published: %t", i, published)
		}
	}
}

// The requests of a failed doorbell are published.
func TestDoorbellFails(t *testing.T) {
	q, b := memQP(t, 4)
	b.read.Close()
	n, err := q.PostSend([]provider.SendWR{{Opcode: uapi.IB_UVERBS_WR_SEND}}, false)
	if n != 1 || !errors.Is(err, unix.EPIPE) || q.sq.elem(0).Flags != 1 || q.published != 1 {
		t.Errorf("%d, %v, flags %d", n, err, q.sq.elem(0).Flags)
	}
}

func TestReceives(t *testing.T) {
	q, _ := memQP(t, 4)
	for i := range uint32(10) {
		wr := provider.RecvWR{WRID: uint64(i), SGL: []provider.SGE{{Addr: 0x1000, Length: 1, LKey: 2}, {Addr: 0x2000, Length: 3, LKey: 4}}}
		if n, err := q.PostRecv([]provider.RecvWR{wr}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		want := uapi.SiwRqe{Id: uint64(i), Flags: 1, NumSge: 2, Sge: [6]uapi.SiwSge{{Laddr: 0x1000, Length: 1, Lkey: 2}, {Laddr: 0x2000, Length: 3, Lkey: 4}}}
		if got := *q.rq.elem(i); got != want {
			t.Fatalf("receive %d: %+v, want %+v", i, got, want)
		}
		clearFlags(&q.rq.queue, i)
	}
	if n, err := q.PostRecv(make([]provider.RecvWR, 5)); n != 4 || err != provider.ErrQueueFull {
		t.Errorf("five receives: %d, %v", n, err)
	}
}

// complete writes a completion as the kernel does.
func complete(c *cq, position uint32, opcode, status int, id uint64) {
	e := c.elem(position)
	e.Id, e.Opcode, e.Status, e.Bytes = id, uint8(opcode), uint16(status), 100
	*e.QpId() = 0x1_0000_0017 // its upper half means nothing
	e.Flags = 1
}

func TestPoll(t *testing.T) {
	c := memCQ(4)
	wc := make([]provider.WC, 3)
	var next uint32
	for round := range 9 {
		n := round % 4
		for i := range uint32(n) {
			complete(c, next+i, 3, 0, uint64(next+i))
		}
		if got, err := c.Poll(wc); got != n || err != nil {
			t.Fatalf("round %d: %d, %v, want %d", round, got, err, n)
		}
		for i := range uint32(n) {
			if want := (provider.WC{WRID: uint64(next + i), ByteLen: 100, QPNum: 0x17}); wc[i] != want {
				t.Fatalf("round %d: %+v, want %+v", round, wc[i], want)
			}
			if e := c.elem(next + i); e.Flags != 0 {
				t.Fatalf("round %d: the element is not the kernel's again", round)
			}
		}
		next += uint32(n)
	}
}

// siw's numbers of operations and statuses are translated to InfiniBand's.
func TestCompletionNumbers(t *testing.T) {
	known := map[int]uint32{0: 1, 1: 2, 2: 2, 3: 0, 5: 0, 8: 128}
	for opcode := range 256 {
		c := memCQ(1)
		complete(c, 0, opcode, 0, 5)
		wc := make([]provider.WC, 1)
		n, err := c.Poll(wc)
		var unknown *provider.CQEError
		if want, ok := known[opcode]; ok != (n == 1) || ok && wc[0].Opcode != want {
			t.Errorf("operation %d: %d, %v, %d", opcode, n, err, wc[0].Opcode)
		} else if !ok && (!errors.As(err, &unknown) || unknown.CQE[9] != byte(opcode) || unknown.CQE[0] != 5) {
			t.Errorf("operation %d: %v", opcode, err)
		}
		if n, err := c.Poll(wc); n != 0 || err != nil {
			t.Errorf("after operation %d: %d, %v", opcode, n, err)
		}
	}
	for status, want := range []uint32{0, 1, 4, 2, 5, 7, 8, 10, 9, 21} {
		c := memCQ(1)
		complete(c, 0, 3, status, 5)
		wc := make([]provider.WC, 1)
		if n, err := c.Poll(wc); n != 1 || err != nil || wc[0].Status != want {
			t.Errorf("status %d: %d, %v, %d", status, n, err, wc[0].Status)
		}
	}
	for _, status := range []int{10, 11, 255, 0xffff} {
		c := memCQ(2)
		complete(c, 0, 3, 0, 1)
		complete(c, 1, 3, status, 2)
		wc := make([]provider.WC, 2)
		if n, err := c.Poll(wc); n != 1 || err != nil {
			t.Errorf("before status %d: %d, %v", status, n, err)
		}
		var unknown *provider.CQEError
		if n, err := c.Poll(wc); n != 0 || !errors.As(err, &unknown) {
			t.Errorf("status %d: %d, %v", status, n, err)
		}
	}
}

func TestArm(t *testing.T) {
	c := memCQ(2)
	for solicitedOnly, want := range map[bool]byte{true: 1, false: 1 | 2} {
		if err := c.Arm(solicitedOnly, 0); err != nil || c.mem[2*32] != want {
			t.Errorf("solicited only %v: %v, %d, want %d", solicitedOnly, err, c.mem[2*32], want)
		}
	}
}

// postPoll posts a signaled request and polls its completion, and plays the kernel's part.
func postPoll(q *qp, c *cq, wr []provider.SendWR, wc []provider.WC) bool {
	position := q.next
	if n, err := q.PostSend(wr, false); n != 1 || err != nil {
		return false
	}
	clearFlags(&q.sq, position)
	complete(c, c.next, 3, 0, 1)
	n, err := c.Poll(wc)
	return n == 1 && err == nil
}

func TestPostPollAllocatesNothing(t *testing.T) {
	q, bell := memQP(t, 4)
	c, wc := memCQ(4), make([]provider.WC, 4)
	wr := []provider.SendWR{{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE, Remote: provider.Remote{RKey: 1}, SGL: []provider.SGE{{Length: 64}}}}
	if n := testing.AllocsPerRun(1000, func() {
		if !postPoll(q, c, wr, wc) {
			t.Fatal("post or poll failed")
		}
	}); n != 0 {
		t.Errorf("%v allocations per post and poll", n)
	}
	if bell.rung() == 0 {
		t.Error("no doorbell was rung")
	}
	recv := []provider.RecvWR{{SGL: make([]provider.SGE, 2)}}
	if n := testing.AllocsPerRun(1000, func() {
		clearFlags(&q.rq.queue, q.rq.next)
		if _, err := q.PostRecv(recv); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per receive", n)
	}
}
