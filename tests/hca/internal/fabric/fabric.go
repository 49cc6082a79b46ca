// Package fabric is an InfiniBand subnet or an Ethernet segment in software:
// ports, a switch between them, and faults as they are asked for.
//
// It never blocks: a packet is handed to the queue of whoever it is for, or it
// is dropped.
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

// Config is what a fabric is made of.
type Config struct {
	Seed   uint64 // of all that is random
	Prefix uint64 // the subnet's, 0 for DefaultPrefix
	// Clock is the time of delays: real, or a test's.
	Clock func() time.Duration
	// Wake is called when a packet was delayed, so that someone calls
	// Deliver in time. It may be nil.
	Wake func()
}

// Faults says what goes wrong with packets. Fractions are of 1.
type Faults struct {
	Drop, Duplicate, Reorder float64
	// Delay is how long every packet takes, Jitter what is added at random.
	Delay, Jitter time.Duration
	// Hook decides about one packet before anything else does, if not nil.
	// It runs under the fabric's lock.
	Hook func(from *Port, p *Packet) Verdict
}

// Verdict is what a hook wants done with a packet.
type Verdict uint8

const (
	Pass      Verdict = iota
	Drop              // lose it
	Duplicate         // deliver it twice
	Reorder           // deliver it after packets that come later
)

// reorderDelay is how much later than others a reordered packet arrives.
const reorderDelay = 50 * time.Microsecond

// Stats counts packets since the fabric was made.
type Stats struct{ Sent, Delivered, Dropped, Duplicated, Reordered, Unroutable uint64 }

// Fabric is a subnet. Its methods may be called from anywhere.
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
	for f.byLID[f.next] != nil || f.next == 0 || f.next >= FirstMulticastLID {
		if f.next++; f.next >= FirstMulticastLID {
			f.next = 1
		}
	}
	p := &Port{f: f, c: c, lid: f.next, up: true, plug: true, enable: true, groups: make(map[GID]int)}
	f.next++
	f.ports = append(f.ports, p)
	f.byLID[p.lid] = p
	f.byGID[f.gid(c.GUID)] = p
	return p
}

func (f *Fabric) detach(p *Port) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.up = false
	f.ports = slices.DeleteFunc(f.ports, func(q *Port) bool { return p == q })
	delete(f.byLID, p.lid)
	delete(f.byGID, f.gid(p.c.GUID))
}

// SetFaults replaces what goes wrong from now on.
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
