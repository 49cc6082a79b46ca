package ib

import (
	"errors"
	"fmt"
	"testing"
)

type hinted struct {
	hint string
	err  error
}

func (e *hinted) Error() string { return "failed" }
func (e *hinted) Hint() string  { return e.hint }
func (e *hinted) Unwrap() error { return e.err }

// TestHint: the outermost hint of an error counts, however it is wrapped.
func TestHint(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("failed"), ""},
		{&hinted{"do it", nil}, "do it"},
		{fmt.Errorf("layer: %w", &hinted{"do it", nil}), "do it"},
		{errors.Join(errors.New("other"), &hinted{"do it", nil}), "do it"},
		{&hinted{"", fmt.Errorf("layer: %w", &hinted{"inner", nil})}, "inner"},
		{&hinted{"outer", &hinted{"inner", nil}}, "outer"},
		{&hinted{"", nil}, ""},
	} {
		if got := Hint(test.err); got != test.want {
			t.Errorf("%v: %q, want %q", test.err, got, test.want)
		}
	}
}
