//go:build amd64 || arm64

package selftest

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
)

// Only the register's copy of a NOP asks for a completion, in each buffer in turn. A NOP with a
// doorbell does so in the ring, and the doorbell is its first 8 bytes.
func TestNops(t *testing.T) {
	const size = 256
	ring := make([]wqe.Segment, 4*wqe.BlockSegs)
	record := new(uint32)
	register := new([2 * size / 8]uint64)
	q := &nops{qpn: 0x1234, ring: ring, cqes: make([]wqe.CQE, 8), bell: mmio.Bell{Record: record, Reg: unsafe.Pointer(register), Size: size}}
	bytes := func(p unsafe.Pointer) []byte { return unsafe.Slice((*byte)(p), 64) }
	const flags = 11
	for i := range 6 {
		buffer := q.buffer()
		if buffer != i%2 {
			t.Fatalf("copy %d goes to buffer %d", i, buffer)
		}
		n := q.copied()
		inRing := bytes(unsafe.Pointer(&ring[int(n)%4*wqe.BlockSegs]))
		inRegister := bytes(unsafe.Pointer(&register[buffer*size/8]))
		for _, nop := range [][]byte{inRing, inRegister} {
			if head := binary.BigEndian.Uint64(nop); head != uint64(n)<<40|0x1234<<8|1 {
				t.Errorf("NOP %d begins with %#x", n, head)
			}
		}
		if inRing[flags] != 0 || inRegister[flags] != wqe.CtrlCQUpdate {
			t.Errorf("NOP %d has the flags %#x in the ring, %#x in the register", n, inRing[flags], inRegister[flags])
		}
		m := q.rung()
		inRing = bytes(unsafe.Pointer(&ring[int(m)%4*wqe.BlockSegs]))
		next := bytes(unsafe.Pointer(&register[(1-buffer)*size/8]))
		if m != n+1 || inRing[flags] != wqe.CtrlCQUpdate || string(next[:8]) != string(inRing[:8]) {
			t.Errorf("NOP %d after %d: %x in the ring, %x in the register", m, n, inRing[:16], next[:16])
		}
		var counter [4]byte
		binary.NativeEndian.PutUint32(counter[:], *record)
		if got := binary.BigEndian.Uint32(counter[:]); got != m+1 {
			t.Errorf("the record says %d requests, not %d", got, m+1)
		}
	}
}
