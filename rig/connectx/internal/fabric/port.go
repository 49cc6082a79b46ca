package fabric

// PortConfig has a port's parameters.
type PortConfig struct {
	GUID uint64
	// Receive receives a packet. It is called by any goroutine, also from
	// within Send, and must only put the packet into a queue.
	Receive func(*Packet)
	// Changed is called after the port went up or down.
	Changed func(up bool)
}

// Port is one port of an HCA. It is safe for concurrent use.
type Port struct {
	f      *Fabric
	c      PortConfig
	lid    uint16
	up     bool // plug && enable
	plug   bool // the cable is plugged in
	enable bool // its HCA enables it
	groups map[GID]int
	macs   []MAC
	link   end // the switch's port, if there is a switch

	counters Counters
}

// Unplugged returns another port, without a cable.
func (p *Port) Unplugged() *Port {
	return &Port{f: p.f, c: PortConfig{Receive: func(*Packet) {}, Changed: func(bool) {}}, groups: make(map[GID]int)}
}

// LID returns the port's LID, which the subnet assigned.
func (p *Port) LID() uint16 {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	return p.lid
}

// SetLID changes the port's LID. It reports false if another port has it, or if it is not one
// for a port.
func (p *Port) SetLID(lid uint16) bool {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if q := p.f.byLID[lid]; lid == 0 || lid >= FirstMulticastLID || q != nil && q != p {
		return false
	}
	delete(p.f.byLID, p.lid)
	p.lid = lid
	p.f.byLID[lid] = p
	return true
}

// Forget takes the port's LID away, until a subnet manager sets one.
func (p *Port) Forget() {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	delete(p.f.byLID, p.lid)
	p.lid = 0
}

// Restore gives the port the LID that it would have without a subnet manager: the least that is
// free.
func (p *Port) Restore() {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	delete(p.f.byLID, p.lid)
	p.f.next = 1
	p.f.assign(p)
}

// neighbor returns the port at the other end of the link, or nil. The lock is held.
func (f *Fabric) neighbor(p *Port) *Port {
	if len(f.ports) != 2 {
		return nil
	}
	if f.ports[0] == p {
		return f.ports[1]
	}
	return f.ports[0]
}

// GID returns the port's only GID: its subnet's prefix and its GUID.
func (p *Port) GID() GID { return p.f.gid(p.c.GUID) }

// GUID returns the port's GUID.
func (p *Port) GUID() uint64 { return p.c.GUID }

// Up reports whether the port's link is up.
func (p *Port) Up() bool {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	return p.up
}

// SetUp plugs the port's cable in or out. A port that is down neither sends nor receives.
func (p *Port) SetUp(up bool) { p.change(&p.plug, up) }

// Enable is called by the port's HCA. A disabled port is down.
func (p *Port) Enable(on bool) { p.change(&p.enable, on) }

func (p *Port) change(what *bool, to bool) {
	p.f.mu.Lock()
	*what = to
	was, up := p.up, p.plug && p.enable
	p.up = up
	if was && !up {
		p.counters.Downs++
	}
	link := p.link
	if was != up && link.at != nil {
		link.at.linkChanged(link.n)
	}
	p.f.mu.Unlock()
	if was != up && link.at != nil {
		p.f.trap(link.at)
	}
	if was != up && p.c.Changed != nil {
		p.c.Changed(up)
	}
}

// Join makes the port a member of a group. A port joins once for each of its
// queue pairs in the group.
func (p *Port) Join(g GID) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.groups[g]++
}

// Leave reverts one Join.
func (p *Port) Leave(g GID) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if p.groups[g]--; p.groups[g] <= 0 {
		delete(p.groups, g)
	}
}

// Detach removes the port from the fabric permanently.
func (p *Port) Detach() { p.f.detach(p) }

// Send passes a packet to the fabric, which owns it from then on.
func (p *Port) Send(pk *Packet) { p.f.send(p, pk) }
