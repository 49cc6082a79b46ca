package recorder

import (
	"encoding/binary"
	"syscall"
	"time"
)

// A Record is a recorded system call.
type Record struct {
	Thread   int
	Ioctl    bool // RDMA_VERBS_IOCTL; otherwise mmap
	Args     [6]uint64
	Start    time.Time
	Returned bool // if false, the next fields are not set
	End      time.Time
	Result   int64

	before, after []piece
}

// A piece is a recorded part of the program's memory.
type piece struct {
	addr uint64
	b    []byte
}

// Before fills b from the program's memory as it was before the call, or fails.
func (r *Record) Before(addr uint64, b []byte) error { return read(r.before, addr, b) }

// After fills b from the program's memory as it was after the call, or fails.
func (r *Record) After(addr uint64, b []byte) error { return read(r.after, addr, b) }

func read(pieces []piece, addr uint64, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	for _, p := range pieces {
		if at := addr - p.addr; addr >= p.addr && at <= uint64(len(p.b)) && uint64(len(p.b))-at >= uint64(len(b)) {
			copy(b, p.b[at:])
			return nil
		}
	}
	return syscall.EFAULT
}

// record returns the record in a copied slot. The slot and the state may hold anything. It
// returns false if there is no call, or data that a recorder does not write.
func (s *slot) record(state uint32, known []method) (*Record, bool) {
	phase := state & phaseMask
	r := &Record{Thread: int(state >> phaseShift), Args: s.args, Start: timeOf(s.start), Ioctl: s.call == callIoctl}
	if phase < phaseCalling {
		return nil, false
	}
	if phase == phaseEnded {
		r.Returned, r.End, r.Result = true, timeOf(s.end), s.result
		if r.End.Before(r.Start) {
			r.End = r.Start // the clock was set
		}
	}
	switch {
	case s.call == callMmap:
		return r, true
	case !r.Ioctl || r.Args[1]&(1<<32-1) != verbsIoctl:
		return nil, false
	}
	total := uint64(s.head) + uint64(s.in) + uint64(s.want)
	if s.head < headBytes || s.head > maxHead || s.head%attrBytes != headBytes%attrBytes || total > dataBytes || s.out > s.want {
		return nil, false
	}
	head := s.data[:s.head]
	in := s.data[s.head:][:s.in]
	out := s.data[s.head+s.in:][:s.out]
	object, id := binary.NativeEndian.Uint16(head[2:]), binary.NativeEndian.Uint16(head[4:])
	if object >= objects || id >= methods {
		return nil, false
	}
	m := &known[int(object)<<methodsShift|int(id)]
	arg := r.Args[2]
	r.before = append(r.before, piece{arg, head})
	if r.Returned && r.Result >= 0 {
		r.after = append(r.after, piece{arg, cut(&out, len(head))})
	}
	for a := head[headBytes:]; len(a) > 0; a = a[attrBytes:] {
		n, ok := bit(binary.NativeEndian.Uint16(a))
		if !ok {
			return nil, false
		}
		length, addr := int(binary.NativeEndian.Uint16(a[2:])), binary.NativeEndian.Uint64(a[8:])
		switch {
		case m.in>>n&1 != 0:
			if length > inWord {
				r.before = append(r.before, piece{addr, cut(&in, length)})
			}
		case m.out>>n&1 != 0:
			r.after = append(r.after, piece{addr, cut(&out, length)})
		}
	}
	return r, true
}

// cut removes and returns the first n bytes, or all bytes if there are fewer.
func cut(b *[]byte, n int) []byte {
	n = min(n, len(*b))
	first := (*b)[:n]
	*b = (*b)[n:]
	return first
}

// timeOf returns the time of a struct timespec.
func timeOf(t [2]int64) time.Time {
	const max = 1 << 33 // in the year 2242; JSON has no times after 9999
	return time.Unix(t[0]&(max-1), t[1]&(1<<30-1))
}
