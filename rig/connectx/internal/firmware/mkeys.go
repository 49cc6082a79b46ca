package firmware

import (
	"errors"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
)

func keyStatus(err error) Status {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, mkey.ErrNoKey):
		return BadRes
	case errors.Is(err, mkey.ErrLimit):
		return NoRes
	}
	return BadParam
}

func (h *HCA) createMkey(in, out ifc.View) Status {
	entry := in.Bytes("memory_key_mkey_entry")
	if entry == nil {
		return BadInLen
	}
	if in.Flag("mkey_umem_valid") || in.Flag("data_direct") {
		return BadParam
	}
	const octoword = 16
	xlt := in.Data[min(in.Size(), len(in.Data)):]
	n := in.Get("translations_octword_actual_size") * octoword
	if n > uint64(len(xlt)) {
		return BadInLen
	}
	c, err := mkey.Decode(entry, xlt[:n])
	if err != nil {
		return keyStatus(err)
	}
	pd := h.pds.items[c.PD]
	if pd == nil {
		return BadRes
	}
	if len(h.mkeys) >= 1<<logMaxMkey {
		return NoRes
	}
	index, err := h.keys.Create(c)
	if err != nil {
		return keyStatus(err)
	}
	o := &object{}
	o.use(pd)
	h.mkeys[index] = o
	out.Set("mkey_index", uint64(index))
	return OK
}

func (h *HCA) destroyMkey(in, out ifc.View) Status {
	index := uint32(in.Get("mkey_index"))
	if err := h.keys.Destroy(index); err != nil {
		return keyStatus(err)
	}
	h.mkeys[index].release()
	delete(h.mkeys, index)
	return OK
}

func (h *HCA) queryMkey(in, out ifc.View) Status {
	c, ok := h.keys.Query(uint32(in.Get("mkey_index")))
	if !ok {
		return BadRes
	}
	entry := out.Bytes("memory_key_mkey_entry")
	if entry == nil {
		return BadOutLen
	}
	c.Encode(entry)
	return OK
}

func (h *HCA) querySpecialContexts(in, out ifc.View) Status {
	out.Set("resd_lkey", mkey.ReservedLkey)
	out.Set("dump_fill_mkey", mkey.DumpFillKey)
	out.Set("null_mkey", mkey.NullKey)
	return OK
}
