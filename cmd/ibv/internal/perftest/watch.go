package perftest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"
)

var (
	errGone  = errors.New("the other side has ended in the middle of the test")
	errStuck = errors.New("the other side is there, but nothing has come or gone")
	errLost  = errors.New("messages were lost: nothing more arrives")
)

// patience returns how many seconds a side waits for data after the other side has ended. A side
// that doesn't meet the other side waits longer.
func patience(x *exchange) int {
	if x.lonely {
		return 10
	}
	return 3
}

// slowest is a lower bound of the rate of any network, in bytes per second. It extends the wait for long messages.
const slowest = 10e6

// A watch ends the wait for completions that can no longer arrive.
type watch struct {
	ctx      context.Context
	stop     context.CancelCauseFunc
	progress atomic.Uint64 // messages so far
}

// newWatch watches until its context ends. With lossy, messages may be lost, so that
// a side may wait for messages that its peer has already sent.
func (s *side) newWatch(lossy bool) *watch {
	w, x := new(watch), s.x
	w.ctx, w.stop = context.WithCancelCause(s.ctx)
	most := s.patience + int(float64(s.size)/slowest)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		last, idle, still := uint64(0), 0, 0
		for {
			select {
			case <-w.ctx.Done():
				return
			case <-tick.C:
			}
			gone, waits := x.peer()
			now := w.progress.Load()
			begins := now == 0 && x.lonely // the other side may begin much later
			if now != last || begins {
				last, idle, still = now, 0, 0
				continue
			}
			if still++; s.patience > 0 && still >= most && !x.lonely {
				w.stop(fmt.Errorf("%w for %d s (--patience)", errStuck, still))
			}
			if !gone && !(lossy && waits) {
				idle = 0
				continue
			}
			if idle++; idle >= patience(x) {
				if gone {
					w.stop(errGone)
				} else {
					w.stop(errLost)
				}
			}
		}
	}()
	return w
}

// err returns why the wait has ended, or nil.
func (w *watch) err() error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	return nil
}

// A watched byte is a byte that the peer writes.
type watched struct {
	word *uint32
	at   int // the byte's place in the word
}

// watchByte returns the byte at an offset in a region's memory. The memory begins at a page, so
// the word is aligned. It contains the whole word, because its length is a multiple of a cache
// line. The garbage collector doesn't manage it, and it stays mapped while the byte is
// watched.
func watchByte(mem []byte, off int) watched {
	return watched{(*uint32)(unsafe.Pointer(&mem[off&^3])), off & 3}
}

// load reads the byte as the device wrote it.
func (w watched) load() byte {
	v := atomic.LoadUint32(w.word)
	return (*[4]byte)(unsafe.Pointer(&v))[w.at]
}
