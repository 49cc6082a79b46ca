package fabric

// Counters has what a port has sent and received since it was attached. Words are of 4 bytes,
// with all headers and the invariant CRC.
type Counters struct {
	Sent, SentWords, SentUnicast, SentMulticast                 uint64
	Received, ReceivedWords, ReceivedUnicast, ReceivedMulticast uint64
	Downs                                                       uint64 // how often it went down
	Waits                                                       uint64 // ticks in which flow control kept it from sending; its HCA counts them
}

// Counters returns the port's counters.
func (p *Port) Counters() Counters {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	return p.counters
}

// words returns the packet's length as ports count it.
func (p *Packet) words() uint64 {
	const localHeader, globalHeader, check = 8, 40, 4
	n := localHeader + len(p.Data) + check
	if p.HasGRH {
		n += globalHeader
	}
	return uint64(n) / 4
}

// countSent counts a packet that the port sends. The fabric's lock is held.
func (p *Port) countSent(pk *Packet) {
	c := &p.counters
	c.Sent++
	c.SentWords += pk.words()
	if pk.toGroup() {
		c.SentMulticast++
	} else {
		c.SentUnicast++
	}
}

// countReceived counts a packet that the port receives. The fabric's lock is held.
func (p *Port) countReceived(pk *Packet) {
	c := &p.counters
	c.Received++
	c.ReceivedWords += pk.words()
	if pk.toGroup() {
		c.ReceivedMulticast++
	} else {
		c.ReceivedUnicast++
	}
}
