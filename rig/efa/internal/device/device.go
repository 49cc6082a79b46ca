// Package device implements an EFA adapter as its driver sees it: registers, the admin queue
// and the objects that its commands make, and their queues. It has neither goroutines nor
// clocks. All calls of the devices on one wire must come from one goroutine.
package device

import (
	"fmt"
	"time"

	"github.com/goverbs/goverbs/rig/efa/internal/wire"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// Config has what a device needs from outside.
type Config struct {
	Profile   Profile
	GID       wire.GID
	Wire      *wire.Wire
	Memory    bus.Memory
	LLQ       []byte           // BAR 2, LLQSize bytes
	Interrupt func(vector int) // raises an MSI-X vector
	Now       func() time.Duration
	// Violation is called when a driver did what no status can refuse.
	Violation func(error)
}

// A Device is one adapter.
type Device struct {
	Config
	registers registers
	admin     admin
	aenq      aenq
	host      string // what the driver said that it runs on
	gone      bool

	keys uint32 // memory regions so far
	uars table[struct{}]
	pds  table[pd]
	mrs  table[mr]
	ahs  table[ah]
	eqs  table[eq]
	cqs  table[cq]
	qps  table[qp] // by their slots
	// generation tells the QPs apart that a slot has had.
	generation [maxQP]uint8

	stats stats
	lies  []*Lie
}

// New returns a device and attaches it to its wire.
func New(c Config) *Device {
	d := &Device{Config: c}
	d.reset()
	return d
}

// Reset puts the device into the state after power on.
func (d *Device) Reset() {
	d.registers, d.stats = registers{}, stats{}
	d.reset()
}

// reset destroys everything that commands have made. Messages that are under way still arrive.
func (d *Device) reset() {
	for _, q := range d.qps.items {
		q.destroyed = true
	}
	d.admin, d.aenq = admin{}, aenq{}
	d.host = ""
	d.uars = newTable[struct{}](maxUAR)
	d.pds = newTable[pd](maxPD)
	d.mrs = newTable[mr](maxMR)
	d.ahs = newTable[ah](maxAH)
	d.eqs = newTable[eq](maxEQ)
	d.cqs = newTable[cq](maxCQ)
	d.qps = newTable[qp](maxQP)
	d.Wire.Attach(d.GID, d)
}

// Remove takes the device off the bus and the wire, or puts it back as a new one.
func (d *Device) Remove(gone bool) {
	d.gone = gone
	d.Reset()
	if gone {
		d.Wire.Attach(d.GID, nil)
	}
}

// violate reports what the driver, or the program, did wrong.
func (d *Device) violate(format string, args ...any) {
	d.Violation(fmt.Errorf(format, args...))
}

// Host returns the driver's kernel, as it has told the device.
func (d *Device) Host() string { return d.host }

// Resources counts the objects by kind.
func (d *Device) Resources() map[string]int {
	return map[string]int{
		"uar": len(d.uars.items), "pd": len(d.pds.items), "mr": len(d.mrs.items), "ah": len(d.ahs.items),
		"eq": len(d.eqs.items), "cq": len(d.cqs.items), "qp": len(d.qps.items),
	}
}
