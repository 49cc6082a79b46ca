//go:build amd64 || arm64

package mmio

import "unsafe"

// Supported tells whether this architecture has what the package promises.
const Supported = true

// ToDevice makes what was stored before it visible to the device before what is
// stored after it: between a queue entry and the doorbell that shows it.
//
//go:noescape
func ToDevice()

// FromDevice makes what is loaded after it at least as new as what was loaded
// before it: between a valid bit that the device wrote last, and the rest.
//
//go:noescape
func FromDevice()

// FlushWrites pushes stores to write-combining memory out of the processor, in
// order with all other stores. It includes ToDevice.
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

// Doorbell publishes a record, and then stores to a register in
// write-combining memory: Publish, FlushWrites, one store of 64 bits,
// FlushWrites, in one call since each one costs.
//
//go:noescape
func Doorbell(record *uint32, v uint32, reg *uint64, value uint64)

// RingLocked and CopyLocked are what Doorbell and BlueFlame do to a register, under a
// lock that was taken with an atomic instruction after a Publish: on amd64 that is the
// fence between the two. They end with FlushWrites, so that the lock may be freed.
//
//go:noescape
func RingLocked(reg *uint64, value uint64)

//go:noescape
func CopyLocked(reg, entry unsafe.Pointer, blocks int)

// A Bell is where a queue of entries rings: its doorbell record, and a register
// of two buffers in write-combining memory, which are used in turn.
type Bell struct {
	Record *uint32
	Reg    unsafe.Pointer
	Size   uint32 // of one buffer, in bytes
	Offset uint32 // of the buffer that is next: 0 or Size
}

// BlueFlame publishes the record, and then copies the entry itself to the
// register: Publish, FlushWrites, the blocks in ascending order and in stores of
// at least 8 bytes, FlushWrites. A block has 64 bytes; there is at least one, and
// no more than a buffer holds. Both ends are aligned to 8 bytes. The other buffer
// is next.
//
//go:noescape
func BlueFlame(bell *Bell, v uint32, entry unsafe.Pointer, blocks int)

// BlueFlame64 and BlueFlame128 are BlueFlame of one block, and of two: an argument
// less is a store less that the fences wait for.
//
//go:noescape
func BlueFlame64(bell *Bell, v uint32, entry unsafe.Pointer)

//go:noescape
func BlueFlame128(bell *Bell, v uint32, entry unsafe.Pointer)
