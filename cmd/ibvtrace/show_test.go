package main

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// closedSink says whether it was closed.
type closedSink struct {
	err    error
	closed *int
}

func (s closedSink) Event(*event.Event) error { return s.err }

func (s closedSink) Close() error {
	*s.closed++
	return s.err
}

// TestShowClose: all views are closed, and the first failure is returned.
func TestShowClose(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	for _, test := range []struct{ errs [3]error }{
		{[3]error{}}, {[3]error{first}}, {[3]error{nil, first, second}}, {[3]error{nil, nil, first}},
	} {
		closed := 0
		s := new(show)
		var want error
		for _, err := range test.errs {
			s.sinks = append(s.sinks, closedSink{err, &closed})
			if want == nil {
				want = err
			}
		}
		if err := s.Close(); err != want || closed != 3 {
			t.Errorf("%v: %v, and %d are closed", test.errs, err, closed)
		}
	}
}
