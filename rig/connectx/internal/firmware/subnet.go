package firmware

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
)

// subnetAttributes are what the agent for subnet management (SMA) answers, InfiniBand Architecture
// Specification 14.2.5. The SM's own attribute, SMInfo, doesn't get here.
var subnetAttributes = map[uint16]attribute{
	0x10: (*HCA).nodeDescriptionMAD,
	0x11: (*HCA).nodeInfoMAD,
	0x14: (*HCA).guidInfoMAD,
	0x15: (*HCA).portInfoMAD,
	0x16: (*HCA).pkeyTableMAD,
	0x17: (*HCA).serviceLevelsMAD,
	0x18: (*HCA).arbitrationMAD,

	0xff90: (*HCA).vendorPortInfoMAD,
}

// subnetData is the length of an attribute's data.
const subnetData = 64

// managed is what the subnet manager has set in the port. The LID is in the fabric's port.
type managed struct {
	smLID, lease    uint16
	smSL            uint8
	timeout         uint8 // SubnetTimeout
	mtu             uint8 // NeighborMTU
	hoq, highLimit  uint8 // of switches, and of arbitration: stored only
	errorThresholds uint8
	pkeys           [pkeys]uint16
}

// unmanaged is a port's state without a subnet manager. The fabric gives it a LID.
func unmanaged() managed {
	m := managed{smLID: builtInSM, timeout: 18, mtu: mtu4096}
	m.pkeys[0] = defaultPKey
	return m
}

// Manage makes the port one that a subnet manager must bring up, or one that the fabric brings up
// itself, as it is at first. The link stays up.
func (h *HCA) Manage(on bool) {
	h.byManager = on
	if on {
		h.c.Port.Forget()
	} else {
		h.c.Port.Restore()
	}
	h.resetPort()
	h.PortChanged(false)
	h.PortChanged(h.c.Port.Up())
	h.Post(eq.Port(eq.PortLID, 1))
	h.Post(eq.Port(eq.PortPKey, 1))
}

// resetPort forgets what a subnet manager has set, except for the LID.
func (h *HCA) resetPort() {
	h.managed, h.logical = unmanaged(), portActive
	if h.byManager {
		h.logical = portInit
		h.managed.smLID, h.managed.timeout = 0, 0
	}
}

const (
	builtInSM = 0xbfff // the LID of a subnet manager that isn't there
	mtu4096   = 5
	pkeys     = 128
)

func (h *HCA) nodeDescriptionMAD(m mad) madResult {
	if m.set {
		return madNoAttribute
	}
	copy(m.data[:subnetData], h.description[:])
	return madOK
}

func (h *HCA) nodeInfoMAD(m mad) madResult {
	if m.set {
		return madNoAttribute
	}
	const channelAdapter, ports, thisPort, vendor = 1, 1, 1, 0x0002c9
	b := m.data[:subnetData]
	clear(b)
	b[0], b[1], b[2], b[3] = 1, 1, channelAdapter, ports
	binary.BigEndian.PutUint64(b[4:], h.c.GUID)
	binary.BigEndian.PutUint64(b[12:], h.c.GUID)
	binary.BigEndian.PutUint64(b[20:], h.c.Port.GUID())
	binary.BigEndian.PutUint16(b[28:], pkeys)
	binary.BigEndian.PutUint16(b[30:], h.c.Profile.Device)
	binary.BigEndian.PutUint32(b[36:], thisPort<<24|vendor)
	return madOK
}

func (h *HCA) guidInfoMAD(m mad) madResult {
	if m.set {
		return madNoAttribute
	}
	clear(m.data[:subnetData])
	switch {
	case m.modifier >= (gids+7)/8:
		return madBadValue
	case m.modifier == 0:
		binary.BigEndian.PutUint64(m.data, h.c.Port.GUID())
	}
	return madOK
}

func (h *HCA) pkeyTableMAD(m mad) madResult {
	const perBlock = subnetData / 2
	block := int(m.modifier & 0xffff)
	if block >= pkeys/perBlock {
		return madBadValue
	}
	table := h.managed.pkeys[block*perBlock:][:perBlock]
	for i := range table {
		if m.set {
			table[i] = binary.BigEndian.Uint16(m.data[2*i:])
		}
		binary.BigEndian.PutUint16(m.data[2*i:], table[i])
	}
	if m.set {
		h.Post(eq.Port(eq.PortPKey, 1))
	}
	return madOK
}

// serviceLevelsMAD maps all service levels to the only virtual lane, 0.
func (h *HCA) serviceLevelsMAD(m mad) madResult {
	clear(m.data[:subnetData])
	return madOK
}

// arbitrationMAD has nothing to arbitrate: there is one virtual lane.
func (h *HCA) arbitrationMAD(m mad) madResult {
	clear(m.data[:subnetData])
	return madOK
}

