package s3rdma

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/verbs"
)

// A transfer moves bytes between a lane's chunks and the memory of a token, in order. The k-th request uses the lane's chunk
// k modulo depth.
type transfer struct {
	s     *Server
	token Token
	ctx   context.Context
	size  int   // bytes to move, at most the token's
	lane  *lane // nil before the first byte, and after the end
	posts int   // requests that were posted
	waits int   // requests that are done
	err   error
}

// begin takes a lane.
func (t *transfer) begin() error {
	if t.lane == nil && t.err == nil {
		if t.lane, t.err = t.s.take(t.token.port()); t.err == nil {
			t.err = t.lane.aim(t.token.port())
		}
	}
	return t.err
}

// place returns where the memory of the k-th request is in the lane's MR.
func (t *transfer) place(k int) int { return k % depth * t.s.o.ChunkBytes }

// chunk returns the first n bytes of the memory of the k-th request.
func (t *transfer) chunk(k, n int) []byte {
	at := t.place(k)
	return t.lane.mr.Bytes()[at : at+n : at+t.s.o.ChunkBytes]
}

// post posts the next request, for n bytes of an MR at a place, and at off of the token's memory.
func (t *transfer) post(op verbs.Opcode, mr *verbs.MR, at, n, off int) error {
	if t.err == nil {
		if t.err = t.lane.post(op, mr, at, n, &t.token, off); t.err == nil {
			t.posts++
		}
	}
	return t.err
}

// wait waits until the k-th request is done.
func (t *transfer) wait(k int) error {
	for t.err == nil && t.waits <= k {
		if t.err = t.lane.wait(t.ctx); t.err == nil {
			t.waits++
		}
	}
	return t.err
}

// end gives the lane back, and ends what is in flight.
func (t *transfer) end() {
	if t.lane != nil {
		t.s.give(t.lane)
		t.lane = nil
	}
}

// A source is the body of a PUT, in the client's memory: the Body of the request that the handler gets. It
// reads ahead.
type source struct {
	// mu protects the fields below. The handler's server may read the body in a goroutine that outlives the
	// handler.
	mu sync.Mutex
	transfer
	front  int // the chunk that is being read
	off    int // bytes of it that were read
	closed bool

	// What the answer says is known without mu, which WriteTo may hold as long as its writer hangs.
	read   atomic.Int64           // bytes that were read in all
	failed atomic.Pointer[string] // why no more came
}

var errEnded = errors.New("s3rdma: the request has ended")

// length returns the length of chunk k.
func (b *source) length(k int) int { return min(b.s.o.ChunkBytes, b.size-k*b.s.o.ChunkBytes) }

// next returns unread bytes of the front chunk.
func (b *source) next() ([]byte, error) {
	if b.closed {
		return nil, errEnded
	}
	if b.read.Load() == int64(b.size) {
		return nil, io.EOF
	}
	if err := b.fetch(); err != nil {
		why := err.Error()
		b.failed.Store(&why)
		return nil, err
	}
	return b.chunk(b.front, b.length(b.front))[b.off:], nil
}

// fetch makes sure that the front chunk is there, and that the chunks behind it are on their way.
func (b *source) fetch() error {
	if err := b.begin(); err != nil {
		return err
	}
	for b.posts < b.front+depth && b.posts*b.s.o.ChunkBytes < b.size {
		k := b.posts
		if err := b.post(verbs.OpRDMARead, b.lane.mr, b.place(k), b.length(k), k*b.s.o.ChunkBytes); err != nil {
			return err
		}
	}
	return b.wait(b.front)
}

// took counts n bytes as read.
func (b *source) took(n int) {
	b.off += n
	b.read.Add(int64(n))
	if b.off == b.length(b.front) {
		b.front, b.off = b.front+1, 0
	}
}

func (b *source) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	mem, err := b.next()
	if err != nil || len(p) == 0 {
		return 0, err
	}
	n := copy(p, mem)
	b.took(n)
	b.s.stats.copied.Add(uint64(n))
	return n, nil
}

// WriteTo passes the chunks themselves on, without a copy.
func (b *source) WriteTo(w io.Writer) (total int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		mem, err := b.next()
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return total, err
		}
		n, err := w.Write(mem)
		b.took(n)
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
}

func (b *source) Close() error { return nil }

// finish ends the transfer.
func (b *source) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.end()
}

// A sink writes the body of a GET to the client's memory.
type sink struct {
	transfer
	off   int // bytes in the chunk that is being filled
	wrote int // bytes in all
}

// room returns the free part of the chunk that is being filled.
func (b *sink) room() ([]byte, error) {
	if err := b.begin(); err != nil {
		return nil, err
	}
	k := b.posts
	if b.off == 0 && k >= depth {
		if err := b.wait(k - depth); err != nil {
			return nil, err
		}
	}
	return b.chunk(k, min(b.s.o.ChunkBytes, b.size-b.wrote+b.off))[b.off:], nil
}

// filled counts n bytes as written, and posts the chunk when it is full.
func (b *sink) filled(n int) error {
	b.off += n
	b.wrote += n
	if b.off == b.s.o.ChunkBytes || b.wrote == b.size {
		return b.flush()
	}
	return nil
}

// flush posts what is in the chunk.
func (b *sink) flush() error {
	n := b.off
	b.off = 0
	return b.post(verbs.OpRDMAWrite, b.lane.mr, b.place(b.posts), n, b.wrote-n)
}

// lend writes n bytes of an MR from where they are. When it returns, no device reads them.
func (b *sink) lend(mr *verbs.MR, at, n int) error {
	err := b.begin()
	if err == nil && b.off > 0 {
		err = b.flush()
	}
	if err == nil {
		err = b.wait(b.posts - depth)
	}
	if err == nil {
		err = b.post(verbs.OpRDMAWrite, mr, at, n, b.wrote)
	}
	if err == nil {
		b.wrote += n
		err = b.wait(b.posts - 1)
	}
	if err != nil {
		b.end()
	}
	return err
}

// Write copies p.
func (b *sink) Write(p []byte) (total int, err error) {
	for len(p) > 0 {
		if b.wrote == b.size {
			return total, io.ErrShortWrite
		}
		mem, err := b.room()
		if err != nil {
			return total, err
		}
		n := copy(mem, p)
		b.s.stats.copied.Add(uint64(n))
		p, total = p[n:], total+n
		if err := b.filled(n); err != nil {
			return total, err
		}
	}
	return total, nil
}

// ReadFrom reads into the chunks, without a copy. What a memory has isn't even read.
func (b *sink) ReadFrom(r io.Reader) (total int64, err error) {
	limit := &io.LimitedReader{R: r, N: int64(b.size)}
	if l, ok := r.(*io.LimitedReader); ok {
		limit = l
	}
	if m, ok := limit.R.(*memoryReader); ok {
		if n := min(limit.N, int64(b.size-b.wrote), m.n-m.at); n > 0 {
			if err := b.lend(m.mr, int(m.off+m.at), int(n)); err != nil {
				return 0, err
			}
			m.at, limit.N = m.at+n, limit.N-n
			return n, nil
		}
	}
	for b.wrote < b.size {
		mem, err := b.room()
		if err != nil {
			return total, err
		}
		n, err := r.Read(mem)
		total += int64(n)
		if n > 0 {
			if err := b.filled(n); err != nil {
				return total, err
			}
		}
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return total, err
		}
	}
	return total, nil
}

// finish waits until all bytes are in the client's memory.
func (b *sink) finish() error {
	if b.err == nil && b.wrote < b.size {
		b.err = io.ErrUnexpectedEOF
	}
	return b.wait(b.posts - 1)
}
