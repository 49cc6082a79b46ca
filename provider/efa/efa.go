// Package efa is the provider for EFA, the network adapter of AWS (Elastic Fabric Adapter). It
// corresponds to libefa in rdma-core. The provider isn't part of every program: a program
// links it by importing it, or package efadv:
//
//	import _ "github.com/goverbs/goverbs/provider/efa"
//
// A work request is a descriptor of 64 or 128 bytes. Sends are written to memory of the device,
// which is mapped write-combining, and the doorbell gets their number. Receives are written to
// a ring in memory, with a descriptor for each buffer. Completions arrive in a ring, with a bit
// that changes in each round.
//
// EFA has datagrams only: UD, and SRD, whose messages arrive reliably, but in any order. So
// requests complete in any order. The provider therefore numbers the requests of a queue from a
// ring of free numbers: posts take numbers, and polls return them. Neither waits for the other.
//
// EFA has no connected queue pairs, no atomic operations, no shared receive queues, no memory
// windows and no multicast. The connection manager doesn't support it. Each send must be
// signaled. A UD receive begins with the 40 bytes of a GRH, although WCGRH isn't set, and an SRD
// receive with the message. WC.SLID is the number of the address handle to the sender, or 0xffff
// if there is none.
//
// # What differs from libefa
//
//   - The completion of an RDMA read is WCRDMARead, with its length. libefa reports a send.
//   - Request numbers are reused in the order of their return. libefa reuses the last returned
//     number first.
//   - A completion of a queue pair that was destroyed is dropped. libefa's poll fails.
//   - A completion that matches no request is a *provider.CQEError. libefa checks only the
//     number of the queue pair.
//   - A receive without buffers is refused. libefa loses its place in the queue.
//   - A receive buffer of 64 KiB or more counts as 64 KiB less one byte. Old libefas take the
//     length modulo 64 KiB.
//   - Requests are never identified by 64 bits, as the newest devices permit: the provider would
//     need its records of requests all the same.
//   - A doorbell after a poll has the number of events at the last Arm.
package efa

import (
	"errors"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// Provider describes the provider.
var Provider = provider.Provider{
	Name:       "efa",
	Driver:     uapi.RDMA_DRIVER_EFA,
	MinABI:     uapi.EFA_UVERBS_ABI_VERSION,
	MaxABI:     uapi.EFA_UVERBS_ABI_VERSION,
	NewContext: newContext,
}

func init() { provider.Register(&Provider) }

// limits are the device's attributes and limits.
type limits struct {
	device      uapi.EfaIbvExQueryDeviceResp
	context     uapi.EfaIbvAllocUcontextResp
	readSGEs    int // local buffers of an RDMA read or write
	maxInline   uint32
	completions int // rings of a CQ
}

// has reports whether the device has a capability.
func (l *limits) has(cap uint32) bool { return l.device.DeviceCaps&cap != 0 }

type context struct {
	file *ioctl.File
	resp *uapi.EfaIbvAllocUcontextResp
	limits
	qps table
}

var errProcessor = fmt.Errorf("%w: efa is for amd64 and arm64 only", provider.ErrNotSupported)

func newContext(f *ioctl.File, cmd ioctl.GetContext) (provider.Context, error) {
	if !mmio.Supported {
		return nil, errProcessor
	}
	// A device that needs one of these features refuses programs that don't declare it.
	cmd.Efa().In().SupportedCaps = uapi.EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH | uapi.EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR
	return &context{file: f, resp: cmd.Efa().Out()}, nil
}

// maxSubCQs is more than any device has.
const maxSubCQs = 64

var errOldKernel = fmt.Errorf("%w: the kernel's efa driver doesn't report the numbers of address handles and the device's limits", provider.ErrNotSupported)

// Adopt also queries the device, whose limits determine the queues.
func (c *context) Adopt() error {
	l := &c.limits
	l.context, c.resp = *c.resp, nil
	const needed = uint32(uapi.EFA_USER_CMDS_SUPP_UDATA_QUERY_DEVICE | uapi.EFA_USER_CMDS_SUPP_UDATA_CREATE_AH)
	if l.context.CmdsSuppUdataMask&needed != needed {
		return errOldKernel
	}
	cmd := ioctl.NewWriteExQueryDevice()
	defer cmd.Release()
	device := cmd.Efa().Out()
	if err := cmd.Run(c.file); err != nil {
		return fmt.Errorf("query device: %w", err)
	}
	l.device = *device
	l.readSGEs = int(min(cmd.Resp.Base.MaxSgeRd, maxRDMASGE))
	l.maxInline = uint32(l.context.InlineBufSizeEx)
	if l.maxInline == 0 {
		l.maxInline = uint32(l.context.InlineBufSize)
	}
	l.maxInline = min(l.maxInline, longInline)
	if l.completions = int(l.context.SubCqsPerCq); l.completions < 1 || l.completions > maxSubCQs {
		return fmt.Errorf("efa: the kernel reports a CQ of %d rings", l.completions)
	}
	return nil
}

func (c *context) Release() {}

func (c *context) Clock() (uint64, bool) { return 0, false }

// QueryDevice corrects the number of work requests: the sends of a queue must fit in the
// device's memory.
func (c *context) QueryDevice(ioctl.WriteExQueryDevice) func() provider.DeviceExtra {
	return func() provider.DeviceExtra {
		return provider.DeviceExtra{MaxSends: c.context.MaxLlqSize / shortWQE}
	}
}

// pd is a protection domain. The provider needs no state for it.
type pd struct{}

func (c *context) NewPD(cmd ioctl.WriteAllocPd) (provider.PD, error) {
	cmd.Efa().Out() // as in libefa; the provider needs none of it
	return pd{}, nil
}

func (pd) Adopt() error { return nil }

// ah is an address handle.
type ah struct{ resp *uapi.EfaIbvCreateAhResp }

func (c *context) NewAH(cmd ioctl.WriteCreateAh, _ provider.AHInit) (provider.AH, error) {
	return ah{cmd.Efa().Out()}, nil
}

func (ah) Local() bool { return false }

func (a ah) Adopt(ref *provider.AHRef) error {
	ref.Number = uint32(a.resp.EfaAddressHandle)
	return nil
}

func (c *context) NewSRQ(ioctl.SrqCreate, *provider.SRQInit) (provider.SRQ, error) {
	return nil, errSRQ
}

var errSRQ = fmt.Errorf("%w: efa has no shared receive queues", provider.ErrNotSupported)

var errOffset = errors.New("efa: the kernel reports an invalid offset of a queue or doorbell")

// mapDoorbell maps the page of a doorbell.
func mapDoorbell(f *ioctl.File, key uint64, offset uint32) (page []byte, err error) {
	if offset%4 != 0 || int64(offset) > int64(os.Getpagesize())-4 {
		return nil, errOffset
	}
	return f.Mmap(key, os.Getpagesize())
}

func unmap(mem *[]byte) {
	if *mem != nil {
		ioctl.Munmap(*mem)
		*mem = nil
	}
}
