package provider

import (
	"strings"
	"testing"
)

// TestCQEError: the text has the cause and the whole entry.
func TestCQEError(t *testing.T) {
	e := &CQEError{Why: "has no owner"}
	e.CQE[0], e.CQE[63] = 0xab, 0xcd
	if got, want := e.Error(), "an entry in the completion queue has no owner: ab"+strings.Repeat("00", 62)+"cd"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
