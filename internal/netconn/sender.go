package netconn

import "github.com/goverbs/goverbs/verbs"

// A Sender copies bytes to a send buffer, and posts them in messages. It counts the free space of the buffer and the
// free slots of the send queue. The caller of its methods holds Waits.Mu.
//
// The lower 61 bits of a request's WRID have the numbers of requests and of bytes that its completion frees. The bits
// above them are the connection's.
type Sender struct {
	Memory *verbs.MR // the send buffer is its first bytes
	Size   int       // of the send buffer
	Queue  int       // the number of slots for data
	Inline int       // the largest message that is not copied to the buffer

	Room     func() int   // how many bytes the peer lets the next message have
	Writable func() error // why nothing may be written
	Post     func(wr *verbs.SendWR, n int) error

	Slots         int // free slots in the send queue for data
	space         int // free bytes in the send buffer
	fillAt        int // where the next byte goes in the send buffer
	unsignaledWRs uint64
	unsignaledLen uint64       // since the last signaled request, as unsignaledWRs
	wr            verbs.SendWR // the next request, here because what a func value gets is on the heap
	sgl           [1]verbs.SGE
	single        [1][]byte
}

const (
	// FirstMessage and LongMessage bound the sizes of a Write's first message and of its later ones, which double. A
	// long Write begins with short messages, which overlaps copying and sending.
	FirstMessage = 2 << 10
	LongMessage  = 64 << 10

	// lowWater is the free space in the send buffer that Write waits for. With less, it would send many short
	// messages.
	lowWater = 2048
)

// Init makes all slots and the buffer free.
func (s *Sender) Init() { s.Slots, s.space = s.Queue, s.Size }

// HasSlot reports whether a message from other memory than the send buffer can be posted.
func (s *Sender) HasSlot() (bool, error) {
	err := s.Writable()
	return err == nil && s.Slots > 0 && s.Room() > 0, err
}

// HasSpace reports whether the send buffer has enough free space for Write to go on.
func (s *Sender) HasSpace() bool { return s.space >= min(lowWater, s.Size/2) }

// hasRoom reports whether Write can send a message.
func (s *Sender) hasRoom() (bool, error) {
	ok, err := s.HasSlot()
	return ok && s.HasSpace(), err
}

// Write sends b.
func (s *Sender) Write(w *Waits, side *Side, b []byte) (int, error) {
	s.single[0] = b
	n, err := s.WriteBuffers(w, side, s.single[:])
	s.single[0] = nil
	return int(n), err
}

// WriteBuffers sends the buffers as if they were one. It returns when the last byte is in the send buffer, or on its
// way.
func (s *Sender) WriteBuffers(w *Waits, side *Side, bufs [][]byte) (n int64, err error) {
	left := int64(0)
	for _, b := range bufs {
		left += int64(len(b))
	}
	if left == 0 {
		return 0, s.Writable()
	}
	i, at := 0, 0 // the next byte is bufs[i][at]
	for long := FirstMessage; left > 0; {
		if err := Await(w, side, s, (*Sender).hasRoom); err != nil {
			return n, err
		}
		m := min(int(min(left, int64(long))), s.Room())
		for at == len(bufs[i]) {
			i, at = i+1, 0
		}
		if m <= s.Inline && m <= len(bufs[i])-at {
			s.Request(bufs[i][at : at+m])
			at += m
		} else {
			to := s.Piece(m)
			m = len(to)
			w.Mu.Unlock() // nobody else touches these bytes
			for filled := 0; filled < m; {
				if at == len(bufs[i]) {
					i, at = i+1, 0
				}
				copied := copy(to[filled:], bufs[i][at:])
				filled, at = filled+copied, at+copied
			}
			w.Mu.Lock()
			if err := s.Writable(); err != nil {
				return n, err
			}
			s.Filled(m)
		}
		err := s.Post(&s.wr, m)
		s.wr.Inline = nil // the caller's
		if err != nil {
			return n, err
		}
		n, left = n+int64(m), left-int64(m)
		long = min(2*long, LongMessage)
	}
	return n, nil
}

// Piece returns the part of the send buffer for the next message, of at most n bytes. At the end of the buffer it may
// be short. HasSpace has reported true.
func (s *Sender) Piece(n int) []byte {
	n = min(n, s.space, s.Size-s.fillAt)
	return s.Memory.Bytes()[s.fillAt : s.fillAt+n]
}

// Request returns a request whose bytes are inline. The caller sets what it is to do: Opcode, Imm and Remote. Not every
// request is signaled. But when Write waits for space or for slots, an earlier request is signaled, because unsignaled
// ones in a row take about a quarter of them at most.
func (s *Sender) Request(inline []byte) *verbs.SendWR {
	s.wr.Inline, s.wr.SGL = inline, nil
	return s.signaled()
}

// Filled is like Request, for the first n bytes of Piece.
func (s *Sender) Filled(n int) *verbs.SendWR {
	s.sgl[0] = s.Memory.SGE(s.fillAt, n)
	s.space -= n
	s.unsignaledLen += uint64(n)
	if s.fillAt += n; s.fillAt == s.Size {
		s.fillAt = 0
	}
	s.wr.Inline, s.wr.SGL = nil, s.sgl[:]
	return s.signaled()
}

// signaled returns the request, signaled if it is time to.
func (s *Sender) signaled() *verbs.SendWR {
	s.wr.WRID, s.wr.Flags = 0, 0
	if s.unsignaledWRs >= uint64(s.Queue/4) || s.unsignaledLen > uint64(s.Size/4) {
		s.wr.Flags = verbs.SendSignaled
	}
	return &s.wr
}

// Take gives a request one of the slots.
func (s *Sender) Take(wr *verbs.SendWR) {
	s.Slots--
	s.unsignaledWRs++
	wr.WRID |= s.unsignaledWRs<<32 | s.unsignaledLen
	if wr.Flags&verbs.SendSignaled != 0 {
		s.unsignaledWRs, s.unsignaledLen = 0, 0
	}
}

// Completed frees what the completed request and the unsignaled ones before it have taken.
func (s *Sender) Completed(wrid uint64) {
	s.Slots += int(wrid >> 32 & 0xffff)
	s.space += int(uint32(wrid))
}

// Taken returns the slots and bytes that are not free, except those of requests after the last signaled one.
func (s *Sender) Taken() (slots, bytes int) {
	return s.Queue - s.Slots - int(s.unsignaledWRs), s.Size - s.space - int(s.unsignaledLen)
}
