package verbs

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A CounterPoint selects the quantity that a counter counts (enum ibv_counter_description).
type CounterPoint uint32

const (
	CountPackets CounterPoint = 0 // packets
	CountBytes   CounterPoint = 1 // bytes of packets
)

// Counters count the packets of the flows that refer to them with a FlowCount.
type Counters struct {
	object
	points []uint32
}

func (k *Counters) base() *object {
	if k == nil {
		return nil
	}
	return &k.object
}

// CreateCounters creates a counter for each point (ibv_create_counters, and
// ibv_attach_counters_point_flow for each point). Only mlx5 has them, on Ethernet ports.
// Elsewhere the error is ErrNotSupported.
func (d *Device) CreateCounters(points ...CounterPoint) (*Counters, error) {
	const op = "create counters"
	if err := d.begin(op); err != nil {
		return nil, err
	}
	defer d.done()
	if _, ok := d.prov.(provider.FlowCounter); !ok {
		return nil, opErr(op, d.info.name, ErrNotSupported)
	}
	if len(points) == 0 || len(points) > maxCounters {
		return nil, invalid(op, "%d points are not in 1 to %d", len(points), maxCounters)
	}
	k := new(Counters)
	for _, p := range points {
		if p > CountBytes {
			return nil, invalid(op, "there is no point %d", uint32(p))
		}
		k.points = append(k.points, uint32(p))
	}
	cmd := ioctl.NewCountersCreate()
	defer cmd.Release()
	handle := cmd.Handle()
	if err := cmd.Run(d.file); err != nil {
		return nil, d.failed(op, "", err)
	}
	k.adopt(d, kindCounters, uint32(*handle), k)
	return k, nil
}

const maxCounters = 64

// Read returns the counters, in the order of CreateCounters' points (ibv_read_counters). A
// flow must have used the counters before.
func (k *Counters) Read() ([]uint64, error) {
	const op = "read counters"
	if err := hold(op, k.base()); err != nil {
		return nil, err
	}
	defer k.drop()
	values := make([]uint64, len(k.points))
	cmd := ioctl.NewCountersRead()
	defer cmd.Release()
	cmd.Handle(k.handle)
	cmd.Buff(values)
	cmd.Flags(0)
	if err := cmd.Run(k.dev.file); err != nil {
		return nil, k.dev.failed(op, "", err)
	}
	return values, nil
}

// Close destroys the counters (ibv_destroy_counters). It returns ErrBusy while a flow uses them.
func (k *Counters) Close() error {
	return k.base().end("destroy counters",
		func() error { return k.destroy(ioctl.NewCountersDestroy()) },
		func() {})
}

// FlowCount makes the device count the packets (struct ibv_flow_spec_counter_action). A flow
// may have one.
type FlowCount struct {
	Counters *Counters // the counters to increment
}

func (s FlowCount) append(b []byte) []byte {
	hdr := uapi.IbUverbsFlowSpecHdr{Type: uint32(uapi.IB_FLOW_SPEC_ACTION_COUNT)}
	spec := uapi.IbUverbsFlowSpecActionCount{Hdr: hdr, Handle: s.Counters.handle}
	spec.Hdr.Size = uint16(binary.Size(&spec))
	b, err := binary.Append(b, binary.NativeEndian, &spec)
	if err != nil {
		panic(err) // the struct has no fixed size
	}
	return b
}
