//go:build amd64 || arm64

package bpf

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Ring is a ring buffer, BPF_MAP_TYPE_RINGBUF, that programs write records to, in one order
// for all processors. A record that has no room is not written, and the program is told.
type Ring struct {
	*Map
	file *os.File
	raw  syscall.RawConn

	own    []byte // a page with the consumer's position, which this process writes
	shared []byte // a page with the producer's position, then the data twice in a row, read-only
	buffer
}

// NewRing makes a ring of a number of bytes, a power of 2 and a multiple of the page size.
func NewRing(bytes int) (*Ring, error) {
	m, err := NewMap(ring, 0, 0, bytes)
	if err != nil {
		return nil, err
	}
	r := &Ring{Map: m}
	if err := r.open(bytes); err != nil {
		r.Close()
		return nil, fmt.Errorf("bpf: ring buffer: %w", err)
	}
	return r, nil
}

func (r *Ring) open(bytes int) (err error) {
	page := os.Getpagesize()
	if r.own, err = unix.Mmap(r.fd, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	if r.shared, err = unix.Mmap(r.fd, int64(page), page+2*bytes, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	// Both pages begin with a position, and are aligned.
	r.buffer = buffer{
		consumed: (*uint64)(unsafe.Pointer(&r.own[0])),
		produced: (*uint64)(unsafe.Pointer(&r.shared[0])),
		data:     r.shared[page:],
		mask:     uint64(bytes - 1),
	}
	// The file is for Go's poller, with a descriptor of its own that it closes.
	fd, err := unix.FcntlInt(uintptr(r.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return os.NewSyscallError("fcntl", err)
	}
	r.file = os.NewFile(uintptr(fd), "BPF ring buffer")
	if err := r.file.SetReadDeadline(time.Time{}); err != nil {
		return err // the kernel can't poll it
	}
	r.raw, err = r.file.SyscallConn()
	return err
}

// Close closes the ring. No other method may be running.
func (r *Ring) Close() error {
	if r.file != nil {
		r.file.Close()
	}
	for _, b := range [][]byte{r.own, r.shared} {
		if b != nil {
			unix.Munmap(b)
		}
	}
	return r.Map.Close()
}

// Wait waits until there are records, and calls f with each. A record is valid until f
// returns. After Wake, Wait may return without records.
func (r *Ring) Wait(f func([]byte)) error {
	err := r.raw.Read(func(uintptr) bool { return r.take(f) > 0 })
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return r.file.SetReadDeadline(time.Time{})
	}
	return err
}

// Wake makes Wait return, the next time if it is not waiting. Other goroutines may call it.
func (r *Ring) Wake() error { return r.file.SetReadDeadline(time.Unix(1, 0)) }

// Drain calls f with the records that there are by now, and maybe with some more.
func (r *Ring) Drain(f func([]byte)) {
	end := atomic.LoadUint64(r.produced)
	for atomic.LoadUint64(r.consumed) < end && r.take(f) > 0 {
	}
}

// A buffer is the memory of a ring.
type buffer struct {
	consumed, produced *uint64
	data               []byte
	mask               uint64
}

// A record begins with its length, whose upper bits are flags, and 4 bytes of the kernel's.
const (
	recordHead    = 8
	recordBusy    = 1 << 31 // it is being written
	recordDiscard = 1 << 30
)

// maxTaken bounds the records of one call of Wait.
const maxTaken = 1024

// take calls f with finished records, and returns their number. A record that is being written
// ends them: the kernel reports its end.
func (r *buffer) take(f func([]byte)) (n int) {
	at := atomic.LoadUint64(r.consumed)
	for n < maxTaken && at < atomic.LoadUint64(r.produced) {
		off := at & r.mask
		size := atomic.LoadUint32((*uint32)(unsafe.Pointer(&r.data[off])))
		if size&recordBusy != 0 {
			break
		}
		length := uint64(size &^ (recordBusy | recordDiscard))
		if size&recordDiscard == 0 {
			f(r.data[off+recordHead : off+recordHead+length])
			n++
		}
		at += (recordHead + length + 7) &^ 7
		atomic.StoreUint64(r.consumed, at) // the kernel may now reuse the room
	}
	return n
}
