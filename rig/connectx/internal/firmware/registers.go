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

// pfcc is the register of flow control, which this port doesn't have.
func (h *HCA) pfcc(data []byte, write bool) Status {
	v := ifc.On("pfcc_reg", data)
	if !h.c.Ethernet || !localPort(v) {
		return BadParam
	}
	for _, field := range []string{"pptx", "pprx", "pfctx", "pfcrx"} {
		if write && v.Flag(field) {
			return BadParam
		}
		v.Set(field, 0)
	}
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

func (h *HCA) ppcnt(data []byte, write bool) Status {
	v := ifc.On("ppcnt_reg", data)
	const infiniBand = 0x20
	if write || !localPort(v) || !h.c.Ethernet && v.Get("grp") != infiniBand {
		return BadParam
	}
	clear(v.Bytes("counter_set"))
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
