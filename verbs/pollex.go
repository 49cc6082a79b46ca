package verbs

import (
	"context"

	"github.com/goverbs/goverbs/internal/tracing"
	"github.com/goverbs/goverbs/provider"
)

// PollEx is like Poll, for completions with more fields. The CQ must have been created with
// CQOptions.Fields, or else PollEx returns ErrInvalid.
func (cq *CQ) PollEx(wc []WCEx) (int, error) {
	if cq == nil {
		return 0, &OpError{Op: "poll CQ", Err: errNil}
	}
	n, err := cq.pollEx(wc)
	if tracing.Switch.On != 0 {
		cq.reportPollEx(wc, n, err)
	}
	return n, err
}

func (cq *CQ) pollEx(wc []WCEx) (int, error) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if cq.prov == nil {
		return 0, errPollClosed
	}
	if cq.ex == nil {
		return 0, errPollPlain
	}
	ended := cq.ended()
	n, err := cq.ex.PollEx(as[provider.WCEx](wc))
	switch {
	case n > 0:
		polled()
		return n, nil
	case err != nil:
		return 0, pollErr(err)
	}
	return 0, ended
}

var errPollPlain = invalid("poll CQ", "the CQ was made without CQOptions.Fields")

// PollWaitEx is like PollWait, for completions with the fields that PollEx reports.
func (cq *CQ) PollWaitEx(ctx context.Context, wc []WCEx) (int, error) {
	if err := cq.waits(ctx, len(wc)); err != nil {
		return 0, err
	}
	return cq.wait(ctx, ctx, func() (int, error) { return cq.PollEx(wc) })
}
