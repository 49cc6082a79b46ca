// Package valkey tests package valkeyrdma in the rig: against a Valkey server, and with Valkey's own clients.
package valkey

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// The programs take minutes to build, so these tests run at night.
func TestMain(m *testing.M) {
	rdmatest.Main(m, rdmatest.OnRXE, rdmatest.OnMLX5Eth, rdmatest.LongOn("rxe"), rdmatest.LongOn("mlx5-eth"))
}

const host = "192.168.77.1" // the first device
