package firmware

import (
	"slices"

	"github.com/goverbs/goverbs/tests/hca/ifc"
)

// A transport domain is what a frame is not received in that was sent from
// there, unless a receiver asks for it.
func (h *HCA) allocDomain(in, out ifc.View) Status {
	return alloc(&h.domains, out, "transport_domain")
}

func (h *HCA) deallocDomain(in, out ifc.View) Status {
	return dealloc(&h.domains, in.Get("transport_domain"))
}

// sendInterface is a TIS: what send queues have in common.
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
	case c.Flag("tls_en"), c.Flag("underlay_qpn"), c.Flag("lag_tx_port_affinity"), c.Flag("strict_lag_tx_port_affinity"):
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

// modifyTIS refuses all that can be asked for: it is about bonding.
func (h *HCA) modifyTIS(in, out ifc.View) Status {
	if h.tiss.items[uint32(in.Get("tisn"))] == nil {
		return BadRes
	}
	for _, b := range in.Bytes("bitmask") {
		if b != 0 {
			return BadParam
		}
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
