// Package pci implements the configuration space of the HCA's PCI function: a type 0
// header with one BAR, and the capabilities power management, PCI Express and MSI-X.
package pci

import (
	"encoding/binary"
	"sync"
)

// Identification and layout of the function.
const (
	VendorMellanox   = 0x15b3
	classInfiniBand  = 0x020700
	revision         = 0
	Size             = 4096 // of the configuration space
	BARSize          = 32 << 20
	MSIXTable        = 0x2000 // offset in BAR0
	MSIXPending      = 0x3000
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

// New returns the configuration space of a Mellanox function with this many MSI-X vectors.
func New(device uint16, vectors int) *Config {
	c := &Config{}
	le := binary.LittleEndian
	put16 := func(off int, v uint16) { le.PutUint16(c.data[off:], v) }
	put32 := func(off int, v uint32) { le.PutUint32(c.data[off:], v) }
	mask16 := func(off int, v uint16) { le.PutUint16(c.writable[off:], v) }
	mask32 := func(off int, v uint32) { le.PutUint32(c.writable[off:], v) }

	put16(0x00, VendorMellanox)
	put16(0x02, device)
	put32(0x08, classInfiniBand<<8|revision)
	put16(0x2c, VendorMellanox)
	put16(0x2e, 0x0001)
	put16(status, 1<<4) // has capabilities
	mask16(command, 0x0547)
	const memory64, prefetchable = 4, 8
	put32(bar0, memory64|prefetchable)
	mask32(bar0, ^uint32(BARSize-1))
	mask32(bar0+4, ^uint32(0))
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
	)
	c.data[capExpress], c.data[capExpress+1] = 0x10, capMSIX
	put16(capExpress+2, version2)
	put32(capExpress+4, payload512|extendedTag|roleBased|functionLR)
	mask16(expressDevCtl, 0x7fff)
	put32(capExpress+0x0c, gen4x16)
	mask16(expressLinkCtl, 0x0fff)
	put16(capExpress+0x12, gen4x16)
	put32(capExpress+0x2c, gens1to4)
	mask16(expressDevCtl2, 0xffff)
	put16(expressLinkCtl2, 4)

	c.data[capMSIX], c.data[capMSIX+1] = 0x11, 0
	put16(msixControl, uint16(vectors-1))
	mask16(msixControl, 0xc000)
	put32(capMSIX+4, MSIXTable)
	put32(capMSIX+8, MSIXPending)
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
