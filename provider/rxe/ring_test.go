package rxe

import (
	"os"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// memRing makes a queue as the kernel would map it, in ordinary memory.
func memRing(t testing.TB, elems, elemSize int) queue {
	t.Helper()
	log2 := 0
	for 1<<log2 < elemSize {
		log2++
	}
	words := make([]uint64, (uapi.RxeQueueBufDataOffset+elems<<log2)/8)
	mem := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
	buf := (*uapi.RxeQueueBuf)(unsafe.Pointer(&mem[0]))
	buf.Log2ElemSize, buf.IndexMask = uint32(log2), uint32(elems-1)
	q, err := newQueue(mem, uintptr(elemSize))
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// memQP is an RC QP over rings in memory; its doorbell goes to /dev/null.
func memQP(t testing.TB, elems int) *qp {
	t.Helper()
	f, err := ioctl.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	q := &qp{file: f, maxSGE: 4, maxInline: 64, init: provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC}}
	q.sq = memRing(t, elems, int(sendWQESize)+64)
	q.rq.queue, q.rq.maxSGE = memRing(t, elems, int(recvWQESize)+4*int(sgeSize)), 4
	q.bell.Init(0)
	t.Cleanup(q.bell.Release)
	return q
}

func window(key uint32) *provider.MWRef {
	mw := new(provider.MWRef)
	mw.RKey.Store(key)
	return mw
}

func TestPutEncodes(t *testing.T) {
	sgl := []provider.SGE{{Addr: 0x1000, Length: 100, LKey: 7}, {Addr: 0x2000, Length: 28, LKey: 8}}
	dma := uapi.RxeDmaInfo{Length: 128, Resid: 128, NumSge: 2}
	signaled := uint32(uapi.IB_SEND_SIGNALED)
	tests := []struct {
		name string
		wr   provider.SendWR
		want func(w *uapi.RxeSendWqe)
	}{
		{"send", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, SGL: sgl}, func(w *uapi.RxeSendWqe) { w.Dma = dma }},
		{"send imm", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND_WITH_IMM, Imm: 0x01020304, SGL: sgl}, func(w *uapi.RxeSendWqe) {
			w.Dma = dma
			*w.Wr.Ex.ImmData() = 0x04030201 // network order
		}},
		{"send inv", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND_WITH_INV, InvalidateRKey: 0x01020304}, func(w *uapi.RxeSendWqe) {
			*w.Wr.Ex.InvalidateRkey() = 0x01020304
		}},
		{"write imm", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, Imm: 1, Remote: provider.Remote{Addr: 0x3000, RKey: 9}, SGL: sgl}, func(w *uapi.RxeSendWqe) {
			w.Dma, w.Iova = dma, 0x3000
			*w.Wr.Ex.ImmData() = 0x01000000
			*w.Wr.Wr.Rdma() = uapi.RxeSendWrWrRdma{RemoteAddr: 0x3000, Rkey: 9}
		}},
		{"compare and swap", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, Remote: provider.Remote{Addr: 0x3000, RKey: 9}, Compare: 5, Swap: 6}, func(w *uapi.RxeSendWqe) {
			w.Iova = 0x3000
			*w.Wr.Wr.Atomic() = uapi.RxeSendWrWrAtomic{RemoteAddr: 0x3000, CompareAdd: 5, Swap: 6, Rkey: 9}
		}},
		{"bind", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_BIND_MW, NewRKey: 0x12, MW: window(0x11), Bind: provider.MWBind{MR: &provider.MRRef{LKey: 3}, Addr: 0x4000, Length: 64, Access: 2}}, func(w *uapi.RxeSendWqe) {
			*w.Wr.Wr.Mw() = uapi.RxeSendWrWrMw{Addr: 0x4000, Length: 64, MrLkey: 3, MwRkey: 0x11, Rkey: 0x12, Access: 2}
		}},
		{"flush", provider.SendWR{Opcode: uapi.IB_UVERBS_WR_FLUSH, Remote: provider.Remote{Addr: 0x3000, RKey: 9}, FlushLength: 77, FlushType: 1}, func(w *uapi.RxeSendWqe) {
			w.Iova = 0x3000
			*w.Wr.Wr.Flush() = uapi.RxeSendWrWrFlush{RemoteAddr: 0x3000, Rkey: 9, Type: 1}
			w.Dma.Length, w.Dma.Resid = 77, 77
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := memQP(t, 4)
			// The remains of an earlier request must not show.
			for i := range q.sq.mem[uapi.RxeQueueBufDataOffset:] {
				q.sq.mem[uapi.RxeQueueBufDataOffset+i] = 0xee
			}
			tt.wr.WRID, tt.wr.Flags = 42, signaled
			if err := q.put(&tt.wr); err != nil {
				t.Fatal(err)
			}
			want := uapi.RxeSendWqe{Wr: uapi.RxeSendWr{WrId: 42, Opcode: uint32(tt.wr.Opcode), SendFlags: signaled}}
			tt.want(&want)
			got := q.sq.sendWQE(0)
			if d := cmp.Diff(want, *got, cmp.AllowUnexported(uapi.RxeSendWqe{})); d != "" {
				t.Errorf("WQE differs (-want +got):\n%s", d)
			}
			for i, s := range sendSGEs(got, len(tt.wr.SGL)) {
				if (s != uapi.RxeSge{Addr: sgl[i].Addr, Length: sgl[i].Length, Lkey: sgl[i].LKey}) {
					t.Errorf("SGE %d is %+v", i, s)
				}
			}
			if p := q.sq.producer(); p != 0 {
				t.Errorf("the kernel saw the request before the ring: producer %d", p)
			}
			if err := q.ringDoorbell(); err != nil {
				t.Fatal(err)
			}
			if p := q.sq.producer(); p != 1 {
				t.Errorf("producer %d after the ring, want 1", p)
			}
		})
	}
}

// TestUCInvalidates: the driver would fail the request, and the QP.
func TestUCInvalidates(t *testing.T) {
	q := memQP(t, 4)
	wr := provider.SendWR{Opcode: uapi.IB_UVERBS_WR_LOCAL_INV}
	if err := q.put(&wr); err != nil {
		t.Errorf("on RC: %v", err)
	}
	q.init.Type = uapi.IB_UVERBS_QPT_UC
	if err := q.put(&wr); err != provider.ErrOpcode {
		t.Errorf("on UC: %v", err)
	}
}

func TestPutInline(t *testing.T) {
	q := memQP(t, 4)
	data := []byte("inline data")
	wr := provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, Inline: data}
	if err := q.put(&wr); err != nil {
		t.Fatal(err)
	}
	w := q.sq.sendWQE(0)
	if got := sendInline(w, len(data)); string(got) != string(data) || w.Dma.Length != uint32(len(data)) || w.Dma.NumSge != 0 {
		t.Errorf("inline %q, dma %+v", got, w.Dma)
	}
	wr.Inline = make([]byte, q.maxInline+1)
	if err := q.put(&wr); err != provider.ErrInlineTooBig {
		t.Errorf("65 bytes inline: %v", err)
	}
}

// One element stays free, so that full differs from empty. A refused request leaves no trace.
func TestSendQueueFull(t *testing.T) {
	q := memQP(t, 4)
	wr := provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND}
	if n, err := q.PostSend([]provider.SendWR{wr, wr, wr, wr}, false); n != 3 || err != provider.ErrQueueFull {
		t.Fatalf("four requests: %d, %v", n, err)
	}
	q = memQP(t, 4)
	wr.Opcode = 0xff
	if n, err := q.PostSend([]provider.SendWR{wr}, false); n != 0 || err != provider.ErrOpcode || q.prod != 0 {
		t.Fatalf("unknown opcode: %d, %v, producer %d", n, err, q.prod)
	}
}

// Requests posted with more set are not published, and can be taken back.
func TestRingOnceForMore(t *testing.T) {
	q := memQP(t, 8)
	wr := provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND}
	post := func(n int, more bool, want uint32) {
		t.Helper()
		wrs := []provider.SendWR{wr, wr, wr}[:n]
		if m, err := q.PostSend(wrs, more); m != n || err != nil || q.sq.producer() != want {
			t.Fatalf("%d of %d, %v, producer %d, want %d", m, n, err, q.sq.producer(), want)
		}
	}
	post(1, true, 0)
	post(2, true, 0)
	post(0, false, 3)
	post(1, true, 3)
	q.TakeBack()
	post(1, true, 3)
	post(1, false, 5)
}

// The doorbell is rung for the requests before a refused one.
func TestRingsBeforeRefused(t *testing.T) {
	good, bad := provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND}, provider.SendWR{Opcode: 255}
	q := memQP(t, 4)
	if n, err := q.PostSend([]provider.SendWR{good, good, bad, good}, false); n != 2 || err != provider.ErrOpcode {
		t.Errorf("the third of four is refused: %d, %v", n, err)
	}
	if n := q.sq.producer(); n != 2 {
		t.Errorf("the kernel sees %d requests, want 2", n)
	}
	if n, err := q.PostSend([]provider.SendWR{bad}, false); n != 0 || err != provider.ErrOpcode || q.sq.producer() != 2 {
		t.Errorf("posting a bad request: %d, %v, and the kernel sees %d requests", n, err, q.sq.producer())
	}
}

