package transport

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
	"github.com/goverbs/goverbs/rig/connectx/internal/mutant"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// serveAtomic executes an atomic operation. It is atomic with respect to the machine's
// processors too.
func (q *QP) serveAtomic(a *arrival, op uint8) {
	x := &q.resp
	va, rkey := binary.BigEndian.Uint64(a.r.take(8)), binary.BigEndian.Uint32(a.r.take(4))
	size, n := 8, 2
	if op >= opMaskedCS {
		size, n = int(binary.BigEndian.Uint32(a.r.take(4))), 4
	}
	var v [4]uint64
	for i := range n {
		v[i] = binary.BigEndian.Uint64(a.r.take(8))
	}
	q.counters().RxAtomicRequests++
	if a.r.bad || len(a.r.b) > 0 || x.act != actLocal || !q.c.RAE || q.c.AtomicMode == 0 ||
		size != 4 && size != 8 || va&uint64(size-1) != 0 || x.queue.full(q.c.LogRRAMax) {
		q.refuse(nakInvalidRequest)
		return
	}
	if !q.open(a, rkey, va, size, mkey.Atomic) {
		return
	}
	change := operation(op, v, size)
	if q.mutates(mutant.AtomicCarry) && op == opFetchAdd {
		change = func(old uint64) uint64 { return old&^(1<<32-1) + v[0]&^(1<<32-1) + (old+v[0])&(1<<32-1) }
	}
	old, ok := q.e.exchange(q.e.pieces[0], rkey, a.pd, q.number, va, size, change)
	if !ok {
		q.refuse(nakRemoteAccess)
		return
	}
	x.msn = (x.msn + 1) & psnMask
	if len(x.done) < remembered {
		x.done = append(x.done, atomicDone{})
	}
	x.done[x.doneN%remembered] = atomicDone{x.psn, old}
	x.doneN++
	if q.mutates(mutant.AtomicResult) {
		old = operation(op, v, size)(old)
	}
	x.queue.push(response{what: respAtomic, psn: x.psn, msn: x.msn, value: old})
	x.psn = psnAdd(x.psn, 1)
	q.e.activate(q)
}

// operation returns the function that computes the new value from the old one.
func operation(op uint8, v [4]uint64, size int) func(old uint64) uint64 {
	switch op {
	case opCompareSwap:
		return func(old uint64) uint64 {
			if old == v[1] {
				return v[0]
			}
			return old
		}
	case opMaskedCS:
		return func(old uint64) uint64 {
			if (old^v[1])&v[3] == 0 {
				return old&^v[2] | v[0]&v[2]
			}
			return old
		}
	case opMaskedFA:
		return func(old uint64) uint64 { return addFields(old, v[0], v[2], size) }
	}
	return func(old uint64) uint64 { return old + v[0] }
}

// addFields adds field by field, without a carry between fields. Boundary has the highest
// bit of each field. The word's highest bit is always a boundary.
func addFields(a, b, boundary uint64, size int) uint64 {
	top := boundary | 1<<(8*size-1)
	// Without the highest bits, no field's sum can overflow into the next field.
	return (a&^top + b&^top) ^ (a^b)&top
}

// exchange replaces a word with f of it, and returns the old one. It exchanges four bytes
// within the aligned eight bytes that contain them.
func (e *Engine) exchange(b []byte, rkey, pd, qpn uint32, va uint64, size int, f func(uint64) uint64) (old uint64, ok bool) {
	whole, shift := b, uint(0)
	if size == 4 {
		base := va &^ 7
		pieces, fault := e.c.Keys.Resolve(nil, rkey, pd, qpn, base, 8, mkey.Atomic)
		if fault != mkey.FaultNone || len(pieces) != 1 {
			return e.exchange4(b, f)
		}
		whole = pieces[0]
		if first := va == base; first {
			shift = 32
		}
	}
	if !bus.Aligned64(whole) {
		return 0, false
	}
	for {
		word := bus.Load64(whole) // big-endian: the first byte is the highest
		part := word >> shift
		if size == 4 {
			part &= 1<<32 - 1
		}
		old = e.order(part, size)
		v := e.order(f(old), size)
		if size == 4 {
			v = word&^(uint64(1<<32-1)<<shift) | v&(1<<32-1)<<shift
		}
		if bus.CompareAndSwap64(whole, word, v) {
			return old, true
		}
	}
}

// exchange4 is for a 4-byte word whose neighbour isn't accessible through the key.
func (e *Engine) exchange4(b []byte, f func(uint64) uint64) (old uint64, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	old = e.order(uint64(bus.Load32(b)), 4)
	bus.Store32(b, uint32(e.order(f(old), 4)))
	return old, true
}

// order converts a big-endian word to the byte order of atomics.
func (e *Engine) order(v uint64, size int) uint64 {
	if e.c.AtomicBigEndian {
		return v
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v<<(64-8*size))
	if size == 4 {
		return uint64(binary.LittleEndian.Uint32(b[:]))
	}
	return binary.LittleEndian.Uint64(b[:])
}
