// Package efadv has the functions of EFA adapters beyond package verbs, as libefa's efadv.h has.
// Importing it links the provider for EFA, package provider/efa.
//
//   - [QueryDevice] returns the device's limits and capabilities.
//   - [CreateQP] makes an SRD queue pair with options of its own. Without them,
//     verbs.PD.CreateQP with the type verbs.SRD suffices.
//   - [AHNumber] returns the device's number of an address handle, by which completions name
//     senders.
//   - [QueryMR] returns the interconnects of a host that a memory region's data takes.
//   - [QPQueues] and [CQQueue] return the addresses of queues, for a device that posts and polls
//     by itself.
//
// The additions of efadv_create_cq are in package verbs: the fields verbs.WCFieldSGID and
// verbs.WCFieldUnsolicited of a completion queue.
//
// Functions take objects of package verbs. On a device with another driver they return an
// error that matches verbs.ErrNotSupported. Errors are of the type *verbs.OpError. Functions
// are safe for concurrent use.
package efadv

import (
	"fmt"
	"io"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/internal/driververbs"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	_ "github.com/goverbs/goverbs/provider/efa" // so that the devices can be opened
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// An adapter is the provider's context of an efa device.
type adapter interface {
	Describe() driverapi.EFADevice
}

var errDriver = fmt.Errorf("%w: the device is not an efa device", verbs.ErrNotSupported)

// Supported reports whether the device is an efa device.
func Supported(dev *verbs.Device) bool {
	call, err := begin("query driver", dev)
	if err != nil {
		return false
	}
	call.Done()
	return true
}

// begin begins a verb on an efa device or its objects.
func begin(op string, on ...io.Closer) (*driverapi.Call, error) {
	return driververbs.Begin[adapter](errDriver, op, on...)
}

// Caps are a device's capabilities (EFADV_DEVICE_ATTR_CAPS_*).
type Caps uint32

// The values are those of the driver (EFA_QUERY_DEVICE_CAPS_*), which libefa renumbers.
const (
	CapRDMARead             Caps = uapi.EFA_QUERY_DEVICE_CAPS_RDMA_READ              // RDMA reads on SRD queue pairs
	CapRNRRetry             Caps = uapi.EFA_QUERY_DEVICE_CAPS_RNR_RETRY              // QPAttr.RNRRetry of SRD queue pairs
	CapCQNotifications      Caps = uapi.EFA_QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS       // CQs have events
	CapCQWithSGID           Caps = uapi.EFA_QUERY_DEVICE_CAPS_CQ_WITH_SGID           // verbs.WCFieldSGID
	CapDataPolling128       Caps = uapi.EFA_QUERY_DEVICE_CAPS_DATA_POLLING_128       // data arrives in order within 128 bytes
	CapRDMAWrite            Caps = uapi.EFA_QUERY_DEVICE_CAPS_RDMA_WRITE             // RDMA writes on SRD queue pairs
	CapUnsolicitedWriteRecv Caps = uapi.EFA_QUERY_DEVICE_CAPS_UNSOLICITED_WRITE_RECV // QPOptions.UnsolicitedWriteRecv
	CapCQInOtherMemory      Caps = uapi.EFA_QUERY_DEVICE_CAPS_CQ_WITH_EXT_MEM        // CQs can be in memory of other devices, which this package doesn't make
	CapCompCounters         Caps = uapi.EFA_QUERY_DEVICE_CAPS_COMP_CNTR              // verbs.CompCounter
	CapWideRequestIDs       Caps = uapi.EFA_QUERY_DEVICE_CAPS_SQ_64_BIT_REQ_ID       // requests can have IDs of 64 bits, which this package doesn't use
)

func (c Caps) String() string { return uapi.EnumEfaQueryDeviceCaps.Short(uint64(c)) }

// DeviceAttr has the attributes that only efa devices have (struct efadv_device_attr).
type DeviceAttr struct {
	MaxSQWR, MaxRQWR   int  // requests of a queue, each with one buffer
	MaxSQSGE, MaxRQSGE int  // buffers of a request
	InlineBufSize      int  // inline data of a request of 64 bytes
	InlineBufSizeEx    int  // inline data of any request
	MaxRDMASize        int  // bytes of an RDMA read or write
	MaxLLQSize         int  // bytes of the device's memory for a send queue
	Caps               Caps // the device's capabilities
}

// QueryDevice returns the device's limits and capabilities (efadv_query_device).
func QueryDevice(dev *verbs.Device) (DeviceAttr, error) {
	call, err := begin("query efa device", dev)
	if err != nil {
		return DeviceAttr{}, err
	}
	defer call.Done()
	x := call.Device.(adapter).Describe()
	return DeviceAttr{
		MaxSQWR: int(x.Device.MaxSqWr), MaxRQWR: int(x.Device.MaxRqWr), MaxSQSGE: int(x.Device.MaxSqSge), MaxRQSGE: int(x.Device.MaxRqSge),
		InlineBufSize: int(x.Context.InlineBufSize), InlineBufSizeEx: x.MaxInline,
		MaxRDMASize: int(x.Device.MaxRdmaSize), MaxLLQSize: int(x.Context.MaxLlqSize), Caps: Caps(x.Device.DeviceCaps),
	}, nil
}

// QPOptions are the options of an SRD queue pair (struct efadv_qp_init_attr).
type QPOptions struct {
	verbs.QPOptions // Type may be left out: it is SRD

	// UnsolicitedWriteRecv lets RDMA writes with immediate data complete without a receive.
	// Their completions have the WRID 0.
	UnsolicitedWriteRecv bool

	// InlineWrite allows inline data in RDMA writes. Then each request takes 128 bytes of the
	// device's memory.
	InlineWrite bool

	ServiceLevel uint8 // a class of traffic, which AWS defines
}

// CreateQP creates an SRD queue pair (efadv_create_qp_ex).
func CreateQP(pd *verbs.PD, o QPOptions) (*verbs.QP, error) {
	const op = "create SRD QP"
	if o.Type == 0 {
		o.Type = verbs.SRD
	}
	if o.Type != verbs.SRD {
		return nil, &verbs.OpError{Op: op, Err: fmt.Errorf("%w: the QP's type is %v, not SRD", verbs.ErrInvalid, o.Type)}
	}
	if err := check(op, pd); err != nil {
		return nil, err
	}
	extra := driverapi.EFAQP{UnsolicitedWriteRecv: o.UnsolicitedWriteRecv, InlineWrite: o.InlineWrite, ServiceLevel: o.ServiceLevel}
	return driververbs.Verbs.CreateQP(op, pd, &o.QPOptions, extra)
}

// check refuses objects of other drivers.
func check(op string, on io.Closer) error {
	call, err := begin(op, on)
	if err != nil {
		return err
	}
	call.Done()
	return nil
}

// AHNumber returns the device's number of an address handle (efadv_query_ah). A message from that
// address has this number in WC.SLID.
func AHNumber(ah *verbs.AH) (uint16, error) {
	call, err := begin("query AH", ah)
	if err != nil {
		return 0, err
	}
	defer call.Done()
	return uint16(call.Providers[0].(*provider.AHRef).Number), nil
}

// MRAttr names the interconnects between the host and the device that a memory region's data
// takes (struct efadv_mr_attr). An interconnect's ID is nil if it is not known.
type MRAttr struct {
	Recv     *uint16 // of data that receives bring
	RDMARead *uint16 // of data that RDMA reads bring
	RDMARecv *uint16 // of data that peers write, or read
}

// QueryMR queries the driver about a memory region (efadv_query_mr). Linux has it from 6.8 on.
func QueryMR(mr *verbs.MR) (MRAttr, error) {
	call, err := begin("query MR", mr)
	if err != nil {
		return MRAttr{}, err
	}
	defer call.Done()
	cmd := ioctl.NewEfaMrQuery()
	defer cmd.Release()
	cmd.Handle(call.Handles[0])
	valid, recv, read, remote := cmd.RespIcIdValidity(), cmd.RespRecvIcId(), cmd.RespRdmaReadIcId(), cmd.RespRdmaRecvIcId()
	if err := cmd.Run(call.File); err != nil {
		return MRAttr{}, call.Fail("", err)
	}
	known := func(bit uint16, id *uint16) *uint16 {
		if *valid&bit == 0 {
			return nil
		}
		v := *id
		return &v
	}
	return MRAttr{
		Recv:     known(uapi.EFA_QUERY_MR_VALIDITY_RECV_IC_ID, recv),
		RDMARead: known(uapi.EFA_QUERY_MR_VALIDITY_RDMA_READ_IC_ID, read),
		RDMARecv: known(uapi.EFA_QUERY_MR_VALIDITY_RDMA_RECV_IC_ID, remote),
	}, nil
}
