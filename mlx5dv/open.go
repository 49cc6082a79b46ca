package mlx5dv

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/goverbs/goverbs/internal/inside"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
)

// An adapter is the provider's context of an mlx5 device.
type adapter interface {
	UseDEVX()
	DEVX() bool
}

var errDriver = fmt.Errorf("%w: it is no mlx5 device", verbs.ErrNotSupported)

// Open opens the device for DEVX (mlx5dv_open_device with MLX5DV_CONTEXT_FLAGS_DEVX): on what
// it returns, the program may give commands to the firmware. The firmware then knows which
// objects are the program's own. Everything else is as after DeviceInfo.Open.
func Open(info *verbs.DeviceInfo) (*verbs.Device, error) {
	dev, err := inside.Open(info, func(context any) error {
		a, ok := context.(adapter)
		if !ok {
			return errDriver
		}
		a.UseDEVX()
		return nil
	})
	if err != nil {
		if errors.Is(err, syscall.EINVAL) {
			err = &verbs.OpError{Op: "open device", Object: info.Name(), Err: operr.Hinted(err, "the adapter's firmware, or the kernel, may not allow DEVX")}
		}
		return nil, err
	}
	return dev.(*verbs.Device), nil
}

// Supported reports whether the device is of mlx5 (mlx5dv_is_supported).
func Supported(dev *verbs.Device) bool {
	call, err := begin("query driver", dev)
	if err != nil {
		return false
	}
	call.Done()
	return true
}

// begin begins a verb on an mlx5 device or its objects.
func begin(op string, on ...any) (*inside.Call, error) {
	return inside.BeginOn[adapter](errDriver, op, on...)
}

var errNoDEVX = fmt.Errorf("%w: the device was not opened with mlx5dv.Open", verbs.ErrNotSupported)

// beginDEVX is begin for what needs a device that Open has opened.
func beginDEVX(op string, on ...any) (*inside.Call, error) {
	call, err := begin(op, on...)
	if err != nil {
		return nil, err
	}
	if !call.Device.(adapter).DEVX() {
		defer call.Done()
		return nil, call.Fail("", errNoDEVX)
	}
	return call, nil
}

// invalid refuses an argument.
func invalid(op, format string, args ...any) error {
	return &verbs.OpError{Op: op, Err: fmt.Errorf("%w: "+format, append([]any{verbs.ErrInvalid}, args...)...)}
}
