package firmware

import (
	"slices"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/mutant"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

type completionQueue struct {
	*cq.CQ
	object
	uar     uint32
	events  *eventQueue
	context []byte // as it was created and modified
}

// armCQ handles the two words of a CQ's doorbell.
func (h *HCA) armCQ(uar, word, cqn uint32) {
	if q := h.cqs.items[cqn&0xffffff]; q != nil && h.through(uar, q.uar, "CQ", cqn&0xffffff) {
		q.Arm(word, h.c.Now())
	}
}

// tickCQs calls Tick of the CQs that wait for something, and returns the time until the
// next call is needed.
func (h *HCA) tickCQs(now time.Duration) (wait time.Duration) {
	wait = time.Hour
	for q := range h.timedCQs {
		if next := q.Tick(now); next > 0 {
			wait = min(wait, max(next-now, 0))
		}
	}
	return wait
}

// watch records whether a CQ may wait for the end of a compression session or of a
// moderation period.
func (h *HCA) watch(q *completionQueue) {
	context := ifc.On("cqc", q.context)
	delete(h.timedCQs, q)
	if context.Flag("cqe_comp_en") || context.Flag("cq_period") {
		h.timedCQs[q] = true
	}
}

// entrySize returns the size of a CQE in memory.
func entrySize(size cq.Size) uint64 {
	if size == cq.Size64 {
		return 64
	}
	return 128
}

func (h *HCA) createCQ(in, out ifc.View) Status {
	context := in.Sub("cq_context")
	logSize := uint(context.Get("log_cq_size"))
	size := cq.Size(context.Get("cqe_sz"))
	page := uint32(context.Get("uar_page"))
	uar := h.uar(page)
	events := h.eqs.items[uint32(context.Get("c_eqn_or_apu_element"))]
	switch {
	case 1<<logSize > h.limit("log_max_cq_sz"):
		return LimitErr
	case size > cq.Size128Pad, context.Flag("apu_cq"), context.Flag("cc"):
		return BadParam
	case uar == nil, events == nil:
		return BadRes
	}
	q := &completionQueue{uar: page, events: events, context: slices.Clone(context.Data)}
	b, dbr, status := h.cqMemory(&q.object, in, entrySize(size)<<logSize)
	if status != OK {
		q.release()
		return status
	}
	number, ok := h.cqs.add(q)
	if !ok {
		q.release()
		return NoRes
	}
	q.use(uar, &events.object)
	q.CQ = cq.New(cq.Config{
		Number: number, Memory: h.c.Memory, Buffer: b, LogSize: logSize, Size: size,
		DBR:           dbr,
		IgnoreOverrun: context.Flag("oi"),
		Compress:      context.Flag("cqe_comp_en"),
		Format:        cq.Format(context.Get("mini_cqe_res_format")),
		FromCQE:       context.Flag("cq_period_mode"),
		Period:        uint16(context.Get("cq_period")),
		MaxCount:      uint16(context.Get("cq_max_count")),
		Timestamp:     h.timestamp,
		Counts:        &h.completions,
		Event: func() {
			if h.mutant.Is(mutant.EventLost) && !h.engine.Internal(number) && h.mutant.Now(mutant.EventLost) {
				return
			}
			if !h.seg.fatal.Load() {
				events.Post(eq.Completion(number))
			}
		},
		Error:     func(syndrome uint8) { h.Post(eq.CQError(number, syndrome)) },
		Violation: h.violation,
		Mutant:    &h.mutant,
	})
	h.watch(q)
	out.Set("cqn", uint64(number))
	return OK
}

// cqMemory finds a CQ's buffer and doorbell record, on listed pages or in user memory.
func (h *HCA) cqMemory(o *object, in ifc.View, size uint64) (b bus.Buffer, dbr uint64, status Status) {
	const offset, id, recordID = 80, 88, 4 // the last in the context
	context := in.Sub("cq_context")
	if in.Flag("cq_umem_valid") {
		at := uint64(hidden(in.Data, offset))<<32 | uint64(hidden(in.Data, offset+4))
		b, status = h.userBuffer(o, hidden(in.Data, id), at, size)
	} else {
		b, status = buffer(in.Bytes("pas"), size, uint(context.Get("log_page_size")), context.Get("page_offset"))
	}
	if status == OK {
		dbr, status = h.doorbellRecord(o, context, hidden(context.Data, recordID))
	}
	return b, dbr, status
}

func (h *HCA) destroyCQ(in, out ifc.View) Status {
	q := h.cqs.items[uint32(in.Get("cqn"))]
	status := dealloc(&h.cqs, in.Get("cqn"))
	if status == OK {
		delete(h.timedCQs, q)
	}
	return status
}

func (h *HCA) queryCQ(in, out ifc.View) Status {
	q := h.cqs.items[uint32(in.Get("cqn"))]
	if q == nil {
		return BadRes
	}
	context := out.Sub("cq_context")
	copy(context.Data, q.context)
	state := q.State()
	context.Set("status", uint64(state.Status))
	context.Set("st", uint64(state.ST))
	context.Set("producer_counter", uint64(state.Producer))
	context.Set("consumer_counter", uint64(state.Consumer))
	context.Set("last_notified_index", uint64(state.LastNotified))
	context.Set("last_solicit_index", uint64(state.LastSolicit))
	return OK
}

func (h *HCA) modifyCQ(in, out ifc.View) Status {
	q := h.cqs.items[uint32(in.Get("cqn"))]
	if q == nil {
		return BadRes
	}
	context := in.Sub("cq_context")
	now := ifc.View{Layout: context.Layout, Data: q.context}
	selected := in.Get("modify_field_select_resize_field_select")
	const modify, resize = 0, 1
	switch in.Get("op_mod") {
	case modify:
		const period, count, overrun = 1, 2, 4
		if selected&^(period|count|overrun) != 0 {
			return BadParam
		}
		copyIf := func(bit uint64, field string) {
			if selected&bit != 0 {
				now.Set(field, context.Get(field))
			}
		}
		copyIf(period, "cq_period")
		copyIf(count, "cq_max_count")
		copyIf(overrun, "oi")
		if selected&(period|count) != 0 {
			q.Moderate(uint16(now.Get("cq_period")), uint16(now.Get("cq_max_count")))
			h.watch(q)
		}
		if selected&overrun != 0 {
			q.IgnoreOverrun(now.Flag("oi"))
		}
		return OK
	case resize:
		logSize := uint(context.Get("log_cq_size"))
		size := cq.Size(context.Get("cqe_sz"))
		switch {
		case 1<<logSize > h.limit("log_max_cq_sz"):
			return LimitErr
		case size > cq.Size128Pad, in.Flag("cq_umem_valid"):
			return BadParam
		}
		b, status := buffer(in.Bytes("pas"), entrySize(size)<<logSize, uint(context.Get("log_page_size")), context.Get("page_offset"))
		if status != OK {
			return status
		}
		if err := q.Resize(b, logSize, size, h.c.Now()); err != nil {
			return BadSize
		}
		for _, field := range []string{"log_cq_size", "cqe_sz", "log_page_size", "page_offset"} {
			now.Set(field, context.Get(field))
		}
		return OK
	}
	return BadParam
}
