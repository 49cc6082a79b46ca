package firmware

import (
	"slices"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
)

// A frame that is sent from a transport domain isn't received in the same domain, unless
// a receiver requests loopback.
func (h *HCA) allocDomain(in, out ifc.View) Status {
	return alloc(&h.domains, out, "transport_domain")
}

func (h *HCA) deallocDomain(in, out ifc.View) Status {
	return dealloc(&h.domains, in.Get("transport_domain"))
}

// sendInterface is a TIS, the common settings of send queues.
type sendInterface struct {
	object
	domain  uint32
	context []byte // as it was created
}

func (h *HCA) createTIS(in, out ifc.View) Status {
	c := in.Sub("ctx")
	domain := uint32(c.Get("transport_domain"))
	d := h.domains.items[domain]
	switch {
	case d == nil:
		return BadRes
	case c.Flag("tls_en"), c.Flag("underlay_qpn"), c.Flag("strict_lag_tx_port_affinity"), !h.bonded(c.Get("lag_tx_port_affinity")):
		return BadParam
	}
	t := &sendInterface{domain: domain, context: slices.Clone(c.Data)}
	number, ok := h.tiss.add(t)
	if !ok {
		return NoRes
	}
	t.use(d)
	out.Set("tisn", uint64(number))
	return OK
}

// bonded reports whether a command may name this port of a bond. Some profiles have ports
// for bonding, but a bond never exists, so that all of them are the same port.
func (h *HCA) bonded(port uint64) bool {
	if !h.promised(capGeneral, "lag_tx_port_affinity") {
		return port == 0
	}
	return port <= h.caps.current[capGeneral].Get("num_lag_ports")
}

// queryLAG answers that there is no bond.
func (h *HCA) queryLAG(in, out ifc.View) Status {
	if !h.promised(capGeneral, "lag_master") {
		return BadOp
	}
	return OK
}

// modifyTIS accepts only changes for bonding.
func (h *HCA) modifyTIS(in, out ifc.View) Status {
	t := h.tiss.items[uint32(in.Get("tisn"))]
	if t == nil {
		return BadRes
	}
	selected, c := in.Sub("bitmask"), in.Sub("ctx")
	affinity := selected.Flag("lag_tx_port_affinity")
	selected.SetFlag("lag_tx_port_affinity", false)
	for _, b := range selected.Data[:min(selected.Size(), len(selected.Data))] {
		if b != 0 {
			return BadParam
		}
	}
	if affinity {
		port := c.Get("lag_tx_port_affinity")
		if !h.promised(capGeneral, "lag_tx_port_affinity") || !h.bonded(port) {
			return BadParam
		}
		ifc.View{Layout: c.Layout, Data: t.context}.Set("lag_tx_port_affinity", port)
	}
	return OK
}

func (h *HCA) destroyTIS(in, out ifc.View) Status {
	return dealloc(&h.tiss, in.Get("tisn"))
}

func (h *HCA) queryTIS(in, out ifc.View) Status {
	t := h.tiss.items[uint32(in.Get("tisn"))]
	if t == nil {
		return BadRes
	}
	copy(out.Bytes("tis_context"), t.context)
	return OK
}
