package firmware

import (
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
)

// The register RESOURCE_DUMP writes an object's description to the driver's memory, as
// segments: information about the dump, the command, the resource, and an end. The kernel's
// header has their layouts, and NVIDIA's resourcedump, a part of mstflint, their types.
const (
	segmentCommand   = 0xfffa
	segmentTerminate = 0xfffb
	segmentError     = 0xfffc
	segmentInfo      = 0xfffe
	segmentMenu      = 0xffff
)

// dumps has the resources that can be dumped: what the driver looks for in the menu, and the
// command whose answer the segment has. A real firmware chooses the types, too.
var dumps = []struct {
	kind    uint64
	name    string // of the segment
	index   string // its name
	layouts string // of the command
	number  string // its field for the index
	query   func(h *HCA, in, out ifc.View) Status
}{
	{0x1000, "PRM_QUERY_QP", "QPN", "query_qp", "qpn", (*HCA).queryQP},
	{0x1001, "PRM_QUERY_CQ", "CQN", "query_cq", "cqn", (*HCA).queryCQ},
	{0x1002, "PRM_QUERY_MKEY", "MKEY", "query_mkey", "mkey_index", (*HCA).queryMkey},
}

// resourceDump is only written, by which the driver asks.
func (h *HCA) resourceDump(data []byte, write bool) Status {
	v := ifc.On("resource_dump", data)
	if !write || v.Flag("inline_dump") || !h.promised(capDebug, "resource_dump") {
		return BadParam
	}
	all := h.dump(v)
	if all == nil || len(all) > int(v.Get("size")) {
		return BadParam // a dump in several parts is not modeled
	}
	const anyPD = 0 // the driver's key is of mode PA
	key := uint32(v.Get("mkey"))
	c, ok := h.keys.Query(key >> 8)
	if !ok || c.Mode != mkey.PA {
		return BadParam
	}
	memory, fault := h.keys.Resolve(nil, key, c.PD, anyPD, v.Get("address"), len(all), mkey.LocalWrite)
	if fault != mkey.FaultNone {
		return BadParam
	}
	v.Set("size", uint64(len(all)))
	v.Set("more_dump", 0)
	v.Set("seq_num", v.Get("seq_num")+1)
	for _, piece := range memory {
		all = all[copy(piece, all):]
	}
	return OK
}

// dump returns the segments of a dump, or nil if there is no such resource.
func (h *HCA) dump(v ifc.View) []byte {
	info, command := ifc.Make("resource_dump_info_segment"), ifc.Make("resource_dump_command_segment")
	info.Set("dump_version", 1)
	command.Set("segment_called", v.Get("segment_type"))
	for _, field := range []string{"vhca_id", "index1", "index2", "num_of_obj1", "num_of_obj2"} {
		command.Set(field, v.Get(field))
	}
	all := dumpSegment(nil, segmentInfo, info.Data)
	all = dumpSegment(all, segmentCommand, command.Data)
	if v.Get("segment_type") == segmentMenu {
		all = dumpSegment(all, segmentMenu, menu())
	} else if all = h.dumpObject(all, v); all == nil {
		return nil
	}
	return dumpSegment(all, segmentTerminate, ifc.Make("resource_dump_terminate_segment").Data)
}

func (h *HCA) dumpObject(all []byte, v ifc.View) []byte {
	for _, d := range dumps {
		if d.kind != v.Get("segment_type") {
			continue
		}
		in, out := ifc.Make(d.layouts+"_in"), ifc.Make(d.layouts+"_out")
		in.Set(d.number, v.Get("index1"))
		if status := d.query(h, in, out); status != OK {
			e := ifc.Make("resource_dump_error_segment")
			e.Set("syndrome_id", uint64(status))
			copy(e.Bytes("error"), "the object doesn't exist")
			return dumpSegment(all, segmentError, e.Data)
		}
		r := ifc.Make("resource_dump_resource_segment")
		r.Set("index1", v.Get("index1"))
		return dumpSegment(all, d.kind, append(r.Data, out.Data...))
	}
	return nil
}

// menu is the segment that lists what can be dumped.
func menu() []byte {
	m := ifc.Make("resource_dump_menu_segment")
	m.Set("num_of_records", uint64(len(dumps)))
	for _, d := range dumps {
		r := ifc.Make("resource_dump_menu_record")
		r.Set("segment_type", d.kind)
		r.Set("support_index1", 1)
		r.Set("must_have_index1", 1)
		copy(r.Bytes("segment_name"), d.name)
		copy(r.Bytes("index1_name"), d.index)
		m.Data = append(m.Data, r.Data...)
	}
	return m.Data
}

// dumpSegment appends a segment, and writes its header.
func dumpSegment(all []byte, kind uint64, body []byte) []byte {
	const word = 4
	header := ifc.On("resource_dump_segment_header", body)
	header.Set("length_dw", uint64(len(body)/word))
	header.Set("segment_type", kind)
	return append(all, body...)
}
