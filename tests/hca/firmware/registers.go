package firmware

import "github.com/goverbs/goverbs/tests/hca/ifc"

// register carries out an access to a register: on a write data is what the
// driver says, on a read it begins as that and is filled.
type register struct {
	size   int
	access func(h *HCA, data []byte, write bool) Status
}

var registers = map[uint64]register{
	0x5003: {ifc.Of("pmtu_reg").Size(), (*HCA).pmtu},
	0x5004: {ifc.Of("ptys_reg").Size(), (*HCA).ptys},
	0x5006: {ifc.Of("paos_reg").Size(), (*HCA).paos},
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
	if write || !localPort(v) {
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
	const infiniBand = 1
	if write || !localPort(v) || v.Get("proto_mask") != infiniBand {
		return BadParam
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

func (h *HCA) paos(data []byte, write bool) Status {
	v := ifc.On("paos_reg", data)
	if write || !localPort(v) {
		return BadParam
	}
	const up, down = 1, 2
	v.Set("admin_status", up)
	v.Set("oper_status", down)
	if h.c.Port.Up() {
		v.Set("oper_status", up)
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
	if write || !localPort(v) || v.Get("grp") != infiniBand {
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

// hostEndianness is told, and makes no difference to this model.
func (h *HCA) hostEndianness(data []byte, write bool) Status { return OK }
