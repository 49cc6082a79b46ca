// Package faults has an mlx5 device of the rig fail: single work requests, by
// every syndrome, and the whole device, while queue pairs run on it.
package faults

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/tests/hca/control"
)

func TestMain(m *testing.M) { rdmatest.Main(m, rdmatest.OnMLX5) }

// ask asks the rig's HCAs.
func ask(t *testing.T, r control.Request) {
	t.Helper()
	if err := r.Ask(); err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
}
