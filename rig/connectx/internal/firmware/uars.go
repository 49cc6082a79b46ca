package firmware

import "github.com/goverbs/goverbs/rig/connectx/internal/ifc"

// UARs are allocated by the page of the driver's machine, which has several if it is longer
// than PageSize. ALLOC_UAR returns the first, and the driver uses them all: it can map no
// part of a page.

func (h *HCA) uarsPerPage() uint32 {
	return uint32(h.caps.current[capGeneral].Get("num_of_uars_per_page"))
}

func (h *HCA) newUARs() table[*object] {
	per := h.uarsPerPage()
	return newTable[*object](firstUAR/per, h.c.UARs/per)
}

// uar returns the page that a UAR belongs to, or nil if it is not allocated.
func (h *HCA) uar(number uint32) *object { return h.uars.items[number/h.uarsPerPage()] }

func (h *HCA) allocUAR(in, out ifc.View) Status {
	status := alloc(&h.uars, out, "uar")
	out.Set("uar", out.Get("uar")*uint64(h.uarsPerPage()))
	return status
}

func (h *HCA) deallocUAR(in, out ifc.View) Status {
	number, per := in.Get("uar"), uint64(h.uarsPerPage())
	if number%per != 0 {
		return BadRes
	}
	return dealloc(&h.uars, number/per)
}
