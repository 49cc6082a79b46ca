package firmware

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// userMemory is memory that user space registered for queues that it creates with its own
// commands (UMEM).
type userMemory struct {
	object
	pages bus.Buffer
	size  uint64 // from the pages' offset on
}

func (h *HCA) createUserMemory(in, out ifc.View) Status {
	u := in.Sub("umem")
	n, shift, start := u.Get("num_of_mtt"), uint(u.Get("log_page_size"))+logMinPage, u.Get("page_offset")
	if shift > 40 || start >= 1<<shift || n == 0 {
		return BadParam
	}
	mtts := in.Data[min(in.Size(), len(in.Data)):]
	if n > uint64(len(mtts)/8) {
		return BadInLen
	}
	size := n<<shift - start
	// buffer counts its offset in other units.
	b, status := buffer(mtts, n<<shift, shift-logMinPage, 0)
	if status != OK {
		return status
	}
	b.Offset = start
	number, ok := h.umems.add(&userMemory{pages: b, size: size})
	if !ok {
		return NoRes
	}
	out.Set("umem_id", uint64(number))
	return OK
}

func (h *HCA) destroyUserMemory(in, out ifc.View) Status {
	return dealloc(&h.umems, in.Get("umem_id"))
}

// userBuffer finds a queue's memory, and marks it as used by an object.
func (h *HCA) userBuffer(o *object, id uint32, offset, size uint64) (bus.Buffer, Status) {
	u := h.umems.items[id]
	if u == nil {
		return bus.Buffer{}, BadRes
	}
	if offset > u.size || size > u.size-offset {
		return bus.Buffer{}, BadParam
	}
	o.use(&u.object)
	b := u.pages
	b.Offset += offset
	return b, OK
}

// hidden reads a word of an inbox that has no name in the kernel's header, because only
// user space sets it.
func hidden(data []byte, at int) uint32 {
	if at+4 > len(data) {
		return 0
	}
	return binary.BigEndian.Uint32(data[at:])
}

// doorbellRecord returns the bus address of a queue's doorbell record, which is in user
// memory if the context says so.
func (h *HCA) doorbellRecord(o *object, context ifc.View, id uint32) (uint64, Status) {
	addr := context.Get("dbr_addr")
	if !context.Flag("dbr_umem_valid") {
		return addr, OK
	}
	const size = 8
	b, status := h.userBuffer(o, id, addr, size)
	if status != OK {
		return 0, status
	}
	page := b.Offset >> b.Shift
	return b.Pages[page] + b.Offset&(1<<b.Shift-1), OK
}
