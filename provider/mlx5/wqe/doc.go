// Package wqe writes and reads what lies in the queues of a ConnectX adapter:
// the segments that a work queue entry (WQE) is made of, and completion queue
// entries (CQEs). It knows layouts only: no queues, no doorbells.
//
// A WQE is a list of segments of 16 bytes, or of several times 16, in blocks of
// 64 bytes. All numbers are big-endian.
//
// The layouts are those of rdma-core's providers/mlx5/mlx5dv.h and wqe.h, and
// of the kernel's include/linux/mlx5/{qp,device}.h.
package wqe

import "math/bits"

// The lengths of what queues are counted in, in bytes.
const (
	SegmentSize = 16
	BlockSize   = 64 // a basic block (WQEBB)
	BlockSegs   = BlockSize / SegmentSize
)

// be64 and be32 change between the processor's order, which is little-endian
// on every architecture that package mmio has, and the device's.
func be64(v uint64) uint64 { return bits.ReverseBytes64(v) }
func be32(v uint32) uint32 { return bits.ReverseBytes32(v) }
