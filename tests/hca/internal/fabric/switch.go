package fabric

import (
	"encoding/binary"
	"slices"
)

// A crossbar is a switch that a subnet manager sees and sets up. Its port N is connected to the
// fabric's N-th port. It has an agent for subnet management and none for counters, and forwards by
// its tables, whatever the state of its ports.
type crossbar struct {
	guid  uint64
	info  [smpSize]byte // SwitchInfo, as it was set
	ports map[int]*switchPort
	table [FirstMulticastLID]byte // the port for each LID; 0 is the switch itself
	// masks are the ports for each multicast LID, of the first 16.
	masks map[uint16]uint16
}

// A switchPort is what a subnet manager has set in a port.
type switchPort struct {
	info  [smpSize]byte // PortInfo
	state byte
	link  bool // as it was when the state was last looked at
	keys  [32]uint16
}

const (
	nowhere       = 0xff // in the table
	multicastLIDs = 1024
)

// AddSwitch puts a switch where the fabric knew by itself which port has a LID. It forwards nothing
// until a subnet manager has set its tables.
func (f *Fabric) AddSwitch(guid uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crossbar = &crossbar{guid: guid, ports: make(map[int]*switchPort), masks: make(map[uint16]uint16)}
	for i := range f.crossbar.table {
		f.crossbar.table[i] = nowhere
	}
}

// RemoveSwitch makes the fabric know by itself again.
func (f *Fabric) RemoveSwitch() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crossbar = nil
}

// lid returns the switch's own LID, or 0.
func (x *crossbar) lid() uint16 { return binary.BigEndian.Uint16(x.port(0).info[infoLID:]) }

func (x *crossbar) port(n int) *switchPort {
	p := x.ports[n]
	if p == nil {
		p = &switchPort{state: stateInit, link: true}
		p.keys[0] = 0xffff
		if n == 0 {
			p.state = stateActive
		}
		x.ports[n] = p
	}
	return p
}

// forward appends the ports that a packet goes to. One for the switch itself, or by a directed
// route, is changed to what the switch sends.
func (x *crossbar) forward(f *Fabric, to []*Port, from *Port, p *Packet) []*Port {
	in := slices.Index(f.ports, from) + 1
	if p.DLID == from.lid && from.lid != 0 {
		return append(to, from) // the adapter keeps it
	}
	if p.DLID >= FirstMulticastLID && p.DLID != PermissiveLID {
		for i, q := range f.ports {
			if x.masks[p.DLID-FirstMulticastLID]&(1<<(i+1)) != 0 && q.up && q.groups[p.DGID()] > 0 {
				to = append(to, q)
			}
		}
		return to
	}
	out := 0
	switch {
	case p.DLID == PermissiveLID || p.DLID == x.lid() && p.DLID != 0:
		out = x.manage(f, in, p)
	case p.DLID != 0:
		out = int(x.table[p.DLID])
	}
	if out > 0 && out <= len(f.ports) && f.ports[out-1].up {
		to = append(to, f.ports[out-1])
	}
	return to
}
