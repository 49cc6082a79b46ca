package firmware

import (
	"encoding/binary"
	"slices"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
)

// nicVport has the driver's settings of its Ethernet addresses. Flow tables alone decide
// which frames are received. Only the settings of loopback and RoCE have an effect.
type nicVport struct {
	context ifc.View
	lists   [3][]byte // of unicast addresses, of multicast addresses, of VLANs
}

// address returns the port's first address. It is derived from the port's GUID, as the
// inverse of the derivation of GUIDs from Ethernet addresses.
func (h *HCA) address() (mac [6]byte) {
	var guid [8]byte
	binary.BigEndian.PutUint64(guid[:], h.c.Port.GUID())
	copy(mac[:], guid[:3])
	copy(mac[3:], guid[5:])
	return mac
}

func newNICVport(h *HCA) nicVport {
	v := nicVport{context: ifc.Make("nic_vport_context")}
	v.context.Set("mtu", ethernetMTU)
	v.context.Set("system_image_guid", h.c.GUID)
	v.context.Set("node_guid", h.c.GUID)
	v.context.Set("port_guid", h.c.Port.GUID())
	mac := h.address()
	copy(v.context.Bytes("permanent_address")[2:], mac[:])
	return v
}

func (h *HCA) queryNICVport(in, out ifc.View) Status {
	kind := in.Get("allowed_list_type")
	if in.Flag("other_vport") || kind >= uint64(len(h.vport.lists)) {
		return BadParam
	}
	c := listed(out, "nic_vport_context")
	copy(c.Data, h.vport.context.Data)
	list := h.vport.lists[kind]
	c.Set("allowed_list_type", kind)
	c.Set("allowed_list_size", uint64(len(list)/sizeListed))
	copy(c.Bytes("current_uc_mac_address"), list)
	return OK
}

// sizeListed is the size of an entry of a list.
const sizeListed = 8

func (h *HCA) modifyNICVport(in, out ifc.View) Status {
	selects := in.Sub("field_select")
	c := listed(in, "nic_vport_context")
	v := h.vport.context
	for _, field := range []string{"affiliation", "node_guid", "port_guid", "min_inline"} {
		if selects.Flag(field) {
			return BadParam
		}
	}
	if in.Flag("other_vport") {
		return BadParam
	}
	if selects.Flag("addresses_list") {
		kind, n := c.Get("allowed_list_type"), int(c.Get("allowed_list_size"))
		if kind >= uint64(len(h.vport.lists)) || n > 1<<logMaxAddresses {
			return BadParam
		}
		list := c.Bytes("current_uc_mac_address")
		size := n * sizeListed
		if size > len(list) {
			return BadInLen
		}
		h.vport.lists[kind] = slices.Clone(list[:size])
	}
	fields := map[string][]string{
		"disable_uc_local_lb": {"disable_uc_local_lb"},
		"disable_mc_local_lb": {"disable_mc_local_lb"},
		"mtu":                 {"mtu"},
		"change_event": {"arm_change_event", "event_on_mtu", "event_on_promisc_change", "event_on_vlan_change",
			"event_on_mc_address_change", "event_on_uc_address_change"},
		"promisc": {"promisc_uc", "promisc_mc", "promisc_all"},
		"roce_en": {"roce_en"},
	}
	for selected, names := range fields {
		if selects.Flag(selected) {
			for _, name := range names {
				v.Set(name, c.Get(name))
			}
		}
	}
	h.engine.EnableRoCE(v.Flag("roce_en"))
	if selects.Flag("permanent_address") {
		copy(v.Bytes("permanent_address"), c.Bytes("permanent_address"))
	}
	return OK
}
