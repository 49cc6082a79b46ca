//go:build amd64 || arm64

package mmio

import (
	"unsafe"

	"github.com/goverbs/goverbs/internal/spin"
)

// Supported reports whether the package supports this architecture.
const Supported = true

// ToDevice orders stores to memory that the device reads: the device sees the stores before
// the barrier first. The barrier belongs between a queue entry and the doorbell record.
//
//go:noescape
func ToDevice()

// FromDevice orders loads: a load after the barrier returns a value at least as new
// as the loads before it. The barrier belongs between a valid bit, which the device writes
// last, and the rest of an entry.
//
//go:noescape
func FromDevice()

// FlushWrites flushes stores to write-combining memory out of the processor, and
// orders them with all other stores. It includes ToDevice.
//
//go:noescape
func FlushWrites()

// Load32 is one 32-bit load from a register, in the device's byte order.
//
//go:noescape
func Load32(reg *uint32) uint32

// Publish is a ToDevice, then one store to memory that the device reads.
//
//go:noescape
func Publish(record *uint32, v uint32)

// Doorbell publishes a record, and then stores to a register in write-combining
// memory: Publish, FlushWrites, one store of 64 bits, FlushWrites. It is one
// function to save calls.
//
//go:noescape
func Doorbell(record *uint32, v uint32, reg *uint64, value uint64)

// DoorbellUncached is like Doorbell, for a register in uncached memory, which combines no
// stores: there is nothing to flush.
//
//go:noescape
func DoorbellUncached(record *uint32, v uint32, reg *uint64, value uint64)

// RingLocked and CopyLocked are the second halves of Doorbell and BlueFlame, the stores to a
// register. They are for a caller that holds a lock. The caller must have taken the lock
// after Publish, with an atomic instruction, which is the fence between the two on amd64.
// Both end with FlushWrites, so that the caller may release the lock.
//
//go:noescape
func RingLocked(reg *uint64, value uint64)

//go:noescape
func CopyLocked(reg, entry unsafe.Pointer, blocks int)

// A Shared is the state of queues with a common register: the lock that a queue holds while
// it writes to the register, and the offset of the next buffer.
type Shared struct {
	Lock   spin.Lock
	Offset uint32
}

// TryFlame is like BlueFlame, to a register that other queues use, too, under the register's
// lock. Bell's own Offset isn't used. If the lock isn't free, TryFlame has only written the
// record, and returns false.
//
//go:noescape
func TryFlame(bell *Bell, v uint32, entry unsafe.Pointer, blocks int, shared *Shared) bool

// A Bell is a queue's doorbell: its doorbell record, and a register. The register
// consists of two buffers in write-combining memory, which are used in turn.
type Bell struct {
	Record *uint32
	Reg    unsafe.Pointer
	Size   uint32 // of one buffer, in bytes
	Offset uint32 // of the next buffer to use: 0 or Size
}

// BlueFlame publishes the record, and then copies the entry itself to the register:
// Publish, FlushWrites, the blocks in ascending order with stores of at least 8
// bytes, FlushWrites. A block has 64 bytes. There is at least one block, and at most
// as many as the buffer holds. Entry and register are aligned to 8 bytes. Then it
// switches to the other buffer.
//
//go:noescape
func BlueFlame(bell *Bell, v uint32, entry unsafe.Pointer, blocks int)

// BlueFlame64 and BlueFlame128 are like BlueFlame, with one block and with two. With one
// argument less, the fences wait for one store less.
//
//go:noescape
func BlueFlame64(bell *Bell, v uint32, entry unsafe.Pointer)

//go:noescape
func BlueFlame128(bell *Bell, v uint32, entry unsafe.Pointer)
