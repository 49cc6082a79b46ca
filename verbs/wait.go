package verbs

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// PollWait is like Poll, but waits until there is at least one completion. It works on every
// CQ. It polls, arms the CQ, polls again, and sleeps, so it misses no completion. Any number
// of goroutines may wait on a CQ.
//
// Of the goroutines that wait on CQs of one channel, one reads all events and wakes the
// others. CQs created without a Channel share one channel. Goroutines that wait on many
// busy CQs in parallel are faster if each CQ has its own channel.
//
// If ctx ends first, PollWait returns its error and takes no completion. That cancels the
// wait, not the work: requests in flight are still executed, and the device may still read
// and write their buffers. The buffers are free only once the completion is polled, or the
// QP is moved to QPReset or closed. To end work early, move the QP to QPErr and poll the
// completions of all requests.
//
// PollWait returns the errors of Poll. It returns ErrInvalid if wc is empty, or if
// CompChannel.Wait was called on the CQ's channel, and ErrNotSupported where the kernel
// makes no channels. Close ends the wait with ErrClosed,
// and the device's removal ends it with ErrDeviceRemoved.
func (cq *CQ) PollWait(ctx context.Context, wc []WC) (int, error) {
	if err := cq.waits(ctx, len(wc)); err != nil {
		return 0, err
	}
	return cq.wait(ctx, ctx, func() (int, error) { return cq.Poll(wc) })
}

const opWait = "wait for CQ"

// waits validates the arguments of a wait for at most room completions.
func (cq *CQ) waits(ctx context.Context, room int) error {
	switch {
	case ctx == nil:
		return &OpError{Op: opWait, Err: errNoContext}
	case cq == nil:
		return &OpError{Op: opWait, Err: errNil}
	case room == 0:
		return invalid(opWait, "no room for a completion")
	case cq.noChannel != nil:
		return &OpError{Op: opWait, Err: fmt.Errorf("%w: %w", ErrNotSupported, cq.noChannel), hint: "use CQ.Poll"}
	case cq.chn == nil: // the zero CQ
		return opErr(opWait, "", ErrClosed)
	case !cq.chn.claim(readByPollWait):
		return invalid(opWait, "CompChannel.Wait reads the events of the CQ's channel")
	}
	return nil
}

// wait calls poll until it finds a completion or fails. Between two calls it waits for an
// event, under readCtx in place of ctx while it reads the channel.
func (cq *CQ) wait(ctx, readCtx context.Context, poll func() (int, error)) (int, error) {
	if n, err := poll(); n > 0 || err != nil {
		return n, err
	}
	cq.waiters.Add(1)
	defer cq.leave()
	for {
		if err := cq.arm(opWait, false); err != nil {
			return 0, err
		}
		if n, err := poll(); n > 0 || err != nil {
			return n, err
		}
		if err := cq.chn.waitFor(ctx, readCtx, cq); err != nil {
			return 0, cq.dev.failed(opWait, "", err)
		}
		if n, err := poll(); n > 0 || err != nil {
			return n, err
		}
	}
}

// All returns an iterator over the completions, which waits as PollWait does. It polls them one by
// one: when a loop ends early, the other completions stay in the queue for the next loop.
//
// The iterator ends after an error of PollWait, except a *CQEError, which the next completions
// follow. A failed request is not such an error: its completion's Err returns the error.
//
//	for wc, err := range cq.All(ctx) {
//		if err != nil {
//			return err
//		}
//		…
//	}
func (cq *CQ) All(ctx context.Context) iter.Seq2[WC, error] {
	return func(yield func(WC, error) bool) {
		var wc [1]WC
		if err := cq.waits(ctx, len(wc)); err != nil {
			yield(WC{}, err)
			return
		}
		// AfterFunc is called once for all waits. PollWait calls it for each wait, which
		// allocates memory.
		stop := context.AfterFunc(ctx, cq.chn.events.poke)
		defer stop()
		var readCtx context.Context = pokedContext{ctx}
		poll := func() (int, error) { return cq.Poll(wc[:]) }
		for {
			_, err := cq.wait(ctx, readCtx, poll)
			if err != nil {
				if !yield(WC{}, err) || !isCQEError(err) {
					return
				}
			} else if !yield(wc[0], nil) {
				return
			}
		}
	}
}

func isCQEError(err error) bool {
	var e *CQEError
	return errors.As(err, &e)
}

// A pokedContext is a context whose end pokes the reader of the channel. The reader then
// checks Err, so nobody waits for Done.
type pokedContext struct{ context.Context }

func (pokedContext) Done() <-chan struct{} { return nil }

// leave ends a PollWait. This PollWait may have consumed the only event of the arming, so
// another waiter must poll and arm again.
func (cq *CQ) leave() {
	if cq.waiters.Add(-1) > 0 {
		cq.wake()
	}
}

// wake makes a PollWait poll again.
func (cq *CQ) wake() {
	cq.fire()
	if cq.chn != nil {
		cq.chn.events.poke()
	}
}

// fire gives PollWait the token of an event.
func (cq *CQ) fire() {
	select {
	case cq.fired <- struct{}{}:
	default:
	}
}
