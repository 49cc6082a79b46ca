package firmware

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
)

// States of a port, and of its link.
const (
	portDown   = 1
	portInit   = 2
	portActive = 4

	linkPolling = 2
	linkUp      = 5
)

const (
	gids        = 8
	defaultPKey = 0xffff
)

// PortChanged tells the driver that the port went up or down.
func (h *HCA) PortChanged(up bool) {
	subtype := uint8(eq.PortDown)
	h.logical = portInit
	switch {
	case up && h.byManager:
		subtype = eq.PortInitialized
	case up:
		h.logical, subtype = portActive, eq.PortActive
	}
	h.Post(eq.Port(subtype, 1))
}

func (h *HCA) portState() (port, link uint64) {
	if h.c.Port.Up() {
		return h.logical, linkUp
	}
	return portDown, linkPolling
}

// ownPort reports whether a query is about this function's only port.
func ownPort(in ifc.View) bool { return !in.Flag("other_vport") && in.Get("port_num") <= 1 }

func (h *HCA) queryVportState(in, out ifc.View) Status {
	if in.Flag("other_vport") {
		return BadParam
	}
	out.SetFlag("state", h.c.Port.Up())
	out.SetFlag("admin_state", !h.disabled)
	return OK
}

func (h *HCA) queryVportContext(in, out ifc.View) Status {
	if !ownPort(in) {
		return BadParam
	}
	c := out.Sub("hca_vport_context")
	port, link := h.portState()
	c.Set("vport_state", port)
	c.Set("port_state", port)
	c.Set("port_physical_state", link)
	c.Set("system_image_guid", h.c.GUID)
	c.Set("node_guid", h.c.GUID)
	c.Set("port_guid", h.c.Port.GUID())
	c.Set("cap_mask1", h.capMask)
	c.Set("cap_mask1_field_select", capSettable)
	c.Set("lid", uint64(h.c.Port.LID()))
	c.Set("sm_lid", uint64(h.managed.smLID))
	c.Set("sm_sl", uint64(h.managed.smSL))
	c.Set("subnet_timeout", uint64(h.managed.timeout))
	c.SetFlag("has_smi", !h.c.Ethernet)
	c.SetFlag("grh_required", h.c.Profile.GRHRequired)
	return OK
}

// Capabilities of a port that the subnet manager sees. Software agents set some of them
// when they start and stop.
const (
	capSM               = 1 << 1
	capSystemImageGUID  = 1 << 11
	capExtendedSpeeds   = 1 << 14
	capCM               = 1 << 16
	capSNMP             = 1 << 17
	capDeviceMgmt       = 1 << 19
	capVendorClass      = 1 << 20
	capClientReregister = 1 << 25

	capSettable = capSM | capCM | capSNMP | capDeviceMgmt | capVendorClass
)

func (h *HCA) modifyVportContext(in, out ifc.View) Status {
	c := in.Sub("hca_vport_context")
	mask := c.Get("cap_mask1_field_select")
	if !ownPort(in) || c.Get("field_select") != 0 || mask&^capSettable != 0 {
		return BadParam
	}
	h.capMask = h.capMask&^mask | c.Get("cap_mask1")&mask
	return OK
}

func (h *HCA) queryVportGID(in, out ifc.View) Status {
	index := in.Get("gid_index")
	const all = 0xffff
	first, n := index, uint64(1)
	if index == all {
		first, n = 0, gids
	}
	if !ownPort(in) || first >= gids {
		return BadParam
	}
	out.Set("gids_num", n)
	if first == 0 {
		gid := h.c.Port.GID()
		copy(out.Bytes("gid"), gid[:])
	}
	return OK
}

func (h *HCA) queryVportPKey(in, out ifc.View) Status {
	index := in.Get("pkey_index")
	const all = 0xffff
	if !ownPort(in) {
		return BadParam
	}
	table := h.managed.pkeys[:]
	if index != all {
		if index >= pkeys {
			return BadParam
		}
		table = table[index:][:1]
	}
	words := out.Bytes("pkey")
	for i, key := range table {
		if len(words) >= 4*(i+1) {
			binary.BigEndian.PutUint32(words[4*i:], uint32(key))
		}
	}
	return OK
}

// pkey returns a key of the port's table.
func (h *HCA) pkey(_ uint8, index uint16) uint16 {
	if index >= pkeys {
		return 0
	}
	return h.managed.pkeys[index]
}

func (h *HCA) queryVportCounter(in, out ifc.View) Status {
	if !ownPort(in) {
		return BadParam
	}
	return OK
}
