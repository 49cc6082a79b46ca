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
	Arm(solicitedOnly bool) error
}

// completions distributes the completions of a CQ, which a Conn's own requests
// share with the caller's. Of the waiting goroutines, the one that holds the
// token polls the CQ and hands each completion to the poster of the request.
//
// When a queue pair fails, its posted receives complete, and nearly always some are posted. A goroutine that
// waits for sends therefore guards the receives: the events of their CQ are handled even if nobody waits for
// receives.
type completions struct {
	cq     completionQueue
	life   context.Context      // the connection's
	own    func(*verbs.WC) bool // handles a completion of the connection's own requests; else returns false
	failed func(error)          // called when one of the caller's requests fails
	guards *completions         // for sends, the completions of the receives; else nil

	token   chan struct{} // one goroutine polls at a time
	fired   chan struct{} // holds a token after an event
	drained chan struct{} // holds a token once the queue's last request has completed
	wcs     [16]verbs.WC  // for the goroutine that has the token

	arming  sync.Mutex // protects the fields below
	armed   bool
	guarded int // number of guards

	mu     sync.Mutex
	others []verbs.WC    // completions of the caller's requests, in order
	ready  chan struct{} // holds a token when others may have one
}

func (c *completions) init(life context.Context, guards *completions, own func(*verbs.WC) bool, failed func(error)) {
	c.life, c.guards, c.own, c.failed = life, guards, own, failed
	c.token, c.fired = make(chan struct{}, 1), make(chan struct{}, 1)
	c.drained, c.ready = make(chan struct{}, 1), make(chan struct{}, 1)
	c.token <- struct{}{}
}

// errOver says that the connection has ended and that all completions from
// before its end have been taken.
var errOver = errors.New("the connection has ended")

// await waits for a value on ready, as long as the connection lasts.
func await[T any](ctx context.Context, c *completions, ready <-chan T) (v T, err error) {
	return awaitUntil(ctx, c.life, c, ready)
}

// awaitUntil waits for a value on ready, until life ends.
func awaitUntil[T any](ctx, life context.Context, c *completions, ready <-chan T) (v T, err error) {
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
		case <-c.token:
		}
		for len(ready) == 0 && err == nil {
			err = c.take(ctx, life)
		}
		c.token <- struct{}{}
		if err != nil && len(ready) == 0 {
			return v, err
		}
		err = nil
	}
}

// take waits for completions and distributes them. The caller has the token.
func (c *completions) take(ctx, life context.Context) error {
	over := life.Err() != nil // before polling: completions from before the end count
	n, err := c.poll()
	switch {
	case n > 0 || err != nil:
		return err
	case over:
		return errOver
	}
	if err := c.arm(); err != nil {
		return err
	}
	if n, err := c.poll(); n > 0 || err != nil {
		return err
	}
	if c.guards != nil {
		c.guards.guard()
		defer c.guards.unguard()
	}
	select {
	case <-c.fired:
	case <-life.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// poll distributes the completions that are there. The caller has the token.
func (c *completions) poll() (int, error) {
	n, err := c.cq.Poll(c.wcs[:])
	if n > 0 {
		c.distribute(c.wcs[:n])
		return n, nil
	}
	return 0, err
}

// arm makes the next completion cause an event.
func (c *completions) arm() error {
	c.arming.Lock()
	defer c.arming.Unlock()
	if c.armed {
		return nil
	}
	err := c.cq.Arm(false)
	c.armed = err == nil
	return err
}

// event is called with each event of the CQ, and must not block.
func (c *completions) event() {
	c.arming.Lock()
	c.armed = false
	guarded := c.guarded > 0
	c.arming.Unlock()
	c.pollNow()
	if guarded {
		c.watch()
	}
}

// guard makes events distribute completions even if nobody waits for them, until unguard.
func (c *completions) guard() {
	c.arming.Lock()
	c.guarded++
	armed := c.armed
	c.arming.Unlock()
	if !armed {
		c.watch()
	}
}

func (c *completions) unguard() {
	c.arming.Lock()
	c.guarded--
	c.arming.Unlock()
}

// watch arms the queue, and then distributes earlier completions. Without watch, nobody would notice the
// connection's end.
func (c *completions) watch() {
	if err := c.arm(); err != nil {
		c.failed(err)
		return
	}
	c.pollNow()
}

// pollNow distributes the completions that have arrived, or wakes the goroutine that holds the token.
func (c *completions) pollNow() {
	select {
	case <-c.token:
		_, _ = c.poll() // the next waiter gets the error
		c.token <- struct{}{}
	default:
		select {
		case c.fired <- struct{}{}:
		default:
		}
	}
}

// distribute distributes completions to the posters of the requests.
func (c *completions) distribute(wcs []verbs.WC) {
	for i := range wcs {
		if c.own(&wcs[i]) {
			continue
		}
		c.mu.Lock()
		c.others = append(c.others, wcs[i])
		c.mu.Unlock()
		c.signal()
		if err := wcs[i].Err(); err != nil {
			c.failed(err)
		}
	}
}

func (c *completions) signal() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// markDrained records the completion of the queue's last request.
func (c *completions) markDrained() {
	select {
	case c.drained <- struct{}{}:
	default:
	}
}

// drain waits until the queue's last request has completed, whether the connection lasts or not.
func (c *completions) drain(ctx context.Context) error {
	_, err := awaitUntil(ctx, context.Background(), c, c.drained)
	if err == nil {
		c.markDrained()
	}
	return err
}

// callersCompletions waits for completions of the caller's requests.
func (c *completions) callersCompletions(ctx context.Context, wcs []verbs.WC) (int, error) {
	for {
		if _, err := await(ctx, c, c.ready); err != nil {
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
