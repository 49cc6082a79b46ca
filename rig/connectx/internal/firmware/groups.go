package firmware

import (
	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
)

func (h *HCA) attachToGroup(in, out ifc.View) Status {
	number := uint32(in.Get("qpn"))
	q := h.qps[number]
	if q == nil || len(in.Bytes("multicast_gid")) != len(fabric.GID{}) {
		return BadRes
	}
	if err := h.engine.AttachMulticast(number, fabric.GID(in.Bytes("multicast_gid"))); err != nil {
		return transportStatus(err)
	}
	q.groups++
	return OK
}

func (h *HCA) detachFromGroup(in, out ifc.View) Status {
	number := uint32(in.Get("qpn"))
	q := h.qps[number]
	if q == nil || len(in.Bytes("multicast_gid")) != len(fabric.GID{}) {
		return BadRes
	}
	if err := h.engine.DetachMulticast(number, fabric.GID(in.Bytes("multicast_gid"))); err != nil {
		return transportStatus(err)
	}
	q.groups--
	return OK
}
