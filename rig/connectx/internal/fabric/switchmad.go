package fabric

import (
	"encoding/binary"
	"fmt"
)

// Where a subnet management datagram (SMP) is in a packet, and what is in it: InfiniBand
// Architecture Specification 14.2.1.
const (
	smpOffset = 20 // after BTH and DETH
	smpLength = 256
	smpSize   = 64 // of an attribute

	smpClass      = 1
	smpMethod     = 3
	smpStatus     = 4
	smpHopPointer = 6
	smpHopCount   = 7
	smpAttr       = 16
	smpModifier   = 20
	smpSourceLID  = 32 // of a directed route that doesn't begin or end with its sender: DrSLID
	smpData       = 64
	smpPath       = 128
	smpReturnPath = 192

	byLID     = 0x01
	directed  = 0x81
	returning = 0x80 // in the status

	methodGet      = 1
	methodSet      = 2
	methodTrap     = 5
	methodResponse = 0x81

	noAttribute = 3 << 2
	badValue    = 7 << 2
)

// Where things are in PortInfo, and states.
const (
	infoLID   = 16
	infoSMLID = 18
	infoState = 32

	stateDown   = 1
	stateInit   = 2
	stateArmed  = 3
	stateActive = 4
)

// forAgent reports whether the packet is for an agent for subnet management: for queue pair 0.
func (p *Packet) forAgent() bool {
	const destination = 0xffffff
	return len(p.Data) >= smpOffset+smpLength && binary.BigEndian.Uint32(p.Data[4:])&destination == 0
}

// manage handles a packet for the switch's agent, or one that goes on by its directed route. It
// changes it, and returns the port by which it leaves, or 0.
func (x *crossbar) manage(f *Fabric, in int, p *Packet) (out int) {
	if !p.forAgent() {
		return 0
	}
	b := p.Data[smpOffset:][:smpLength]
	if b[smpClass] != directed {
		if p.DLID == PermissiveLID || b[smpMethod] != methodGet && b[smpMethod] != methodSet {
			return 0
		}
		x.answer(f, in, b, 0)
		if p.DLID, p.SLID = p.SLID, p.DLID; p.DLID == 0 || p.DLID >= FirstMulticastLID {
			return 0
		}
		return int(x.table[p.DLID])
	}
	pointer, count := int(b[smpHopPointer]), int(b[smpHopCount])
	if count >= smpSize {
		return 0
	}
	begins := pointer == 0 && p.DLID != PermissiveLID // the route, after a part by LID
	p.DLID, p.SLID = PermissiveLID, PermissiveLID
	if b[smpStatus]&returning != 0 {
		if pointer < 1 || pointer > count {
			return 0
		}
		b[smpHopPointer]--
		if pointer > 1 {
			return int(b[smpReturnPath+pointer-1])
		}
		// The route began here: the rest of the way back is by LID.
		if p.DLID, p.SLID = binary.BigEndian.Uint16(b[smpSourceLID:]), x.lid(); p.DLID == 0 || p.DLID >= FirstMulticastLID {
			return 0
		}
		return int(x.table[p.DLID])
	}
	switch {
	case pointer == 0 && !begins || pointer > count:
		return 0
	case pointer < count:
		b[smpReturnPath+pointer] = byte(in)
		b[smpHopPointer]++
		return int(b[smpPath+pointer+1])
	case begins: // a route of no hops
		return 0
	}
	b[smpReturnPath+pointer] = byte(in)
	if b[smpMethod] != methodGet && b[smpMethod] != methodSet {
		return 0
	}
	x.answer(f, in, b, returning<<8)
	return in
}

// trap sends the subnet manager the notice that a link of the switch has changed. It does so once,
// and doesn't wait for the subnet manager to say that it knows.
func (f *Fabric) trap(x *crossbar) {
	f.mu.Lock()
	own, manager := x.lid(), binary.BigEndian.Uint16(x.ports[0].info[infoSMLID:])
	if own == 0 || manager == 0 || manager >= FirstMulticastLID {
		f.mu.Unlock()
		return
	}
	const (
		datagram, partition      = 0x64, 0xffff // of the BTH
		notice                   = 2
		urgent, aSwitch, changed = 0x81, 2, 128
	)
	x.traps++
	p := NewPacket()
	p.SLID, p.DLID = own, manager
	p.Data = p.Data[:smpOffset+smpLength]
	clear(p.Data)
	p.Data[0] = datagram
	binary.BigEndian.PutUint16(p.Data[2:], partition)
	b := p.Data[smpOffset:]
	b[0], b[smpClass], b[2], b[smpMethod] = 1, byLID, 1, methodTrap
	binary.BigEndian.PutUint64(b[8:], x.traps)
	binary.BigEndian.PutUint16(b[smpAttr:], notice)
	data := b[smpData:][:smpSize]
	data[0], data[3] = urgent, aSwitch
	binary.BigEndian.PutUint16(data[4:], changed)
	binary.BigEndian.PutUint16(data[6:], own)
	binary.BigEndian.PutUint16(data[10:], own)
	f.stats.Sent++
	to := f.follow(nil, end{at: x}, p)
	if len(to) == 0 {
		f.stats.Unroutable++
	}
	f.fan(nil, to, p)
}

// answer makes the answer of a request.
func (x *crossbar) answer(f *Fabric, in int, b []byte, direction uint16) {
	set := b[smpMethod] == methodSet
	b[smpMethod] = methodResponse
	status := x.attribute(f, in, set, binary.BigEndian.Uint16(b[smpAttr:]), binary.BigEndian.Uint32(b[smpModifier:]), b[smpData:][:smpSize])
	binary.BigEndian.PutUint16(b[smpStatus:], direction|status)
}

