package firmware

import (
	"errors"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/steering"
)

// flowTable is a flow table with the objects that depend on it.
type flowTable struct {
	object
	*steering.Table
	kind      uint64
	level     uint8
	miss      *flowTable
	groups    map[uint32]*steering.Group
	nextGroup uint32
	flows     map[uint32]*flow // by index
}

func steeringStatus(err error) Status {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, steering.ErrIndex):
		return BadIndex
	case errors.Is(err, steering.ErrBusy):
		return ResBusy
	}
	return BadParam
}

// Types of tables: for received frames, and for copies of frames that arrive from the wire
// or are sent.
const (
	tableReceive = 0
	tableSniffRx = 5
	tableSniffTx = 6
)

// ownTables reports whether a command is about tables of this function, of a supported
// type.
func ownTables(in ifc.View) bool {
	if in.Flag("other_vport") || in.Flag("other_eswitch") {
		return false
	}
	switch in.Get("table_type") {
	case tableReceive, tableSniffRx, tableSniffTx:
		return true
	}
	return false
}

// tableOf finds the table that a command names.
func (h *HCA) tableOf(in ifc.View) (*flowTable, Status) {
	if !ownTables(in) {
		return nil, BadParam
	}
	t := h.tables.items[uint32(in.Get("table_id"))]
	if t == nil || t.kind != in.Get("table_type") {
		return nil, BadRes
	}
	return t, OK
}

// missOf reads the table to which a table sends frames that no entry matches.
func (h *HCA) missOf(c ifc.View, from *flowTable) (*flowTable, Status) {
	const lose, forward = 0, 1
	switch c.Get("table_miss_action") {
	case lose:
		return nil, OK
	case forward:
		t := h.tables.items[uint32(c.Get("table_miss_id"))]
		switch {
		case t == nil:
			return nil, BadRes
		case !t.follows(from):
			return nil, BadParam
		}
		return t, OK
	}
	return nil, BadParam
}

// follows reports whether another table may send frames to t.
func (t *flowTable) follows(from *flowTable) bool { return t.level > from.level && t.kind == from.kind }

func (h *HCA) createFlowTable(in, out ifc.View) Status {
	c := in.Sub("flow_table_context")
	level, logSize := c.Get("level"), c.Get("log_size")
	switch {
	case !ownTables(in), in.Flag("op_mod"), level > maxTableLevel, logSize > logMaxTableSize,
		c.Flag("reformat_en"), c.Flag("decap_en"), c.Flag("sw_owner"), c.Flag("termination_table"), c.Flag("rtc_valid"):
		return BadParam
	}
	t := &flowTable{
		Table: &steering.Table{Size: 1 << logSize}, kind: in.Get("table_type"), level: uint8(level),
		groups: map[uint32]*steering.Group{}, flows: map[uint32]*flow{},
	}
	miss, status := h.missOf(c, t)
	if status != OK {
		return status
	}
	number, ok := h.tables.add(t)
	if !ok {
		return NoRes
	}
	t.setMiss(miss)
	out.Set("table_id", uint64(number))
	return OK
}

func (t *flowTable) setMiss(miss *flowTable) {
	t.release()
	t.miss, t.Table.Miss = miss, nil
	if miss != nil {
		t.use(&miss.object)
		t.Table.Miss = miss.Table
	}
}

func (h *HCA) modifyFlowTable(in, out ifc.View) Status {
	t, status := h.tableOf(in)
	if status != OK {
		return status
	}
	const missTable = 1
	if in.Get("modify_field_select") != missTable {
		return BadParam
	}
	miss, status := h.missOf(in.Sub("flow_table_context"), t)
	if status == OK {
		t.setMiss(miss)
	}
	return status
}

func (h *HCA) destroyFlowTable(in, out ifc.View) Status {
	t, status := h.tableOf(in)
	switch {
	case status != OK:
		return status
	case t.users > 0 || len(t.groups) > 0:
		return ResBusy
	}
	if h.roots[t.kind] == t.Table {
		delete(h.roots, t.kind) // as when the driver unloads
	}
	t.release()
	delete(h.tables.items, uint32(in.Get("table_id")))
	return OK
}

func (h *HCA) setFlowTableRoot(in, out ifc.View) Status {
	const connect, disconnect = 0, 1
	if !ownTables(in) || in.Get("op_mod") > disconnect || in.Flag("underlay_qpn") {
		return BadParam
	}
	if in.Get("op_mod") == disconnect {
		delete(h.roots, in.Get("table_type"))
		return OK
	}
	t, status := h.tableOf(in)
	if status == OK {
		h.roots[t.kind] = t.Table
	}
	return status
}

func (h *HCA) createFlowGroup(in, out ifc.View) Status {
	t, status := h.tableOf(in)
	switch {
	case status != OK:
		return status
	case in.Flag("group_type"), in.Flag("match_definer_id"):
		return BadParam
	}
	g, err := t.AddGroup(uint32(in.Get("start_flow_index")), uint32(in.Get("end_flow_index")),
		uint8(in.Get("match_criteria_enable")), in.Bytes("match_criteria"))
	if err != nil {
		return steeringStatus(err)
	}
	for t.nextGroup++; t.groups[t.nextGroup] != nil; t.nextGroup++ {
	}
	t.groups[t.nextGroup] = g
	out.Set("group_id", uint64(t.nextGroup))
	return OK
}

func (h *HCA) destroyFlowGroup(in, out ifc.View) Status {
	t, status := h.tableOf(in)
	if status != OK {
		return status
	}
	number := uint32(in.Get("group_id"))
	g := t.groups[number]
	if g == nil {
		return BadRes
	}
	if err := t.RemoveGroup(g); err != nil {
		return steeringStatus(err)
	}
	delete(t.groups, number)
	return OK
}
