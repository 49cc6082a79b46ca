package xfer

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// A Memory is memory that is registered on every rail. Its methods are safe for concurrent use.
type Memory struct {
	e        *Engine
	n        int
	buf      []byte // nil for a dma-buf
	readOnly bool
	free     func() error // frees or unmaps buf, unless nil

	dmabuf *os.File // or nil
	offset uint64   // of the first byte in the dma-buf

	mrs []*verbs.MR // by rail; nil on a rail that was lost before

	closing sync.Mutex // held by close

	mu     sync.Mutex
	grants map[*Grant]bool
	uses   int // parts of batches that are not over
	closed bool
}

// Alloc allocates n bytes outside the Go heap, page-aligned and zeroed, and registers them on every
// rail. Close frees them: the slices of Bytes must not be used after that.
func (e *Engine) Alloc(n int) (*Memory, error) {
	if n < 1 {
		return nil, invalid("Alloc of %d bytes", n)
	}
	return e.register(&Memory{n: n})
}

// AllocOptions are the arguments of AllocWith.
type AllocOptions struct {
	// HugePages is the size of the pages in bytes, such as 2 MiB or 1 GiB, of which the system must have
	// enough that are reserved and free (vm.nr_hugepages). The default, 0, is ordinary pages, which
	// the kernel makes huge where it can.
	HugePages int
	// Near is a rail, such as "mlx5_0/1". The memory is allocated on the NUMA node of its device, if the
	// system knows that and has room there. The default is where the kernel likes.
	Near string
}

// AllocWith is Alloc with options.
func (e *Engine) AllocWith(n int, o AllocOptions) (*Memory, error) {
	if o == (AllocOptions{}) {
		return e.Alloc(n)
	}
	if n < 1 || o.HugePages < 0 || o.HugePages&(o.HugePages-1) != 0 {
		return nil, invalid("AllocWith of %d bytes in pages of %d", n, o.HugePages)
	}
	node := -1
	if o.Near != "" {
		i := slices.Index(e.Rails(), o.Near)
		if i < 0 {
			return nil, invalid("AllocWith near %q: the rails are %q", o.Near, e.Rails())
		}
		node = numaNode(e.rails[i].info.Name())
	}
	buf, free, err := mapMemory(n, o.HugePages, node)
	if err != nil {
		return nil, fmt.Errorf("xfer: allocate %d bytes: %w", n, err)
	}
	return e.register(&Memory{n: n, buf: buf, free: free})
}

// RegisterFile maps n bytes of a file from offset off on, which is a multiple of the page size, and
// registers them on every rail. The file may be closed then. Close unmaps them: the slices of Bytes must
// not be used after that. The file must have n bytes there, and not become shorter before. All n bytes stay in
// memory until then: of a file that is larger than that, one piece after the other is registered.
//
// Devices can write only to files in memory: in tmpfs, hugetlbfs, or made by memfd_create. Others must be
// readOnly, since Linux 6.5 at the latest: the kernel can't know which pages a device changes.
func (e *Engine) RegisterFile(f *os.File, off int64, n int, readOnly bool) (*Memory, error) {
	if n < 1 || off < 0 {
		return nil, invalid("RegisterFile of %d bytes at %d", n, off)
	}
	buf, free, err := mapFile(f, off, n, readOnly)
	if err != nil {
		return nil, fmt.Errorf("xfer: map %s: %w", f.Name(), err)
	}
	return e.register(&Memory{n: n, buf: buf, free: free, readOnly: readOnly})
}

// RegisterDmabuf registers n bytes of a dma-buf, such as a GPU's memory, from offset off on, on every
// rail. The file descriptor may be closed then. Memory.Bytes and Piece.Bytes return nil for it.
func (e *Engine) RegisterDmabuf(fd int, off uint64, n int, readOnly bool) (*Memory, error) {
	if n < 1 || off > math.MaxInt64-uint64(n) {
		return nil, invalid("RegisterDmabuf of %d bytes at %d", n, off)
	}
	f, err := duplicate(fd)
	if err != nil {
		return nil, fmt.Errorf("xfer: register a dma-buf: %w", err)
	}
	return e.register(&Memory{n: n, dmabuf: f, offset: off, free: f.Close, readOnly: readOnly})
}

// Register registers memory of the caller's on every rail: a slice of bytes on the Go heap, a
// mapping, or the bytes of an MR. It must stay valid, and mapped, until Close has returned
// nil. Memory that is readOnly, such as a mapping without the right to write, can be sent from,
// but not read into.
func (e *Engine) Register(buf []byte, readOnly bool) (*Memory, error) {
	if len(buf) == 0 {
		return nil, invalid("Register of no bytes")
	}
	return e.register(&Memory{n: len(buf), buf: buf, readOnly: readOnly})
}

