package rdmanl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/uapi"
)

// A Link is a port of a device.
type Link struct {
	Device       string                 // its name
	Index        uint32                 // of the device
	Port         uint32                 // from 1
	SubnetPrefix Optional[ib.GUID]      // InfiniBand only
	LID          Optional[uint32]       // InfiniBand only
	SMLID        Optional[uint32]       // InfiniBand only
	LMC          Optional[uint8]        // InfiniBand only
	State        Optional[ib.PortState] // whether it can be used
	PhysState    Optional[ib.PhysState] // of the cable
	Netdev       Optional[string]       // the network interface, in this network namespace
	NetdevIndex  Optional[uint32]       // its index
	Caps         Optional[PortCaps]     // the port's capabilities
}

func decodeLink(d *decoder, b []byte) Link {
	var l Link
	d.each(b, func(kind uint16, v []byte) {
		switch kind {
		case uapi.RDMA_NLDEV_ATTR_DEV_INDEX:
			l.Index = d.u32(v)
		case uapi.RDMA_NLDEV_ATTR_DEV_NAME:
			l.Device = d.text(v)
		case uapi.RDMA_NLDEV_ATTR_PORT_INDEX:
			l.Port = d.u32(v)
		case uapi.RDMA_NLDEV_ATTR_SUBNET_PREFIX:
			l.SubnetPrefix = Some(ib.GUIDOf(d.u64(v)))
		case uapi.RDMA_NLDEV_ATTR_LID:
			l.LID = Some(d.u32(v))
		case uapi.RDMA_NLDEV_ATTR_SM_LID:
			l.SMLID = Some(d.u32(v))
		case uapi.RDMA_NLDEV_ATTR_LMC:
			l.LMC = Some(d.u8(v))
		case uapi.RDMA_NLDEV_ATTR_PORT_STATE:
			l.State = Some(ib.PortState(d.u8(v)))
		case uapi.RDMA_NLDEV_ATTR_PORT_PHYS_STATE:
			l.PhysState = Some(ib.PhysState(d.u8(v)))
		case uapi.RDMA_NLDEV_ATTR_NDEV_NAME:
			l.Netdev = Some(d.text(v))
		case uapi.RDMA_NLDEV_ATTR_NDEV_INDEX:
			l.NetdevIndex = Some(d.u32(v))
		case uapi.RDMA_NLDEV_ATTR_CAP_FLAGS:
			l.Caps = Some(PortCaps(d.u64(v)))
		}
	})
	d.need(l.Device != "" && l.Port != 0, "a link without device or port")
	return l
}

// Links returns the ports of a device.
func Links(ctx context.Context, dev uint32) ([]Link, error) {
	const op = "list links"
	d, err := GetDevice(ctx, dev)
	if err != nil {
		return nil, err
	}
	var links []Link
	for port := uint32(1); port <= d.Ports; port++ {
		bodies, err := ask(ctx, get(uapi.RDMA_NLDEV_CMD_PORT_GET).port(dev, port))
		if err == nil {
			var l Link
			if l, err = decodeOne(bodies, decodeLink); err == nil {
				links = append(links, l)
				continue
			}
		}
		return nil, opErr(op, onPort(dev, port), explain(ctx, dev, err))
	}
	return links, nil
}

// The limits of the kernel, without the zero at the end (IFNAMSIZ).
const netdevMax = 15

// LinkOptions describe the device that AddLink makes.
type LinkOptions struct {
	Name   string // of the device: 1 to 63 bytes
	Type   string // the driver: "rxe" for Soft-RoCE, "siw" for soft-iWARP
	Netdev string // the network interface that it is on
}

// AddLink adds a device of a software driver to a network interface. The kernel loads the driver.
// When AddLink returns, the device exists, but its GIDs and its files in /dev may still be missing.
func AddLink(ctx context.Context, o LinkOptions) error {
	const op = "add link"
	wrong := wrongName(o.Name)
	switch {
	case wrong != "":
	case o.Type == "" || len(o.Type) > netdevMax || strings.ContainsAny(o.Type, "/\x00"):
		wrong = fmt.Sprintf("the type has 1 to %d bytes, such as rxe or siw", netdevMax)
	case o.Netdev == "" || len(o.Netdev) > netdevMax || strings.ContainsAny(o.Netdev, "/\x00"):
		wrong = fmt.Sprintf("the name of a network interface has 1 to %d bytes", netdevMax)
	}
	if wrong != "" {
		return invalid(op, o.Name, "%s", wrong)
	}
	_, err := ask(ctx, get(uapi.RDMA_NLDEV_CMD_NEWLINK).
		text(uapi.RDMA_NLDEV_ATTR_DEV_NAME, o.Name).
		text(uapi.RDMA_NLDEV_ATTR_LINK_TYPE, o.Type).
		text(uapi.RDMA_NLDEV_ATTR_NDEV_NAME, o.Netdev))
	if err == nil {
		return nil
	}
	e := opErr(op, o.Name, err)
	switch {
	case errors.Is(err, syscall.ENODEV):
		e.hint = "there is no network interface " + o.Netdev + " in this network namespace"
	case errors.Is(err, syscall.ENFILE):
		e.hint = "there is a device with this name"
	case errors.Is(err, syscall.EEXIST):
		e.hint = "there is a device with this name, or " + o.Netdev + " has a link of type " + o.Type
	case errors.Is(err, syscall.EINVAL):
		e.hint = "the kernel has no links of type " + o.Type + ", or not on " + o.Netdev
	case errors.Is(err, syscall.EPERM):
		e.hint += ", and links of type rxe can't be on a VLAN"
	}
	return e
}

// DeleteLink deletes a device of a software driver. Programs that use it lose it.
func DeleteLink(ctx context.Context, dev uint32) error {
	const op = "delete link"
	_, err := ask(ctx, get(uapi.RDMA_NLDEV_CMD_DELLINK).device(dev))
	if err == nil {
		return nil
	}
	e := opErr(op, onDevice(dev), explain(ctx, dev, err))
	if errors.Is(err, syscall.EINVAL) && !errors.Is(e, ErrNoDevice) {
		e.hint = "only links of software drivers can be deleted, such as rxe and siw"
	}
	return e
}
