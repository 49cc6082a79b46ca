package mlx5

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// TestAnswersRefused: an incomplete response, or one of another ABI, is refused before
// anything is mapped.
func TestAnswersRefused(t *testing.T) {
	for name, spoil := range map[string]func(r *uapi.Mlx5IbAllocUcontextResp){
		"short":            func(r *uapi.Mlx5IbAllocUcontextResp) { r.ResponseLength = minResponse - 1 },
		"CQE version 2":    func(r *uapi.Mlx5IbAllocUcontextResp) { r.CqeVersion = 2 },
		"no send WQE":      func(r *uapi.Mlx5IbAllocUcontextResp) { r.MaxSqDescSz = 0 },
		"no receive WQE":   func(r *uapi.Mlx5IbAllocUcontextResp) { r.MaxRqDescSz = 0 },
		"no block":         func(r *uapi.Mlx5IbAllocUcontextResp) { r.MaxSendWqebb = 0 },
		"a UAR of 128 KB":  func(r *uapi.Mlx5IbAllocUcontextResp) { r.LogUarSize = 17 },
		"no UAR in a page": func(r *uapi.Mlx5IbAllocUcontextResp) { r.NumUarsPerPage = 0 },
		"more UARs than fit": func(r *uapi.Mlx5IbAllocUcontextResp) {
			r.NumUarsPerPage, r.TotBfregs = uint32(os.Getpagesize()/uarSize)+1, 1<<10
		},
		"half a page of registers": func(r *uapi.Mlx5IbAllocUcontextResp) { r.TotBfregs = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			cmd := ioctl.NewGetContext()
			defer cmd.Release()
			p, err := newContext(nil, cmd)
			if err != nil {
				t.Fatal(err)
			}
			c := p.(*context)
			*c.resp = uapi.Mlx5IbAllocUcontextResp{
				ResponseLength: minResponse, CqeVersion: 1, BfRegSize: 512, LogUarSize: 12, NumUarsPerPage: 1,
				MaxSqDescSz: 1024, MaxRqDescSz: 512, MaxSendWqebb: 1 << 15,
			}
			spoil(c.resp)
			if err := c.Adopt(); err == nil {
				t.Error("adopted")
			}
		})
	}
}

// TestRegisters checks the addresses of registers in pages with many UARs, as on systems
// whose pages are larger than a UAR, and in a UAR as large as a page of 64 KB.
func TestRegisters(t *testing.T) {
	page := &uarPage{mem: make([]byte, 1<<16)}
	for _, tt := range []struct {
		uar, n int
		buffer uint32
		want   uintptr
	}{
		{0, 0, 256, 0x800}, {0, 1, 256, 0xa00}, {1, 0, 256, 0x1800}, {15, 1, 256, 0xfa00},
		{3, 1, 128, 0x3900},
		{0, 1, 512, 0xc00},
	} {
		r := (&uars{registerSize: 2 * tt.buffer}).register(page, tt.uar, tt.n)
		if at := uintptr(r.base) - uintptr(unsafe.Pointer(&page.mem[0])); at != tt.want || r.size != tt.buffer {
			t.Errorf("register %d of UAR %d is at %#x with %d bytes, want %#x with %d", tt.n, tt.uar, at, r.size, tt.want, tt.buffer)
		}
	}
	size := uint64(os.Getpagesize())
	for index, want := range map[int]uint64{0: 0x300, 0xff: 0x3ff, 0x102: 0x10302} {
		if got := mmapOffset(3, index); got != want*size {
			t.Errorf("page %d is mapped at %#x pages, want %#x", index, got/size, want)
		}
	}
}

// TestSharedRegisters: when all registers for one QP each are taken, QPs share registers
// evenly; a register that becomes free again goes to one QP.
func TestSharedRegisters(t *testing.T) {
	u := &uars{maxDedicated: dedicatedRegisters, maxCommon: commonRegisters, dedicated: dedicatedRegisters}
	own := &register{dynamic: true}
	u.free = []*register{own}
	for range commonRegisters {
		u.common = append(u.common, &register{dynamic: true, shared: new(sharing)})
	}
	take := func() *register {
		t.Helper()
		r, err := u.take(nil, false)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if take() != own {
		t.Error("a free register wasn't taken")
	}
	users := map[*register]int{}
	for range 3 * commonRegisters {
		users[take()]++
	}
	for r, n := range users {
		if r.shared == nil || n != 3 || r.users != 3 {
			t.Errorf("one register has %d users, and says %d", n, r.users)
		}
	}
	u.give(u.common[5])
	if take() != u.common[5] {
		t.Error("not the one with the fewest users")
	}
	u.give(own)
	if take() != own {
		t.Error("what was given back wasn't taken")
	}
	static := &uars{static: []*register{{}}}
	if r, err := static.take(nil, false); r != nil || err != nil {
		t.Errorf("took %v, %v where the kernel chooses", r, err)
	}
}

// TestOneRegister: without BlueFlame all QPs ring one register, whose stores aren't
// combined, and which needs no lock.
func TestOneRegister(t *testing.T) {
	r := newRig(t, 1)
	r.uars.noFlame = true
	r.uars.bell = r.uars.register(r.uars.cq, 0, 0)
	r.uars.bell.page, r.uars.bell.dynamic, r.uars.bell.uncached = 7, true, true
	first := r.newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 1, 0)})
	second := r.newQP(t, 2, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 1, 0)})
	bell := r.uars.cq.mem[registersOffset:][:512]
	for _, q := range []*qp{first, second, second, first} {
		at := q.sq.next
		wr := provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, SGL: []provider.SGE{{Addr: 1, Length: 1, LKey: 1}}}
		if n, err := q.PostSend([]provider.SendWR{wr}, false); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		want := make([]byte, len(bell))
		copy(want, block(q, at)[:8])
		if !bytes.Equal(bell, want) || q.reg.shared != nil || q.reg.page != 7 {
			t.Errorf("QP %d left\n%x, want\n%x", q.number, bell, want)
		}
		clear(bell)
	}
	second.Release()
	if got, err := r.uars.take(nil, false); got != r.uars.bell || err != nil {
		t.Errorf("took %v, %v", got, err)
	}
}

