package firmware

import (
	"encoding/binary"
	"sync/atomic"
	"time"
)

// The initialization segment, at the beginning of BAR0.
const (
	segFirmware     = 0x000 // minor and major revision
	segCommandIF    = 0x004 // revision of the command interface, and the firmware's third number
	segQueueHigh    = 0x010
	segQueueLow     = 0x014
	segDoorbell     = 0x018
	segInitializing = 0x1fc
	segHealth       = 0x200
	segHealthFW     = 0x230
	segHealthHW     = 0x234
	segHealthRFR    = 0x238
	segHealthSynd   = 0x23c
	segTimerHigh    = 0x1000
	segTimerLow     = 0x1004
	segHealthCount  = 0x1010
	segEnd          = 0x2000
)

const (
	firmwareMinor = 40
	firmwareSub   = 1000
	commandIF     = 5

	logQueueSize   = 5 // commands
	logQueueStride = 6
)

// States of the function, which driver and firmware exchange in the low bits of the
// command queue's address.
const (
	nicFull     = 0
	nicDisabled = 1
	nicReset    = 7
)

// segment has the state of the initialization segment. Reading is safe for concurrent use.
type segment struct {
	queueHigh, queueLow atomic.Uint32
	fatal               atomic.Bool // the health buffer declares an internal error
	gone                atomic.Bool // the function is off the bus
	now                 func() time.Duration
	major               uint16 // of the firmware's version
}

// read handles a read of any size and alignment.
func (s *segment) read(offset uint64, data []byte) {
	for n := 0; n < len(data); {
		var word [4]byte
		at := offset + uint64(n)
		binary.BigEndian.PutUint32(word[:], s.word(at&^3)) // once: the clock goes on
		n += copy(data[n:], word[at&3:])
	}
}

func (s *segment) word(offset uint64) uint32 {
	if s.gone.Load() {
		return 0xffffffff
	}
	switch offset {
	case segFirmware:
		return firmwareMinor<<16 | uint32(s.major)
	case segCommandIF:
		return commandIF<<16 | firmwareSub
	case segQueueHigh:
		return s.queueHigh.Load()
	case segQueueLow:
		return s.queueLow.Load()
	case segInitializing:
		const resetSupported = 1 << 30
		return resetSupported
	case segHealthFW:
		return uint32(s.major)<<24 | firmwareMinor<<16 | firmwareSub
	case segHealthHW:
		return 0x20f
	case segHealthRFR:
		if s.fatal.Load() {
			const resetRequired = 1 << 31
			return resetRequired
		}
	case segHealthSynd:
		if s.fatal.Load() {
			const internalError = 1
			return internalError << 16
		}
	case segTimerHigh:
		return uint32(uint64(s.now()) >> 32)
	case segTimerLow:
		return uint32(s.now())
	case segHealthCount:
		// 24 bits, so that it is never all ones.
		return uint32(s.now()/(10*time.Millisecond)) & 0xffffff
	}
	return 0
}

func (s *segment) reset() {
	s.queueHigh.Store(0)
	s.queueLow.Store(logQueueSize<<4 | logQueueStride)
	s.fatal.Store(false)
}

// setQueueLow handles the driver's write of the low part of the queue's address and of the
// requested state.
func (s *segment) setQueueLow(value uint32) {
	s.queueLow.Store(value&^0xff | logQueueSize<<4 | logQueueStride)
}

func (s *segment) nic() uint32 { return s.queueLow.Load() >> 8 & 7 }

func (s *segment) queue() uint64 {
	return uint64(s.queueHigh.Load())<<32 | uint64(s.queueLow.Load()&^0xfff)
}
