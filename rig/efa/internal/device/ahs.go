package device

import "github.com/goverbs/goverbs/rig/efa/internal/wire"

// An ah is an address in a protection domain. It has one number there, however often it was
// created.
type ah struct {
	pd    uint32
	gid   wire.GID
	users int
}

func (d *Device) createAH(c *command, a *answer) status {
	in := uint32(c.u16(20))
	p := d.pds.get(in)
	if p == nil {
		return illegalParameter
	}
	gid := wire.GID(c[4:20])
	n, ok := d.findAH(gid, in)
	if !ok {
		if n, ok = d.ahs.add(&ah{pd: in, gid: gid}); !ok {
			return noResources
		}
	}
	d.ahs.get(n).users++
	p.users++
	a.put16(0, uint16(n))
	return success
}

func (d *Device) destroyAH(c *command, _ *answer) status {
	n, in := uint32(c.u16(4)), uint32(c.u16(6))
	x := d.ahs.get(n)
	if x == nil || x.pd != in {
		return illegalParameter
	}
	d.pds.get(in).users--
	if x.users--; x.users == 0 {
		d.ahs.remove(n)
	}
	return success
}

// findAH returns the number of an address in a protection domain.
func (d *Device) findAH(gid wire.GID, pd uint32) (uint32, bool) {
	for n, x := range d.ahs.items {
		if x.gid == gid && x.pd == pd {
			return n, true
		}
	}
	return 0, false
}

// knows reports whether any protection domain has the address.
func (d *Device) knows(gid wire.GID) bool {
	for _, x := range d.ahs.items {
		if x.gid == gid {
			return true
		}
	}
	return false
}
