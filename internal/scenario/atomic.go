package scenario

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// An Atomic is one atomic operation with its expected result.
type Atomic struct {
	Name   string
	Masked bool
	Op     verbs.WCOpcode // of its completion

	wr       verbs.SendWR
	old, new uint64 // the peer's word
}

// Atomics returns operations on words whose results show which bytes and operands the device
// used.
func Atomics(seed uint64) (list []Atomic) {
	swap := func(name string, old, compare, swap, new uint64) {
		list = append(list, Atomic{Name: name, Op: verbs.WCCompareSwap, old: old, new: new, wr: verbs.SendWR{Opcode: verbs.OpCompareSwap, Compare: compare, Swap: swap}})
	}
	add := func(name string, old, add uint64) {
		list = append(list, Atomic{Name: name, Op: verbs.WCFetchAdd, old: old, new: old + add, wr: verbs.SendWR{Opcode: verbs.OpFetchAdd, Add: add}})
	}
	for i := range uint64(16) {
		a, b, c := Mix(seed+i), Mix(seed+i+100), Mix(seed+i+200)
		swap("compare and swap, equal", a, a, b, b)
		swap("compare and swap, one bit differs", a, a^1<<(4*i), b, a)
		swap("compare and swap, the swap is there", a, b, a, a)
		add("fetch and add", a, c)
	}
	swap("compare and swap of zero", 0, 0, 0x1122334455667788, 0x1122334455667788)
	swap("compare and swap to ones", 1<<63, 1<<63, 1<<64-1, 1<<64-1)
	add("fetch and add of nothing", 1<<63, 0)
	add("fetch and add with a carry through all bytes", 0x00ffffffffffffff, 1)
	add("fetch and add past the greatest word", 1<<64-3, 5)
	masked := func(name string, op verbs.WCOpcode, old, new uint64, wr verbs.SendWR) {
		list = append(list, Atomic{Name: name, Masked: true, Op: op, old: old, new: new, wr: wr})
	}
	masked("masked compare and swap", verbs.WCCompareSwap, 0x112233445566_8899, 0x112233445566_8bc9,
		verbs.SendWR{Opcode: verbs.OpMaskedCompareSwap, Compare: 0x8800, CompareMask: 0xff00, Swap: 0xabcd, SwapMask: 0x0ff0})
	masked("masked compare and swap of bits that differ", verbs.WCCompareSwap, 0x8899, 0x8899,
		verbs.SendWR{Opcode: verbs.OpMaskedCompareSwap, Compare: 0x8900, CompareMask: 0xff00, Swap: 1, SwapMask: 1<<64 - 1})
	masked("masked fetch and add", verbs.WCFetchAdd, 0x1122334455667788, 0x1223344556677887,
		verbs.SendWR{Opcode: verbs.OpMaskedFetchAdd, Add: 0x01010101010101ff, CompareMask: 0x8080808080808080})
	return list
}

// Begin fills the first KiB of the memory of both ends, and returns the request. After its
// completion, compare returns the expected and the actual memory; seen is "" if they are
// equal.
func (x *Atomic) Begin(a, b *verbs.MR, id uint64) (wr verbs.SendWR, compare func() (expected, seen string)) {
	const at, size = 512, 1024
	type word struct {
		what      string
		mem, want []byte
		is        uint64
	}
	words := []word{{what: "the peer's word", mem: b.Bytes()[:size], is: x.new}, {what: "the returned word", mem: a.Bytes()[:size], is: x.old}}
	for i := range words {
		w := &words[i]
		Fill(w.mem, id+uint64(i)<<32)
		w.want = bytes.Clone(w.mem)
		binary.NativeEndian.PutUint64(w.want[at:], w.is)
	}
	binary.NativeEndian.PutUint64(words[0].mem[at:], x.old)
	wr = x.wr
	wr.WRID, wr.Flags, wr.SGL, wr.Remote = id, verbs.SendSignaled, []verbs.SGE{a.SGE(at, 8)}, b.Remote().At(at)
	return wr, func() (expected, seen string) {
		for _, w := range words {
			if !bytes.Equal(w.mem, w.want) {
				return fmt.Sprintf("%s to be %#x", w.what, w.is), fmt.Sprintf("it is %#x, or a byte beside it has changed", binary.NativeEndian.Uint64(w.mem[at:]))
			}
		}
		return "", ""
	}
}

// String returns the operation, the word and the operands.
func (x *Atomic) String() string {
	return fmt.Sprintf("%s on %#x, operands %#x and %#x", x.Name, x.old, x.wr.Compare|x.wr.Add, x.wr.Swap)
}
