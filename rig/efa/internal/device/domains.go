package device

// A pd is a protection domain. It counts what uses it.
type pd struct{ users int }

func (d *Device) allocPD(_ *command, a *answer) status {
	n, ok := d.pds.add(&pd{})
	if !ok {
		return noResources
	}
	a.put16(0, uint16(n))
	return success
}

func (d *Device) deallocPD(c *command, _ *answer) status {
	n := uint32(c.u16(4))
	switch p := d.pds.get(n); {
	case p == nil:
		return illegalParameter
	case p.users > 0:
		return busy
	}
	d.pds.remove(n)
	return success
}

func (d *Device) allocUAR(_ *command, a *answer) status {
	n, ok := d.uars.add(&struct{}{})
	if !ok {
		return noResources
	}
	a.put16(0, uint16(n))
	return success
}

func (d *Device) deallocUAR(c *command, _ *answer) status {
	n := uint32(c.u16(4))
	if d.uars.get(n) == nil {
		return illegalParameter
	}
	for _, q := range d.qps.items {
		if q.uar == n {
			return busy
		}
	}
	for _, q := range d.cqs.items {
		if q.uar == n {
			return busy
		}
	}
	d.uars.remove(n)
	return success
}
