// Package fdwait waits on file descriptors in the runtime's poller until a
// context.Context ends.
package fdwait

import (
	"context"
	"errors"
	"os"
	"time"
)

// ErrPoked reports that Poke interrupted the wait.
var ErrPoked = errors.New("interrupted")

// Wait runs read, which waits for f to become readable, and ends the wait when ctx ends.
// One goroutine at a time may wait on a file.
func Wait(ctx context.Context, f *os.File, read func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if ctx.Done() != nil {
		fired := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			f.SetReadDeadline(time.Unix(1, 0))
			close(fired)
		})
		defer func() {
			if !stop() {
				<-fired
				f.SetReadDeadline(time.Time{})
			}
		}()
	}
	err := read()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.SetReadDeadline(time.Time{})
		return ErrPoked
	}
	return err
}

// Poke ends the current wait with ErrPoked or, if there is none, the next one.
func Poke(f *os.File) { f.SetReadDeadline(time.Unix(1, 0)) }
