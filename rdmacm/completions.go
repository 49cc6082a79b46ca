package rdmacm

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// A completionQueue is a *verbs.CQ.
type completionQueue interface {
	Poll([]verbs.WC) (int, error)
	PollWait(context.Context, []verbs.WC) (int, error)
}

// completions distributes the completions of a CQ that a Conn's own requests
// share with the caller's. Of the goroutines that wait, the one that has the
// turn polls the CQ and hands each completion to whoever posted the request.
type completions struct {
	cq     completionQueue
	life   context.Context      // the connection's
	own    func(*verbs.WC) bool // takes a completion that is the connection's own
	failed func(error)          // told of the caller's requests that fail

	turn chan struct{} // holds a token
	wcs  [16]verbs.WC  // for the goroutine that has the turn

	mu     sync.Mutex
	others []verbs.WC    // the caller's, in order
	news   chan struct{} // holds a token when there may be one of them
}

func (c *completions) init(cq completionQueue, life context.Context, own func(*verbs.WC) bool, failed func(error)) {
	c.cq, c.life, c.own, c.failed = cq, life, own, failed
	c.turn, c.news = make(chan struct{}, 1), make(chan struct{}, 1)
	c.turn <- struct{}{}
}

// errOver says that the connection has ended and that all completions from
// before its end have been taken.
var errOver = errors.New("the connection has ended")

// await waits for a value on ready.
func await[T any](ctx context.Context, c *completions, ready <-chan T) (v T, err error) {
	for {
		select {
		case v = <-ready:
			return v, nil
		default:
		}
		select {
		case v = <-ready:
			return v, nil
		case <-ctx.Done():
			return v, ctx.Err()
		case <-c.turn:
		}
		for len(ready) == 0 && err == nil {
			err = c.take(ctx)
		}
		c.turn <- struct{}{}
		if err != nil && len(ready) == 0 {
			return v, err
		}
		err = nil
	}
}

// take waits for completions and distributes them. The caller has the turn.
func (c *completions) take(ctx context.Context) error {
	over := c.life.Err() != nil // before polling: completions from before the end count
	n, err := c.cq.Poll(c.wcs[:])
	switch {
	case n > 0 || err != nil:
	case over:
		return errOver
	default:
		n, err = c.wait(ctx)
	}
	if n > 0 {
		c.sort(c.wcs[:n])
		return nil
	}
	return err
}

// wait waits for completions until the connection ends.
func (c *completions) wait(ctx context.Context) (int, error) {
	inLife := c.life
	if ctx.Done() != nil {
		var cancel context.CancelFunc
		inLife, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.life, cancel)()
	}
	n, err := c.cq.PollWait(inLife, c.wcs[:])
	if n == 0 && ctx.Err() == nil && c.life.Err() != nil {
		return 0, nil
	}
	return n, err
}

// glance distributes the completions that are there, unless a goroutine that has
// the turn is about to.
func (c *completions) glance() {
	select {
	case <-c.turn:
	default:
		return
	}
	if n, _ := c.cq.Poll(c.wcs[:]); n > 0 {
		c.sort(c.wcs[:n])
	}
	c.turn <- struct{}{}
}

// sort distributes completions to those who posted the requests.
func (c *completions) sort(wcs []verbs.WC) {
	for i := range wcs {
		if c.own(&wcs[i]) {
			continue
		}
		if err := wcs[i].Err(); err != nil {
			c.failed(err)
		}
		c.mu.Lock()
		c.others = append(c.others, wcs[i])
		c.mu.Unlock()
		c.signal()
	}
}

func (c *completions) signal() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// ofOthers waits for completions of the caller's requests.
func (c *completions) ofOthers(ctx context.Context, wcs []verbs.WC) (int, error) {
	for {
		if _, err := await(ctx, c, c.news); err != nil {
			return 0, err
		}
		c.mu.Lock()
		n := copy(wcs, c.others)
		c.others = slices.Delete(c.others, 0, n)
		if len(c.others) > 0 {
			c.signal()
		}
		c.mu.Unlock()
		if n > 0 {
			return n, nil
		}
	}
}
