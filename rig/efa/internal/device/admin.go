package device

import (
	"encoding/binary"
)

const adminEntry = 64 // bytes, of commands and of completions

// admin has the queue of commands and that of their completions.
type admin struct {
	in, out ring
	vector  int
}

// A status is what becomes of a command.
type status uint8

const (
	success          status = 0
	noResources      status = 1
	badOpcode        status = 2
	malformed        status = 4
	illegalParameter status = 5
	busy             status = 7
)

// Parts of commands and of their completions.
const (
	flagPhase          = 1 << 0
	flagControl        = 1 << 1 // the command names memory with more
	flagIndirect       = 1 << 2 // that is a list of lists
	commandID          = 0xfff
	completionPhaseBit = 24
)

// A command is an entry of the admin queue.
type command [adminEntry]byte

func (c *command) u8(off int) uint8   { return c[off] }
func (c *command) u16(off int) uint16 { return binary.LittleEndian.Uint16(c[off:]) }
func (c *command) u32(off int) uint32 { return binary.LittleEndian.Uint32(c[off:]) }
func (c *command) u64(off int) uint64 { return binary.LittleEndian.Uint64(c[off:]) }

func (c *command) opcode() uint8 { return c[2] }
func (c *command) flags() uint8  { return c[3] }

// address returns a bus address, whose lower half comes first.
func (c *command) address(off int) uint64 { return c.u64(off) }

// An answer is the part of a completion that depends on the command. Offsets count from its
// beginning, which is 8 bytes after that of the completion.
type answer [adminEntry - 8]byte

func (a *answer) put16(off int, v uint16) { binary.LittleEndian.PutUint16(a[off:], v) }
func (a *answer) put32(off int, v uint32) { binary.LittleEndian.PutUint32(a[off:], v) }
func (a *answer) put64(off int, v uint64) { binary.LittleEndian.PutUint64(a[off:], v) }

// commands has the functions that execute commands, by opcode.
var commands = map[uint8]func(d *Device, c *command, a *answer) status{
	1:  (*Device).createQP,
	2:  (*Device).modifyQP,
	3:  (*Device).queryQP,
	4:  (*Device).destroyQP,
	5:  (*Device).createAH,
	6:  (*Device).destroyAH,
	7:  (*Device).registerMR,
	8:  (*Device).deregisterMR,
	9:  (*Device).createCQ,
	10: (*Device).destroyCQ,
	11: (*Device).getFeature,
	12: (*Device).setFeature,
	13: (*Device).getStats,
	14: (*Device).allocPD,
	15: (*Device).deallocPD,
	16: (*Device).allocUAR,
	17: (*Device).deallocUAR,
	18: (*Device).createEQ,
	19: (*Device).destroyEQ,
}

// executeCommands executes the commands up to the doorbell's value, which counts them.
func (d *Device) executeCommands(doorbell uint32) {
	in := &d.admin.in
	if !in.valid() || !d.admin.out.valid() || doorbell-in.count > in.size {
		d.violate("the admin queue's doorbell is %d after %d of %d commands", doorbell, in.count, in.size)
		return
	}
	for in.count != doorbell {
		b := in.entry(d.Memory, adminEntry)
		if b == nil {
			d.violate("the admin queue is where there is no memory")
			return
		}
		var c command
		copy(c[:], b)
		if uint32(c.flags()&flagPhase) != in.phase() {
			d.violate("command %d has the wrong phase", in.count)
			return
		}
		in.count++
		d.execute(&c)
	}
	if !d.masked() {
		d.Interrupt(d.admin.vector)
	}
}

func (d *Device) execute(c *command) {
	var a answer
	s := badOpcode
	var out [adminEntry]byte
	if l := d.lied(c.opcode()); l != nil {
		s = status(l.Status)
		binary.LittleEndian.PutUint16(out[4:], l.ExtendedStatus)
	} else if do := commands[c.opcode()]; do != nil {
		if s = do(d, c, &a); s != success {
			a = answer{}
		}
	}
	binary.LittleEndian.PutUint16(out[0:], c.u16(0)&commandID)
	out[2] = uint8(s)
	binary.LittleEndian.PutUint16(out[6:], uint16(d.admin.in.count))
	copy(out[8:], a[:])
	if !d.admin.out.put(d.Memory, out[:], completionPhaseBit) {
		d.violate("the admin completion queue is where there is no memory")
	}
}

// controlMemory returns the memory that a command names at its beginning.
func (d *Device) controlMemory(c *command, most uint32) []byte {
	length := c.u32(4)
	if c.flags()&flagControl == 0 || length == 0 || length > most {
		return nil
	}
	return d.Memory.Bytes(c.address(8), int(length))
}
