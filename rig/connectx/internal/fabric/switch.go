package fabric

import (
	"encoding/binary"
	"fmt"
)

// A crossbar is a switch that a subnet manager sees and sets up. It has an agent for subnet
// management and none for counters, and forwards by its tables.
type crossbar struct {
	number  int // among the fabric's switches
	traps   uint64
	guid    uint64
	info    [smpSize]byte // SwitchInfo, as it was set
	changed bool          // a link has changed since a subnet manager last said that it knows
	ports   []*switchPort // 0 is the switch itself
	table   [FirstMulticastLID]byte
	// masks are the ports for each multicast LID, of the first 16.
	masks map[uint16]uint16
}

// A switchPort is a port of a switch, with what a subnet manager has set in it.
type switchPort struct {
	to     end // nowhere from port 0
	pulled bool
	info   [smpSize]byte // PortInfo
	state  byte
	keys   [32]uint16
}

// An end is one end of a link: an adapter's port, or a port of a switch.
type end struct {
	port *Port
	at   *crossbar
	n    int
}

const (
	nowhere        = 0xff // in the table; 0 is the switch itself
	multicastLIDs  = 1024
	maxSwitchPorts = 15 // as many as a mask has, without the switch's own
	maxHops        = 64
)

// SetSwitches puts switches where the fabric knew by itself which port has a LID: one for each
// list, linked to the ports with these numbers, in the order in which they were attached. The
// switch's further ports are linked to the switch before it, and to the one after it. They forward
// nothing until a subnet manager has set their tables. Without lists, the fabric knows by itself
// again.
func (f *Fabric) SetSwitches(guid uint64, of [][]int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := make(map[int]bool)
	for _, list := range of {
		if len(list)+2 > maxSwitchPorts {
			return fmt.Errorf("a switch has at most %d ports, two of them for other switches", maxSwitchPorts)
		}
		for _, n := range list {
			if n < 0 || n >= len(f.ports) || seen[n] {
				return fmt.Errorf("there is no port %d, or it has two switches", n)
			}
			seen[n] = true
		}
	}
	for _, p := range f.ports {
		p.link = end{}
	}
	f.switches = nil
	for i, list := range of {
		x := &crossbar{number: i, guid: guid + uint64(i), masks: make(map[uint16]uint16)}
		for lid := range x.table {
			x.table[lid] = nowhere
		}
		x.add(end{}).state = stateActive
		for _, n := range list {
			p := f.ports[n]
			p.link = end{at: x, n: len(x.ports)}
			x.add(end{port: p})
		}
		if i > 0 {
			before := f.switches[i-1]
			x.add(end{at: before, n: len(before.ports)})
			before.add(end{at: x, n: len(x.ports) - 1})
		}
		f.switches = append(f.switches, x)
	}
	return nil
}

// add adds a port.
func (x *crossbar) add(to end) *switchPort {
	q := &switchPort{to: to, state: stateInit}
	q.keys[0] = 0xffff
	if !q.up() {
		q.state = stateDown
	}
	x.ports = append(x.ports, q)
	return q
}

// SetTrunk plugs in or out the cable between a switch and the next one.
func (f *Fabric) SetTrunk(after int, up bool) error {
	f.mu.Lock()
	if after < 0 || after >= len(f.switches)-1 {
		f.mu.Unlock()
		return fmt.Errorf("there is no cable from switch %d to another", after)
	}
	ends := f.switches[after : after+2]
	for _, x := range ends {
		for n, q := range x.ports {
			if other := q.to.at; other != nil && other.number+x.number == 2*after+1 && q.pulled == up {
				q.pulled = !up
				x.linkChanged(n)
			}
		}
	}
	f.mu.Unlock()
	for _, x := range ends {
		f.trap(x)
	}
	return nil
}

// linkChanged is called after a port's link went up or down. The lock is held.
func (x *crossbar) linkChanged(n int) {
	x.changed = true
	x.ports[n].state = stateDown
	if x.ports[n].up() {
		x.ports[n].state = stateInit
	}
}

// up reports whether the port's link is up.
func (q *switchPort) up() bool {
	if q.to.port != nil {
		return q.to.port.up
	}
	return !q.pulled
}

// passes reports whether the port is in a state for the packet. Before a subnet manager arms it,
// it only passes datagrams for subnet management.
func (q *switchPort) passes(p *Packet) bool { return q.up() && (q.state >= stateArmed || p.forAgent()) }

// lid returns the switch's own LID, or 0.
func (x *crossbar) lid() uint16 { return binary.BigEndian.Uint16(x.ports[0].info[infoLID:]) }

// forward appends the ports that a packet gets to, from switch to switch. One for a switch itself,
// or by a directed route, is changed to what the switch sends.
func (f *Fabric) forward(to []*Port, from *Port, p *Packet) []*Port {
	group := p.DLID >= FirstMulticastLID && p.DLID != PermissiveLID
	switch {
	case group && from.groups[p.DGID()] > 0, p.DLID == from.lid && from.lid != 0:
		to = append(to, from) // the adapter keeps it, or a copy
	}
	switch {
	case from.link.at == nil || !group && len(to) > 0:
		return to
	case group:
		return from.link.spread(to, p)
	}
	return f.follow(to, from.link, p)
}

// spread appends the members of a group that a packet to it gets to, which arrives at a switch. It
// doesn't leave the switch where it arrived.
func (in end) spread(to []*Port, p *Packet) []*Port {
	x := in.at
	if !x.ports[in.n].passes(p) {
		return to
	}
	for n, q := range x.ports {
		switch {
		case n == 0 || n == in.n || x.masks[p.DLID-FirstMulticastLID]&(1<<n) == 0 || !q.passes(p):
		case q.to.at != nil:
			to = q.to.spread(to, p)
		case q.to.port.groups[p.DGID()] > 0:
			to = append(to, q.to.port)
		}
	}
	return to
}

// follow appends the port that a packet gets to, which arrives at a switch.
func (f *Fabric) follow(to []*Port, in end, p *Packet) []*Port {
	for range maxHops {
		x := in.at
		if !x.ports[in.n].passes(p) {
			break
		}
		out := 0
		if p.DLID == PermissiveLID || p.DLID == x.lid() && p.DLID != 0 {
			out = x.manage(f, in.n, p)
		} else if p.DLID != 0 {
			out = int(x.table[p.DLID])
		}
		if out == 0 || out >= len(x.ports) || !x.ports[out].passes(p) {
			break
		}
		if in = x.ports[out].to; in.port != nil {
			return append(to, in.port)
		}
	}
	return to
}
