// Package siw is the provider for soft-iWARP, the kernel's siw: iWARP over TCP. It
// corresponds to libsiw in rdma-core.
//
// The kernel maps each queue into the process: an array of elements, each with a flag for
// its owner (rdma/siw-abi.h). The provider sets a work request's flag and the kernel clears
// it. The kernel sets a completion's flag and the provider clears it. No index is shared.
//
// The kernel works on a send queue until it finds an element without the flag. So a post
// needs a doorbell only if the kernel may have stopped: if it has taken the element before
// the first new one. The doorbell is an empty POST_SEND command by write(), as in libsiw.
// Receives need no doorbell. A word after a CQ's elements arms the CQ, without a system call.
//
// iWARP supports less than InfiniBand: only RC queue pairs, which the connection manager
// connects, without immediate data and atomic operations. See package rdmacm.
//
// The provider isn't part of every program. A program that uses package verbs links it by
// importing it:
//
//	import _ "github.com/goverbs/goverbs/provider/siw"
package siw

import (
	"fmt"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// Provider describes the provider.
var Provider = provider.Provider{
	Name:       "siw",
	Driver:     uapi.RDMA_DRIVER_SIW,
	MinABI:     uapi.SIW_ABI_VERSION,
	MaxABI:     uapi.SIW_ABI_VERSION,
	NewContext: newContext,
}

func init() { provider.Register(&Provider) }

type context struct {
	file *ioctl.File
}

func newContext(f *ioctl.File, cmd ioctl.GetContext) (provider.Context, error) {
	cmd.Siw().Out() // the driver requires it; the provider needs none of it
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

// RegMR adds the driver's part of a memory region. The driver ignores the requested IOVA,
// and uses the memory's address.
func (c *context) RegMR(cmd ioctl.WriteRegMr) error {
	if cmd.Req.HcaVa != cmd.Req.Start {
		return fmt.Errorf("%w: siw addresses memory by its own address, not by an IOVA", provider.ErrNotSupported)
	}
	cmd.Siw().In()
	cmd.Siw().Out()
	return nil
}

func (c *context) NewAH(ioctl.WriteCreateAh, provider.AHInit) (provider.AH, error) {
	return nil, fmt.Errorf("%w: iWARP has no datagrams, and so no address handles", provider.ErrNotSupported)
}