// register registers memory on every rail. If that has no bytes, it allocates them.
func (e *Engine) register(m *Memory) (*Memory, error) {
	m.e, m.mrs, m.grants = e, make([]*verbs.MR, len(e.rails)), make(map[*Grant]bool)
	if e.ctx.Err() != nil {
		return nil, errors.Join(errClosed, m.deregister())
	}
	access := verbs.AccessLocalWrite
	if m.readOnly {
		access = 0
	}
	for i, r := range e.rails {
		var mr *verbs.MR
		var err error
		if m.buf == nil && m.dmabuf == nil {
			if mr, err = r.pd.AllocMR(m.n, verbs.MROptions{Access: access}); err == nil {
				m.buf = mr.Bytes()
			}
		} else {
			mr, err = m.registerOn(r.pd, 0, m.n, access)
		}
		if err != nil && !r.lostBy(err) {
			return nil, errors.Join(fmt.Errorf("xfer: register %d bytes on %s: %w", m.n, r.name, err), m.deregister())
		}
		m.mrs[i] = mr
	}
	if m.buf == nil && m.dmabuf == nil {
		return nil, fmt.Errorf("xfer: allocate %d bytes: %w", m.n, ErrNoRail)
	}
	if !e.addMemory(m) {
		return nil, errors.Join(errClosed, m.deregister())
	}
	return m, nil
}

// registerOn registers n bytes from offset off on in a protection domain.
func (m *Memory) registerOn(pd *verbs.PD, off, n int, access verbs.AccessFlags) (*verbs.MR, error) {
	if m.dmabuf == nil {
		return pd.RegMR(m.buf[off:off+n], verbs.MROptions{Access: access})
	}
	at := m.offset + uint64(off)
	c, err := m.dmabuf.SyscallConn()
	if err != nil {
		return nil, err
	}
	var mr *verbs.MR
	bad := c.Control(func(fd uintptr) {
		mr, err = pd.RegDmabufMR(verbs.DmabufOptions{FD: int(fd), Offset: at, Length: uint64(n), IOVA: at, Access: access})
	})
	return mr, errors.Join(bad, err)
}

var errClosed = fmt.Errorf("xfer: %w", verbs.ErrClosed)

// deregister closes the MRs, that with the memory last, and only if the others are closed.
func (m *Memory) deregister() error {
	for _, mr := range slices.Backward(m.mrs) {
		if err := mr.Close(); err != nil {
			return err
		}
	}
	if m.free == nil {
		return nil
	}
	free := m.free
	m.free = nil
	return free()
}

// Close revokes the memory's grants and deregisters it. It returns an error that matches
// verbs.ErrBusy while a batch uses the memory, and may then be called again.
func (m *Memory) Close() error {
	m.mu.Lock()
	if uses := m.uses; uses > 0 {
		m.mu.Unlock()
		return fmt.Errorf("xfer: close memory: %w by %d parts of batches", verbs.ErrBusy, uses)
	}
	m.closed = true
	m.mu.Unlock()
	return m.close()
}

// close is Close. No device uses the memory for a batch.
func (m *Memory) close() error {
	m.closing.Lock()
	defer m.closing.Unlock()
	m.mu.Lock()
	m.closed = true
	grants := keys(m.grants)
	m.mu.Unlock()
	errs := make([]error, len(grants))
	var all sync.WaitGroup
	for i, g := range grants {
		all.Go(func() { errs[i] = g.Revoke(m.e.ctx) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := m.deregister(); err != nil {
		return err
	}
	m.e.dropMemory(m)
	return nil
}

// use counts a part of a batch.
func (m *Memory) use() error {
	m.mu.Lock()
	closed := m.closed
	if !closed {
		m.uses++
	}
	m.mu.Unlock()
	if closed {
		return errClosed
	}
	return nil
}

func (m *Memory) unuse() {
	m.mu.Lock()
	m.uses--
	m.mu.Unlock()
}

// Bytes returns the memory, or nil if it is a dma-buf's.
func (m *Memory) Bytes() []byte { return m.buf }

// Len returns the length in bytes.
func (m *Memory) Len() int { return m.n }

// All returns the whole memory.
func (m *Memory) All() Piece { return Piece{m, 0, m.n} }

// Slice returns n bytes from offset off on. Like a slice expression, it panics if they are out of
// range.
func (m *Memory) Slice(off, n int) Piece { return m.All().Slice(off, n) }

// A Piece is a part of a Memory. It is a small value.
type Piece struct {
	mem    *Memory
	off, n int
}

// Bytes returns the piece's bytes, or nil if they are a dma-buf's.
func (p Piece) Bytes() []byte {
	if p.mem == nil || p.mem.buf == nil {
		return nil
	}
	return p.mem.buf[p.off : p.off+p.n : p.off+p.n]
}

// Len returns the length in bytes.
func (p Piece) Len() int { return p.n }

// Slice returns n bytes of the piece from offset off on. Like a slice expression, it panics if they
// are out of range.
func (p Piece) Slice(off, n int) Piece {
	if off < 0 || n < 0 || off > p.n || n > p.n-off {
		panic(fmt.Sprintf("xfer: %d bytes at offset %d of a piece of %d", n, off, p.n))
	}
	return Piece{p.mem, p.off + off, n}
}
