// Package rxe is the provider for Soft-RoCE, the kernel's rdma_rxe. It corresponds to
// librxe in rdma-core.
//
// The kernel maps each queue into the process: a ring with a producer and a consumer index
// (struct rxe_queue_buf in rdma_user_rxe.h). The provider writes work requests into it, or
// reads completions from it. Receives need nothing more. A send queue needs a doorbell,
// because no thread of the driver watches it. The doorbell is an empty POST_SEND command by
// write(), as in librxe. An ioctl would take several attributes each time, and a tracer
// that stops at control verbs would stop at every message.
//
// Programs use package verbs, which links this provider.
package rxe

import (
	"errors"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// Provider describes the provider.
var Provider = provider.Provider{
	Name:   "rxe",
	Driver: uapi.RDMA_DRIVER_RXE,
	// On 64-bit machines the two ABI versions are the same.
	MinABI:     1,
	MaxABI:     2,
	NewContext: newContext,
}

var (
	errBadQueue = errors.New("rxe: the kernel's queue has an unknown layout")
	errBadIndex = errors.New("rxe: the kernel's queue index is out of range")
)

type context struct {
	file *ioctl.File
}

func newContext(f *ioctl.File, _ ioctl.GetContext) (provider.Context, error) {
	return &context{file: f}, nil
}

func (c *context) Adopt() error { return nil }
func (c *context) Release()     {}

func (c *context) Clock() (uint64, bool) { return 0, false }

func (c *context) QueryDevice(ioctl.WriteExQueryDevice) func() provider.DeviceExtra { return nil }

// pd is a protection domain. The provider needs no state for it.
type pd struct{}

func (c *context) NewPD(ioctl.WriteAllocPd) (provider.PD, error) { return pd{}, nil }

func (pd) Adopt() error { return nil }

// ah is an address handle. The kernel keeps the address and assigns a number to it.
type ah struct {
	resp *uapi.RxeCreateAhResp
}

func (c *context) NewAH(cmd ioctl.WriteCreateAh, _ provider.AHInit) (provider.AH, error) {
	return ah{cmd.Rxe().Out()}, nil
}

func (ah) Local() bool { return false }

func (a ah) Adopt(ref *provider.AHRef) error {
	ref.Number = a.resp.AhNum
	if ref.Number == 0 {
		// Before Linux 5.18 every work request contained the address.
		return errors.New("rxe: this kernel doesn't number address handles; Linux 5.18 or later is needed")
	}
	return nil
}
