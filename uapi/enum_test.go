package uapi

import (
	"fmt"
	"testing"
)

func TestString(t *testing.T) {
	for _, c := range []struct {
		v    fmt.Stringer
		want string
	}{
		{IB_UVERBS_QPT_RC, "IB_UVERBS_QPT_RC"},
		{IbUverbsQpType(77), "77"},
		{IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_READ, "IB_UVERBS_ACCESS_LOCAL_WRITE|IB_UVERBS_ACCESS_REMOTE_READ"},
		{IB_UVERBS_ACCESS_LOCAL_WRITE | 1<<15 | 1<<16, "IB_UVERBS_ACCESS_LOCAL_WRITE|0x18000"},
		{IbUverbsAccessFlags(1 << 15), "0x8000"},
		{IbUverbsAccessFlags(0), "0"},
		{IB_UVERBS_ACCESS_OPTIONAL_RANGE, "IB_UVERBS_ACCESS_RELAXED_ORDERING|0x3fe00000"},
		{IB_UVERBS_DEVICE_CC_DMA_BOUNCE, "IB_UVERBS_DEVICE_CC_DMA_BOUNCE"},
		{IB_QPS_RTS, "IB_QPS_RTS"},
		{IB_QP_STATE | IB_QP_PORT, "IB_QP_STATE|IB_QP_PORT"},
		{IB_WC_RNR_RETRY_EXC_ERR, "IB_WC_RNR_RETRY_EXC_ERR"},
		{AttrIDRArray, "IDRS_ARRAY"},
		{AttrKind(0), "unknown"},
		{AccessDestroy, "DESTROY"},
		{Access(0), "none"},
	} {
		if got := c.v.String(); got != c.want {
			t.Errorf("%T %#x is %q, want %q", c.v, c.v, got, c.want)
		}
	}
}

func TestShort(t *testing.T) {
	for _, c := range []struct {
		e    *Enum
		v    uint64
		want string
	}{
		{EnumIbUverbsQpType, 4, "UD"},
		{EnumIbUverbsQpType, 77, "77"},
		{EnumIbUverbsAccessFlags, 7, "LOCAL_WRITE|REMOTE_WRITE|REMOTE_READ"},
		{EnumUverbsDefaultObjects, UVERBS_OBJECT_MR, "MR"},
		{EnumIbUverbsWriteCmds, IB_USER_VERBS_CMD_REG_MR, "REG_MR"},
		{EnumRdmaDriverId, uint64(RDMA_DRIVER_RXE), "RXE"},
		{EnumIbWcStatus, 0, "SUCCESS"},
		{EnumIbMtu, 5, "4096"},
	} {
		if got := c.e.Short(c.v); got != c.want {
			t.Errorf("%s %d is %q, want %q", c.e.CName, c.v, got, c.want)
		}
	}
}
