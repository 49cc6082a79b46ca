package firmware

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// phase is the initialization phase that a command needs.
type phase uint8

const (
	always      phase = iota
	enabled           // since ENABLE_HCA
	initialized       // since INIT_HCA
)

// command executes one opcode: it reads in and fills out. Its caller sets the status and
// the syndrome in out.
type command struct {
	name    string // of the layouts, without _in and _out
	phase   phase
	execute func(h *HCA, in, out ifc.View) Status
}

// Opcodes, MLX5_CMD_OP_*.
var opcodes = map[uint16]command{
	0x100: {"query_hca_cap", enabled, (*HCA).queryCapabilities},
	0x101: {"query_adapter", enabled, (*HCA).queryAdapter},
	0x102: {"init_hca", enabled, (*HCA).initHCA},
	0x103: {"teardown_hca", enabled, (*HCA).teardownHCA},
	0x104: {"enable_hca", always, (*HCA).enableHCA},
	0x105: {"disable_hca", always, (*HCA).disableHCA},
	0x107: {"query_pages", enabled, (*HCA).queryPages},
	0x108: {"manage_pages", enabled, (*HCA).managePages},
	0x109: {"set_hca_cap", enabled, (*HCA).setCapabilities},
	0x10a: {"query_issi", enabled, (*HCA).queryISSI},
	0x10b: {"set_issi", enabled, (*HCA).setISSI},
	0x200: {"create_mkey", initialized, (*HCA).createMkey},
	0x201: {"query_mkey", initialized, (*HCA).queryMkey},
	0x202: {"destroy_mkey", initialized, (*HCA).destroyMkey},
	0x203: {"query_special_contexts", initialized, (*HCA).querySpecialContexts},
	0x204: {"page_fault_resume", initialized, (*HCA).resumePageFault},
	0x205: {"alloc_memic", initialized, (*HCA).allocMemic},
	0x206: {"dealloc_memic", initialized, (*HCA).deallocMemic},
	0x301: {"create_eq", initialized, (*HCA).createEQ},
	0x302: {"destroy_eq", initialized, (*HCA).destroyEQ},
	0x303: {"query_eq", initialized, (*HCA).queryEQ},
	0x400: {"create_cq", initialized, (*HCA).createCQ},
	0x401: {"destroy_cq", initialized, (*HCA).destroyCQ},
	0x402: {"query_cq", initialized, (*HCA).queryCQ},
	0x403: {"modify_cq", initialized, (*HCA).modifyCQ},
	0x500: {"create_qp", initialized, (*HCA).createQP},
	0x501: {"destroy_qp", initialized, (*HCA).destroyQP},
	0x502: {"rst2init_qp", initialized, transition(transport.Rst2Init)},
	0x503: {"init2rtr_qp", initialized, transition(transport.Init2RTR)},
	0x504: {"rtr2rts_qp", initialized, transition(transport.RTR2RTS)},
	0x505: {"rts2rts_qp", initialized, transition(transport.RTS2RTS)},
	0x506: {"sqerr2rts_qp", initialized, transition(transport.SQErr2RTS)},
	0x507: {"qp_2err", initialized, transition(transport.ToErr)},
	0x50a: {"qp_2rst", initialized, transition(transport.ToRst)},
	0x50b: {"query_qp", initialized, (*HCA).queryQP},
	0x50c: {"sqd2rts_qp", initialized, transition(transport.SQD2RTS)},
	0x50e: {"init2init_qp", initialized, transition(transport.Init2Init)},
	0x50d: {"mad_ifc", initialized, (*HCA).madInterface},
	0x700: {"create_srq", initialized, (*HCA).createSRQ},
	0x701: {"destroy_srq", initialized, (*HCA).destroySRQ},
	0x702: {"query_srq", initialized, (*HCA).querySRQ},
	0x703: {"arm_rq", initialized, (*HCA).armRQ},
	0x705: {"create_xrc_srq", initialized, (*HCA).createXRCSRQ},
	0x706: {"destroy_xrc_srq", initialized, (*HCA).destroyXRCSRQ},
	0x707: {"query_xrc_srq", initialized, (*HCA).queryXRCSRQ},
	0x708: {"arm_xrc_srq", initialized, (*HCA).armXRCSRQ},
	0x710: {"create_dct", initialized, (*HCA).createDCT},
	0x711: {"destroy_dct", initialized, (*HCA).destroyDCT},
	0x712: {"drain_dct", initialized, (*HCA).drainDCT},
	0x713: {"query_dct", initialized, (*HCA).queryDCT},
	0x717: {"create_xrq", initialized, (*HCA).createXRQ},
	0x718: {"destroy_xrq", initialized, (*HCA).destroyXRQ},
	0x719: {"query_xrq", initialized, (*HCA).queryXRQ},
	0x750: {"query_vport_state", initialized, (*HCA).queryVportState},
	0x754: {"query_nic_vport_context", initialized, ethernet((*HCA).queryNICVport)},
	0x755: {"modify_nic_vport_context", initialized, ethernet((*HCA).modifyNICVport)},
	0x760: {"query_roce_address", initialized, ethernet((*HCA).queryRoCEAddress)},
	0x761: {"set_roce_address", initialized, ethernet((*HCA).setRoCEAddress)},
	0x762: {"query_hca_vport_context", initialized, (*HCA).queryVportContext},
	0x763: {"modify_hca_vport_context", initialized, (*HCA).modifyVportContext},
	0x764: {"query_hca_vport_gid", initialized, (*HCA).queryVportGID},
	0x765: {"query_hca_vport_pkey", initialized, (*HCA).queryVportPKey},
	0x770: {"query_vport_counter", initialized, (*HCA).queryVportCounter},
	0x771: {"alloc_q_counter", initialized, (*HCA).allocCounter},
	0x772: {"dealloc_q_counter", initialized, (*HCA).deallocCounter},
	0x773: {"query_q_counter", initialized, (*HCA).queryCounter},
	0x780: {"set_pp_rate_limit", initialized, ethernet((*HCA).setPaceLimit)},
	0x800: {"alloc_pd", initialized, (*HCA).allocPD},
	0x801: {"dealloc_pd", initialized, (*HCA).deallocPD},
	0x802: {"alloc_uar", initialized, (*HCA).allocUAR},
	0x803: {"dealloc_uar", initialized, (*HCA).deallocUAR},
	0x805: {"access_register", enabled, (*HCA).accessRegister},
	0x806: {"attach_to_mcg", initialized, (*HCA).attachToGroup},
	0x807: {"detach_from_mcg", initialized, (*HCA).detachFromGroup},
	0x80d: {"nop", always, (*HCA).nop},
	0x80e: {"alloc_xrcd", initialized, (*HCA).allocXRCD},
	0x80f: {"dealloc_xrcd", initialized, (*HCA).deallocXRCD},
	0x816: {"alloc_transport_domain", initialized, ethernet((*HCA).allocDomain)},
	0x817: {"dealloc_transport_domain", initialized, ethernet((*HCA).deallocDomain)},
	0x842: {"query_lag", initialized, (*HCA).queryLAG},
	0x900: {"create_tir", initialized, ethernet((*HCA).createTIR)},
	0x901: {"modify_tir", initialized, ethernet((*HCA).modifyTIR)},
	0x902: {"destroy_tir", initialized, ethernet((*HCA).destroyTIR)},
	0x903: {"query_tir", initialized, ethernet((*HCA).queryTIR)},
	0x904: {"create_sq", initialized, (*HCA).createSQ},
	0x905: {"modify_sq", initialized, (*HCA).modifySQ},
	0x906: {"destroy_sq", initialized, (*HCA).destroySQ},
	0x907: {"query_sq", initialized, (*HCA).querySQ},
	0x908: {"create_rq", initialized, ethernet((*HCA).createRQ)},
	0x909: {"modify_rq", initialized, ethernet((*HCA).modifyRQ)},
	0x90a: {"destroy_rq", initialized, ethernet((*HCA).destroyRQ)},
	0x90b: {"query_rq", initialized, ethernet((*HCA).queryRQ)},
	0x90c: {"create_rmp", initialized, (*HCA).createRMP},
	0x90d: {"modify_rmp", initialized, (*HCA).modifyRMP},
	0x90e: {"destroy_rmp", initialized, (*HCA).destroyRMP},
	0x90f: {"query_rmp", initialized, (*HCA).queryRMP},
	0x912: {"create_tis", initialized, ethernet((*HCA).createTIS)},
	0x913: {"modify_tis", initialized, ethernet((*HCA).modifyTIS)},
	0x914: {"destroy_tis", initialized, ethernet((*HCA).destroyTIS)},
	0x915: {"query_tis", initialized, ethernet((*HCA).queryTIS)},
	0x916: {"create_rqt", initialized, ethernet((*HCA).createRQT)},
	0x917: {"modify_rqt", initialized, ethernet((*HCA).modifyRQT)},
	0x918: {"destroy_rqt", initialized, ethernet((*HCA).destroyRQT)},
	0x919: {"query_rqt", initialized, ethernet((*HCA).queryRQT)},
	0x92f: {"set_flow_table_root", initialized, ethernet((*HCA).setFlowTableRoot)},
	0x930: {"create_flow_table", initialized, ethernet((*HCA).createFlowTable)},
	0x931: {"destroy_flow_table", initialized, ethernet((*HCA).destroyFlowTable)},
	0x933: {"create_flow_group", initialized, ethernet((*HCA).createFlowGroup)},
	0x934: {"destroy_flow_group", initialized, ethernet((*HCA).destroyFlowGroup)},
	0x936: {"set_fte", initialized, ethernet((*HCA).setFlow)},
	0x938: {"delete_fte", initialized, ethernet((*HCA).deleteFlow)},
	0x939: {"alloc_flow_counter", initialized, ethernet((*HCA).allocFlowCounter)},
	0x93a: {"dealloc_flow_counter", initialized, ethernet((*HCA).deallocFlowCounter)},
	0x93b: {"query_flow_counter", initialized, ethernet((*HCA).queryFlowCounter)},
	0x93c: {"modify_flow_table", initialized, ethernet((*HCA).modifyFlowTable)},
	0xa04: {"create_uctx", initialized, (*HCA).createUserContext},
	0xa06: {"destroy_uctx", initialized, (*HCA).destroyUserContext},
	0xa08: {"create_umem", initialized, (*HCA).createUserMemory},
	0xa0a: {"destroy_umem", initialized, (*HCA).destroyUserMemory},
}

