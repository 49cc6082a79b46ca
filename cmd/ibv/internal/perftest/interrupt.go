package perftest

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

var errInterrupted = errors.New("interrupted")

// partly says that what has ended by err has a result.
func partly(err error) error {
	return fmt.Errorf("%w: the last result is that of the messages so far", err)
}

// catch makes a signal end the test, which then reports the result so far.
func (s *side) catch() (release func()) {
	ctx, stop := cli.Interruptible()
	off := context.AfterFunc(ctx, func() {
		s.cut.Store(true)
		s.interrupt(errInterrupted)
		s.x.interrupt()
	})
	return func() {
		off()
		stop()
	}
}
