package fabric

// PortConfig is what a port brings to the fabric.
type PortConfig struct {
	GUID uint64
	// Receive takes a packet that arrived. It is called from anywhere, also
	// from within Send, and must only put the packet into a queue.
	Receive func(*Packet)
	// Changed is called after the port went up or down.
	Changed func(up bool)
}

// Port is one port of one HCA. Its methods may be called from anywhere.
type Port struct {
	f      *Fabric
	c      PortConfig
	lid    uint16
	up     bool // plugged and enabled
	plug   bool // the link could be up
	enable bool // its HCA wants it to be
	groups map[GID]int
	macs   []MAC
}

// LID is what the subnet's manager gave the port.
func (p *Port) LID() uint16 {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	return p.lid
}

// GID is the port's only one, its subnet's prefix and its GUID.
func (p *Port) GID() GID { return p.f.gid(p.c.GUID) }

// GUID is what the port came with.
func (p *Port) GUID() uint64 { return p.c.GUID }

// Up reports whether the port's link is up.
func (p *Port) Up() bool {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	return p.up
}

// SetUp plugs the port's link in, or out. A port that is down neither sends nor
// receives.
func (p *Port) SetUp(up bool) { p.change(&p.plug, up) }

// Enable is what the port's own HCA wants: a link that is disabled is down.
func (p *Port) Enable(on bool) { p.change(&p.enable, on) }

func (p *Port) change(what *bool, to bool) {
	p.f.mu.Lock()
	*what = to
	was, up := p.up, p.plug && p.enable
	p.up = up
	p.f.mu.Unlock()
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

// Leave undoes one Join.
func (p *Port) Leave(g GID) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if p.groups[g]--; p.groups[g] <= 0 {
		delete(p.groups, g)
	}
}

// Detach takes the port off the fabric for good.
func (p *Port) Detach() { p.f.detach(p) }

// Send gives a packet to the fabric.
func (p *Port) Send(pk *Packet) { p.f.send(p, pk) }
