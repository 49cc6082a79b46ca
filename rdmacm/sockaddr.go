package rdmacm

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"

	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// Linux's address families, and the sizes of their addresses.
const (
	afINET  = 2
	afINET6 = 10
	afIB    = 27

	sizeofSockaddrIn  = 16
	sizeofSockaddrIn6 = 28
)

// A sockaddr is an address that an ID can bind to, or resolve.
type sockaddr interface {
	// put writes the address in the kernel's format, and returns its size.
	put(op string, to *uapi.KernelSockaddrStorage) (size uint16, err error)
	String() string
}

type ipAddr struct{ netip.AddrPort }

func (a ipAddr) put(op string, to *uapi.KernelSockaddrStorage) (size uint16, err error) {
	return putAddr(op, to, a.AddrPort)
}

// putAddr writes an address in the kernel's format, and returns its size.
func putAddr(op string, to *uapi.KernelSockaddrStorage, a netip.AddrPort) (size uint16, err error) {
	addr := a.Addr().Unmap()
	switch {
	case addr.Is4():
		to.SsFamily = afINET
		ip := addr.As4()
		copy(to.Data[2:], ip[:])
		size = sizeofSockaddrIn
	case addr.Is6():
		to.SsFamily = afINET6
		ip := addr.As16()
		copy(to.Data[6:], ip[:])
		scope, err := scopeID(addr.Zone())
		if err != nil {
			return 0, invalid(op, "the zone of %v: %v", addr, err)
		}
		binary.NativeEndian.PutUint32(to.Data[22:], scope)
		size = sizeofSockaddrIn6
	default:
		return 0, invalid(op, "no address")
	}
	binary.BigEndian.PutUint16(to.Data[:], a.Port())
	return size, nil
}

// scopeID returns the number of a zone: an interface's name or its index.
func scopeID(zone string) (uint32, error) {
	if zone == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	i, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, err
	}
	return uint32(i.Index), nil
}

// zone is scopeID's inverse.
func zone(scope uint32) string {
	if scope == 0 {
		return ""
	}
	if i, err := net.InterfaceByIndex(int(scope)); err == nil {
		return i.Name
	}
	return strconv.FormatUint(uint64(scope), 10)
}

// addrPort reads an address. The result is invalid if there is none.
func addrPort(s *uapi.KernelSockaddrStorage) netip.AddrPort {
	port := binary.BigEndian.Uint16(s.Data[:])
	switch s.SsFamily {
	case afINET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s.Data[2:6])), port)
	case afINET6:
		addr := netip.AddrFrom16([16]byte(s.Data[6:22]))
		return netip.AddrPortFrom(addr.WithZone(zone(binary.NativeEndian.Uint32(s.Data[22:]))), port)
	}
	return netip.AddrPort{}
}

// gidAndService reads a struct sockaddr_ib.
func gidAndService(s *uapi.KernelSockaddrStorage) (gid verbs.GID, service uint64) {
	if s.SsFamily != afIB {
		return gid, 0
	}
	return verbs.GID(s.Data[6:22]), binary.BigEndian.Uint64(s.Data[22:])
}