func TestRecvQueueWraps(t *testing.T) {
	q := memQP(t, 4)
	for i := range uint64(10) {
		wr := provider.RecvWR{WRID: i, SGL: []provider.SGE{{Addr: i, Length: 1, LKey: 2}, {Addr: i, Length: 2, LKey: 2}}}
		if _, err := q.PostRecv([]provider.RecvWR{wr}); err != nil {
			t.Fatal(err)
		}
		w := q.rq.recvWQE(uint32(i))
		if w.WrId != i || w.Dma.Length != 3 || w.Dma.NumSge != 2 {
			t.Fatalf("receive %d: %+v", i, w)
		}
		q.rq.setConsumer(uint32(i + 1)) // the kernel takes it
	}
	if p := q.rq.producer(); p != 10&3 {
		t.Errorf("producer %d", p)
	}
}

func TestPollWraps(t *testing.T) {
	c := &cq{q: memRing(t, 4, int(completeSize))}
	wc := make([]provider.WC, 8)
	var next uint64
	for round := range uint64(9) {
		n := round % 4
		for i := range n {
			(*uapi.IbUverbsWc)(c.q.elem(uint32(next + i))).WrId = next + i
		}
		c.q.setProducer(uint32(next + n))
		got, err := c.Poll(wc)
		if err != nil || got != int(n) {
			t.Fatalf("round %d: %d, %v, want %d", round, got, err, n)
		}
		for i := range n {
			if wc[i].WRID != next+i {
				t.Fatalf("round %d: completion %d has id %d", round, i, wc[i].WRID)
			}
		}
		next += n
	}
}

// A mapping that contradicts itself is refused, not followed.
func TestNewQueueRefuses(t *testing.T) {
	good := memRing(t, 4, 64)
	for name, spoil := range map[string]func(b *uapi.RxeQueueBuf){
		"elements beyond the mapping": func(b *uapi.RxeQueueBuf) { b.IndexMask = 7 },
		"element too small":           func(b *uapi.RxeQueueBuf) { b.Log2ElemSize = 5 },
		"absurd element size":         func(b *uapi.RxeQueueBuf) { b.Log2ElemSize = 200 },
		"mask is none":                func(b *uapi.RxeQueueBuf) { b.IndexMask = 2 },
		"mask is all ones":            func(b *uapi.RxeQueueBuf) { b.IndexMask = 0xffffffff },
	} {
		saved := *good.buf
		spoil(good.buf)
		if _, err := newQueue(good.mem, 64); err == nil {
			t.Errorf("%s: accepted", name)
		}
		*good.buf = saved
	}
	if _, err := newQueue(good.mem[:100], 64); err == nil {
		t.Error("header cut off: accepted")
	}
	if _, err := newQueue(good.mem, 64); err != nil {
		t.Errorf("good one: %v", err)
	}
}

// postPoll posts a signaled request and polls its completion, and plays the kernel's part.
func postPoll(q *qp, c *cq, wr *provider.SendWR, wc []provider.WC, ring bool) bool {
	if q.put(wr) != nil {
		return false
	}
	if ring {
		if q.ringDoorbell() != nil {
			return false
		}
	} else {
		q.sq.setProducer(q.prod)
	}
	q.sq.setConsumer(q.prod)
	c.q.setProducer(c.q.consumer() + 1)
	n, err := c.Poll(wc)
	return n == 1 && err == nil
}

func TestPostPollAllocatesNothing(t *testing.T) {
	q, c := memQP(t, 64), &cq{q: memRing(t, 64, int(completeSize))}
	wc := make([]provider.WC, 4)
	wr := provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE, Remote: provider.Remote{RKey: 1}, SGL: []provider.SGE{{Length: 64}}}
	if n := testing.AllocsPerRun(1000, func() {
		if !postPoll(q, c, &wr, wc, true) {
			t.Fatal("post or poll failed")
		}
	}); n != 0 {
		t.Errorf("%v allocations per post and poll", n)
	}
}

// BenchmarkPostPoll measures a signaled RDMA write and the poll of its completion on rings
// in memory; the doorbell's write() goes to /dev/null.
func BenchmarkPostPoll(b *testing.B) {
	for _, bench := range []struct {
		name string
		ring bool
	}{{"ring", false}, {"ring+doorbell", true}} {
		b.Run(bench.name, func(b *testing.B) {
			q, c := memQP(b, 256), &cq{q: memRing(b, 256, int(completeSize))}
			wc := make([]provider.WC, 4)
			wr := provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE, Remote: provider.Remote{RKey: 1}, Flags: uint32(uapi.IB_SEND_SIGNALED), SGL: []provider.SGE{{Length: 64}}}
			b.ReportAllocs()
			for b.Loop() {
				if !postPoll(q, c, &wr, wc, bench.ring) {
					b.Fatal("post or poll failed")
				}
			}
		})
	}
}
