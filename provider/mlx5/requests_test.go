package mlx5

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// words returns numbers in wire format.
func words(list ...uint32) (b []byte) {
	for _, w := range list {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return b
}

// TestRequestBytes checks each operation of a connected QP, with all its fields, in the
// adapter's layout.
func TestRequestBytes(t *testing.T) {
	const all = uint32(uapi.IB_SEND_FENCE | uapi.IB_SEND_SIGNALED | uapi.IB_SEND_SOLICITED)
	const addr, rkey = 0x1112131415161718, 0x191a1b1c
	sgl := []provider.SGE{{Addr: 0x2122232425262728, Length: 0x292a, LKey: 0x2b2c2d2e}, {}, {Addr: 0x3132333435363738, Length: 0x393a, LKey: 0x3b3c3d3e}}
	first, second := []uint32{0x292a, 0x2b2c2d2e, 0x21222324, 0x25262728}, []uint32{0x393a, 0x3b3c3d3e, 0x31323334, 0x35363738}
	remote := []uint32{0x11121314, 0x15161718, 0x191a1b1c, 0}
	eight := []uint32{8, 0x2b2c2d2e, 0x21222324, 0x25262728}
	// An address vector without its key and number, in the adapter's layout.
	vector := new(provider.AHRef)
	for i, w := range []uint32{0, 0, 0, 0x11121314, 0x21222324, 0x25262728, 0x31323334, 0x35363738, 0x41424344, 0x45464748, 0x51525354, 0x55565758} {
		binary.BigEndian.PutUint32(unsafe.Slice((*byte)(unsafe.Pointer(&vector.Vector)), 48)[4*i:], w)
	}
	for _, tt := range []struct {
		name string
		typ  uapi.IbUverbsQpType
		wr   provider.SendWR
		want [][]uint32
	}{
		{"send", uapi.IB_UVERBS_QPT_RC, provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, Flags: all, SGL: sgl, Imm: 1, InvalidateRKey: 2},
			[][]uint32{{0x0a, 0x12345603, 0x8a, 0}, first, second}},
		{"send with immediate", uapi.IB_UVERBS_QPT_RC, provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND_WITH_IMM, SGL: sgl, Imm: 0x41424344, InvalidateRKey: 2},
			[][]uint32{{0x0b, 0x12345603, 0, 0x41424344}, first, second}},
		{"send with invalidate", uapi.IB_UVERBS_QPT_RC, provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND_WITH_INV, SGL: sgl, Imm: 1, InvalidateRKey: 0x41424344},
			[][]uint32{{0x01, 0x12345603, 0, 0x41424344}, first, second}},
		{"write", uapi.IB_UVERBS_QPT_RC, provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE, Flags: uint32(uapi.IB_SEND_SIGNALED), Remote: provider.Remote{Addr: addr, RKey: rkey}, SGL: sgl},
			[][]uint32{{0x08, 0x12345604, 8, 0}, remote, first, second}},
		{"write with immediate", uapi.IB_UVERBS_QPT_RC, provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, Flags: uint32(uapi.IB_SEND_SOLICITED), Remote: provider.Remote{Addr: addr, RKey: rkey}, SGL: sgl, Imm: 0x41424344},
			[][]uint32{{0x09, 0x12345604, 2, 0x41424344}, remote, first, second}},
		{"read", uapi.IB_UVERBS_QPT_RC, provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_READ, Flags: uint32(uapi.IB_SEND_FENCE), Remote: provider.Remote{Addr: addr, RKey: rkey}, SGL: sgl},
			[][]uint32{{0x10, 0x12345604, 0x80, 0}, remote, first, second}},
		{"compare and swap", uapi.IB_UVERBS_QPT_RC, provider.SendWR{Opcode: uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, Remote: provider.Remote{Addr: addr, RKey: rkey}, SGL: sgl[:1], Compare: 0x4142434445464748, Swap: 0x5152535455565758},
			[][]uint32{{0x11, 0x12345604, 0, 0}, remote, {0x51525354, 0x55565758, 0x41424344, 0x45464748}, eight}},
		{"fetch and add", uapi.IB_UVERBS_QPT_RC, provider.SendWR{Opcode: uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD, Remote: provider.Remote{Addr: addr, RKey: rkey}, SGL: sgl[:1], Add: 0x5152535455565758, Compare: 1},
			[][]uint32{{0x12, 0x12345604, 0, 0}, remote, {0x51525354, 0x55565758, 0, 0}, eight}},
		{"masked compare and swap", uapi.IB_UVERBS_QPT_RC, provider.SendWR{
			Opcode: uapi.IB_UVERBS_WR_MASKED_ATOMIC_CMP_AND_SWP, Remote: provider.Remote{Addr: addr, RKey: rkey}, SGL: sgl[:1],
			Compare: 0x4142434445464748, Swap: 0x5152535455565758, CompareMask: 0x6162636465666768, SwapMask: 0x7172737475767778,
		}, [][]uint32{
			{0x09000014, 0x12345605, 0, 0}, remote, {0x51525354, 0x55565758, 0x41424344, 0x45464748},
			{0x71727374, 0x75767778, 0x61626364, 0x65666768}, eight,
		}},
		{"masked fetch and add", uapi.IB_UVERBS_QPT_RC, provider.SendWR{
			Opcode: uapi.IB_UVERBS_WR_MASKED_ATOMIC_FETCH_AND_ADD, Remote: provider.Remote{Addr: addr, RKey: rkey}, SGL: sgl[:1],
			Add: 0x5152535455565758, CompareMask: 0x6162636465666768, SwapMask: 1,
		}, [][]uint32{{0x09000015, 0x12345604, 0, 0}, remote, {0x51525354, 0x55565758, 0x61626364, 0x65666768}, eight}},
		{"nothing", uapi.IB_UVERBS_QPT_RC, provider.SendWR{Opcode: provider.WRNop, Flags: uint32(uapi.IB_SEND_SIGNALED)},
			[][]uint32{{0x00, 0x12345601, 8, 0}}},
		{"XRC", uapi.IB_UVERBS_QPT_XRC_INI, provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE, RemoteSRQN: 0x616263, Remote: provider.Remote{Addr: addr, RKey: rkey}, SGL: sgl[:1]},
			[][]uint32{{0x08, 0x12345604, 0, 0}, {0x616263, 0, 0, 0}, remote, first}},
		{"datagram", uapi.IB_UVERBS_QPT_UD, provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND_WITH_IMM, Imm: 0x41424344, SGL: sgl[:1], AH: vector, RemoteQPN: 0x515253, RemoteQKey: 0x61626364},
			[][]uint32{{0x0b, 0x12345605, 0, 0x41424344}, {0x61626364, 0, 0x80515253, 0x11121314}, {0x21222324, 0x25262728, 0x31323334, 0x35363738}, {0x41424344, 0x45464748, 0x51525354, 0x55565758}, first}},
		{"datagram of two pieces", uapi.IB_UVERBS_QPT_UD, provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, SGL: sgl, AH: vector, RemoteQPN: 0x515253, RemoteQKey: 0x61626364},
			[][]uint32{{0x0a, 0x12345606, 0, 0}, {0x61626364, 0, 0x80515253, 0x11121314}, {0x21222324, 0x25262728, 0x31323334, 0x35363738}, {0x41424344, 0x45464748, 0x51525354, 0x55565758}, first, second}},
	} {
		q := newRig(t, 1).newQP(t, 0x123456, provider.QPInit{Type: tt.typ, Cap: capOf(4, 4, 0), Atomics: true})
		if n, err := q.PostSend([]provider.SendWR{tt.wr}, false); n != 1 || err != nil {
			t.Errorf("%s: %d, %v", tt.name, n, err)
			continue
		}
		var want []byte
		for _, segment := range tt.want {
			want = append(want, words(segment...)...)
		}
		if got := append(block(q, 0), block(q, 1)...)[:len(want)]; !bytes.Equal(got, want) {
			t.Errorf("%s:\n%x, want\n%x", tt.name, got, want)
		}
	}
}

