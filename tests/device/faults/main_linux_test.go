// Package faults makes an mlx5 device of the rig fail while queue pairs run on it: single
// work requests, with every syndrome, and the whole device.
package faults

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/tests/internal/control"
)

func TestMain(m *testing.M) { rdmatest.Main(m, rdmatest.OnMLX5) }

// ask sends a request to the rig's HCAs.
func ask(t *testing.T, r control.Request) {
	t.Helper()
	if err := r.Ask(); err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
}
