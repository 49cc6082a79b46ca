package firmware

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/steering"
)

// flow has the objects that a flow table entry refers to.
type flow struct {
	object
	action   uint64
	tag      uint32
	tables   []*flowTable
	tirs     []uint32
	counters []*flowCounter
}

// An entry's actions, and the fields that a modification changes.
const (
	actionDrop    = 1 << 1
	actionForward = 1 << 2
	actionCount   = 1 << 3

	modifyAction       = 1 << 0
	modifyTag          = 1 << 1
	modifyDestinations = 1 << 2
	modifyFlowCounters = 1 << 3
)

const sizeDestination = 8

// destinations reads the lists after a flow's context: the destinations of frames, then
// the counters.
func (h *HCA) destinations(f *flow, c ifc.View, from *flowTable) Status {
	list := c.Bytes("destination")
	take := func() ifc.View {
		v := ifc.View{Layout: ifc.Of("dest_format_struct"), Data: list[:sizeDestination]}
		list = list[sizeDestination:]
		return v
	}
	forward, count := c.Get("destination_list_size"), c.Get("flow_counter_list_size")
	if forward+count > uint64(len(list)/sizeDestination) {
		return BadInLen
	}
	if forward > maxDestinations || count > maxFlowCounters {
		return BadParam
	}
	for range forward {
		d := take()
		number := uint32(d.Get("destination_id"))
		const table, tir = 1, 2
		switch d.Get("destination_type") {
		case table:
			t := h.tables.items[number]
			switch {
			case t == nil:
				return BadRes
			case !t.follows(from):
				return BadParam
			}
			f.tables = append(f.tables, t)
		case tir:
			if h.tirs.items[number] == nil {
				return BadRes
			}
			f.tirs = append(f.tirs, number)
		default:
			return BadParam
		}
	}
	for range count {
		x := h.flowCounters.items[binary.BigEndian.Uint32(take().Data)]
		if x == nil {
			return BadRes
		}
		f.counters = append(f.counters, x)
	}
	return OK
}

// check checks that a flow's lists match its action.
func (f *flow) check() Status {
	forwards := len(f.tables)+len(f.tirs) > 0
	switch {
	case f.action&^(actionDrop|actionForward|actionCount) != 0,
		(f.action&actionForward != 0) != forwards,
		(f.action&actionCount != 0) != (len(f.counters) > 0),
		f.action&(actionDrop|actionForward) == actionDrop|actionForward,
		f.action&(actionDrop|actionForward) == 0:
		return BadParam
	}
	return OK
}

// hold marks the objects that the flow refers to as used, and returns the flow's action
// for package steering.
func (h *HCA) hold(f *flow) steering.Action {
	a := steering.Action{Tag: f.tag}
	for _, t := range f.tables {
		f.use(&t.object)
		a.Tables = append(a.Tables, t.Table)
	}
	for _, number := range f.tirs {
		f.use(&h.tirs.items[number].object)
		a.Receivers = append(a.Receivers, number)
	}
	for _, x := range f.counters {
		f.use(&x.object)
		a.Counters = append(a.Counters, &x.Counter)
	}
	return a
}

func (h *HCA) setFlow(in, out ifc.View) Status {
	t, status := h.tableOf(in)
	if status != OK {
		return status
	}
	c := listed(in, "flow_context")
	index := uint32(in.Get("flow_index"))
	f := &flow{action: c.Get("action"), tag: uint32(c.Get("flow_tag"))}
	if in.Flag("ignore_flow_level") || c.Flag("extended_destination") || c.Flag("uplink_hairpin_en") {
		return BadParam
	}
	if status := h.destinations(f, c, t); status != OK {
		return status
	}
	const create, modify = 0, 1
	switch in.Get("op_mod") {
	case create:
		if status := f.check(); status != OK {
			return status
		}
		g := t.groups[uint32(c.Get("group_id"))]
		switch {
		case g == nil:
			return BadRes
		case h.flows >= 1<<logMaxFlow:
			return NoRes
		}
		a := h.hold(f)
		if err := t.Add(g, index, c.Bytes("match_value"), a); err != nil {
			f.release()
			return steeringStatus(err)
		}
		h.flows++
	case modify:
		old := t.flows[index]
		if old == nil {
			return BadIndex
		}
		f.keep(old, in.Get("modify_enable_mask"))
		if status := f.check(); status != OK {
			return status
		}
		t.Entry(index).Action = h.hold(f)
		old.release()
	default:
		return BadParam
	}
	t.flows[index] = f
	return OK
}

// keep copies the parts that a modification doesn't change.
func (f *flow) keep(old *flow, mask uint64) {
	if mask&modifyAction == 0 {
		f.action = old.action
	}
	if mask&modifyTag == 0 {
		f.tag = old.tag
	}
	if mask&modifyDestinations == 0 {
		f.tables, f.tirs = old.tables, old.tirs
	}
	if mask&modifyFlowCounters == 0 {
		f.counters = old.counters
	}
}

func (h *HCA) deleteFlow(in, out ifc.View) Status {
	t, status := h.tableOf(in)
	if status != OK {
		return status
	}
	index := uint32(in.Get("flow_index"))
	f := t.flows[index]
	if f == nil {
		return BadIndex
	}
	t.Remove(index)
	f.release()
	delete(t.flows, index)
	h.flows--
	return OK
}

// flowCounter counts the frames of flows.
type flowCounter struct {
	object
	steering.Counter
}

func (h *HCA) allocFlowCounter(in, out ifc.View) Status {
	if in.Flag("flow_counter_bulk") || in.Flag("flow_counter_bulk_log_size") {
		return BadParam
	}
	number, ok := h.flowCounters.add(&flowCounter{})
	if !ok {
		return NoRes
	}
	out.Set("flow_counter_id", uint64(number))
	return OK
}

func (h *HCA) deallocFlowCounter(in, out ifc.View) Status {
	return dealloc(&h.flowCounters, in.Get("flow_counter_id"))
}

func (h *HCA) queryFlowCounter(in, out ifc.View) Status {
	x := h.flowCounters.items[uint32(in.Get("flow_counter_id"))]
	switch {
	case x == nil:
		return BadRes
	case in.Get("num_of_counters") > 1:
		return BadParam
	}
	list := out.Bytes("flow_statistics")
	v := ifc.View{Layout: ifc.Of("traffic_counter"), Data: list}
	v.Set("packets", x.Packets)
	v.Set("octets", x.Octets)
	if in.Flag("clear") {
		x.Counter = steering.Counter{}
	}
	return OK
}