// attribute executes a request: it sets an attribute from its data, and fills in the data.
func (x *crossbar) attribute(f *Fabric, in int, set bool, attr uint16, modifier uint32, data []byte) (status uint16) {
	const perBlock = smpSize
	switch attr {
	case 0x10: // NodeDescription
		clear(data)
		copy(data, fmt.Sprintf("switch %d in software", x.number))
	case 0x11: // NodeInfo
		const aSwitch, keys, vendor = 2, 32, 0x0002c9
		clear(data)
		data[0], data[1], data[2], data[3] = 1, 1, aSwitch, byte(len(x.ports)-1)
		for _, at := range []int{4, 12, 20} {
			binary.BigEndian.PutUint64(data[at:], x.guid)
		}
		binary.BigEndian.PutUint16(data[28:], keys)
		binary.BigEndian.PutUint32(data[36:], uint32(in)<<24|vendor)
	case 0x12: // SwitchInfo
		x.switchInfo(set, data)
	case 0x14: // GUIDInfo
		clear(data)
		binary.BigEndian.PutUint64(data, x.guid)
	case 0x15:
		return x.portInfo(f, in, set, int(modifier&0xff), data)
	case 0x16: // P_KeyTable
		n := int(modifier >> 16)
		if modifier&0xffff != 0 || n >= len(x.ports) {
			return badValue
		}
		keys := &x.ports[n].keys
		for i := range keys {
			if set {
				keys[i] = binary.BigEndian.Uint16(data[2*i:])
			}
			binary.BigEndian.PutUint16(data[2*i:], keys[i])
		}
	case 0x17, 0x18: // the tables of a single virtual lane
		clear(data)
	case 0x19: // LinearForwardingTable
		first := int(modifier) * perBlock
		if modifier >= FirstMulticastLID/perBlock {
			return badValue
		}
		if set {
			copy(x.table[first:], data)
		}
		copy(data, x.table[first:][:perBlock])
	case 0x1b: // MulticastForwardingTable
		const masks = 32
		first := uint16(modifier) % 512 * masks
		if modifier>>28 != 0 || first >= multicastLIDs {
			return badValue
		}
		for i := range uint16(masks) {
			if set {
				x.masks[first+i] = binary.BigEndian.Uint16(data[2*i:])
			}
			binary.BigEndian.PutUint16(data[2*i:], x.masks[first+i])
		}
	default:
		return noAttribute
	}
	return 0
}

// switchInfo sets what of it can be set, and fills it in. That a link has changed is told by a bit,
// until that is cleared.
func (x *crossbar) switchInfo(set bool, data []byte) {
	const change = 4
	if set {
		if data[11]&change != 0 {
			x.changed = false
		}
		x.info = [smpSize]byte(data)
	}
	copy(data, x.info[:])
	binary.BigEndian.PutUint16(data, FirstMulticastLID-1) // LinearFDBCap
	binary.BigEndian.PutUint16(data[2:], 0)               // RandomFDBCap
	binary.BigEndian.PutUint16(data[4:], multicastLIDs)   // MulticastFDBCap
	data[11] &^= change
	if x.changed {
		data[11] |= change
	}
	clear(data[12:18]) // neither LIDs per port nor enforcement
}

// portInfo sets what of it can be set, and fills it in.
func (x *crossbar) portInfo(f *Fabric, in int, set bool, n int, data []byte) (status uint16) {
	if n >= len(x.ports) {
		return badValue
	}
	p := x.ports[n]
	up := p.up()
	if set {
		p.info = [smpSize]byte(data)
		switch to := data[infoState] & 0xf; {
		case to == 0 || n == 0:
		case up && to == stateArmed && (p.state == stateInit || p.state == stateArmed), up && to == stateActive && p.state >= stateArmed:
			p.state = to
		case to == stateDown && up:
			p.state = stateInit
		default:
			status = badValue
		}
	}
	const (
		linkUp, polling  = 5 << 4, 2
		width4x, widths  = 2, 3
		qdr, speedsToQDR = 4, 7
		edr, speedsToEDR = 2, 3
		mtu4096, oneLane = 5, 1
	)
	copy(data, p.info[:])
	clear(data[:8])
	binary.BigEndian.PutUint64(data[8:], f.c.Prefix)
	capabilities := uint32(1<<14 | 1<<11 | 1<<3) // extended speeds, a GUID of the system, and traps
	if n != 0 {
		capabilities = 0
		clear(data[infoLID : infoSMLID+2])
	}
	binary.BigEndian.PutUint32(data[20:], capabilities)
	data[28], data[29], data[30], data[31] = byte(in), widths, widths, width4x
	data[infoState] = speedsToQDR<<4 | p.state
	data[33] = linkUp | polling
	if !up {
		data[33] = polling<<4 | polling
	}
	data[34] = 0
	data[35] = qdr<<4 | speedsToQDR
	if data[36]>>4 == 0 {
		data[36] |= mtu4096 << 4
	}
	data[37] = oneLane << 4
	data[39], data[40] = 0, 0
	data[41] = mtu4096
	data[43] = oneLane << 4
	clear(data[44:51])
	if n == 0 {
		data[50] = 1
	}
	data[51] &= 0x1f
	data[62] = edr<<4 | speedsToEDR
	data[63] = speedsToEDR
	return status
}
