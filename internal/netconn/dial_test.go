package netconn

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
)

// TestDialEachAddress: addresses that don't answer leave time for the next ones.
func TestDialEachAddress(t *testing.T) {
	for _, test := range []struct {
		limit time.Duration // 0: none
		want  []time.Duration
	}{
		{12 * time.Second, []time.Duration{4 * time.Second, 4 * time.Second, 4 * time.Second}},
		{5 * time.Second, []time.Duration{2 * time.Second, 2 * time.Second, time.Second}},
		{time.Second, []time.Duration{time.Second}},
		{0, []time.Duration{time.Minute, time.Minute, time.Minute}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if test.limit > 0 {
				ctx, cancel = context.WithTimeout(ctx, test.limit)
			}
			defer cancel()
			var got []time.Duration
			_, err := dialEach(ctx, "test", make([]rdmacm.AddrInfo, 3), func(ctx context.Context, _ rdmacm.AddrInfo) (*int, error) {
				start := time.Now()
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute): // as the connection manager
				}
				got = append(got, time.Since(start))
				return nil, context.DeadlineExceeded
			})
			if !errors.Is(err, context.DeadlineExceeded) || !slices.Equal(got, test.want) {
				t.Errorf("in %v, the addresses had %v, want %v: %v", test.limit, got, test.want, err)
			}
		})
	}
	// The last one answers.
	dials := 0
	want := new(int)
	c, err := dialEach(t.Context(), "test", make([]rdmacm.AddrInfo, 3), func(context.Context, rdmacm.AddrInfo) (*int, error) {
		if dials++; dials < 3 {
			return nil, context.DeadlineExceeded
		}
		return want, nil
	})
	if c != want || err != nil {
		t.Errorf("the third address answers: %v, %v", c, err)
	}
}

// TestNegativeTimeout: as package net's, a Dialer with a negative Timeout has no time.
func TestNegativeTimeout(t *testing.T) {
	ctx, cancel := (&Dialer{Timeout: -1}).Limit(t.Context())
	defer cancel()
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("got %v", ctx.Err())
	}
}
