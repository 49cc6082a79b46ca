package rxe

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// Offsets in struct rxe_queue_buf, and of the elements after it.
const (
	atLog2     = 0
	atMask     = 4
	atProducer = 128
	atConsumer = 256
	atElements = 384
)

// fenced returns memory between two inaccessible pages, which ends at the second.
func fenced(t testing.TB, n int) []byte {
	t.Helper()
	page := os.Getpagesize()
	room := (n + page - 1) / page * page
	all, err := unix.Mmap(-1, 0, room+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(all) })
	for _, fence := range [][]byte{all[:page], all[page+room:]} {
		if err := unix.Mprotect(fence, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return all[page+room-n : page+room]
}

// FuzzRings lets the kernel write the fuzzer's data into the rings, before and during their
// use. Whatever the data, the provider writes nothing outside of the rings, and in them
// only the current element and its own index. It returns no more completions than there are
// elements, unchanged. An index beyond the queue is an error.
func FuzzRings(f *testing.F) {
	header := func(log2, mask uint32) []byte {
		b := make([]byte, atElements)
		binary.NativeEndian.PutUint32(b[atLog2:], log2)
		binary.NativeEndian.PutUint32(b[atMask:], mask)
		return b
	}
	poll, send, recv, tell, back, reset, index := byte(0), byte(1), byte(2), byte(3), byte(4), byte(5), byte(6)
	all := []byte{poll, 3, send, 2, recv, 1, tell, 0, back, 0, reset, 0}
	good := header(9, 3)
	for _, value := range []byte{0, 1, 3, 4, 0x7f, 0xff} {
		f.Add(good, uint16(4*512), append([]byte{index, 0x80 | value, index, value}, all...))
		f.Add(good, uint16(4*512), append([]byte{send, 1, send, 1, send, 1, send, 1, tell, 0, index, value}, all...))
	}
	wild := header(9, 3)
	lay(wild, 9, 3, 0xffffffff, 0x80000002)
	f.Add(wild, uint16(4*512), all)
	f.Add(good, uint16(4*512), append([]byte{index, 0xff, index, 3}, all...)) // our index is out of range, and would equal the kernel's
	f.Add(header(31, 0xffffffff), uint16(0), all)
	f.Add(header(9, 3), uint16(4*512-1), all)
	f.Add(header(6, 7), uint16(8*64), all)
	f.Add(header(32, 0), uint16(512), all)
	f.Add(header(8, 0), uint16(512), all)

	file, err := ioctl.Open(os.DevNull)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { file.Close() })
	const maxSGE, maxInline = 4, 64
	f.Fuzz(func(t *testing.T, head []byte, elements uint16, ops []byte) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		elements &^= 7
		rings := make(map[string]*queue)
		open := func(name string, minElem uintptr) *queue {
			mem := fenced(t, atElements+int(elements))
			copy(mem[:atElements], head)
			q, err := newQueue(mem, minElem)
			log2, mask := binary.NativeEndian.Uint32(mem[atLog2:]), uint64(binary.NativeEndian.Uint32(mem[atMask:]))
			fits := log2 < 32 && mask&(mask+1) == 0 && uint64(minElem) <= 1<<log2 && (mask+1)<<(log2&31) <= uint64(elements)
			if (err == nil) != fits {
				t.Fatalf("%s of %d elements of 1<<%d bytes in %d: %v", name, mask+1, log2, elements, err)
			}
			if err != nil {
				return nil
			}
			rings[name] = &q
			return &q
		}
		cqRing := open("CQ", completeSize)
		sqRing := open("SQ", sendWQESize+maxSGE*sgeSize)
		rqRing := open("RQ", recvWQESize+maxSGE*sgeSize)
		var c *cq
		var q *qp
		if cqRing != nil {
			c = &cq{q: *cqRing}
		}
		if sqRing != nil && rqRing != nil {
			q = &qp{file: file, maxSGE: maxSGE, maxInline: maxInline, sq: *sqRing}
			q.bell.Init(0)
			defer q.bell.Release()
			q.rq.queue, q.rq.maxSGE = *rqRing, maxSGE
			q.reset()
		}
		// changed makes a call, and returns the bytes of a ring that it changed without permission.
		changed := func(ring *queue, index int, elem int64, call func()) {
			t.Helper()
			before := bytes.Clone(ring.mem)
			call()
			if v := binary.NativeEndian.Uint32(ring.mem[index:]); v != binary.NativeEndian.Uint32(before[index:]) && v > ring.mask {
				t.Fatalf("our index became %d, of %d elements", v, ring.mask+1)
			}
			copy(before[index:index+4], ring.mem[index:])
			if elem >= 0 {
				at := atElements + int(elem)<<ring.log2
				copy(before[at:at+1<<ring.log2], ring.mem[at:])
			}
			if !bytes.Equal(before, ring.mem) {
				t.Fatal("bytes of the ring changed that are none of this call's")
			}
		}
		for len(ops) >= 2 {
			op, arg := ops[0]%8, ops[1]
			ops = ops[2:]
			switch {
			case op == index || op == 7: // the kernel writes: an index, or any byte
				for name, ring := range rings {
					if op == 7 {
						ring.mem[(int(arg)*37+len(ops)*5)%len(ring.mem)] = arg
						continue
					}
					// Our index is the producer's in queues that we post to.
					at := atConsumer
					if (name == "CQ") != (arg&0x80 != 0) {
						at = atProducer
					}
					binary.NativeEndian.PutUint32(ring.mem[at:], uint32(arg&0x7f)*0x01010101>>(8*(arg&3)))
				}
			case op == poll && c != nil:
				wc := make([]provider.WC, int(arg)%9)
				cons := binary.NativeEndian.Uint32(c.q.mem[atConsumer:]) & c.q.mask
				prod := binary.NativeEndian.Uint32(c.q.mem[atProducer:])
				changed(&c.q, atConsumer, -1, func() {
					n, err := c.Poll(wc)
					if prod > c.q.mask {
						if n != 0 || err != errBadIndex {
							t.Fatalf("producer %d of %d: %d, %v", prod, c.q.mask+1, n, err)
						}
						return
					}
					if want := min(len(wc), int((prod-cons)&c.q.mask)); n != want || err != nil {
						t.Fatalf("%d completions, %v, want %d", n, err, want)
					}
					for i := range n {
						at := atElements + int((cons+uint32(i))&c.q.mask)<<c.q.log2
						if got := unsafe.Slice((*byte)(unsafe.Pointer(&wc[i])), completeSize); !bytes.Equal(got, c.q.mem[at:at+int(completeSize)]) {
							t.Fatalf("completion %d is % x", i, got)
						}
					}
				})
			case op == send && q != nil:
				wr := provider.SendWR{WRID: 1, Opcode: uapi.IB_UVERBS_WR_SEND, SGL: make([]provider.SGE, int(arg)%6)}
				if arg&0x80 != 0 {
					wr.Inline = make([]byte, int(arg)%80)
				}
				cons, prod := binary.NativeEndian.Uint32(q.sq.mem[atConsumer:]), q.prod
				var want error
				switch {
				case cons > q.sq.mask:
					want = errBadIndex
				case cons == (prod+1)&q.sq.mask:
					want = provider.ErrQueueFull
				case len(wr.SGL) > maxSGE:
					want = provider.ErrTooManySGEs
				case len(wr.Inline) > maxInline:
					want = provider.ErrInlineTooBig
				}
				changed(&q.sq, atProducer, int64(prod), func() {
					if n, err := q.PostSend([]provider.SendWR{wr}, true); err != want || (n == 1) != (want == nil) {
						t.Fatalf("kernel at %d, we at %d of %d: %d, %v, want %v", cons, prod, q.sq.mask+1, n, err, want)
					}
				})
			case op == recv && q != nil:
				cons, prod := binary.NativeEndian.Uint32(q.rq.mem[atConsumer:]), q.rq.prod
				wr := provider.RecvWR{WRID: 1, SGL: make([]provider.SGE, int(arg)%6)}
				var want error
				switch {
				case cons > q.rq.mask:
					want = errBadIndex
				case cons == (prod+1)&q.rq.mask:
					want = provider.ErrQueueFull
				case len(wr.SGL) > maxSGE:
					want = provider.ErrTooManySGEs
				}
				changed(&q.rq.queue, atProducer, int64(prod), func() {
					if n, err := q.PostRecv([]provider.RecvWR{wr}); err != want || (n == 1) != (want == nil) {
						t.Fatalf("kernel at %d, we at %d of %d: %d, %v, want %v", cons, prod, q.rq.mask+1, n, err, want)
					}
				})
			case op == tell && q != nil:
				changed(&q.sq, atProducer, -1, func() {
					if err := q.ringDoorbell(); err != nil {
						t.Fatal(err)
					}
				})
				if got := binary.NativeEndian.Uint32(q.sq.mem[atProducer:]); got != q.prod {
					t.Fatalf("the kernel sees producer index %d, want %d", got, q.prod)
				}
			case op == back && q != nil:
				q.TakeBack()
			case op == reset && q != nil:
				q.Moved(uapi.IB_QPS_RESET)
			}
			if q != nil && (q.prod > q.sq.mask || q.rq.prod > q.rq.mask) {
				t.Fatalf("we are at %d of %d, %d of %d", q.prod, q.sq.mask+1, q.rq.prod, q.rq.mask+1)
			}
		}
	})
}

