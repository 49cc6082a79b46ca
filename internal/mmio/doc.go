// Package mmio orders this processor's memory accesses against a device's DMA,
// and stores to the device's registers. The barriers have the names that
// rdma-core's util/udma_barrier.h gives to the narrow uses that a driver has of
// them; sync/atomic has none of these: it orders goroutines, and its stores are
// read-modify-write instructions on amd64, which a register must not see.
//
// The barriers, line by line beside that header:
//
//	udma_barrier.h              amd64            arm64        here
//	udma_to_device_barrier      compiler only    dmb oshst    ToDevice
//	udma_from_device_barrier    lfence           dmb oshld    FromDevice (see below)
//	udma_ordering_write_barrier = to_device      = to_device  ToDevice
//	mmio_flush_writes           sfence           dsb st       FlushWrites
//	mmio_wc_start               = flush_writes   = flush      FlushWrites
//	mmio_wc_spinlock            lock, no sfence  lock; flush  RingLocked, CopyLocked: after the lock
//	mmio_wc_spinunlock          sfence; unlock   same         RingLocked, CopyLocked: before it is freed
//	mmio_ordered_writes_hack    = flush_writes   = flush      none: all that write registers begin and end with FlushWrites
//
// And of util/mmio.h what goes with them:
//
//	mmio_memcpy_x64             8 stores of 8    vst4q_u64    BlueFlame, BlueFlame64 and 128 (arm64: VST1 of four, the same 64;
//	                                                          ST64B, which newer processors have, is not used)
//	mmio_write64_be             mov              str          Doorbell; the caller has swapped the bytes
//
// On arm64, in the order in which a provider has them: a queue entry's stores,
// dmb oshst, the record, dsb st, the register, dsb st. The first makes the entry
// visible to devices (the outer shareable domain) before the record is; the second
// ends all stores to memory before one to a register begins, which is of another
// memory type, and implies the first for who looks at the register alone; the third
// empties the write-combining buffer before the lock of a shared register is free,
// or another post combines with this one. The other way, a completion's owner bit
// is loaded, dmb oshld, then the rest of it: the device has written that bit last.
// What says how far completions were read is stored with stlr, after all loads of
// them; rdma-core has an ordinary store there. A processor's memory is multi-copy
// atomic, so that what a device has seen of one goroutine's stores before it wrote a
// completion, another goroutine sees that has seen the completion.
//
// "Compiler only" is what a call of an assembly function is: the Go compiler
// has made every store before it, and makes none of those after it.
//
// FromDevice differs on amd64, where it is a compiler barrier, as the kernel's
// dma_rmb is: completion queues and the buffers that a device writes to are
// write-back memory, from which this architecture doesn't reorder loads (Intel
// SDM 3A 9.2.2, AMD APM 2 7.1). lfence would order loads from write-combining
// memory too. A program that has the device write to such memory, and reads it
// with the processor, needs its own fence.
//
// The package has amd64 and arm64. Elsewhere Supported is false, and the rest
// panics.
package mmio
