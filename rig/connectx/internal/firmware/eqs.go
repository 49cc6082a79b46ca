package firmware

import (
	"slices"

	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
)

type eventQueue struct {
	*eq.EQ
	object
	uar     uint32
	context []byte    // as it was created
	types   [4]uint64 // a bit for each type of event that the queue gets
}

// listener returns the queue for events of a type, or nil.
func (h *HCA) listener(typ uint8) *eventQueue {
	for _, q := range h.eqs.items {
		if q.types[typ/64]&(1<<(typ%64)) != 0 {
			return q
		}
	}
	return nil
}

// Post delivers an event other than a completion event.
func (h *HCA) Post(e eq.Event) {
	if q := h.listener(e.Type); q != nil && !h.seg.fatal.Load() {
		q.Post(e)
	}
}

func (h *HCA) createEQ(in, out ifc.View) Status {
	context := in.Sub("eq_context_entry")
	logSize := uint(context.Get("log_eq_size"))
	vector := int(context.Get("intr"))
	page := uint32(context.Get("uar_page"))
	uar := h.uar(page)
	switch {
	case logSize > logMaxEQSize:
		return LimitErr
	case vector >= h.c.Vectors:
		return BadIndex
	case uar == nil:
		return BadRes
	}
	const entry = 64
	b, status := buffer(in.Bytes("pas"), entry<<logSize, uint(context.Get("log_page_size")), context.Get("page_offset"))
	if status != OK {
		return status
	}
	q := &eventQueue{uar: page, context: slices.Clone(context.Data)}
	for i := range q.types {
		q.types[i] = in.At("event_bitmask", i)
	}
	number, ok := h.eqs.add(q)
	if !ok {
		return NoRes
	}
	q.use(uar)
	q.EQ = eq.New(eq.Config{
		Number: uint8(number), Memory: h.c.Memory, Buffer: b, LogSize: logSize,
		Interrupt: func() { h.c.Interrupt(vector) },
	})
	out.Set("eq_number", uint64(number))
	return OK
}

func (h *HCA) destroyEQ(in, out ifc.View) Status { return dealloc(&h.eqs, in.Get("eq_number")) }

func (h *HCA) queryEQ(in, out ifc.View) Status {
	q := h.eqs.items[uint32(in.Get("eq_number"))]
	if q == nil {
		return BadRes
	}
	context := out.Sub("eq_context_entry")
	copy(context.Data, q.context)
	state := q.State()
	context.Set("status", uint64(state.Status))
	context.Set("st", uint64(state.ST))
	context.Set("consumer_counter", uint64(state.Consumer))
	context.Set("producer_counter", uint64(state.Producer))
	return OK
}
