package bus

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// Why the unsafe code of this file holds: each function first checks the length and the
// alignment of the slice. Therefore its pointer is to a whole, aligned word inside the
// slice, which the slice keeps alive. At an unaligned (hostile) address no atomic access
// is possible. There, plain bytes are read and written, as a real bus would tear them.

func aligned(b []byte, n uintptr) bool {
	return uintptr(unsafe.Pointer(&b[0]))&(n-1) == 0
}

// swap32 converts a word from the machine's byte order to big-endian, and back.
func swap32(v uint32) uint32 {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], v)
	return binary.BigEndian.Uint32(b[:])
}

func swap64(v uint64) uint64 {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return binary.BigEndian.Uint64(b[:])
}

// Load32 reads the big-endian word at the beginning of b, in one access.
func Load32(b []byte) uint32 {
	_ = b[3]
	if !aligned(b, 4) {
		return binary.BigEndian.Uint32(b)
	}
	return swap32(atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[0]))))
}

// Store32 writes v big-endian at the beginning of b, in one access. A reader that sees v
// also sees everything that was written before it.
func Store32(b []byte, v uint32) {
	_ = b[3]
	if !aligned(b, 4) {
		binary.BigEndian.PutUint32(b, v)
		return
	}
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&b[0])), swap32(v))
}

// LoadLE32 and StoreLE32 are Load32 and Store32 for little-endian words.
func LoadLE32(b []byte) uint32 { return bits.ReverseBytes32(Load32(b)) }

// StoreLE32 is explained at LoadLE32.
func StoreLE32(b []byte, v uint32) { Store32(b, bits.ReverseBytes32(v)) }

// Load64 reads the big-endian word at the beginning of b, in one access.
func Load64(b []byte) uint64 {
	_ = b[7]
	if !aligned(b, 8) {
		return binary.BigEndian.Uint64(b)
	}
	return swap64(atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[0]))))
}

// CompareAndSwap64 replaces the big-endian word at the beginning of b with v if it equals
// old, in one access, and reports whether it did. It panics if b isn't aligned to 8 bytes.
func CompareAndSwap64(b []byte, old, v uint64) bool {
	_ = b[7]
	if !aligned(b, 8) {
		panic("bus: an atomic operation on an unaligned word")
	}
	return atomic.CompareAndSwapUint64((*uint64)(unsafe.Pointer(&b[0])), swap64(old), swap64(v))
}

// Aligned64 reports whether b begins with a word that CompareAndSwap64 accepts.
func Aligned64(b []byte) bool { return len(b) >= 8 && aligned(b, 8) }
