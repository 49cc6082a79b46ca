package mlx5dv

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// Caps are a device's capabilities (MLX5_IB_QUERY_DEV_RESP_*).
type Caps uint32

// The values are those of the driver, which libmlx5 renumbers.
const (
	CapCQECompression128 Caps = Caps(uapi.MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP)      // completions of 128 bytes can be compressed
	CapCQEPad            Caps = Caps(uapi.MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD)       // CQOptions.Pad
	CapPacketCredits     Caps = Caps(uapi.MLX5_IB_QUERY_DEV_RESP_PACKET_BASED_CREDIT_MODE) // QPOptions.PacketCredits
	CapDCTScatterToCQE   Caps = Caps(uapi.MLX5_IB_QUERY_DEV_RESP_FLAGS_SCAT2CQE_DCT)       // verbs.QPOptions.ScatterToCQE of a verbs.DCT
	CapOutOfOrder        Caps = Caps(uapi.MLX5_IB_QUERY_DEV_RESP_FLAGS_OOO_DP)             // QPOptions.OutOfOrder, since Linux 6.13
)

func (c Caps) String() string { return uapi.EnumMlx5IbQueryDevRespFlags.Short(uint64(c)) }

// DeviceAttr has the attributes that only mlx5 devices have (struct mlx5dv_context).
// verbs.DeviceAttr has its limits of compressed completions, segmentation, RSS and pacing.
type DeviceAttr struct {
	Caps Caps // what the device can do

	// OutOfOrder is only known if the device was opened by Open, with DEVX.
	OutOfOrder OutOfOrderCaps

	// MaxStreams is the maximum of DCIStreams.
	MaxStreams DCIStreams
}

// OutOfOrderCaps are the maximum numbers of outstanding receives of queue pairs with
// QPOptions.OutOfOrder (struct mlx5dv_ooo_recv_wrs_caps), by type. It is 0 for a type that
// the adapter doesn't support.
type OutOfOrderCaps struct {
	MaxRC, MaxUC, MaxUD int // of the queue pair's own queue
	MaxDC               int // of the SRQ
}

// QueryDevice returns the device's capabilities (mlx5dv_query_device).
func QueryDevice(dev *verbs.Device) (DeviceAttr, error) {
	call, err := begin("query mlx5 device", dev)
	if err != nil {
		return DeviceAttr{}, err
	}
	defer call.Done()
	a, err := queryDevice(call)
	if err != nil {
		return DeviceAttr{}, call.Fail("", err)
	}
	return a, nil
}

// The firmware's command QUERY_HCA_CAP, and the place of the types that can be out of order in
// the general capabilities (mlx5_ifc.h, dp_ordering_ooo_all_*).
const (
	opcodeQueryCaps = 0x100
	generalCapsNow  = 1
	capsLength      = 4096
	disorderAt      = header + 0x330/8
	disorderUD      = 0x80
	disorderUC      = 0x40
	disorderDC      = 0x10
	disorderRC      = 0x08
)

func queryDevice(call *driverapi.Call) (a DeviceAttr, err error) {
	cmd := ioctl.NewWriteExQueryDevice()
	defer cmd.Release()
	resp := cmd.Mlx5().Out()
	if err := cmd.Run(call.File); err != nil {
		return a, err
	}
	a.Caps = Caps(resp.Flags)
	a.MaxStreams = DCIStreams{LogConcurrent: resp.DciStreamsCaps.MaxLogNumConcurent, LogErrored: resp.DciStreamsCaps.MaxLogNumErrored}
	if a.Caps&CapOutOfOrder == 0 || !call.Device.(adapter).DEVX() {
		return a, nil
	}
	in, out := make([]byte, header), make([]byte, header+capsLength)
	binary.BigEndian.PutUint16(in, opcodeQueryCaps)
	in[7] = generalCapsNow
	devx := ioctl.NewMlx5DevxOther()
	defer devx.Release()
	devx.In(in)
	devx.Out(out)
	if err := devx.Run(call.File); err != nil {
		return a, err
	}
	// A queue pair's own queue has two slots for each receive. An SRQ is a list.
	list := int(cmd.Resp.Base.MaxQpWr)
	ring := max(list/2, 1)
	for _, x := range []struct {
		bit    byte
		limit  *int
		places int
	}{{disorderRC, &a.OutOfOrder.MaxRC, ring}, {disorderUC, &a.OutOfOrder.MaxUC, ring}, {disorderUD, &a.OutOfOrder.MaxUD, ring}, {disorderDC, &a.OutOfOrder.MaxDC, list}} {
		if out[disorderAt]&x.bit != 0 {
			*x.limit = x.places
		}
	}
	return a, nil
}
