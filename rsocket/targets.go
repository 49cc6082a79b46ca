package rsocket

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// targets is the list of the memory that the peer has published. The peer writes it. Its entries
// are sges in this host's byte order.
//
// Why the unsafe code of this file holds: the words are in the MR's memory, which is mapped as
// long as the connection's queue pair exists, and whose pages are the system's. newTargets has
// checked that they are within it, and aligned.
type targets struct {
	words *[entries][2]uint64
}

const (
	entries    = 2 // as many as librdmacm has
	targetsLen = entries * sgeLen
)

// newTargets makes a list in memory of targetsLen bytes at an address that is a multiple of 8.
func newTargets(b []byte) targets {
	if len(b) < targetsLen || uintptr(unsafe.Pointer(&b[0]))%8 != 0 {
		panic("rsocket: no room for the list of targets")
	}
	return targets{(*[entries][2]uint64)(unsafe.Pointer(&b[0]))}
}

// take takes an entry off the list, unless it is empty. The peer writes the same entry again only
// after the memory was filled. The second word is read first: it is the last that the peer's
// write changes, if the device doesn't write all 16 bytes at once.
func (t targets) take(i int) (s sge, ok bool) {
	entry := &t.words[i]
	var b [sgeLen]byte
	binary.NativeEndian.PutUint64(b[8:], atomic.LoadUint64(&entry[1]))
	if s = parseSGE(b[:], binary.NativeEndian); s.length == 0 {
		return sge{}, false
	}
	s.addr = atomic.LoadUint64(&entry[0])
	atomic.StoreUint64(&entry[1], 0)
	return s, true
}
