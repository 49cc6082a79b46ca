package loop

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// Kinds of a port's RoCE addresses. Each kind is also an index in the table.
const (
	IPv6 = iota
	IPv4
	V1 // the GID of an IPv4 address
	IPv6Tagged
	IPv4Tagged

	KindsOfAddress
)

// VLAN is the VLAN ID of the tagged addresses.
const VLAN = 77

// RoCEAddress returns an address of a world's HCA.
func RoCEAddress(hca, kind int) transport.Address {
	a := transport.Address{MAC: fabric.MAC{2, 0, 0, 0, 0, byte(hca + 1)}}
	a.IPv4, a.V1 = kind == IPv4 || kind == IPv4Tagged, kind == V1
	if a.IPv4 || a.V1 {
		a.GID = fabric.GID{10: 0xff, 0xff, 10, byte(kind), 0, byte(hca + 1)}
	} else {
		a.GID = fabric.GID{0xfd, byte(kind), 15: byte(hca + 1)}
	}
	if kind == IPv4Tagged || kind == IPv6Tagged {
		a.Tagged, a.VLAN = true, VLAN
	}
	return a
}

// RoCEAV appends an address vector from the source address at an index to an address, with
// traffic class 8 and hop limit 64.
func RoCEAV(b []byte, key uint64, qpn uint32, index int, to transport.Address) []byte {
	b = binary.BigEndian.AppendUint64(b, key)
	b = binary.BigEndian.AppendUint32(b, 1<<31|qpn)
	b = append(b, 3<<1, 0, 0xc0, 0, 0, 0, 0, 0) // priority 3, source port
	b = append(append(b, to.MAC[:]...), 8, 64)
	b = binary.BigEndian.AppendUint32(b, uint32(index)<<20)
	return append(b, to.GID[:]...)
}
