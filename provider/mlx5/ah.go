package mlx5

import (
	"errors"
	"math/rand/v2"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// An ah is an address handle: an address vector, which is copied into each work request.
// The kernel only resolves the peer's MAC address.
type ah struct {
	av   wqe.AddressVector
	resp *uapi.Mlx5IbCreateAhResp
}

// rates translates IB_RATE_* to the adapter's codes. Some are rounded up to the next
// faster rate; 0 means no limit.
var rates = [...]uint8{2: 7, 8, 9, 10, 11, 12, 13, 14, 15, 11, 13, 15, 0, 9, 15, 0, 0, 9, 13, 0, 0}

var (
	errNotGlobal   = errors.New("mlx5: over RoCE an address is global: set IsGlobal")
	errGRHRequired = errors.New("mlx5: the port requires global addresses: set IsGlobal")
)

func (c *context) NewAH(cmd ioctl.WriteCreateAh, init provider.AHInit) (provider.AH, error) {
	link, err := init.Link()
	if err != nil {
		return nil, err
	}
	attr := &init.Attr
	a := &ah{av: wqe.AddressVector{SL: attr.Sl & 0xf}}
	if int(attr.StaticRate) < len(rates) {
		a.av.StaticRate = rates[attr.StaticRate]
	}
	if attr.IsGlobal != 0 {
		g := &attr.Grh
		a.av.TClass, a.av.HopLimit, a.av.SGIDIndex = g.TrafficClass, g.HopLimit, g.SgidIndex
		a.av.FlowLabel, a.av.RGID = g.FlowLabel&0xfffff, g.Dgid
	}
	if !link.Ethernet {
		if link.GRHRequired && attr.IsGlobal == 0 {
			return nil, errGRHRequired
		}
		a.av.Global = attr.IsGlobal != 0
		a.av.SrcPathBits, a.av.RLID = attr.SrcPathBits&0x7f, attr.Dlid
		return a, nil
	}
	switch {
	case attr.IsGlobal == 0:
		return nil, errNotGlobal
	case !c.ahInKernel:
		return nil, errors.New("mlx5: this kernel doesn't resolve peers' MAC addresses; Linux 4.5 or later does")
	}
	a.av.SL = attr.Sl & 7 << 1 // the priority
	if link.RoCEV2 {
		a.av.RLID = sourcePort(a.av.FlowLabel)
	}
	a.resp = cmd.Mlx5().Out()
	return a, nil
}

// sourcePort returns the UDP source port of a flow's packets, which switches use to
// distribute flows. The flow label determines the port. Without a label, any port will do.
func sourcePort(flow uint32) uint16 {
	const least = 0xc000 // IB_ROCE_UDP_ENCAP_VALID_PORT_MIN
	if flow == 0 {
		return least + uint16(rand.UintN(0x4000))
	}
	low, high := flow&0x3fff, flow>>14
	return least | uint16((low^high)&0x3fff)
}

func (a *ah) Local() bool { return a.resp == nil }

func (a *ah) Adopt(ref *provider.AHRef) error {
	if a.resp != nil {
		a.av.RMAC = a.resp.Dmac
		a.resp = nil
	}
	ref.Vector = a.av.Encode()
	return nil
}