// vendorPortInfoMAD says that the port doesn't have FDR10, a speed of Mellanox's own.
func (h *HCA) vendorPortInfoMAD(m mad) madResult {
	clear(m.data[:subnetData])
	return madOK
}

// Values of PortInfo.
const (
	width1xAnd4x, width4x    = 3, 2
	speedsToQDR, speedQDR    = 7, 4
	speedsToEDR, speedEDR    = 3, 2 // the extended ones: FDR and EDR
	oneLane                  = 1
	pollingByDefault         = 2
	stateArmed, stateNothing = 3, 0
)

func (h *HCA) portInfoMAD(m mad) madResult {
	const extendedSpeeds = 1 << 31 // the SM knows them
	if m.modifier&^extendedSpeeds > 1 {
		return madBadValue
	}
	reregister := m.set && m.data[51]&0x80 != 0
	result := madOK
	if m.set {
		result = h.setPortInfo(m.data)
	}
	h.portInfo(m.data[:subnetData])
	if reregister {
		m.data[51] |= 0x80
	}
	return result
}

// portInfo fills in the attribute PortInfo.
func (h *HCA) portInfo(b []byte) {
	clear(b)
	s := &h.managed
	state, link := h.portState()
	gid := h.c.Port.GID()
	copy(b[8:16], gid[:8])
	binary.BigEndian.PutUint16(b[16:], h.c.Port.LID())
	binary.BigEndian.PutUint16(b[18:], s.smLID)
	binary.BigEndian.PutUint32(b[20:], uint32(h.capMask))
	binary.BigEndian.PutUint16(b[26:], s.lease)
	b[28], b[29], b[30], b[31] = 1, width1xAnd4x, width1xAnd4x, width4x
	b[32] = speedsToQDR<<4 | byte(state)
	b[33] = byte(link)<<4 | pollingByDefault
	b[35] = speedQDR<<4 | speedsToQDR
	b[36] = s.mtu<<4 | s.smSL
	b[37] = oneLane << 4
	b[38] = s.highLimit
	b[41] = mtu4096
	b[42] = s.hoq
	b[43] = oneLane << 4
	b[50] = gids
	b[51] = s.timeout
	b[52] = responseTime
	b[53] = s.errorThresholds
	b[62] = speedEDR<<4 | speedsToEDR
	b[63] = speedsToEDR
}

// responseTime is RespTimeValue: 4.096 µs << 16, a quarter of a second.
const responseTime = 16

// setPortInfo does what a subnet manager asks for.
func (h *HCA) setPortInfo(b []byte) madResult {
	s := &h.managed
	lid, smLID := binary.BigEndian.Uint16(b[16:]), binary.BigEndian.Uint16(b[18:])
	lmc := b[34] & 7
	gid := h.c.Port.GID()
	key := binary.BigEndian.Uint64(b)
	if key != 0 || string(b[8:16]) != string(gid[:8]) || lmc != 0 {
		return madBadValue // neither keys nor other prefixes nor several LIDs are modelled
	}
	before := *s
	var events []uint8
	if lid != h.c.Port.LID() {
		if !h.c.Port.SetLID(lid) {
			return madBadValue
		}
		events = append(events, eq.PortLID)
	}
	s.smLID, s.smSL = smLID, b[36]&0xf
	s.lease = binary.BigEndian.Uint16(b[26:])
	if mtu := b[36] >> 4; mtu != 0 {
		if mtu > mtu4096 {
			return madBadValue
		}
		s.mtu = mtu
	}
	s.highLimit, s.hoq, s.errorThresholds = b[38], b[42], b[53]
	s.timeout = b[51] & 0x1f
	if s.smLID != before.smLID || s.smSL != before.smSL || s.timeout != before.timeout {
		events = append(events, eq.PortLID)
	}
	if b[51]&0x80 != 0 {
		events = append(events, eq.PortReregister)
	}
	result := h.setPortState(uint64(b[32] & 0xf))
	for _, subtype := range events {
		h.Post(eq.Port(subtype, 1))
	}
	return result
}

// setPortState changes the port's logical state. The link must be up.
func (h *HCA) setPortState(to uint64) madResult {
	state, _ := h.portState()
	switch {
	case to == stateNothing:
		return madOK
	case to == portDown:
		// The link trains again, and at once.
		if state != portDown {
			h.PortChanged(false)
			h.PortChanged(true)
		}
		return madOK
	case to == stateArmed && (state == portInit || state == stateArmed):
	case to == portActive && (state == stateArmed || state == portActive):
	default:
		return madBadValue
	}
	h.logical = to
	if state != to && to == portActive {
		h.Post(eq.Port(eq.PortActive, 1))
	}
	return madOK
}
