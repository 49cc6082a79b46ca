package firmware

import (
	"errors"

	"github.com/goverbs/goverbs/tests/hca/ifc"
	"github.com/goverbs/goverbs/tests/hca/steering"
)

// flowTable is a flow table with what else depends on it.
type flowTable struct {
	object
	*steering.Table
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

// The only type of tables: those of frames that arrive.
const tableReceive = 0

// ownTables tells whether a command is about a table of this function and of
// the type that there is.
func ownTables(in ifc.View) bool {
	return !in.Flag("other_vport") && !in.Flag("other_eswitch") && in.Get("table_type") == tableReceive
}

// tableOf finds the table that a command names.
func (h *HCA) tableOf(in ifc.View) (*flowTable, Status) {
	if !ownTables(in) {
		return nil, BadParam
	}
	t := h.tables.items[uint32(in.Get("table_id"))]
	if t == nil {
		return nil, BadRes
	}
	return t, OK
}

// missOf reads where a table of a level sends what nothing in it matches.
func (h *HCA) missOf(c ifc.View, level uint8) (*flowTable, Status) {
	const lose, forward = 0, 1
	switch c.Get("table_miss_action") {
	case lose:
		return nil, OK
	case forward:
		t := h.tables.items[uint32(c.Get("table_miss_id"))]
		switch {
		case t == nil:
			return nil, BadRes
		case t.level <= level:
			return nil, BadParam
		}
		return t, OK
	}
	return nil, BadParam
}

func (h *HCA) createFlowTable(in, out ifc.View) Status {
	c := in.Sub("flow_table_context")
	level, logSize := c.Get("level"), c.Get("log_size")
	switch {
	case !ownTables(in), in.Flag("op_mod"), level > maxTableLevel, logSize > logMaxTableSize,
		c.Flag("reformat_en"), c.Flag("decap_en"), c.Flag("sw_owner"), c.Flag("termination_table"), c.Flag("rtc_valid"):
		return BadParam
	}
	t := &flowTable{
		Table: &steering.Table{Size: 1 << logSize}, level: uint8(level),
		groups: map[uint32]*steering.Group{}, flows: map[uint32]*flow{},
	}
	miss, status := h.missOf(c, t.level)
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
	miss, status := h.missOf(in.Sub("flow_table_context"), t.level)
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
	if h.root == t.Table {
		h.root = nil // as when the driver leaves
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
		h.root = nil
		return OK
	}
	t, status := h.tableOf(in)
	if status == OK {
		h.root = t.Table
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
