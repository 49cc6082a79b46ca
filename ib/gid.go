package ib

import (
	"net/netip"

	"github.com/goverbs/goverbs/internal/operr"
)

// A GID is the address of a port, in network byte order (union ibv_gid). On
// InfiniBand it is a subnet prefix and a GUID. On RoCE it is the IPv6 address, or the
// IPv4-mapped IPv6 address, of a network interface. GID(addr.As16()) converts an
// address to a GID.
type GID [16]byte

// String returns the GID as an IPv6 address: "fe80::5054:ff:fe12:3456",
// "::ffff:192.168.77.1".
func (g GID) String() string { return netip.AddrFrom16(g).String() }

// ParseGID parses an IPv6 address, in any of its forms, or an IPv4 address.
func ParseGID(s string) (GID, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return GID{}, operr.Invalid("ib: parse GID: %q is not an IP address", s)
	}
	return GID(a.As16()), nil
}

// MarshalText implements encoding.TextMarshaler with String.
func (g GID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler with ParseGID.
func (g *GID) UnmarshalText(b []byte) (err error) {
	*g, err = ParseGID(string(b))
	return err
}

// IsIPv4Mapped reports whether the GID stands for an IPv4 address.
func (g GID) IsIPv4Mapped() bool { return netip.AddrFrom16(g).Is4In6() }

// Addr returns the GID as an IP address: an IPv4 address if it stands for one.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }
