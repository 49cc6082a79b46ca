package firmware

import "github.com/goverbs/goverbs/rig/connectx/internal/ifc"

// register executes an access to a register. On a write, data has the driver's values. On
// a read, data has the driver's request and is filled in.
type register struct {
	size   int
	access func(h *HCA, data []byte, write bool) Status
}

var registers = map[uint64]register{
	0x5003: {ifc.Of("pmtu_reg").Size(), (*HCA).pmtu},
	0x5004: {ifc.Of("ptys_reg").Size(), (*HCA).ptys},
	0x5006: {ifc.Of("paos_reg").Size(), (*HCA).paos},
	0x5007: {ifc.Of("pfcc_reg").Size(), (*HCA).pfcc},
	0x5008: {ifc.Of("ppcnt_reg").Size(), (*HCA).ppcnt},
	0x500f: {ifc.Of("pvlc_reg").Size(), (*HCA).pvlc},
	0x6001: {nodeDescription, (*HCA).nodeDescription},
	0x7004: {16, (*HCA).hostEndianness},
	0xc000: {ifc.Of("resource_dump").Size(), (*HCA).resourceDump},
}

func (h *HCA) accessRegister(in, out ifc.View) Status {
	r, ok := registers[in.Get("register_id")]
	if !ok {
		return BadParam
	}
	data := in.Bytes("register_data")
	if len(data) < r.size {
		return BadInLen
	}
	const write = 0
	status := r.access(h, data[:r.size], in.Get("op_mod") == write)
	copy(out.Bytes("register_data"), data)
	return status
}

func localPort(v ifc.View) bool { return v.Get("local_port") == 1 }

func (h *HCA) pmtu(data []byte, write bool) Status {
	v := ifc.On("pmtu_reg", data)
	if !localPort(v) {
		return BadParam
	}
	if h.c.Ethernet {
		if write {
			if v.Get("admin_mtu") > ethernetMTU {
				return BadParam
			}
			h.mtu = v.Get("admin_mtu")
		}
		v.Set("max_mtu", ethernetMTU)
		v.Set("admin_mtu", h.mtu)
		v.Set("oper_mtu", h.mtu)
		return OK
	}
	if write {
		return BadParam
	}
	const mtu4096 = 4096
	v.Set("max_mtu", mtu4096)
	v.Set("admin_mtu", mtu4096)
	v.Set("oper_mtu", mtu4096)
	return OK
}

func (h *HCA) ptys(data []byte, write bool) Status {
	v := ifc.On("ptys_reg", data)
	const infiniBand, ethernet = 1, 4
	want := uint64(infiniBand)
	if h.c.Ethernet {
		want = ethernet
	}
	if write || !localPort(v) || v.Get("proto_mask") != want {
		return BadParam
	}
	if h.c.Ethernet {
		const cr4 = 1 << 20 // 100GBASE-CR4
		v.Set("eth_proto_capability", cr4)
		v.Set("eth_proto_admin", cr4)
		if h.c.Port.Up() {
			v.Set("eth_proto_oper", cr4)
		}
		return OK
	}
	const width4x, upToEDR, edr = 1 << 2, 0x3f, 1 << 5
	for _, field := range []string{"ib_link_width_capability", "ib_link_width_admin"} {
		v.Set(field, width4x)
	}
	v.Set("ib_proto_capability", upToEDR)
	v.Set("ib_proto_admin", upToEDR)
	if h.c.Port.Up() {
		v.Set("ib_link_width_oper", width4x)
		v.Set("ib_proto_oper", edr)
	}
	return OK
}

// paos returns whether the port is up. The driver of an Ethernet port enables and disables
// the port with it.
func (h *HCA) paos(data []byte, write bool) Status {
	v := ifc.On("paos_reg", data)
	const up, down = 1, 2
	if !localPort(v) || write && !h.c.Ethernet {
		return BadParam
	}
	if write {
		state := v.Get("admin_status")
		if state != up && state != down {
			return BadParam
		}
		h.disabled = state == down
		h.c.Port.Enable(!h.disabled)
	}
	v.Set("admin_status", up)
	if h.disabled {
		v.Set("admin_status", down)
	}
	v.Set("oper_status", down)
	if h.c.Port.Up() {
		v.Set("oper_status", up)
	}
	return OK
}

// pfcc is the register of flow control. The port obeys pause frames, but not those for a priority.
func (h *HCA) pfcc(data []byte, write bool) Status {
	v := ifc.On("pfcc_reg", data)
	if !h.c.Ethernet || !localPort(v) {
		return BadParam
	}
	if write {
		if v.Flag("pfctx") || v.Flag("pfcrx") {
			return BadParam
		}
		h.sendsPauses, h.obeysPauses = v.Flag("pptx"), v.Flag("pprx")
		if !h.obeysPauses {
			h.engine.Pause(h.c.Now(), false)
		}
	}
	v.SetFlag("pptx", h.sendsPauses)
	v.SetFlag("pprx", h.obeysPauses)
	v.Set("pfctx", 0)
	v.Set("pfcrx", 0)
	return OK
}

func (h *HCA) pvlc(data []byte, write bool) Status {
	v := ifc.On("pvlc_reg", data)
	if write || !localPort(v) {
		return BadParam
	}
	const vl0 = 1
	v.Set("vl_hw_cap", vl0)
	v.Set("vl_admin", vl0)
	v.Set("vl_operational", vl0)
	return OK
}

// ppcnt has the port's counters. Of an Ethernet port, only pause frames are counted.
func (h *HCA) ppcnt(data []byte, write bool) Status {
	v := ifc.On("ppcnt_reg", data)
	const ieee8023, perPriority, infiniBand = 0, 0x10, 0x20
	if write || !localPort(v) || !h.c.Ethernet && v.Get("grp") != infiniBand {
		return BadParam
	}
	counters := v.Bytes("counter_set")
	clear(counters)
	switch {
	case v.Get("grp") == ieee8023:
		ifc.On("eth_802_3_cntrs_grp_data_layout", counters).Set("a_pause_mac_ctrl_frames_received_low", h.pauses())
	case v.Get("grp") == perPriority && v.Get("prio_tc") == 0:
		ifc.On("eth_per_prio_grp_data_layout", counters).Set("rx_pause_low", h.pauses())
	}
	return OK
}

const nodeDescription = 64

func (h *HCA) nodeDescription(data []byte, write bool) Status {
	if write {
		copy(h.description[:], data)
		return OK
	}
	copy(data, h.description[:])
	return OK
}

// hostEndianness is the driver's byte order, which doesn't matter to this model.
func (h *HCA) hostEndianness(data []byte, write bool) Status { return OK }
