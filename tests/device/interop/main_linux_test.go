// Package interop tests ibv pingpong against rdma-core's ibv_rc_pingpong,
// ibv_uc_pingpong, ibv_ud_pingpong, ibv_srq_pingpong and ibv_xsrq_pingpong.
package interop

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestMain(m *testing.M) {
	rdmatest.Main(m, rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.OnMLX5Eth, rdmatest.Peers, rdmatest.Profiles, rdmatest.LongOn("mlx5-eth"))
}
