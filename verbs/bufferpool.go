package verbs

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/internal/memorder"
)

// BufferPoolOptions are the arguments of NewBufferPool.
type BufferPoolOptions struct {
	Access AccessFlags // of the memory

	// MaxBytes limits the memory that the pool registers; 0 for no limit. At the limit, Get
	// returns an error that matches ErrPoolExhausted.
	MaxBytes int

	// SlabBytes is the size of a registration, which the pool divides into buffers of one
	// size: a power of two from 4096 on, or 0 for 2 MiB, a huge page. Larger buffers are
	// registered one by one.
	SlabBytes int

	// Register registers n bytes. The default is PD.AllocMR. For a pool of GPU memory, Register
	// exports n bytes as a dma-buf and returns the MR of PD.RegDmabufMR. The pool closes the MR.
	Register func(n int) (*MR, error)
}

// A BufferPool hands out buffers in registered memory outside the Go heap. It keeps
// released buffers for the next Get, by size: powers of two from 256 bytes on. Its methods
// are safe for concurrent use.
//
// A work request uses its buffer until it completes, even if the wait for its completion is
// cancelled. So each request should hold its own reference:
//
//	b, err := pool.Get(4096)
//	qp.PostSend(verbs.SendWR{WRID: b.WRID(), SGL: []verbs.SGE{b.SGE()}, …}) // from now on, the reference is the request's
//	…
//	cq.Poll(wcs)
//	b = pool.Completed(wcs[0].WRID) // the reference is the caller's again
//	b.Release()
//
// A caller that uses the buffer while the request is in flight calls Retain before posting,
// and Release later.
type BufferPool struct {
	pd *PD
	o  BufferPoolOptions

	classes [bits.UintSize]bufferClass

	mu      sync.Mutex // protects the fields below
	slabs   []*MR
	bytes   int
	closed  bool
	buffers atomic.Pointer[[]*Buffer] // indexed by number; replaced when the pool grows
}

// A bufferClass holds the free buffers of one size.
type bufferClass struct {
	free   *Buffer                                       // a linked list
	mu     queueLock                                     // held for nanoseconds, and by Close
	closed bool                                          // the pool is closed, and free stays nil
	_      [64 - 8 - unsafe.Sizeof(queueLock{}) - 1]byte // pads each class to its own cache line
}

// smallest is the logarithm of the smallest size of buffers.
const smallest = 8

// A Buffer is a piece of registered memory from a BufferPool.
type Buffer struct {
	pool   *BufferPool
	mr     *MR
	next   *Buffer // in the free list
	number uint32
	class  uint8
	off    int
	n      int // the length requested from Get

	// refs counts the references. The last reference is dropped under the lock of the
	// class. That takes no read-modify-write instruction, because nobody else may add a
	// reference then.
	refs uint32
}

// NewBufferPool creates a pool whose memory belongs to the PD. It registers nothing before
// the first Get.
func (pd *PD) NewBufferPool(o BufferPoolOptions) (*BufferPool, error) {
	const op = "create buffer pool"
	if err := hold(op, pd.base()); err != nil {
		return nil, err
	}
	defer pd.drop()
	if o.SlabBytes == 0 {
		o.SlabBytes = 2 << 20
	}
	if o.SlabBytes < 4096 || o.SlabBytes&(o.SlabBytes-1) != 0 {
		return nil, invalid(op, "SlabBytes %d is not a power of two of at least 4096", o.SlabBytes)
	}
	if o.MaxBytes < 0 {
		return nil, invalid(op, "MaxBytes %d is negative", o.MaxBytes)
	}
	if err := o.Access.check(op); err != nil {
		return nil, err
	}
	p := &BufferPool{pd: pd, o: o}
	if o.Register == nil {
		p.o.Register = func(n int) (*MR, error) { return pd.AllocMR(n, MROptions{Access: o.Access}) }
	}
	p.buffers.Store(new([]*Buffer))
	return p, nil
}

// Get returns a buffer of n bytes with one reference, the caller's. The buffer has the
// contents that its last user left. Get allocates and registers memory only if there is no
// free buffer of the size.
func (p *BufferPool) Get(n int) (*Buffer, error) {
	if p == nil {
		return nil, opErr("get buffer", "", ErrClosed)
	}
	if n < 1 || n > 1<<30 {
		return nil, invalid("get buffer", "%d bytes: a buffer has 1 byte to 1 GiB", n)
	}
	class := max(bits.Len(uint(n-1)), smallest)
	c := &p.classes[class]
	c.mu.Lock()
	b := c.free
	if b == nil {
		c.mu.Unlock()
		var err error
		if b, err = p.grow(class); err != nil {
			return nil, err
		}
	} else {
		c.free = b.next
		c.mu.Unlock()
	}
	b.next, b.n = nil, n
	memorder.StoreRelease(&b.refs, 1) // read by Completed
	return b, nil
}