// kernelFile returns a file of rings, which a kernel offers to map.
func kernelFile(t testing.TB, name string, size int) (*ioctl.File, []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := ioctl.NewFile(fd)
	t.Cleanup(func() { f.Close() })
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	return f, mem
}

// mappings counts the mappings of a kernelFile, besides the fake kernel's own.
func mappings(t testing.TB, name string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "/memfd:"+name+" ") - 1
}

// lay writes a ring's header.
func lay(mem []byte, log2, mask, producer, consumer uint32) {
	binary.NativeEndian.PutUint32(mem[atLog2:], log2)
	binary.NativeEndian.PutUint32(mem[atMask:], mask)
	binary.NativeEndian.PutUint32(mem[atProducer:], producer)
	binary.NativeEndian.PutUint32(mem[atConsumer:], consumer)
}

// Adopt refuses invalid responses, and leaves nothing mapped.
func TestHostileAnswers(t *testing.T) {
	const ring = 1 << 16 // bytes of the file for each, whole pages of any size
	good := func(at uint64) uapi.Mminfo { return uapi.Mminfo{Offset: at, Size: 8192} }
	type answer struct {
		cq  uapi.Mminfo
		srq uapi.Mminfo
		qp  uapi.RxeCreateQpResp
		cap uapi.IbUverbsQpCap
	}
	for i, x := range []struct {
		name  string
		spoil func(a *answer, mem []byte)
		cq    bool // the part that stays valid
		srq   bool
		qp    bool
	}{
		{"nothing", func(*answer, []byte) {}, true, true, true},
		{"no size", func(a *answer, _ []byte) { a.cq.Size, a.srq.Size, a.qp.SqMi.Size = 0, 0, 0 }, false, false, false},
		{"offset in a page", func(a *answer, _ []byte) { a.cq.Offset, a.srq.Offset, a.qp.RqMi.Offset = 1, 1, 1 }, false, false, false},
		{"offset beyond all", func(a *answer, _ []byte) {
			a.cq.Offset, a.srq.Offset, a.qp.SqMi.Offset = 1<<63, ^uint64(0)&^0xffff, 1<<63
		}, false, false, false},
		{"less than a header", func(a *answer, _ []byte) { a.cq.Size, a.srq.Size, a.qp.RqMi.Size = 383, 8, 1 }, false, false, false},
		{"elements beyond", func(_ *answer, mem []byte) { mem[0*ring+atMask], mem[1*ring+atMask], mem[3*ring+atMask] = 63, 63, 63 }, false, false, false},
		{"elements too small", func(_ *answer, mem []byte) { mem[0*ring], mem[1*ring], mem[2*ring] = 5, 4, 7 }, false, false, false},
		{"more pieces than an element holds", func(a *answer, _ []byte) { a.cap.MaxRecvSge, a.cap.MaxSendSge = 1<<32-1, 1<<32-1 }, true, false, false},
		{"more inline than an element holds", func(a *answer, _ []byte) { a.cap.MaxInlineData = 1<<32 - 1 }, true, true, false},
		{"indices beyond", func(_ *answer, mem []byte) {
			for at := range 4 {
				lay(mem[at*ring:], 9, 3, 0xffffffff, 0x80000000)
			}
		}, true, true, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			name := fmt.Sprint("goverbs-rings-", i)
			f, mem := kernelFile(t, name, 4*ring)
			for at := range 4 {
				lay(mem[at*ring:], 9, 3, 0, 0)
			}
			a := answer{
				cq: good(0 * ring), srq: good(1 * ring), qp: uapi.RxeCreateQpResp{SqMi: good(2 * ring), RqMi: good(3 * ring)},
				cap: uapi.IbUverbsQpCap{MaxSendSge: 2, MaxRecvSge: 2, MaxInlineData: 64},
			}
			x.spoil(&a, mem)

			c := &cq{file: f, resp: &a.cq}
			if err := c.Adopt(1); (err == nil) != x.cq {
				t.Errorf("CQ: %v", err)
			} else if err == nil && x.name == "indices beyond" {
				if n, err := c.Poll(make([]provider.WC, 8)); n != 0 || err != errBadIndex {
					t.Errorf("poll: %d, %v", n, err)
				}
			}
			c.Release()
			s := &srq{file: f, resp: &uapi.RxeCreateSrqResp{Mi: a.srq}}
			if err := s.Adopt(1, &provider.SRQInit{MaxSGE: a.cap.MaxRecvSge}); (err == nil) != x.srq {
				t.Errorf("SRQ: %v", err)
			}
			s.Release()
			q := &qp{file: f, resp: &a.qp}
			if err := q.Adopt(1, 17, &a.cap); (err == nil) != x.qp {
				t.Errorf("QP: %v", err)
			} else if err == nil && x.name == "indices beyond" {
				if n, err := q.PostSend(make([]provider.SendWR, 1), true); n != 0 || err != errBadIndex {
					t.Errorf("post send: %d, %v", n, err)
				}
				if n, err := q.PostRecv(make([]provider.RecvWR, 1)); n != 0 || err != errBadIndex {
					t.Errorf("post receive: %d, %v", n, err)
				}
			}
			// A refused queue is not mapped, whether or not the rest is released.
			if n := mappings(t, name); !x.qp && n > 1 {
				t.Errorf("%d mappings left", n)
			}
			q.Release()
			if n := mappings(t, name); n != 0 {
				t.Errorf("%d mappings left", n)
			}
		})
	}
	a := ah{new(uapi.RxeCreateAhResp)}
	if err := a.Adopt(new(provider.AHRef)); err == nil {
		t.Error("an address handle without a number was adopted")
	}
}

