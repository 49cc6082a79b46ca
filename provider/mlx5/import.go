package mlx5

import (
	"fmt"
	"math"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
)

// importContext creates a context on a device that another process has opened. Each process
// allocates its own registers. Both may choose the same user indices, because each has its own CQs.
func importContext(f *ioctl.File, cmd ioctl.QueryContext) (provider.Context, error) {
	env, err := prepare()
	if err != nil {
		return nil, err
	}
	return contextOn(f, cmd.Mlx5RespUctx(), &env), nil
}

func (c *context) ImportPD(handle uint32) error {
	cmd := ioctl.NewMlx5PdQuery()
	defer cmd.Release()
	cmd.Handle(handle)
	cmd.RespPdn()
	return cmd.Run(c.file)
}

func (c *context) ImportDM(handle uint32) (provider.DM, uint64, error) {
	cmd := ioctl.NewMlx5DmQuery()
	defer cmd.Release()
	cmd.ReqHandle(handle)
	d := &dm{file: c.file, start: cmd.RespStartOffset(), page: cmd.RespPageIndex()}
	length := cmd.RespLength()
	if err := cmd.Run(c.file); err != nil {
		return nil, 0, err
	}
	n := *length
	if n == 0 || n > math.MaxInt32 {
		return nil, 0, fmt.Errorf("mlx5: the kernel's memory of the adapter has %d bytes", n)
	}
	d.n = int(n)
	return d, n, d.Adopt()
}
