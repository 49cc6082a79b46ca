// Package fabric implements an InfiniBand subnet or an Ethernet segment in software: ports,
// a switch between them, and injected faults.
//
// It never blocks: a packet is put into its receiver's queue, or it is dropped.
package fabric

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// DefaultPrefix is the subnet prefix of link-local GIDs.
const DefaultPrefix = 0xfe80000000000000

// Config has a fabric's parameters.
type Config struct {
	Seed   uint64 // of all random choices
	Prefix uint64 // the subnet's, 0 for DefaultPrefix
	// Clock returns the time, for delays: real time, or a test's.
	Clock func() time.Duration
	// Wake is called after a packet is delayed. It must arrange that Deliver
	// is called in time. It may be nil.
	Wake func()
}

// Faults has the faults of packets. Fractions are of 1.
type Faults struct {
	Drop, Duplicate, Reorder float64
	// Delay is the latency of every packet, Jitter the maximum random addition.
	Delay, Jitter time.Duration
	// Hook, if not nil, decides each packet's fate first. It runs under the
	// fabric's lock. A switch's own packet is from no port.
	Hook func(from *Port, p *Packet) Verdict
}

// Verdict is a hook's decision about a packet.
type Verdict uint8

const (
	Pass      Verdict = iota
	Drop              // lose it
	Duplicate         // deliver it twice
	Reorder           // deliver it after later packets
)

// reorderDelay is the additional delay of a reordered packet.
const reorderDelay = 50 * time.Microsecond

// Stats counts packets since the fabric was created.
type Stats struct{ Sent, Delivered, Dropped, Duplicated, Reordered, Unroutable uint64 }

// Fabric is a subnet. It is safe for concurrent use.
type Fabric struct {
	c       Config
	mu      sync.Mutex
	rand    *rand.Rand
	faults  Faults
	stats   Stats
	ports   []*Port
	byLID   map[uint16]*Port
	byGID   map[GID]*Port
	next    uint16
	delayed delayed

	switches []*crossbar // none: the fabric itself knows the ports
}

// New returns a fabric without ports.
func New(c Config) *Fabric {
	if c.Prefix == 0 {
		c.Prefix = DefaultPrefix
	}
	return &Fabric{
		c:     c,
		rand:  rand.New(rand.NewPCG(c.Seed, 0)),
		byLID: make(map[uint16]*Port),
		byGID: make(map[GID]*Port),
		next:  1,
	}
}

// Attach adds a port, gives it a LID and brings it up.
func (f *Fabric) Attach(c PortConfig) *Port {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &Port{f: f, c: c, up: true, plug: true, enable: true, groups: make(map[GID]int)}
	f.ports = append(f.ports, p)
	f.assign(p)
	f.byGID[f.gid(c.GUID)] = p
	return p
}

// assign gives a port the next LID that is free. The lock is held.
func (f *Fabric) assign(p *Port) {
	for f.byLID[f.next] != nil || f.next == 0 || f.next >= FirstMulticastLID {
		if f.next++; f.next >= FirstMulticastLID {
			f.next = 1
		}
	}
	p.lid = f.next
	f.next++
	f.byLID[p.lid] = p
}

func (f *Fabric) detach(p *Port) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.up = false
	f.ports = slices.DeleteFunc(f.ports, func(q *Port) bool { return p == q })
	delete(f.byLID, p.lid)
	delete(f.byGID, f.gid(p.c.GUID))
}

// SetFaults replaces the faults.
func (f *Fabric) SetFaults(x Faults) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = x
}

// Stats returns the counters.
func (f *Fabric) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

func (f *Fabric) gid(guid uint64) (g GID) {
	binary.BigEndian.PutUint64(g[:], f.c.Prefix)
	binary.BigEndian.PutUint64(g[8:], guid)
	return g
}
