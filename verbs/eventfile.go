package verbs

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// An eventFile is a file descriptor on which the kernel reports events. It is
// in the runtime's poller, so that a wait costs no thread; Close ends waits.
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
		if err := f.readInTurn(ctx, b); err != errPoked {
			return err
		}
	}
}

// readInTurn reads one event into b for a caller that has the turn.
func (f *eventFile) readInTurn(ctx context.Context, b []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if ctx.Done() != nil {
		fired := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			f.file.SetReadDeadline(time.Unix(1, 0))
			close(fired)
		})
		defer func() {
			if !stop() {
				<-fired
				f.file.SetReadDeadline(time.Time{})
			}
		}()
	}
	n, err := f.file.Read(b)
	switch {
	case err == nil && n == len(b):
		return nil
	case err == nil:
		return io.ErrUnexpectedEOF
	case errors.Is(err, os.ErrDeadlineExceeded):
		if ctx.Err() == nil {
			f.file.SetReadDeadline(time.Time{})
			select {
			case <-f.gone:
				return ErrDeviceRemoved
			default:
				return errPoked
			}
		}
		return ctx.Err()
	case errors.Is(err, os.ErrClosed):
		return ErrClosed
	case errors.Is(err, io.EOF):
		return ErrDeviceRemoved
	}
	var pathError *os.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

// poke makes the reader, if there is one, return errPoked.
func (f *eventFile) poke() { f.file.SetReadDeadline(time.Unix(1, 0)) }

var errPoked = errors.New("interrupted")

func (f *eventFile) Close() error { return f.file.Close() }
