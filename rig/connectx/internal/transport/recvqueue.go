package transport

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
	"github.com/goverbs/goverbs/rig/connectx/internal/mutant"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// recvQueue is a ring of receive WQEs, or a list of them if it is an SRQ.
type recvQueue struct {
	owner    string // the kind of its owner, and the owner's number
	number   uint32
	buf      *bus.Buffer
	logSize  uint8
	stride   int
	dbr      uint64 // of the producer's counter
	sig      bool
	linked   bool // each WQE begins with the index of the next
	pads     bool // bit 31 of a length asks for padding before a packet: an Ethernet queue's (Linux, MLX5_HW_START_PADDING)
	bad      bool
	consumer uint16 // the number of consumed WQEs
	head     uint16 // the next WQE of a list
}

// recvWQE is a receive WQE that was consumed from its queue.
type recvWQE struct {
	used   bool
	index  uint16 // wqe_counter of its completion
	length int    // of the memory that it scatters to
	segs   []segment
}

// segment is a data segment.
type segment struct {
	length int
	key    uint32
	addr   uint64
}

func (r *recvQueue) reset() {
	r.consumer, r.head, r.bad = 0, 0, false
}

// producer returns the driver's counter.
func (r *recvQueue) producer(e *Engine) uint16 {
	if r.buf == nil {
		return 0
	}
	n, ok := e.counter(r.dbr, r.owner, r.number)
	if !ok {
		r.bad = true
		return r.consumer
	}
	return n
}

// available returns the number of posted WQEs.
func (r *recvQueue) available(e *Engine) int {
	if r.buf == nil || r.bad {
		return 0
	}
	return min(int(r.producer(e)-r.consumer), 1<<r.logSize)
}

// take fetches the next WQE. It reports false if there is none.
func (r *recvQueue) take(e *Engine, w *recvWQE) bool {
	if r.available(e) == 0 {
		return false
	}
	i := r.consumer
	if r.linked {
		i = r.head
	}
	raw := e.wqe[:r.stride]
	place := i & (1<<r.logSize - 1)
	if e.c.Mutant.Is(mutant.ReceiveStale) && !r.linked && place == 1<<r.logSize-1 && r.consumer > 0 {
		place--
	}
	if !readRing(e, r.buf, uint64(place)*uint64(r.stride), raw) {
		r.bad = true
		return false
	}
	w.used, w.index = true, i
	if r.linked {
		r.head = binary.BigEndian.Uint16(raw[2:])
		if r.head>>r.logSize != 0 {
			e.violation("WQE %d of %s %#x is followed by %d, beyond its end", i, r.owner, r.number, r.head)
			r.head &= 1<<r.logSize - 1
		}
		raw = raw[16:]
	}
	r.consumer++
	if r.sig && len(raw) >= 16 {
		raw = raw[16:]
	}
	w.segs, w.length = w.segs[:0], 0
	for len(raw) >= 16 {
		n, key := binary.BigEndian.Uint32(raw), binary.BigEndian.Uint32(raw[4:])
		if n == 0 && key == mkey.InvalidLkey {
			break
		}
		if n>>31 != 0 {
			if !r.pads {
				e.violation("WQE %d of %s %#x has data of its own in a segment", i, r.owner, r.number)
			}
			n &= 1<<31 - 1
		}
		if n == 0 {
			n = 1 << 31 // as documented; drivers omit empty segments
		}
		w.segs = append(w.segs, segment{int(n), key, binary.BigEndian.Uint64(raw[8:])})
		w.length += int(n)
		raw = raw[16:]
	}
	return true
}

// readRing copies a queue's entry. Pages end at multiples of 64 bytes, or of the entry
// size if that is smaller.
func readRing(e *Engine, b *bus.Buffer, off uint64, to []byte) bool {
	for len(to) > 0 {
		n := min(len(to), 64)
		from := b.Bytes(e.c.Memory, off, n)
		if from == nil {
			// After a receive queue shorter than 64 bytes, send blocks may cross a page's end.
			if n = 16; len(to) < n {
				return false
			}
			if from = b.Bytes(e.c.Memory, off, n); from == nil {
				return false
			}
		}
		copy(to, from)
		to = to[n:]
		off += uint64(n)
	}
	return true
}

// scatter writes data to a receive WQE's buffers, from offset off on.
func (e *Engine) scatter(segs []segment, off int, data []byte, pd uint32, rlkey bool) mkey.Fault {
	for i := range segs {
		s := &segs[i]
		if off >= s.length {
			off -= s.length
			continue
		}
		if len(data) == 0 {
			return mkey.FaultNone
		}
		n := min(len(data), s.length-off)
		if f := e.write(s.key, pd, rlkey, s.addr+uint64(off), data[:n]); f != mkey.FaultNone {
			return f
		}
		data = data[n:]
		off = 0
	}
	if len(data) > 0 {
		return mkey.FaultBounds
	}
	return mkey.FaultNone
}

// write puts data into local memory.
func (e *Engine) write(key, pd uint32, rlkey bool, addr uint64, data []byte) mkey.Fault {
	if key == mkey.ReservedLkey && !rlkey {
		return mkey.FaultKey
	}
	var f mkey.Fault
	e.pieces, f = e.c.Keys.Resolve(e.pieces[:0], key, pd, mkey.AnyQP, addr, len(data), mkey.LocalWrite)
	if f != mkey.FaultNone {
		return f
	}
	e.beyond(key, pd, addr, len(data))
	for _, p := range e.pieces {
		data = data[copy(p, data):]
	}
	return f
}