// ethernet wraps a command that an HCA with an InfiniBand port doesn't have.
func ethernet(execute func(h *HCA, in, out ifc.View) Status) func(h *HCA, in, out ifc.View) Status {
	return func(h *HCA, in, out ifc.View) Status {
		if !h.c.Ethernet {
			return BadOp
		}
		return execute(h, in, out)
	}
}

// boxes has the layouts of every command, looked up before the first use.
var boxes = func() map[uint16][2]*ifc.Layout {
	all := map[uint16][2]*ifc.Layout{}
	for opcode, c := range opcodes {
		all[opcode] = [2]*ifc.Layout{ifc.Of(c.name + "_in"), ifc.Of(c.name + "_out")}
	}
	return all
}()

// execute executes the command in the inbox.
func (h *HCA) execute(in, out []byte) {
	opcode := binary.BigEndian.Uint16(in)
	status, syndrome := BadOp, uint32(0)
	if c, ok := opcodes[opcode]; ok {
		box := boxes[opcode]
		l, lies := h.lie(opcode)
		switch {
		case lies && l.Status != OK:
			status = l.Status
			syndrome = l.Syndrome
		case c.phase > always && !h.enabled, c.phase > enabled && !h.initialized:
			status = BadSysState
		case len(out) < min(box[1].Size(), inlineSize):
			status = BadOutLen
		default:
			status = c.execute(h, ifc.View{Layout: box[0], Data: in}, ifc.View{Layout: box[1], Data: out})
			if lies && status == OK {
				l.noise(out)
			}
		}
	}
	if status != OK {
		clear(out)
		binary.BigEndian.PutUint32(out[4:], syndrome)
	}
	out[0] = byte(status)
	if h.c.Log != nil {
		h.c.Log.Command(opcode, opcodes[opcode].name, uint8(status), in, out)
	}
}

func (h *HCA) nop(in, out ifc.View) Status { return OK }
