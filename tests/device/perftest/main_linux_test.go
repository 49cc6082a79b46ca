// Package perftest tests ibv send_bw and so on against perftest's ib_send_bw and so on.
package perftest

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestMain(m *testing.M) {
	rdmatest.Main(m, rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.OnMLX5Eth, rdmatest.Peers, rdmatest.LongOn("mlx5"), rdmatest.LongOn("mlx5-eth"))
}
