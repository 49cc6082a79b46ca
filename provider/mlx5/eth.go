package mlx5

import (
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// ethInline returns how many bytes of a packet the device wants inline, from
// what the kernel says; a kernel that doesn't say has a device that wants the
// Ethernet header with a VLAN tag.
func ethInline(mode uapi.Mlx5UserInlineMode) int {
	if mode == uapi.MLX5_USER_INLINE_MODE_NONE {
		return 0
	}
	return wqe.EthHeaderInline
}
