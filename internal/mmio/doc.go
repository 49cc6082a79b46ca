// Package mmio orders this processor's memory accesses with respect to a device's
// DMA, and stores to the device's registers. Its barriers correspond to those of
// rdma-core's util/udma_barrier.h, each of which is for one use in a driver.
// sync/atomic has no such barriers: it orders goroutines. On amd64 its stores are
// read-modify-write instructions, which must not be used on a register.
//
// The barriers, beside those of that header:
//
//	udma_barrier.h              amd64            arm64        here
//	udma_to_device_barrier      compiler only    dmb oshst    ToDevice
//	udma_from_device_barrier    lfence           dmb oshld    FromDevice (see below)
//	udma_ordering_write_barrier = to_device      = to_device  ToDevice
//	mmio_flush_writes           sfence           dsb st       FlushWrites
//	mmio_wc_start               = flush_writes   = flush      FlushWrites
//	mmio_wc_spinlock            lock, no sfence  lock; flush  TryFlame; RingLocked, CopyLocked: after the lock
//	mmio_wc_spinunlock          sfence; unlock   same         TryFlame; RingLocked, CopyLocked: before it is freed
//	mmio_ordered_writes_hack    = flush_writes   = flush      none: all that write registers begin and end with FlushWrites
//
// The related functions of util/mmio.h:
//
//	mmio_memcpy_x64             8 stores of 8    vst4q_u64    BlueFlame, BlueFlame64 and 128, TryFlame (arm64: VST1 of four, the same 64;
//	                                                          ST64B, which newer processors have, is not used)
//	mmio_write64_be             mov              str          Doorbell, DoorbellUncached; the caller has swapped the bytes
//
// On arm64, a post consists of the queue entry's stores, dmb oshst, the store to the
// record, dsb st, the store to the register, dsb st:
//
//   - The first barrier makes the entry visible to devices (the outer shareable
//     domain) before the record.
//   - The second completes all stores to memory before the store to the register
//     begins, because a register is another type of memory. It implies the first for
//     a device that only looks at the register.
//   - The third empties the write-combining buffer before the lock of a shared
//     register is released, or another post combines with this one.
//
// A poll loads a completion's owner bit, then dmb oshld, then loads the rest of the
// completion: the device writes that bit last. The consumer index is stored with
// stlr, after all loads of the completions; rdma-core uses an ordinary store there.
// Memory is multi-copy atomic. So if a device has seen one goroutine's stores before
// it wrote a completion, another goroutine that sees the completion sees the stores
// too.
//
// A call of an assembly function is a compiler barrier ("compiler only"): the Go
// compiler moves no store across it.
//
// FromDevice differs on amd64, where it is a compiler barrier only, like the
// kernel's dma_rmb. Completion queues and the buffers that a device writes to are
// write-back memory, from which this architecture doesn't reorder loads (Intel SDM
// 3A 9.2.2, AMD APM 2 7.1). lfence would also order loads from write-combining
// memory. A program that has the device write to such memory, and reads it with the
// processor, needs its own fence.
//
// DoorbellUncached has no fence on amd64, where rdma-core has the same two fences for every
// register. Both fences are for write-combining memory, whose stores may wait in a buffer and
// pass others. The kernel maps a register that doesn't combine
// (MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC) as uncached: the processor stores there in program order
// with its stores to write-back memory, and at once (Intel SDM 3A 9.2.2 and 12.3.1, AMD APM 2
// 7.4.2). So the kernel's writel has no fence either. An MTRR for the adapter would make the
// memory write-combining all the same, but Linux sets none, since it has page attributes. On
// arm64 the barriers stay: registers aren't ordered with memory there.
//
// The package supports amd64 and arm64. Elsewhere Supported is false, and the
// functions panic.
package mmio
