package s3rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// smallest is the logarithm of the smallest size of buffers. Each buffer has a registration of its own,
// which covers whole pages in any case.
const smallest = 12

// A pool keeps registered buffers, by size: powers of two. Each buffer is an MR of its own, so that a key
// opens nothing but one buffer.
type pool struct {
	pd  *verbs.PD
	max int // bytes

	mu     sync.Mutex
	bytes  int // registered
	free   [uses][bits.UintSize][]*verbs.MR
	closed bool
}

// The uses of buffers, which the peer may read or write.
const (
	forPut = iota
	forGet
	uses
)

var accesses = [uses]verbs.AccessFlags{forPut: verbs.AccessRemoteRead, forGet: verbs.AccessLocalWrite | verbs.AccessRemoteWrite}

// errNoMemory: the limit of memory is reached.
var errNoMemory = errors.New("s3rdma: all memory is in use")

// sizeClass returns the logarithm of the size of the buffer that holds n bytes.
func sizeClass(n int) int { return max(bits.Len(uint(n-1)), smallest) }

// get returns a buffer of at least n bytes. At the limit, it deregisters free buffers of other sizes.
func (p *pool) get(use, n int) (*verbs.MR, error) {
	class := sizeClass(n)
	mr, err := p.reserve(use, class)
	if mr != nil || err != nil {
		return mr, err
	}
	if mr, err = p.pd.AllocMR(1<<class, verbs.MROptions{Access: accesses[use]}); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.bytes -= 1 << class
	}
	return mr, err
}

// reserve returns a free buffer, or counts one that is to be registered.
func (p *pool) reserve(use, class int) (*verbs.MR, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, verbs.ErrClosed
	}
	if list := p.free[use][class]; len(list) > 0 {
		mr := list[len(list)-1]
		p.free[use][class] = list[:len(list)-1]
		return mr, nil
	}
	for p.bytes+1<<class > p.max {
		if 1<<class > p.max || !p.evict() {
			return nil, errNoMemory
		}
	}
	p.bytes += 1 << class
	return nil, nil
}

// evict deregisters one free buffer, of the largest.
func (p *pool) evict() bool {
	for class := bits.UintSize - 1; class >= smallest; class-- {
		for use := range p.free {
			if list := p.free[use][class]; len(list) > 0 {
				p.free[use][class] = list[:len(list)-1]
				p.close(list[len(list)-1])
				return true
			}
		}
	}
	return false
}

// close deregisters a buffer. An MR that can't be closed stays counted: PD.Close reports it.
func (p *pool) close(mr *verbs.MR) {
	if mr.Close() == nil {
		p.bytes -= mr.Len()
	}
}

// put takes a buffer back. A revoked buffer is deregistered.
func (p *pool) put(use int, mr *verbs.MR, revoke bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if revoke || p.closed {
		p.close(mr)
		return
	}
	class := sizeClass(mr.Len())
	p.free[use][class] = append(p.free[use][class], mr)
}

// end deregisters the free buffers, and from now on those that come back.
func (p *pool) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for p.evict() {
	}
}

// A lent is the caller's memory for a request.
type lent struct {
	mr     *verbs.MR
	off, n int
}

type lentKey struct{}

// WithMemory returns a context for one request, whose body is in the caller's memory: n bytes at off of
// an MR on [Client.PD]. Clients of S3 pass it on to the RoundTripper.
//
// A PUT's body must be these bytes, registered with AccessRemoteRead, and n its length. The Client
// offers the memory in place of a copy, and reads the body only if it goes over HTTP: bytes.NewReader of the
// same memory will do, or [Unreadable] for memory of a GPU.
//
// A GET's body is written to the memory, registered with AccessLocalWrite and AccessRemoteWrite. When the answer
// has come, the memory has the body, whether it came by RDMA or over HTTP. The body that the caller reads is that
// memory. A body of more than n bytes is an error.
//
// After an error, the server may still read or write the memory, until the MR is closed.
func WithMemory(ctx context.Context, mr *verbs.MR, off, n int) context.Context {
	return context.WithValue(ctx, lentKey{}, lent{mr, off, n})
}

// ErrUnreadable: the bytes are in memory that the processor can't read.
var ErrUnreadable = errors.New("s3rdma: the memory can't be read by the processor")

// Unreadable returns a body of n bytes that can't be read: each Read returns ErrUnreadable. It stands for
// memory that only devices read, such as a GPU's, which [WithMemory] names. Requests must not be signed by their
// content then: with UNSIGNED-PAYLOAD, and without a checksum.
func Unreadable(n int64) io.ReadSeeker { return io.NewSectionReader(unreadable{}, 0, n) }

type unreadable struct{}

func (unreadable) ReadAt([]byte, int64) (int, error) { return 0, ErrUnreadable }

// NewMemoryReader returns a reader of n bytes at off of an MR on [Server.PD], for handlers behind a Server. By
// http.ServeContent and io.Copy, they go from there to the client's memory: no processor copies them, and they may be
// in the memory of a GPU. When these return, no device reads the memory. Where the processor can read it, it also goes over
// HTTP. NewMemoryReader panics if the MR is shorter.
func NewMemoryReader(mr *verbs.MR, off, n int) io.ReadSeeker {
	mr.SGE(off, n) // panics like a slice expression
	return &memoryReader{mr: mr, off: int64(off), n: int64(n)}
}

type memoryReader struct {
	mr         *verbs.MR
	off, n, at int64
}

func (m *memoryReader) Read(p []byte) (int, error) {
	if m.at >= m.n {
		return 0, io.EOF
	}
	mem := m.mr.Bytes()
	if mem == nil {
		return 0, ErrUnreadable
	}
	n := copy(p, mem[m.off+m.at:m.off+m.n])
	m.at += int64(n)
	return n, nil
}

func (m *memoryReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += m.at
	case io.SeekEnd:
		offset += m.n
	}
	if offset < 0 {
		return 0, fmt.Errorf("s3rdma: %w: seek to %d", verbs.ErrInvalid, offset)
	}
	m.at = offset
	return offset, nil
}

// A body is the body of a request or an answer in registered memory.
type body struct {
	mu      sync.Mutex
	data    []byte // what is left
	err     error  // at the end of data
	release func() // returns the memory; nil after that
	copied  func(int)
}

var errBodyClosed = errors.New("s3rdma: read on closed body")

func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.data) == 0 {
		b.end() // of an empty body
		return 0, b.err
	}
	n := copy(p, b.data)
	b.copied(n)
	b.took(n)
	return n, nil
}

// took counts n bytes as read. The memory isn't needed after the last one: as with net/http's bodies, who has read all need
// not call Close.
func (b *body) took(n int) {
	if b.data = b.data[n:]; len(b.data) == 0 {
		b.end()
	}
}

func (b *body) end() {
	if b.release != nil {
		b.release()
	}
	b.data, b.release = nil, nil
}

// WriteTo passes the memory itself on, without a copy.
func (b *body) WriteTo(w io.Writer) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := w.Write(b.data)
	b.took(n)
	if err == nil && b.err != io.EOF {
		err = b.err
	}
	return int64(n), err
}

func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end()
	b.err = errBodyClosed
	return nil
}
