package firmware

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// A binding maps a field of a layout to a variable, in both directions.
type binding struct {
	path     string
	variable any // a pointer
}

// lowerMAC returns the second of the two fields of an Ethernet address. The path of the
// first one stands for both.
func lowerMAC(path string) string { return strings.TrimSuffix(path, "47_32") + "31_0" }

// load sets the variables from the fields.
func load(v ifc.View, bindings []binding) {
	for _, b := range bindings {
		switch p := b.variable.(type) {
		case *bool:
			*p = v.Flag(b.path)
		case *uint8:
			*p = uint8(v.Get(b.path))
		case *uint16:
			*p = uint16(v.Get(b.path))
		case *uint32:
			*p = uint32(v.Get(b.path))
		case *uint64:
			*p = v.Get(b.path)
		case *transport.State:
			*p = transport.State(v.Get(b.path))
		case *transport.Service:
			*p = transport.Service(v.Get(b.path))
		case *transport.RQType:
			*p = transport.RQType(v.Get(b.path))
		case *fabric.GID:
			copy(p[:], v.Bytes(b.path))
		case *fabric.MAC:
			binary.BigEndian.PutUint16(p[:], uint16(v.Get(b.path)))
			binary.BigEndian.PutUint32(p[2:], uint32(v.Get(lowerMAC(b.path))))
		default:
			panic(fmt.Sprintf("firmware: %s is bound to a %T", b.path, p))
		}
	}
}

// store sets the fields from the variables.
func store(v ifc.View, bindings []binding) {
	for _, b := range bindings {
		switch p := b.variable.(type) {
		case *bool:
			v.SetFlag(b.path, *p)
		case *uint8:
			v.Set(b.path, uint64(*p))
		case *uint16:
			v.Set(b.path, uint64(*p))
		case *uint32:
			v.Set(b.path, uint64(*p))
		case *uint64:
			v.Set(b.path, *p)
		case *transport.State:
			v.Set(b.path, uint64(*p))
		case *transport.Service:
			v.Set(b.path, uint64(*p))
		case *transport.RQType:
			v.Set(b.path, uint64(*p))
		case *fabric.GID:
			copy(v.Bytes(b.path), p[:])
		case *fabric.MAC:
			v.Set(b.path, uint64(binary.BigEndian.Uint16(p[:])))
			v.Set(lowerMAC(b.path), uint64(binary.BigEndian.Uint32(p[2:])))
		default:
			panic(fmt.Sprintf("firmware: %s is bound to a %T", b.path, p))
		}
	}
}