// grow registers memory for a class, and returns one of its buffers.
func (p *BufferPool) grow(class int) (*Buffer, error) {
	const op = "get buffer"
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, opErr(op, "", ErrClosed)
	}
	size := 1 << class
	length := max(size, p.o.SlabBytes)
	if left := p.o.MaxBytes - p.bytes; p.o.MaxBytes != 0 && length > left {
		// The last slab may be smaller.
		if length = left &^ (size - 1); length == 0 {
			return nil, opErr(op, fmt.Sprintf("%d B, %d of %d B in use", size, p.bytes, p.o.MaxBytes), ErrPoolExhausted)
		}
	}
	mr, err := p.o.Register(length)
	if err != nil {
		return nil, err
	}
	if mr.Len() < length {
		return nil, errors.Join(invalid(op, "Register returned an MR of %d bytes, want %d", mr.Len(), length), mr.Close())
	}
	p.slabs, p.bytes = append(p.slabs, mr), p.bytes+length
	old := *p.buffers.Load()
	all := append(old[:len(old):len(old)], make([]*Buffer, length/size)...)
	made := make([]Buffer, length/size)
	for i := range made {
		b := &made[i]
		b.pool, b.mr, b.number, b.class, b.off = p, mr, uint32(len(old)+i), uint8(class), i*size
		all[len(old)+i] = b
		if i > 1 {
			b.next = &made[i-1]
		}
	}
	p.buffers.Store(&all)
	if len(made) > 1 {
		c := &p.classes[class]
		c.mu.Lock()
		made[1].next, c.free = c.free, &made[len(made)-1]
		c.mu.Unlock()
	}
	return &made[0], nil
}

// Completed returns the buffer with this WRID. The work request's reference becomes the
// caller's. Completed returns nil if no buffer in use has the WRID.
func (p *BufferPool) Completed(wrid uint64) *Buffer {
	all := *p.buffers.Load()
	if wrid >= uint64(len(all)) || atomic.LoadUint32(&all[wrid].refs) == 0 {
		return nil
	}
	return all[wrid]
}

// Close deregisters the pool's memory. It returns ErrBusy while there are references to buffers,
// and may then be called again. Without a QP on the PD no request is in flight, so Close ignores
// references; buffers must not be used after that. If an MR can't be closed, Close returns its
// error, and may be called again. Closing a closed pool does nothing.
func (p *BufferPool) Close() error {
	const op = "close buffer pool"
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed && len(p.slabs) == 0 {
		return nil
	}
	// No Get may take a free buffer from now on.
	for i := range p.classes {
		p.classes[i].mu.Lock()
		defer p.classes[i].mu.Unlock()
	}
	used := 0
	for _, b := range *p.buffers.Load() {
		if atomic.LoadUint32(&b.refs) != 0 {
			used++
		}
	}
	if used > 0 && p.pd.hasQP() {
		return opErr(op, fmt.Sprintf("%d buffers", used), ErrBusy)
	}
	for i := range p.classes {
		p.classes[i].free, p.classes[i].closed = nil, true
	}
	p.buffers.Store(new([]*Buffer))
	p.closed = true
	var errs []error
	p.slabs = slices.DeleteFunc(p.slabs, func(mr *MR) bool {
		err := mr.Close()
		errs = append(errs, err)
		return err == nil
	})
	return errors.Join(errs...)
}

// Bytes returns the buffer's memory, or nil if the memory isn't mapped, such as a GPU's.
func (b *Buffer) Bytes() []byte {
	if mem := b.mr.Bytes(); mem != nil {
		return mem[b.off : b.off+b.n : b.off+1<<b.class]
	}
	return nil
}

// Len returns the length requested from Get.
func (b *Buffer) Len() int { return b.n }

// SGE returns the scatter/gather entry of the whole buffer.
func (b *Buffer) SGE() SGE { return b.mr.SGE(b.off, b.n) }

// Remote returns the address and key with which a peer reads or writes the buffer.
func (b *Buffer) Remote() Remote { return b.mr.Remote().At(uint64(b.off)) }

// WRID returns the ID for a work request that uses the buffer: see BufferPool.Completed.
// Requests without a buffer may use IDs from 1<<32 on.
func (b *Buffer) WRID() uint64 { return uint64(b.number) }

// Retain adds a reference.
func (b *Buffer) Retain() { atomic.AddUint32(&b.refs, 1) }

// Release drops a reference. Dropping the last reference returns the buffer to the pool. The
// buffer must not be used after that. Release panics if the buffer has no reference.
func (b *Buffer) Release() {
	c := &b.pool.classes[b.class]
	c.mu.Lock()
	switch atomic.LoadUint32(&b.refs) {
	case 0:
		c.mu.Unlock()
		panic("verbs: a Buffer was released without a reference")
	case 1:
		memorder.StoreRelease(&b.refs, 0)
		if !c.closed {
			b.next, c.free = c.free, b
		}
	default:
		atomic.AddUint32(&b.refs, ^uint32(0))
	}
	c.mu.Unlock()
}
