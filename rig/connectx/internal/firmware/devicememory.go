package firmware

import (
	"fmt"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// Memory of the device (MEMIC) is a part of BAR0, after the UARs. Programs map it, and
// memory keys of a mode of their own lead to it.

// DeviceMemory is the size of the memory of the device in bytes, a multiple of PageSize.
const DeviceMemory = 256 << 10

const (
	maxDeviceMemory  = DeviceMemory / 2 // of one allocation
	logMinMemic      = 6                // the logarithm of an allocation's smallest size and alignment
	logMaxMemicAlign = 6                // alignments are up to 1<<(logMinMemic+logMaxMemicAlign), a page
)

// memic is the memory of the device and what is allocated of it.
type memic struct {
	bus.RAM                   // by offsets in BAR0
	taken   map[uint64]uint64 // sizes by their start
}

func newMemic(start uint64) memic {
	return memic{RAM: bus.RAM{Base: start, Data: make([]byte, DeviceMemory)}, taken: map[uint64]uint64{}}
}

// free reports whether nothing of [start, start+n) is allocated.
func (m *memic) free(start, n uint64) bool {
	for at, size := range m.taken {
		if start < at+size && at < start+n {
			return false
		}
	}
	return true
}

// allocMemic allocates memory within the range of pages that the driver chose: as late in
// it as the alignment allows, so that a driver can't take the range's start for it.
func (h *HCA) allocMemic(in, out ifc.View) Status {
	m := &h.memic
	start, span, size := in.Get("range_start_addr"), in.Get("range_size"), in.Get("memic_size")
	align := in.Get("log_memic_addr_alignment")
	if size == 0 || size > maxDeviceMemory || size%(1<<logMinMemic) != 0 || align > logMaxMemicAlign ||
		start%PageSize != 0 || span%PageSize != 0 || size > span || m.Bytes(start, int(span)) == nil {
		return BadParam
	}
	at := (start + span - size) &^ (1<<(logMinMemic+align) - 1)
	if at < start || !m.free(at, size) {
		return NoRes
	}
	m.taken[at] = size
	out.Set("memic_start_addr", at)
	return OK
}

// deallocMemic frees it. A driver has to destroy the keys first: their memory may be
// another program's next.
func (h *HCA) deallocMemic(in, out ifc.View) Status {
	m := &h.memic
	start, size := in.Get("memic_start_addr"), in.Get("memic_size")
	if size == 0 || m.taken[start] != size {
		return BadParam
	}
	if h.keys.LeadsToDevice(start, size) {
		h.violation(fmt.Errorf("the memory of the device at %#x was freed while a key leads to it", start))
	}
	delete(m.taken, start)
	return OK
}

// accessMemic reads or writes the memory of the device from the bus, where something is
// allocated: of other memory, reads are zeros.
func (h *HCA) accessMemic(offset uint64, data []byte, write bool) {
	b := h.memic.Bytes(offset, len(data))
	switch {
	case b == nil || h.memic.free(offset, uint64(len(data))):
		if !write {
			clear(data)
		}
	case write:
		copy(b, data)
	default:
		copy(data, b)
	}
}