// TestWaysToRing: posts copy a WQE of one block to the two buffers of a register in turn
// or, without BlueFlame, its first 8 bytes to one place.
func TestWaysToRing(t *testing.T) {
	for name, tt := range map[string]struct {
		size   uint32
		shared bool
		bytes  int
	}{
		"a register of its own": {256, false, wqe.BlockSize},
		"a shared register":     {256, true, wqe.BlockSize},
		"no BlueFlame":          {0, false, 8},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			reg := r.uars.free[len(r.uars.free)-1]
			reg.size = tt.size
			if tt.shared {
				reg.shared = new(sharing)
			}
			q := r.newQP(t, 0x123456, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 1, 0)})
			buffers := unsafe.Slice((*byte)(reg.base), 512)
			for i := range 2 {
				clear(buffers)
				wr := provider.SendWR{
					WRID: 1, Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE, Remote: provider.Remote{Addr: 1, RKey: 1}, SGL: []provider.SGE{{Addr: 1, Length: 1, LKey: 1}},
				}
				next := q.sq.next
				if n, err := q.PostSend([]provider.SendWR{wr}, false); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				want := make([]byte, len(buffers))
				copy(want[i*int(tt.size):], block(q, next)[:tt.bytes])
				if !bytes.Equal(buffers, want) {
					t.Errorf("post %d left\n%x, want\n%x", i, buffers, want)
				}
				if got := number(q.sq.record[1]); got != next+1 {
					t.Errorf("the record says %d, want %d", got, next+1)
				}
			}
		})
	}
}

// TestRingAtTheEnd: of a WQE that wraps around the ring, the register gets only the first 8
// bytes, and the other buffer is next.
func TestRingAtTheEnd(t *testing.T) {
	for _, shared := range []bool{false, true} {
		r := newRig(t, 1)
		reg := r.uars.free[len(r.uars.free)-1]
		if shared {
			reg.shared = new(sharing)
		}
		q := r.newQP(t, 0x123456, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 1, 100)})
		buffers := unsafe.Slice((*byte)(reg.base), 512)
		cut := 0
		for range 100 {
			from := 0
			if q.sq.bell.Offset != 0 || shared && reg.shared.Offset != 0 {
				from = 256
			}
			at := q.sq.next
			clear(buffers)
			wr := provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, Inline: make([]byte, 100)}
			if at%3 == 0 {
				wr.Inline = wr.Inline[:10]
			}
			if n, err := q.PostSend([]provider.SendWR{wr}, false); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			q.sq.done = q.sq.posted
			want := make([]byte, len(buffers))
			switch blocks := q.sq.next - at; {
			case at&q.sq.mask+blocks > q.sq.mask+1:
				copy(want[from:], block(q, at)[:8])
				cut++
			default:
				for i := range blocks {
					copy(want[from+int(i)*wqe.BlockSize:], block(q, at+i))
				}
			}
			if !bytes.Equal(buffers, want) {
				t.Fatalf("block %d of %d left\n%x, want\n%x", at&q.sq.mask, q.sq.mask+1, buffers, want)
			}
		}
		if cut == 0 {
			t.Error("no WQE was cut")
		}
	}
}

// block returns the bytes of a block of a send queue.
func block(q *qp, at uint32) (b []byte) {
	for i := range uint32(wqe.BlockSegs) {
		s := segment(&q.sq.ring[(at&q.sq.mask)*wqe.BlockSegs+i])
		b = append(b, s[:]...)
	}
	return b
}

// TestClock reads a counter of two words, with the upper one first.
func TestClock(t *testing.T) {
	c := &context{clock: clock{mem: make([]byte, 4096), offset: 0x18}}
	binary.BigEndian.PutUint64(c.clock.mem[0x18:], 0x0102030405060708)
	if got, ok := c.Clock(); !ok || got != 0x0102030405060708 {
		t.Errorf("read %#x, %t", got, ok)
	}
	if _, ok := new(context).Clock(); ok {
		t.Error("a clock without a page")
	}
}
