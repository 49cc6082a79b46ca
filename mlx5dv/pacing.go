package mlx5dv

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// A Pacing is an entry of the adapter's table of rates, for send queues that commands make
// (struct mlx5dv_pp). Its methods are safe for concurrent use.
type Pacing struct {
	object driverapi.Object
	index  uint16
}

// PacingOptions are the arguments of AllocPacing.
type PacingOptions struct {
	Limit verbs.RateLimit // its Rate is not 0

	// Dedicated makes an entry that no other queue shares. Without it, all calls with the same
	// limit return the same entry.
	Dedicated bool
}

// AllocPacing allocates an entry (mlx5dv_pp_alloc). The device must have been opened with Open.
// DeviceAttr.PacketPacing has the bounds. An adapter without tables of rates, such as one with
// InfiniBand ports, returns an error that matches verbs.ErrNotSupported.
func AllocPacing(dev *verbs.Device, o PacingOptions) (*Pacing, error) {
	const op = "alloc pacing"
	call, err := beginDEVX(op, dev)
	if err != nil {
		return nil, err
	}
	defer call.Done()
	cmd := ioctl.NewMlx5PpObjAlloc()
	defer cmd.Release()
	handle := cmd.Handle()
	cmd.Ctx(limitContext(o.Limit))
	flags := uapi.Mlx5IbUapiPpAllocFlags(0)
	if o.Dedicated {
		flags = uapi.MLX5_IB_UAPI_PP_ALLOC_FLAGS_DEDICATED_INDEX
	}
	cmd.Flags(flags)
	index := cmd.Index()
	if err := cmd.Run(call.File); err != nil {
		return nil, call.Fail("", err)
	}
	return &Pacing{index: *index, object: call.Adopt(driverapi.Made{
		Name: "pacing", Op: "free pacing", Handle: uint32(*handle),
		Destroy: func(f *ioctl.File, handle uint32) error {
			cmd := ioctl.NewMlx5PpObjDestroy()
			defer cmd.Release()
			cmd.Handle(handle)
			return cmd.Run(f)
		},
	})}, nil
}

// limitContext encodes a limit for SET_PP_RATE_LIMIT (struct
// mlx5_ifc_set_pp_rate_limit_context_bits).
func limitContext(r verbs.RateLimit) []byte {
	b := binary.BigEndian.AppendUint32(nil, r.Rate)
	b = binary.BigEndian.AppendUint32(b, r.MaxBurst)
	return binary.BigEndian.AppendUint32(b, uint32(r.TypicalPacket))
}

// Index returns the number by which commands name the entry (packet_pacing_rate_limit_index).
func (p *Pacing) Index() uint16 {
	if p == nil {
		return 0
	}
	return p.index
}

// Close frees the entry (mlx5dv_pp_free). No queue may use it any more.
func (p *Pacing) Close() error {
	if p == nil {
		return nil
	}
	return p.object.Close()
}