// TestNoOperation: an unknown opcode leaves nothing in the queue.
func TestNoOperation(t *testing.T) {
	q := newRig(t, 1).newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 1, 0), Atomics: true})
	known := map[uapi.IbUverbsWrOpcode]bool{
		uapi.IB_UVERBS_WR_RDMA_WRITE: true, uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM: true, uapi.IB_UVERBS_WR_SEND: true,
		uapi.IB_UVERBS_WR_SEND_WITH_IMM: true, uapi.IB_UVERBS_WR_RDMA_READ: true, uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP: true,
		uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD: true, uapi.IB_UVERBS_WR_LOCAL_INV: true, uapi.IB_UVERBS_WR_BIND_MW: true,
		uapi.IB_UVERBS_WR_SEND_WITH_INV: true, uapi.IB_UVERBS_WR_TSO: true, provider.WRNop: true,
		uapi.IB_UVERBS_WR_MASKED_ATOMIC_CMP_AND_SWP: true, uapi.IB_UVERBS_WR_MASKED_ATOMIC_FETCH_AND_ADD: true,
	}
	for op := uapi.IbUverbsWrOpcode(0); op < 200; op++ {
		if known[op] {
			continue
		}
		if n, err := q.PostSend([]provider.SendWR{{Opcode: op}}, false); n != 0 || err != provider.ErrOpcode || q.sq.next != 0 {
			t.Errorf("operation %d: %d, %v, and the next block is %d", op, n, err, q.sq.next)
		}
	}
}

