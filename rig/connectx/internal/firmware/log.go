package firmware

import "github.com/goverbs/goverbs/rig/connectx/internal/journal"

// Log records the driver's actions, including commands. The boxes are valid only during
// the call.
type Log interface {
	journal.Log
	// Command records a command that was executed or refused.
	Command(opcode uint16, name string, status uint8, in, out []byte)
}

// ringless is a Log for the engine, without doorbells, which are logged on arrival.
type ringless struct{ Log }

func (ringless) Doorbell(uar, offset uint32, data []byte) {}
