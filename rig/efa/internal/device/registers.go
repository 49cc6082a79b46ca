package device

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/internal/bus"
)

// Offsets of the registers in BAR 0.
const (
	regVersion           = 0x00
	regControllerVersion = 0x04
	regCaps              = 0x08
	regAQBaseLow         = 0x10
	regAQBaseHigh        = 0x14
	regAQCaps            = 0x18
	regACQBaseLow        = 0x20
	regACQBaseHigh       = 0x24
	regACQCaps           = 0x28
	regAQDoorbell        = 0x2c
	regAENQCaps          = 0x34
	regAENQBaseLow       = 0x38
	regAENQBaseHigh      = 0x3c
	regAENQDoorbell      = 0x40
	regInterruptMask     = 0x4c
	regControl           = 0x54
	regStatus            = 0x58
	regRead              = 0x5c
	regReadAnswerLow     = 0x60
	regReadAnswerHigh    = 0x64
	regEQDoorbell        = 0x68
	registersEnd         = 0x6c
)

const (
	statusReady     = 1 << 0
	statusResetting = 1 << 3

	controlReset = 1 << 0

	// The driver polls for the end of a reset at most so many times.
	capsResetPolls   = 30 << 1
	capsAddressWidth = 52 << 8
)

// registers has what was written to the registers.
type registers struct {
	words     [registersEnd / 4]uint32
	resetting bool
}

func (r *registers) get(offset uint64) uint32 { return r.words[offset/4] }

// address returns the bus address of a register and its upper half.
func (r *registers) address(low, high uint64) uint64 {
	return uint64(r.get(high))<<32 | uint64(r.get(low))
}

// readRegister returns a register's value.
func (d *Device) readRegister(offset uint64) uint32 {
	switch {
	case offset == regVersion:
		return d.version()
	case offset == regControllerVersion:
		return 1<<24 | d.version() // implementation 1, 0.0.1
	case offset == regCaps:
		return capsResetPolls | capsAddressWidth
	case offset == regStatus && d.registers.resetting:
		return statusReady | statusResetting
	case offset == regStatus:
		return statusReady
	case offset < registersEnd:
		return d.registers.get(offset)
	}
	return 0
}

// ReadRegisters reads from BAR 0. A device that is gone returns all ones.
func (d *Device) ReadRegisters(offset uint64, data []byte) {
	for i := range data {
		at := offset + uint64(i)
		data[i] = byte(d.readRegister(at&^3) >> (8 * (at & 3)))
		if d.gone {
			data[i] = 0xff
		}
	}
}

// WriteRegisters writes to BAR 0. The registers are words.
func (d *Device) WriteRegisters(offset uint64, data []byte) {
	if d.gone {
		return
	}
	if len(data) != 4 || offset%4 != 0 {
		d.violate("%d bytes were written to the registers at %#x", len(data), offset)
		return
	}
	if offset >= registersEnd {
		return
	}
	v := binary.LittleEndian.Uint32(data)
	d.registers.words[offset/4] = v
	switch offset {
	case regRead:
		d.answerRead(v)
	case regControl:
		d.control(v)
	case regAQCaps:
		d.admin.in.set(d.registers.address(regAQBaseLow, regAQBaseHigh), v&0xffff)
		d.checkEntry("admin queue", v>>16, adminEntry)
	case regACQCaps:
		d.admin.out.set(d.registers.address(regACQBaseLow, regACQBaseHigh), v&0xffff)
		d.admin.vector = int(v >> 24)
		d.checkEntry("admin completion queue", v>>16&0xff, adminEntry)
	case regAENQCaps:
		d.aenq.ring.set(d.registers.address(regAENQBaseLow, regAENQBaseHigh), v&0xffff)
		d.aenq.vector = int(v >> 24)
		d.checkEntry("AENQ", v>>16&0xff, aenqEntry)
	case regAQDoorbell:
		d.executeCommands(v)
	case regAENQDoorbell:
		d.aenq.consumed = v
	case regEQDoorbell:
		d.armEQ(v)
	}
}

func (d *Device) checkEntry(queue string, size, want uint32) {
	if size != want {
		d.violate("the entries of the %s have %d bytes, not %d", queue, size, want)
	}
}

// answerRead writes a register's value to memory. The driver reads no register directly.
func (d *Device) answerRead(request uint32) {
	at := d.Memory.Bytes(d.registers.address(regReadAnswerLow, regReadAnswerHigh), 8)
	if at == nil {
		d.violate("a register's value is to be written where there is no memory")
		return
	}
	bus.StoreLE32(at[4:], d.readRegister(uint64(request>>16)))
	bus.StoreLE32(at, request) // number and offset, by which the driver sees the answer
}

// control begins and ends a reset. The driver writes the address for answers again meanwhile.
func (d *Device) control(v uint32) {
	d.registers.resetting = v&controlReset != 0
	if d.registers.resetting {
		d.registers = registers{resetting: true}
		d.reset()
	}
}

// masked reports whether the admin interrupt is off, because the driver polls.
func (d *Device) masked() bool { return d.registers.get(regInterruptMask)&1 != 0 }
