package firmware

import (
	"encoding/binary"
	"math"

	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
)

// performanceAttributes are what the agent for performance management (PMA) answers, InfiniBand
// Architecture Specification 16.1.3.
var performanceAttributes = map[uint16]attribute{
	0x01: (*HCA).performanceClassMAD,
	0x12: (*HCA).portCountersMAD,
	0x1d: (*HCA).extendedCountersMAD,
}

func (h *HCA) performanceClassMAD(m mad) madResult {
	if m.set {
		return madNoAttribute
	}
	const allPorts, extended, transmitWait = 1 << 8, 1 << 9, 1 << 12
	clear(m.data)
	m.data[0], m.data[1] = 1, 1
	binary.BigEndian.PutUint16(m.data[2:], allPorts|extended|transmitWait)
	binary.BigEndian.PutUint32(m.data[4:], responseTime)
	return madOK
}

// counter is one of an attribute's counters: its place, width and bit in CounterSelect, or in
// CounterSelect2 from bit 16 on.
type counter struct {
	offset, bits, selected int
	of                     func(c *fabric.Counters) *uint64
}

// The counters that this port counts. The others are 0.
var (
	portCounters = []counter{
		{7, 8, 2, func(c *fabric.Counters) *uint64 { return &c.Downs }},
		{24, 32, 12, func(c *fabric.Counters) *uint64 { return &c.SentWords }},
		{28, 32, 13, func(c *fabric.Counters) *uint64 { return &c.ReceivedWords }},
		{32, 32, 14, func(c *fabric.Counters) *uint64 { return &c.Sent }},
		{36, 32, 15, func(c *fabric.Counters) *uint64 { return &c.Received }},
		{40, 32, 16, func(c *fabric.Counters) *uint64 { return &c.Waits }},
	}
	extendedCounters = []counter{
		{8, 64, 0, func(c *fabric.Counters) *uint64 { return &c.SentWords }},
		{16, 64, 1, func(c *fabric.Counters) *uint64 { return &c.ReceivedWords }},
		{24, 64, 2, func(c *fabric.Counters) *uint64 { return &c.Sent }},
		{32, 64, 3, func(c *fabric.Counters) *uint64 { return &c.Received }},
		{40, 64, 4, func(c *fabric.Counters) *uint64 { return &c.SentUnicast }},
		{48, 64, 5, func(c *fabric.Counters) *uint64 { return &c.ReceivedUnicast }},
		{56, 64, 6, func(c *fabric.Counters) *uint64 { return &c.SentMulticast }},
		{64, 64, 7, func(c *fabric.Counters) *uint64 { return &c.ReceivedMulticast }},
	}
)

func (h *HCA) portCountersMAD(m mad) madResult { return h.count(m, portCounters, &h.counted) }

func (h *HCA) extendedCountersMAD(m mad) madResult {
	return h.count(m, extendedCounters, &h.countedExtended)
}

// count answers for counters that began at zero. Setting them lets the selected ones begin again,
// at the value that the MAD has.
func (h *HCA) count(m mad, counters []counter, zero *fabric.Counters) madResult {
	const allPorts = 0xff
	const selected2 = 18
	port, selected := m.data[1], binary.BigEndian.Uint16(m.data[2:])
	all := uint32(selected) | uint32(m.data[selected2])<<16
	if port != 1 && port != allPorts {
		return madBadValue
	}
	now := h.c.Port.Counters()
	now.Waits = h.waits()
	if m.set {
		for _, c := range counters {
			if all&(1<<c.selected) != 0 {
				*c.of(zero) = *c.of(&now) - c.load(m.data)
			}
		}
	}
	clear(m.data)
	m.data[1] = port
	binary.BigEndian.PutUint16(m.data[2:], selected)
	for _, c := range counters {
		c.store(m.data, *c.of(&now)-*c.of(zero))
	}
	return madOK
}

func (c counter) load(b []byte) uint64 {
	switch b = b[c.offset:]; c.bits {
	case 8:
		return uint64(b[0])
	case 32:
		return uint64(binary.BigEndian.Uint32(b))
	}
	return binary.BigEndian.Uint64(b)
}

// store writes the value, or the greatest that the counter can have.
func (c counter) store(b []byte, value uint64) {
	switch b = b[c.offset:]; c.bits {
	case 8:
		b[0] = byte(min(value, math.MaxUint8))
	case 32:
		binary.BigEndian.PutUint32(b, uint32(min(value, math.MaxUint32)))
	default:
		binary.BigEndian.PutUint64(b, value)
	}
}
