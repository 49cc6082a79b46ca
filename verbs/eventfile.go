package verbs

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/goverbs/goverbs/internal/fdwait"
)

// An eventFile is a file descriptor on which the kernel reports events. It is in the
// runtime's poller, so a wait blocks no thread. Close ends waits.
type eventFile struct {
	file *os.File
	fd   int
	turn chan struct{}   // holds a token: one goroutine reads at a time
	gone <-chan struct{} // closed when the device is removed
}

func newEventFile(fd int, name string, gone <-chan struct{}) *eventFile {
	setNonblock(fd)
	f := &eventFile{file: os.NewFile(uintptr(fd), name), fd: fd, turn: make(chan struct{}, 1), gone: gone}
	f.turn <- struct{}{}
	return f
}

// read waits for its turn and reads one event into b.
func (f *eventFile) read(ctx context.Context, b []byte) error {
	select {
	case <-f.turn:
	case <-f.gone:
		return ErrDeviceRemoved
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { f.turn <- struct{}{} }()
	for {
		if err := f.readInTurn(ctx, b); err != fdwait.ErrPoked {
			return err
		}
	}
}

// readInTurn reads one event into b for a caller that has the turn.
func (f *eventFile) readInTurn(ctx context.Context, b []byte) error {
	n := 0
	err := fdwait.Wait(ctx, f.file, func() (err error) {
		n, err = f.file.Read(b)
		return err
	})
	switch {
	case err == nil && n == len(b):
		return nil
	case err == nil:
		return io.ErrUnexpectedEOF
	case err == fdwait.ErrPoked:
		select {
		case <-f.gone:
			return ErrDeviceRemoved
		default:
			return err
		}
	case errors.Is(err, os.ErrClosed):
		return ErrClosed
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EIO):
		// The kernel has closed its end, because the device is gone.
		return ErrDeviceRemoved
	}
	var pathError *os.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

// poke makes the reader, if there is one, return fdwait.ErrPoked.
func (f *eventFile) poke() { fdwait.Poke(f.file) }

func (f *eventFile) Close() error { return f.file.Close() }
