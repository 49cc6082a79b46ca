package device

import "encoding/binary"

// WriteDoorbells writes to BAR 4, which has a page for each UAR: first two doorbells for each
// QP, of the send queue and the receive queue, then one for each CQ.
func (d *Device) WriteDoorbells(offset uint64, data []byte) {
	if d.gone {
		return
	}
	uar, in := uint32(offset/doorbellPage), uint32(offset%doorbellPage)
	if len(data) != 4 || offset%4 != 0 || d.uars.get(uar) == nil {
		d.violate("%d bytes were written to the doorbells at %#x", len(data), offset)
		return
	}
	v := binary.LittleEndian.Uint32(data)
	if in >= cqDoorbells {
		if q := d.cqs.get((in - cqDoorbells) / 4); q != nil && q.uar == uar && q.eq != nil {
			d.ringCQ(q, v)
			return
		}
	} else if q := d.qps.get(in / 8); q != nil && q.uar == uar {
		if in%8 == 0 {
			d.ringSQ(q, v)
		} else {
			d.ringRQ(q, v)
		}
		return
	}
	d.violate("the doorbell at %#x, written with %#x, belongs to no queue of UAR %d", offset, v, uar)
}
