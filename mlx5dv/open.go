package mlx5dv

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/internal/driververbs"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
)

// An adapter is the provider's context of an mlx5 device.
type adapter interface {
	UseDEVX()
	DEVX() bool
	UseRegisters(n int)
}

var errDriver = fmt.Errorf("%w: the device is not an mlx5 device", verbs.ErrNotSupported)

// Options are the arguments of Open.
type Options struct {
	// DEVX lets the program give commands to the firmware (MLX5DV_CONTEXT_FLAGS_DEVX). The
	// firmware then knows which objects are the program's own.
	DEVX bool

	// Registers is the number of doorbell registers that serve one QP each, up to 512.
	// Further QPs share eight, behind locks, except for those with SingleOwner, which always
	// have their own. 0 stands for the value of MLX5_TOTAL_UUARS, or else for eight.
	Registers int
}

// Open opens the device with options (mlx5dv_open_device). Everything else is as after
// DeviceInfo.Open.
func Open(info *verbs.DeviceInfo, o Options) (*verbs.Device, error) {
	const op = "open device"
	if o.Registers < 0 || o.Registers > maxRegisters {
		return nil, invalid(op, "%d registers: the maximum is %d", o.Registers, maxRegisters)
	}
	dev, err := driververbs.Verbs.Open(info, func(context any) error {
		a, ok := context.(adapter)
		if !ok {
			return errDriver
		}
		if o.DEVX {
			a.UseDEVX()
		}
		if o.Registers > 0 {
			a.UseRegisters(o.Registers)
		}
		return nil
	})
	if err != nil {
		if o.DEVX && errors.Is(err, syscall.EINVAL) {
			err = &verbs.OpError{Op: op, Object: info.Name(), Err: operr.Hinted(err, "the adapter's firmware, or the kernel, may not allow DEVX")}
		}
		return nil, err
	}
	return dev, nil
}

// maxRegisters is also the maximum of MLX5_TOTAL_UUARS.
const maxRegisters = 512

// Supported reports whether the device is an mlx5 device (mlx5dv_is_supported).
func Supported(dev *verbs.Device) bool {
	call, err := begin("query driver", dev)
	if err != nil {
		return false
	}
	call.Done()
	return true
}

// begin begins a verb on an mlx5 device or its objects.
func begin(op string, on ...io.Closer) (*driverapi.Call, error) {
	return driververbs.Begin[adapter](errDriver, op, on...)
}

var errNoDEVX = fmt.Errorf("%w: the device was not opened with mlx5dv.Options.DEVX", verbs.ErrNotSupported)

// beginDEVX is like begin, for verbs that need a device that Open has opened.
func beginDEVX(op string, on ...io.Closer) (*driverapi.Call, error) {
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
