package mlx5

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A twin is a QP on an adapter of its own, so that two of them can be compared.
type twin struct {
	*rig
	*qp
}

func newTwin(t *testing.T, init provider.QPInit) twin {
	r := newRig(t, 1)
	return twin{r, r.newQP(t, 0x123, init)}
}

// same asserts that two twins have written the same queues, records and registers.
func (a twin) same(t *testing.T, b twin) {
	t.Helper()
	if !slices.Equal(a.sq.ring, b.sq.ring) || !slices.Equal(a.sq.slots, b.sq.slots) {
		t.Fatalf("the queues differ: %d and %d blocks", a.sq.next, b.sq.next)
	}
	if *a.qp.record != *b.qp.record || a.sq.next != b.sq.next || a.sq.posted != b.sq.posted || a.sq.fence != b.sq.fence {
		t.Fatalf("records %x and %x, next %d and %d", *a.qp.record, *b.qp.record, a.sq.next, b.sq.next)
	}
	if !bytes.Equal(a.uars.cq.mem, b.uars.cq.mem) {
		t.Fatal("the registers differ")
	}
}

// usualWR returns a random request that may be short.
func usualWR(m *rand.Rand) provider.SendWR {
	return provider.SendWR{
		WRID: m.Uint64(), Remote: provider.Remote{Addr: m.Uint64(), RKey: m.Uint32()}, Flags: m.Uint32N(8),
		Opcode: []uapi.IbUverbsWrOpcode{
			uapi.IB_UVERBS_WR_SEND, uapi.IB_UVERBS_WR_SEND_WITH_IMM, uapi.IB_UVERBS_WR_RDMA_WRITE, uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM,
			uapi.IB_UVERBS_WR_RDMA_READ,
		}[m.IntN(5)],
		SGL: []provider.SGE{{Addr: m.Uint64(), Length: 1 + m.Uint32N(1<<31-1), LKey: m.Uint32()}},
	}
}

func shortened(wrs []provider.SendWR) (list []provider.Short) {
	for _, wr := range wrs {
		sge := wr.SGL[0]
		s := provider.Short{
			WRID: wr.WRID, Operation: uint64(wr.Opcode) | uint64(wr.Flags)<<32, RemoteAddr: wr.Remote.Addr, Key: uint64(wr.Remote.RKey) << 32,
			Addr: sge.Addr, Data: uint64(sge.Length)<<32 | uint64(sge.LKey),
		}
		if wr.Opcode == uapi.IB_UVERBS_WR_SEND_WITH_IMM || wr.Opcode == uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM {
			s.Key |= uint64(wr.Imm)
		}
		list = append(list, s)
	}
	return list
}

// TestShort: short requests make the same WQEs and doorbells as ordinary ones, whether
// posted at once, in parts, or after others were taken back.
func TestShort(t *testing.T) {
	m := rand.New(rand.NewPCG(1, 2))
	for _, sge := range []uint32{1, 4} {
		init := provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(16, sge, 0)}
		a, b := newTwin(t, init), newTwin(t, init)
		for range 5000 {
			var wrs []provider.SendWR
			for range 1 + m.IntN(8) {
				wr := usualWR(m)
				if wr.Opcode == uapi.IB_UVERBS_WR_SEND_WITH_IMM {
					wr.Imm = m.Uint32()
				}
				wrs = append(wrs, wr)
			}
			list := shortened(wrs)
			if m.IntN(3) == 0 {
				if !b.PostShort(shortened([]provider.SendWR{usualWR(m), usualWR(m)}), true) {
					t.Fatal("refused")
				}
				b.TakeBack()
				copy(b.sq.ring, a.sq.ring) // requests that were taken back are still in the ring
				copy(b.sq.slots, a.sq.slots)
			}
			if n, err := a.PostSend(wrs, false); n != len(wrs) || err != nil {
				t.Fatal(n, err)
			}
			var took bool
			switch part := m.IntN(len(list)); {
			case part == 0:
				took = b.PostShort(list, false)
			default:
				took = b.PostShort(list[:part], true) && b.PostShort(list[part:], false)
			}
			if !took {
				t.Fatal("refused")
			}
			a.same(t, b)
			a.sq.done, b.sq.done = a.sq.posted, b.sq.posted
		}
		full := shortened([]provider.SendWR{usualWR(m)})
		for range a.sq.limit {
			if !a.PostShort(full, false) {
				t.Fatal("refused")
			}
		}
		if a.PostShort(full, false) || a.PostShort(full, true) {
			t.Error("a full queue took one more")
		}
		for _, odd := range []provider.Short{
			{Operation: 8, Data: 1 << 32}, {Operation: 1 << 35, Data: 1 << 32}, {}, {Data: 1<<32 - 1}, {Data: 1 << 63},
		} {
			if b.PostShort([]provider.Short{odd}, false) || b.PostShort([]provider.Short{full[0], odd}, false) {
				t.Errorf("took %+v", odd)
			}
		}
		if b.sq.next != a.sq.next-a.sq.limit {
			t.Error("what was refused left something")
		}
	}
}

