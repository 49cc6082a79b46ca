package verbs

import (
	"context"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/internal/fdwait"
)

// An eventFile is a file descriptor on which the kernel delivers events. The first wait
// puts it into the runtime's poller, so a wait blocks no thread. Close ends waits.
type eventFile struct {
	fd    int
	name  string
	token chan struct{}   // one goroutine reads at a time
	gone  <-chan struct{} // closed when the device is removed

	once    sync.Once // the first wait, or Close without one
	file    atomic.Pointer[os.File]
	conn    syscall.RawConn // of file
	closing atomic.Bool

	// These fields belong to the goroutine that has the token. They are here so that reading
	// allocates nothing.
	try   func(uintptr) bool
	event [maxEventLen]byte
	size  int // of an event
	n     int // the number of bytes read
	errno syscall.Errno
}

// maxEventLen is the size of the longest event.
const maxEventLen = asyncEventLen

func newEventFile(fd, size int, name string, gone <-chan struct{}) *eventFile {
	f := &eventFile{fd: fd, size: size, name: name, token: make(chan struct{}, 1), gone: gone}
	f.token <- struct{}{}
	return f
}

// pollable returns the file, which it puts into the runtime's poller, or nil if Close came first.
// Most channels are closed without a wait, and need no poller.
func (f *eventFile) pollable() *os.File {
	f.once.Do(func() {
		setNonblock(f.fd)
		file := os.NewFile(uintptr(f.fd), f.name)
		f.conn, _ = file.SyscallConn()
		f.try = func(fd uintptr) bool {
			f.n, f.errno = readNow(int(fd), f.event[:f.size])
			return f.errno != syscall.EAGAIN
		}
		f.file.Store(file)
		// An earlier poke found no file. So this one makes the first wait check its condition
		// again.
		f.poke()
	})
	return f.file.Load()
}

// read waits for the token and reads one event into b.
func (f *eventFile) read(ctx context.Context, b []byte) error {
	select {
	case <-f.token:
	default:
		if err := f.acquire(ctx); err != nil {
			return err
		}
	}
	defer f.release()
	for {
		if err := f.readLocked(ctx, b); err != fdwait.ErrPoked {
			return err
		}
	}
}

func (f *eventFile) acquire(ctx context.Context) error {
	select {
	case <-f.token:
		return nil
	case <-f.gone:
		return ErrDeviceRemoved
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *eventFile) release() { f.token <- struct{}{} }

// readLocked reads one event into b for a caller that has the token.
func (f *eventFile) readLocked(ctx context.Context, b []byte) error {
	file := f.pollable()
	if file == nil {
		return ErrClosed
	}
	err := fdwait.Wait(ctx, file, func() error { return f.conn.Read(f.try) })
	switch {
	case err == fdwait.ErrPoked:
		select {
		case <-f.gone:
			return ErrDeviceRemoved
		default:
			return err
		}
	case err != nil && f.closing.Load():
		return ErrClosed
	case err != nil:
		return err
	case f.errno == syscall.EIO, f.errno == 0 && f.n == 0:
		// The kernel has closed its end, because the device is gone.
		return ErrDeviceRemoved
	case f.errno != 0:
		return f.errno
	case copy(b, f.event[:f.n]) != f.size:
		return io.ErrUnexpectedEOF
	}
	return nil
}

// poke makes the reader, if there is one, return fdwait.ErrPoked.
func (f *eventFile) poke() {
	if file := f.file.Load(); file != nil {
		fdwait.Poke(file)
	}
}

func (f *eventFile) Close() error {
	f.closing.Store(true)
	unused := false
	f.once.Do(func() { unused = true })
	if unused {
		return closeFD(f.fd)
	}
	return f.file.Load().Close()
}
