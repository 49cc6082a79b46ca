package rdmacm

import (
	"context"
	"net"
	"net/netip"
	"strconv"

	"github.com/goverbs/goverbs/verbs"
)

// Hints select the addresses that Lookup returns, as the hints of rdma_getaddrinfo do. The
// zero value selects the addresses of a peer in the TCP port space.
type Hints struct {
	Passive     bool           // addresses to listen on (RAI_PASSIVE); an empty node means any address, an IPv4 one if all devices are for iWARP
	NumericHost bool           // the node is an address, not a name (RAI_NUMERICHOST)
	Family      string         // "ip", the default, "ip4" or "ip6"
	PortSpace   PortSpace      // 0 stands for TCP
	Src         netip.AddrPort // the local address to use; it may be left out

	// Resolver looks names up; nil stands for net.DefaultResolver.
	Resolver *net.Resolver
}

// An AddrInfo is an address to resolve or to listen on, with the kind of ID that
// it needs (struct rdma_addrinfo).
type AddrInfo struct {
	PortSpace PortSpace      // for EventChannel.CreateID
	QPType    verbs.QPType   // of the QPs on the port space
	Src       netip.AddrPort // with Hints.Passive, the address to listen on; else Hints.Src
	Dst       netip.AddrPort // the peer's address; not with Hints.Passive
}

// Lookup looks up the addresses of a node and a service (rdma_getaddrinfo).
// The node is a host name or an address, the service a port number or name. The
// result has at least one address, in the order in which to try them.
func Lookup(ctx context.Context, node, service string, h Hints) ([]AddrInfo, error) {
	const op = "get address info"
	if ctx == nil {
		return nil, &OpError{Op: op, Err: errNoContext}
	}
	r := h.Resolver
	if r == nil {
		r = net.DefaultResolver
	}
	info := AddrInfo{PortSpace: h.PortSpace, Src: h.Src}
	if info.PortSpace == 0 {
		info.PortSpace = PortSpaceTCP
	}
	info.QPType = info.PortSpace.qpType()
	port, err := lookupPort(ctx, r, info, service)
	if err != nil {
		return nil, opErr(op, "", err)
	}
	addrs, err := h.lookup(ctx, r, op, node)
	if err != nil {
		return nil, err
	}
	infos := make([]AddrInfo, len(addrs))
	for i, addr := range addrs {
		infos[i] = info
		to := &infos[i].Dst
		if h.Passive {
			to = &infos[i].Src
		}
		*to = netip.AddrPortFrom(addr.Unmap(), port)
	}
	return infos, nil
}

func lookupPort(ctx context.Context, r *net.Resolver, info AddrInfo, service string) (uint16, error) {
	if service == "" {
		return 0, nil
	}
	// A number needs no lookup, and so no files.
	if n, err := strconv.ParseUint(service, 10, 16); err == nil {
		return uint16(n), nil
	}
	network := "tcp"
	if info.QPType == verbs.UD {
		network = "udp"
	}
	n, err := r.LookupPort(ctx, network, service)
	return uint16(n), err
}

func (h *Hints) lookup(ctx context.Context, r *net.Resolver, op, node string) ([]netip.Addr, error) {
	family := h.Family
	if family == "" {
		family = "ip"
	}
	switch family {
	case "ip", "ip4", "ip6":
	default:
		return nil, invalid(op, "family %q is not ip, ip4 or ip6", family)
	}
	if node == "" {
		return h.unspecified(family), nil
	}
	addr, err := netip.ParseAddr(node)
	switch {
	case err == nil && (family == "ip" || (family == "ip4") == addr.Unmap().Is4()):
		return []netip.Addr{addr}, nil
	case err == nil:
		return nil, invalid(op, "%v is not an %s address", addr, family)
	case h.NumericHost:
		return nil, invalid(op, "%q is not an IP address", node)
	}
	addrs, err := r.LookupNetIP(ctx, family, node)
	if err != nil {
		return nil, opErr(op, "", err)
	}
	return addrs, nil
}

// unspecified returns the addresses for an empty node: any address, or this host.
func (h *Hints) unspecified(family string) []netip.Addr {
	v4, v6 := netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()
	if h.Passive {
		v4, v6 = netip.IPv4Unspecified(), netip.IPv6Unspecified()
		if family == "ip" && onlyIWARP() {
			family = "ip4"
		}
	}
	switch family {
	case "ip4":
		return []netip.Addr{v4}
	case "ip6":
		return []netip.Addr{v6}
	}
	return []netip.Addr{v4, v6}
}

// onlyIWARP reports whether all devices are for iWARP. Soft-iWARP rejects an IPv4 client of a
// listener on IPv6's unspecified address.
func onlyIWARP() bool {
	devices, err := verbs.Devices()
	if err != nil || len(devices) == 0 {
		return false
	}
	for _, d := range devices {
		if d.Transport() != verbs.TransportIWARP {
			return false
		}
	}
	return true
}
