// Package pci implements the configuration space of a PCI function: a type 0 header with
// 64-bit BARs, and the capabilities power management, PCI Express and MSI-X.
package pci

import (
	"encoding/binary"
	"sync"
)

// Layout of the configuration space.
const (
	Size             = 4096 // bytes
	command          = 0x04
	status           = 0x06
	bar0             = 0x10
	capabilities     = 0x34
	capPM            = 0x40
	capExpress       = 0x60
	capMSIX          = 0x9c
	expressDevCtl    = capExpress + 0x08
	expressDevStatus = capExpress + 0x0a
	expressLinkCtl   = capExpress + 0x10
	expressDevCtl2   = capExpress + 0x28
	expressLinkCtl2  = capExpress + 0x30
	pmControl        = capPM + 4
	msixControl      = capMSIX + 2
)

// Config is a configuration space. It is safe for concurrent use.
type Config struct {
	mu       sync.Mutex
	data     [Size]byte
	writable [Size]byte // masks
	gone     bool
}

// A Function is what a driver finds out about a PCI function.
type Function struct {
	Vendor, Device uint16
	Class          uint32         // 24 bits
	BARs           map[int]uint64 // sizes of the BARs, each a power of 2, by their even numbers
	Vectors        int            // MSI-X
	// Offsets in BAR 0.
	MSIXTable, MSIXPending uint32
}

// New returns the configuration space of a function.
func New(f Function) *Config {
	c := &Config{}
	le := binary.LittleEndian
	put16 := func(off int, v uint16) { le.PutUint16(c.data[off:], v) }
	put32 := func(off int, v uint32) { le.PutUint32(c.data[off:], v) }
	mask16 := func(off int, v uint16) { le.PutUint16(c.writable[off:], v) }
	mask32 := func(off int, v uint32) { le.PutUint32(c.writable[off:], v) }

	put16(0x00, f.Vendor)
	put16(0x02, f.Device)
	put32(0x08, f.Class<<8) // revision 0
	put16(0x2c, f.Vendor)
	put16(0x2e, 0x0001)
	put16(status, 1<<4) // has capabilities
	mask16(command, 0x0547)
	const memory64, prefetchable = 4, 8
	for number, size := range f.BARs {
		at := bar0 + 4*number
		put32(at, memory64|prefetchable)
		mask32(at, uint32(-size))
		mask32(at+4, uint32(-size>>32))
	}
	c.data[capabilities] = capPM
	mask32(0x3c, 0xff) // interrupt line

	c.data[capPM], c.data[capPM+1] = 0x01, capExpress
	put16(capPM+2, 3) // version 1.2
	mask16(pmControl, 3)

	const (
		version2    = 2
		payload512  = 2
		extendedTag = 1 << 5
		roleBased   = 1 << 15
		functionLR  = 1 << 28
		gen4x16     = 16<<4 | 4
		gens1to4    = 0xf << 1
		// As after a reset: reads of 512 bytes, no snooping allowed, relaxed ordering.
		control = 2<<12 | 1<<11 | 1<<4
	)
	c.data[capExpress], c.data[capExpress+1] = 0x10, capMSIX
	put16(capExpress+2, version2)
	put32(capExpress+4, payload512|extendedTag|roleBased|functionLR)
	put16(expressDevCtl, control)
	mask16(expressDevCtl, 0x7fff)
	put32(capExpress+0x0c, gen4x16)
	mask16(expressLinkCtl, 0x0fff)
	put16(capExpress+0x12, gen4x16)
	put32(capExpress+0x2c, gens1to4)
	mask16(expressDevCtl2, 0xffff)
	put16(expressLinkCtl2, 4)

	c.data[capMSIX], c.data[capMSIX+1] = 0x11, 0
	put16(msixControl, uint16(f.Vectors-1))
	mask16(msixControl, 0xc000)
	put32(capMSIX+4, f.MSIXTable)
	put32(capMSIX+8, f.MSIXPending)
	return c
}

// Read reads data at offset. A removed function returns all ones.
func (c *Config) Read(offset uint64, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range data {
		data[i] = 0xff
		if at := offset + uint64(i); !c.gone {
			data[i] = 0
			if at < Size {
				data[i] = c.data[at]
			}
		}
	}
}

// Write writes the writable bits at offset.
func (c *Config) Write(offset uint64, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, b := range data {
		at := offset + uint64(i)
		if c.gone || at >= Size {
			return
		}
		mask := c.writable[at]
		c.data[at] = c.data[at]&^mask | b&mask
	}
}

// Remove removes the function from the bus, or puts it back.
func (c *Config) Remove(gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = gone
}