// A resized SRQ continues after the receives that the kernel has moved to the new ring, not
// at the old ring's position.
func TestSRQGoesOnAfterResize(t *testing.T) {
	const ring = 1 << 16
	f, mem := kernelFile(t, "goverbs-srq", 2*ring)
	lay(mem, 9, 3, 0, 0)
	s := &srq{file: f, resp: &uapi.RxeCreateSrqResp{Mi: uapi.Mminfo{Size: 8192}}}
	if err := s.Adopt(1, &provider.SRQInit{MaxSGE: 1}); err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	post := func(ids ...uint64) {
		t.Helper()
		for _, id := range ids {
			if n, err := s.PostRecv([]provider.RecvWR{{WRID: id, SGL: make([]provider.SGE, 1)}}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	post(1, 2, 3)
	binary.NativeEndian.PutUint32(mem[atConsumer:], 2)
	post(4)
	// The kernel has consumed two of four; the rest begin the new ring.
	lay(mem[ring:], 9, 7, 2, 0)
	s.mi = &uapi.Mminfo{Offset: ring, Size: 8192}
	if err := s.Remap(); err != nil {
		t.Fatal(err)
	}
	post(5, 6)
	for slot, id := range map[int]uint64{2: 5, 3: 6} {
		if got := binary.NativeEndian.Uint64(mem[ring+atElements+slot*512:]); got != id {
			t.Errorf("slot %d has receive %d, want %d", slot, got, id)
		}
	}
	if p := binary.NativeEndian.Uint32(mem[ring+atProducer:]); p != 4 {
		t.Errorf("the kernel sees %d receives, want 4", p)
	}
	if n := mappings(t, "goverbs-srq"); n != 1 {
		t.Errorf("%d rings are mapped", n)
	}
}
