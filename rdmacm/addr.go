package rdmacm

import "net/netip"

// An Addr is an address of a Conn or a Listener, and the dynamic type of the
// net.Addr that their methods return. Addrs can be compared with ==.
type Addr struct {
	ps   PortSpace
	addr netip.AddrPort
}

// Network returns the name of the network for Dial and Listen: "tcp" or "ib".
func (a Addr) Network() string {
	if a.ps == PortSpaceIB {
		return "ib"
	}
	return "tcp"
}

// String returns the address for Dial and Listen, "host:port".
func (a Addr) String() string { return a.addr.String() }

// AddrPort returns the address.
func (a Addr) AddrPort() netip.AddrPort { return a.addr }
