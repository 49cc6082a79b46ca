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
//	mmio_wc_spinlock            lock, no sfence  lock; flush  none: BlueFlame and Doorbell begin with FlushWrites, locked or not
//	mmio_wc_spinunlock          sfence; unlock   same         none: BlueFlame and Doorbell end with FlushWrites
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
