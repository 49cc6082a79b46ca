package mlx5dv

import (
	"fmt"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/internal/driververbs"
	"github.com/goverbs/goverbs/verbs"
)

// QPOptions adds the options of a queue pair that only mlx5 has (struct mlx5dv_qp_init_attr) to
// those of package verbs.
type QPOptions struct {
	verbs.QPOptions

	Streams *DCIStreams // for verbs.DCI: nil for none

	// OutOfOrder lets a network with adaptive routing deliver messages in any order
	// (MLX5DV_QP_CREATE_OOO_DP). Both sides must have it. It is for the types RC, UC, UD, DCI and
	// DCT, if DeviceAttr.Caps has CapOutOfOrder. If the adapter doesn't support the type, the
	// error matches verbs.ErrNotSupported. CreateQP returns this error if Open has opened the
	// device with DEVX. Otherwise the move to verbs.QPInit returns it.
	//
	// Completions come in the order of the messages, but a message may take any of the
	// receives: the completion's WRID identifies the receive. RDMA reads and atomic
	// operations are executed after all earlier requests. The data of writes and sends is
	// placed in any order. Atomic operations have 8 bytes at most. The queue has two slots
	// for each receive. If a receive stays unused while later ones complete, posts fail with
	// verbs.ErrQueueFull once all slots from this receive on are taken.
	OutOfOrder bool

	// PacketCredits makes the peer's credits count packets in place of messages
	// (MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE), for verbs.RC, if DeviceAttr.Caps has
	// CapPacketCredits. Both sides must have it.
	PacketCredits bool
}

// CreateQP creates a queue pair (mlx5dv_create_qp). Without options of this package,
// verbs.PD.CreateQP suffices. The error for an option that the device lacks matches
// verbs.ErrNotSupported.
func CreateQP(pd *verbs.PD, o QPOptions) (*verbs.QP, error) {
	const op = "create QP"
	extra := driverapi.MLX5QPOptions{OutOfOrder: o.OutOfOrder, Credits: o.PacketCredits}
	if s := o.Streams; s != nil {
		if o.Type != verbs.DCI {
			return nil, invalid(op, "streams are for %v, not for %v", verbs.DCI, o.Type)
		}
		if s.LogConcurrent > maxLogStreams || s.LogErrored > maxLogStreams {
			return nil, invalid(op, "LogConcurrent %d or LogErrored %d is too large", s.LogConcurrent, s.LogErrored)
		}
		extra.Streams = &driverapi.MLX5Streams{LogConcurrent: s.LogConcurrent, LogErrored: s.LogErrored}
	}
	if o.PacketCredits && o.Type != verbs.RC {
		return nil, invalid(op, "PacketCredits are for %v, not for %v", verbs.RC, o.Type)
	}
	call, err := begin(op, pd)
	if err != nil {
		return nil, err
	}
	defer call.Done()
	if o.OutOfOrder || o.PacketCredits {
		device, err := queryDevice(call)
		if err == nil {
			err = device.allow(&o)
		}
		if err != nil {
			return nil, call.Fail("", err)
		}
	}
	return driververbs.Verbs.CreateQP(op, pd, &o.QPOptions, extra)
}

// allow refuses options that the device doesn't support.
func (a *DeviceAttr) allow(o *QPOptions) error {
	if o.PacketCredits && a.Caps&CapPacketCredits == 0 {
		return fmt.Errorf("%w: the device has no credits for packets", verbs.ErrNotSupported)
	}
	if !o.OutOfOrder {
		return nil
	}
	if a.Caps&CapOutOfOrder == 0 {
		return fmt.Errorf("%w: the device, or its kernel, has no OutOfOrder", verbs.ErrNotSupported)
	}
	var limit int
	switch x := &a.OutOfOrder; o.Type {
	case verbs.RC:
		limit = x.MaxRC
	case verbs.UC:
		limit = x.MaxUC
	case verbs.UD:
		limit = x.MaxUD
	case verbs.DCI, verbs.DCT:
		limit = x.MaxDC
	default:
		return fmt.Errorf("%w: OutOfOrder is not for %v", verbs.ErrInvalid, o.Type)
	}
	if limit == 0 && a.OutOfOrder != (OutOfOrderCaps{}) {
		return fmt.Errorf("%w: the device has no OutOfOrder for %v", verbs.ErrNotSupported, o.Type)
	}
	return nil
}

// CQOptions adds the options of a completion queue that only mlx5 has (struct
// mlx5dv_cq_init_attr) to those of package verbs.
type CQOptions struct {
	verbs.CQOptions

	// Pad makes the adapter write all 128 bytes of each completion
	// (MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD), if CQESize is 128 and DeviceAttr.Caps has CapCQEPad.
	// The adapter need not read a cache line before it writes the whole line.
	Pad bool
}

// CreateCQ creates a completion queue (mlx5dv_create_cq). Without options of this package,
// verbs.Device.CreateCQ suffices.
func CreateCQ(dev *verbs.Device, o CQOptions) (*verbs.CQ, error) {
	const op = "create CQ"
	call, err := begin(op, dev)
	if err != nil {
		return nil, err
	}
	defer call.Done()
	if o.Pad {
		device, err := queryDevice(call)
		if err != nil {
			return nil, call.Fail("", err)
		}
		if device.Caps&CapCQEPad == 0 {
			return nil, call.Fail("", fmt.Errorf("%w: the device pads no completions", verbs.ErrNotSupported))
		}
		if o.CQESize != 128 {
			return nil, invalid(op, "CQESize %d: completions of 128 bytes can be padded", o.CQESize)
		}
	}
	return driververbs.Verbs.CreateCQ(op, dev, &o.CQOptions, driverapi.MLX5CQOptions{Pad: o.Pad})
}
