package device

import "bytes"

// The features, by which the driver learns what the device is and has.
const (
	featureDevice     = 1
	featureAENQ       = 2
	featureNetwork    = 3
	featureQueues     = 4
	featureHints      = 5
	featureHost       = 6
	featureEventQueue = 7
)

// Bits of the device's capabilities.
const (
	capRDMARead = 1 << iota
	capRNRRetry
	_
	capRDMAWrite
	capUnsolicited
)

func (d *Device) features() uint64 {
	f := uint64(1<<featureDevice | 1<<featureAENQ | 1<<featureNetwork | 1<<featureQueues | 1<<featureHints | 1<<featureHost)
	if d.Profile.EQs {
		f |= 1 << featureEventQueue
	}
	if d.Profile.Future {
		f |= 1 << 62
	}
	return f
}

func (d *Device) capabilities() (bits uint32) {
	if d.Profile.RDMARead {
		bits |= capRDMARead
	}
	if d.Profile.RNRRetry {
		bits |= capRNRRetry
	}
	if d.Profile.RDMAWrite {
		bits |= capRDMAWrite | capUnsolicited
	}
	if d.Profile.Future {
		bits |= 1 << 30
	}
	return bits
}

// version returns that of the interface: 0.1, or one that no driver knows.
func (d *Device) version() uint32 {
	if d.Profile.Future {
		return 9<<8 | 9
	}
	return 1
}

func (d *Device) getFeature(c *command, a *answer) status {
	feature := c.u8(17)
	if feature > 63 || d.features()>>feature&1 == 0 {
		return illegalParameter
	}
	switch feature {
	case featureDevice:
		a.put64(0, d.features())
		a.put64(8, pageSizes)
		a.put32(16, 1)           // firmware
		a.put32(20, d.version()) // of the admin interface
		a.put32(24, uint32(d.Profile.Device))
		a.put16(28, doorbellsBAR)
		a[30], a[31] = 52, 57 // bits of physical and of virtual addresses
		a.put32(32, d.capabilities())
		if d.Profile.RDMARead {
			a.put32(36, maxRDMA)
		}
		copy(a[40:48], d.GID[8:]) // the GUID, big-endian
	case featureAENQ:
		a.put32(0, allGroups)
		a.put32(4, d.aenq.groups)
	case featureNetwork:
		copy(a[:16], d.GID[:])
		a.put32(16, mtu)
	case featureQueues:
		for i, v := range []uint32{maxQP, maxSQDepth, inlineSize, maxRQDepth, maxCQ, maxCQDepth} {
			a.put32(4*i, v)
		}
		a.put16(24, d.Profile.SubCQs)
		a.put16(28, maxSendSGEs)
		a.put16(30, maxRecvSGEs)
		for i, v := range []uint32{maxMR, maxPages, maxPD, maxAH, maxLLQ} {
			a.put32(32+4*i, v)
		}
		if d.Profile.RDMARead {
			a.put16(52, maxRDMASGEs)
		}
		a.put16(54, maxTxBatch)
	case featureHints: // none: all zero
	case featureEventQueue:
		a.put32(0, maxEQ)
		a.put32(4, maxEQDepth)
		a.put32(8, 1) // completion events
	default: // the host's can only be set
		return illegalParameter
	}
	return success
}

func (d *Device) setFeature(c *command, _ *answer) status {
	switch c.u8(17) {
	case featureAENQ:
		groups := c.u32(24)
		if groups&^allGroups != 0 {
			return illegalParameter
		}
		d.aenq.groups = groups
		return success
	case featureHost:
		b := d.controlMemory(c, 4096)
		if len(b) < 128 {
			return illegalParameter
		}
		name, _, _ := bytes.Cut(b[:128], []byte{0})
		d.host = string(name)
		return success
	}
	return illegalParameter
}
