package firmware

import (
	"slices"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/steering"
)

// receiver is a TIR: a receive queue, or several among which a hash chooses.
type receiver struct {
	object
	context []byte // as it was created and modified
	domain  uint32
	selfLB  uint64 // receives from its own domain too: selfUnicast, selfMulticast
	rqn     uint32 // if table is nil
	table   *queueTable
	hash    steering.Hash
}

const (
	selfUnicast = 1 << iota
	selfMulticast
)

func (h *HCA) createTIR(in, out ifc.View) Status {
	c := in.Sub("ctx")
	t := &receiver{context: slices.Clone(c.Data), domain: uint32(c.Get("transport_domain")), selfLB: c.Get("self_lb_block")}
	domain := h.domains.items[t.domain]
	switch {
	case domain == nil:
		return BadRes
	case c.Flag("tls_en"), c.Flag("packet_merge_mask"), c.Flag("tunneled_offload_en"):
		return BadParam
	}
	const direct, indirect = 0, 1
	switch c.Get("disp_type") {
	case direct:
		t.rqn = uint32(c.Get("inline_rqn"))
		q := h.rqs[t.rqn]
		if q == nil {
			return BadRes
		}
		t.use(&q.object)
	case indirect:
		if t.table = h.rqts.items[uint32(c.Get("indirect_table"))]; t.table == nil {
			return BadRes
		}
		var status Status
		if t.hash, status = hashOf(c); status != OK {
			return status
		}
		t.use(&t.table.object)
	default:
		return BadParam
	}
	number, ok := h.tirs.add(t)
	if !ok {
		t.release()
		return NoRes
	}
	t.use(domain)
	out.Set("tirn", uint64(number))
	return OK
}

// hashOf reads the hash with which a TIR chooses among its queues.
func hashOf(c ifc.View) (steering.Hash, Status) {
	s := c.Sub("rx_hash_field_selector_outer")
	x := steering.Hash{
		Function:  steering.Function(c.Get("rx_hash_fn")),
		Symmetric: c.Flag("rx_hash_symmetric"),
		IPv6:      s.Flag("l3_prot_type"),
		UDP:       s.Flag("l4_prot_type"),
		Fields:    uint32(s.Get("selected_fields")),
	}
	copy(x.Key[:], c.Bytes("rx_hash_toeplitz_key"))
	if x.Function > steering.HashToeplitz || x.Fields&^steering.HashFields != 0 || c.Flag("rx_hash_field_selector_inner.selected_fields") {
		return x, BadParam
	}
	return x, OK
}

func (h *HCA) modifyTIR(in, out ifc.View) Status {
	t := h.tirs.items[uint32(in.Get("tirn"))]
	c := in.Sub("ctx")
	switch {
	case t == nil:
		return BadRes
	case in.Flag("bitmask.packet_merge") && c.Flag("packet_merge_mask"):
		return BadParam
	}
	now := ifc.View{Layout: c.Layout, Data: t.context}
	if in.Flag("bitmask.hash") {
		hash, status := hashOf(c)
		if status != OK {
			return status
		}
		t.hash = hash
		for _, field := range []string{"rx_hash_fn", "rx_hash_symmetric"} {
			now.Set(field, c.Get(field))
		}
		for _, field := range []string{"rx_hash_toeplitz_key", "rx_hash_field_selector_outer"} {
			copy(now.Bytes(field), c.Bytes(field))
		}
	}
	if in.Flag("bitmask.self_lb_en") {
		t.selfLB = c.Get("self_lb_block")
		now.Set("self_lb_block", t.selfLB)
	}
	return OK
}

func (h *HCA) destroyTIR(in, out ifc.View) Status {
	return dealloc(&h.tirs, in.Get("tirn"))
}

func (h *HCA) queryTIR(in, out ifc.View) Status {
	t := h.tirs.items[uint32(in.Get("tirn"))]
	if t == nil {
		return BadRes
	}
	copy(out.Bytes("tir_context"), t.context)
	return OK
}
