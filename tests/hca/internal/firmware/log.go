package firmware

import "github.com/goverbs/goverbs/tests/hca/internal/journal"

// Log takes what the driver does to the HCA, commands included. The boxes are
// only good during the call.
type Log interface {
	journal.Log
	// Command is a command that was carried out, or refused.
	Command(opcode uint16, name string, status uint8, in, out []byte)
}

// ringless is a Log for the engine: doorbells have been logged as they came.
type ringless struct{ Log }

func (ringless) Doorbell(uar, offset uint32, data []byte) {}
