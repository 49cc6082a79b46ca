package firmware

import (
	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
)

// pageFault posts an event that the driver answers with PAGE_FAULT_RESUME, if the driver
// has a queue for it.
func (h *HCA) pageFault(e eq.Event) bool {
	q := h.listener(e.Type)
	if q == nil || h.seg.fatal.Load() {
		return false
	}
	q.Post(e)
	return true
}

func (h *HCA) resumePageFault(in, out ifc.View) Status {
	info := in.Sub("page_fault_info").Sub("trans_page_fault_info")
	return transportStatus(h.engine.Resume(uint32(info.Get("fault_token")), uint8(info.Get("page_fault_type")), info.Flag("error")))
}
