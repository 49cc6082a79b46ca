package firmware

import (
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// Values of a RoCE address's fields.
const (
	roceVersion1 = 0
	roceVersion2 = 2

	roceIPv4 = 0
	roceIPv6 = 1
)

func roceBindings(a *transport.Address) []binding {
	return []binding{
		{"source_l3_address", &a.GID}, {"source_mac_47_32", &a.MAC},
		{"vlan_valid", &a.Tagged}, {"vlan_id", &a.VLAN},
	}
}

func (h *HCA) setRoCEAddress(in, out ifc.View) Status {
	v := in.Sub("roce_address")
	kind := v.Get("roce_l3_type")
	port := in.Get("vhca_port_num")
	version := v.Get("roce_version")
	if !h.hasPort(port) || h.caps.current[capRoCE].Get("roce_version")>>version&1 == 0 || kind > roceIPv6 {
		return BadParam
	}
	a := transport.Address{IPv4: version == roceVersion2 && kind == roceIPv4, V1: version == roceVersion1}
	load(v, roceBindings(&a))
	return transportStatus(h.engine.SetAddress(uint8(max(port, 1)), int(in.Get("roce_address_index")), a))
}

func (h *HCA) queryRoCEAddress(in, out ifc.View) Status {
	port := in.Get("vhca_port_num")
	if !h.hasPort(port) {
		return BadParam
	}
	a, ok := h.engine.Address(uint8(max(port, 1)), int(in.Get("roce_address_index")))
	if !ok {
		return BadParam
	}
	v := out.Sub("roce_address")
	store(v, roceBindings(&a))
	v.Set("roce_version", roceVersion2)
	v.Set("roce_l3_type", roceIPv6)
	switch {
	case a.V1:
		v.Set("roce_version", roceVersion1)
		v.Set("roce_l3_type", 0)
	case a.IPv4:
		v.Set("roce_l3_type", roceIPv4)
	}
	return OK
}
