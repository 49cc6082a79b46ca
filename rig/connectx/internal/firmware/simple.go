package firmware

import "github.com/goverbs/goverbs/rig/connectx/internal/ifc"

// Objects that have only a number, to which other objects refer.

func alloc(t *table[*object], out ifc.View, field string) Status {
	number, ok := t.add(&object{})
	if !ok {
		return NoRes
	}
	out.Set(field, uint64(number))
	return OK
}

// dealloc destroys an object of a kind that needs no other cleanup.
func dealloc[T interface{ base() *object }](t *table[T], number uint64) Status {
	item, ok := t.items[uint32(number)]
	if !ok {
		return BadRes
	}
	o := item.base()
	if o.users > 0 {
		return ResBusy
	}
	o.release()
	delete(t.items, uint32(number))
	return OK
}

func (h *HCA) allocPD(in, out ifc.View) Status   { return alloc(&h.pds, out, "pd") }
func (h *HCA) deallocPD(in, out ifc.View) Status { return dealloc(&h.pds, in.Get("pd")) }

func (h *HCA) allocXRCD(in, out ifc.View) Status   { return alloc(&h.xrcds, out, "xrcd") }
func (h *HCA) deallocXRCD(in, out ifc.View) Status { return dealloc(&h.xrcds, in.Get("xrcd")) }

// A user context is a process that sends commands through the driver (DEVX).
func (h *HCA) createUserContext(in, out ifc.View) Status { return alloc(&h.users, out, "uid") }
func (h *HCA) destroyUserContext(in, out ifc.View) Status {
	return dealloc(&h.users, in.Get("uid"))
}
