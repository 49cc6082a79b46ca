package xfer

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// A Memory is memory that is registered on every rail. Its methods are safe for concurrent use.
type Memory struct {
	e        *Engine
	buf      []byte
	readOnly bool
	mrs      []*verbs.MR // by rail; nil on a rail that was lost before

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
	return e.register(n, nil, verbs.AccessLocalWrite)
}

// Register registers memory of the caller's on every rail: a slice of bytes on the Go heap, a
// mapped file, or the bytes of an MR. It must stay valid, and mapped, until Close has returned
// nil. Memory that is readOnly, such as a mapping without the right to write, can be sent from,
// but not read into.
func (e *Engine) Register(buf []byte, readOnly bool) (*Memory, error) {
	if len(buf) == 0 {
		return nil, invalid("Register of no bytes")
	}
	access := verbs.AccessLocalWrite
	if readOnly {
		access = 0
	}
	return e.register(len(buf), buf, access)
}

// register registers buf or, if it is nil, n new bytes.
func (e *Engine) register(n int, buf []byte, access verbs.AccessFlags) (*Memory, error) {
	if e.ctx.Err() != nil {
		return nil, errClosed
	}
	m := &Memory{e: e, buf: buf, readOnly: access == 0, mrs: make([]*verbs.MR, len(e.rails)), grants: make(map[*Grant]bool)}
	for i, r := range e.rails {
		var mr *verbs.MR
		var err error
		if m.buf == nil {
			if mr, err = r.pd.AllocMR(n, verbs.MROptions{Access: access}); err == nil {
				m.buf = mr.Bytes()
			}
		} else {
			mr, err = r.pd.RegMR(m.buf, verbs.MROptions{Access: access})
		}
		if err != nil && !r.lost() {
			return nil, errors.Join(fmt.Errorf("xfer: register %d bytes on %s: %w", n, r.name, err), m.deregister())
		}
		m.mrs[i] = mr
	}
	if m.buf == nil {
		return nil, fmt.Errorf("xfer: allocate %d bytes: %w", n, ErrNoRail)
	}
	if !e.addMemory(m) {
		return nil, errors.Join(errClosed, m.deregister())
	}
	return m, nil
}

var errClosed = fmt.Errorf("xfer: %w", verbs.ErrClosed)

// deregister closes the MRs, that with the memory last, and only if the others are closed.
func (m *Memory) deregister() error {
	for _, mr := range slices.Backward(m.mrs) {
		if err := mr.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Close revokes the memory's grants and deregisters it. It returns an error that matches
// verbs.ErrBusy while a batch uses the memory, and may then be called again.
func (m *Memory) Close() error {
	m.mu.Lock()
	if m.uses > 0 {
		m.mu.Unlock()
		return fmt.Errorf("xfer: close memory: %w by %d parts of batches", verbs.ErrBusy, m.uses)
	}
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
	defer m.mu.Unlock()
	if m.closed {
		return errClosed
	}
	m.uses++
	return nil
}

func (m *Memory) unuse() {
	m.mu.Lock()
	m.uses--
	m.mu.Unlock()
}

// Bytes returns the memory.
func (m *Memory) Bytes() []byte { return m.buf }

// Len returns the length in bytes.
func (m *Memory) Len() int { return len(m.buf) }

// All returns the whole memory.
func (m *Memory) All() Piece { return Piece{m, 0, len(m.buf)} }

// Slice returns n bytes from offset off on. Like a slice expression, it panics if they are out of
// range.
func (m *Memory) Slice(off, n int) Piece { return m.All().Slice(off, n) }

// A Piece is a part of a Memory. It is a small value.
type Piece struct {
	mem    *Memory
	off, n int
}

// Bytes returns the piece's bytes.
func (p Piece) Bytes() []byte {
	if p.mem == nil {
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