// TestWithoutAtomics: a QP has only the adapter's atomic operations.
func TestWithoutAtomics(t *testing.T) {
	ops := []uapi.IbUverbsWrOpcode{
		uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD,
		uapi.IB_UVERBS_WR_MASKED_ATOMIC_CMP_AND_SWP, uapi.IB_UVERBS_WR_MASKED_ATOMIC_FETCH_AND_ADD,
	}
	// The bits are those of atomic_operations in the adapter's atomic capabilities.
	for have := range atomics(1 << len(ops)) {
		q := newRig(t, 1).newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 1, 0), Atomics: true})
		q.sq.atomics = have
		for i, op := range ops {
			want := error(nil)
			if have>>i&1 == 0 {
				want = provider.ErrNoAtomics
			}
			if _, err := q.PostSend([]provider.SendWR{{Opcode: op}}, false); err != want {
				t.Errorf("operation %d with atomics %04b: %v, want %v", op, have, err, want)
			}
		}
	}
}

// TestListsAreCounted: whichever path the requests of a list take, and wherever the list ends, the
// number of posted requests is correct, and so are their IDs, the record and the queue's own count.
func TestListsAreCounted(t *testing.T) {
	one, two := provider.SGE{Addr: 1, Length: 2, LKey: 3}, make([]provider.SGE, 2)
	two[0], two[1] = one, one
	lists := map[byte][]provider.SGE{'1': {one}, '2': two, '0': {}, 'x': make([]provider.SGE, 3)}
	for _, form := range []string{"1", "11", "112", "121", "211", "110", "011", "1x", "11x", "12x", "x", "112x1", "2x1", "1111"} {
		r := newRig(t, 1)
		q := r.newQP(t, 5, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 2, 0)})
		var recvs []provider.RecvWR
		var sends []provider.SendWR
		for i := range len(form) {
			recvs = append(recvs, provider.RecvWR{WRID: uint64(100 + i), SGL: lists[form[i]]})
			sends = append(sends, provider.SendWR{WRID: uint64(100 + i), SGL: lists[form[i]], Opcode: uapi.IB_UVERBS_WR_SEND})
		}
		want, wantErr := strings.IndexByte(form, 'x'), error(nil)
		if want < 0 {
			want = len(form)
		} else {
			wantErr = provider.ErrTooManySGEs
		}
		n, err := q.PostRecv(recvs)
		if n != want || err != wantErr || q.rq.posted != uint32(want) || number(q.record[recvRecord]) != uint32(want) {
			t.Errorf("receives %s: %d, %v; %d posted, the record says %d", form, n, err, q.rq.posted, number(q.record[recvRecord]))
		}
		for i := range want {
			if q.rq.ids[i] != uint64(100+i) {
				t.Errorf("receives %s: the IDs are %v", form, q.rq.ids)
			}
		}
		n, err = q.PostSend(sends, false)
		if n != want || err != wantErr || q.sq.posted != uint32(want) || number(q.record[sendRecord]) != q.sq.next {
			t.Errorf("sends %s: %d, %v; %d posted, the record says %d of %d", form, n, err, q.sq.posted, number(q.record[sendRecord]), q.sq.next)
		}
	}
}