// TestPostOneByOne: requests posted one by one, with more set, make the same WQEs as one list.
func TestPostOneByOne(t *testing.T) {
	m := rand.New(rand.NewPCG(3, 4))
	init := provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(16, 3, 100)}
	a, b := newTwin(t, init), newTwin(t, init)
	for range 2000 {
		var wrs []provider.SendWR
		for range 1 + m.IntN(8) {
			wr := usualWR(m)
			switch m.IntN(4) {
			case 0:
				wr = provider.SendWR{Opcode: uapi.IB_UVERBS_WR_LOCAL_INV, InvalidateRKey: m.Uint32()}
			case 1:
				wr.SGL = append(wr.SGL, wr.SGL[0])
			case 2:
				wr.Opcode, wr.SGL, wr.Inline = uapi.IB_UVERBS_WR_SEND, nil, make([]byte, 1+m.IntN(100))
			}
			wrs = append(wrs, wr)
		}
		if n, err := a.PostSend(wrs, false); n != len(wrs) || err != nil {
			t.Fatal(n, err)
		}
		before := *b.qp.record
		for i := range wrs {
			last := i == len(wrs)-1 && m.IntN(2) == 0
			if n, err := b.PostSend(wrs[i:i+1], !last); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			if !last && *b.qp.record != before {
				t.Fatal("the doorbell was rung before the end")
			}
		}
		if n, err := b.PostSend(nil, false); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		// A single delayed request is not copied to the register.
		if len(wrs) == 1 {
			copy(b.uars.cq.mem, a.uars.cq.mem)
		}
		a.same(t, b)
		a.sq.done, b.sq.done = a.sq.posted, b.sq.posted

		// The fence of a request that was taken back has no effect.
		if _, err := b.PostSend(wrs, true); err != nil {
			t.Fatal(err)
		}
		if n, err := b.PostSend([]provider.SendWR{{Opcode: 77}}, false); n != 0 || err != provider.ErrOpcode {
			t.Fatal(n, err)
		}
		b.TakeBack()
		if b.sq.next != a.sq.next || b.sq.posted != a.sq.posted || b.sq.fence != a.sq.fence || *b.qp.record != *a.qp.record {
			t.Fatal("taking back left something")
		}
		copy(b.sq.ring, a.sq.ring)
		copy(b.sq.slots, a.sq.slots)
	}
}

// TestShortWay: whether a QP takes the short path is decided at its creation.
func TestShortWay(t *testing.T) {
	for _, tt := range []struct {
		name string
		init provider.QPInit
		want bool
	}{
		{"RC", provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 1, 0)}, true},
		{"UC", provider.QPInit{Type: uapi.IB_UVERBS_QPT_UC, Cap: capOf(4, 3, 0)}, true},
		{"UD", provider.QPInit{Type: uapi.IB_UVERBS_QPT_UD, Cap: capOf(4, 1, 0)}, true},
		{"without SGEs", provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 0, 8)}, false},
		{"signed", provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 1, 0), Sign: true}, false},
		{"raw packets", provider.QPInit{Type: uapi.IB_UVERBS_QPT_RAW_PACKET, Cap: capOf(4, 1, 0)}, false},
		{"XRC", provider.QPInit{Type: uapi.IB_UVERBS_QPT_XRC_INI, Cap: capOf(4, 1, 0)}, false},
		{"DC", provider.QPInit{Type: uapi.IB_UVERBS_QPT_DRIVER, Driver: provider.DCInitiator, Cap: capOf(4, 1, 0)}, false},
	} {
		if q := newRig(t, 1).newQP(t, 0x123, tt.init); q.sq.short != tt.want {
			t.Errorf("%s: %v", tt.name, q.sq.short)
		}
	}
}
