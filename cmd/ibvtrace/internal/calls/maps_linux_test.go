//go:build amd64 || arm64

package calls

import (
	"testing"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/uapi"
)

func TestMapped(t *testing.T) {
	const page = 4096
	for offset, want := range map[uint64]string{
		3 * page:                      "UAR page 3",
		(2<<8 | 4) * page:             "UAR page 4, write-combining",
		5 << 8 * page:                 "core clock page",
		7 << 8 * page:                 "clock info page",
		(6<<8 | 0x34 | 1<<16) * page:  "UAR page 308, allocated, write-combining",
		(77<<8 | 0x02 | 0<<16) * page: "mlx5 object, command 77, index 2",
	} {
		if got := mlx5Mapped(offset / page); got != want {
			t.Errorf("offset %#x is %q, want %q", offset, got, want)
		}
	}
	f := tracee.File{Kind: tracee.FileUverbs, Driver: uapi.RDMA_DRIVER_MLX5}
	offer(&f, 77<<8*page, "uar 4")
	if got := mapped(&f, 77<<8*page); got != "uar 4" {
		t.Errorf("what a verb offered is %q", got)
	}
}
