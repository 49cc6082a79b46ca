// Package wqe encodes and decodes the entries of a ConnectX adapter's queues: the segments
// of work queue entries (WQEs), and completion queue entries (CQEs). It has only layouts,
// neither queues nor doorbells.
//
// A WQE is a list of segments in blocks of 64 bytes. A segment has 16 bytes, or a multiple
// of that. All numbers are big-endian.
//
// The layouts are those of rdma-core's providers/mlx5/mlx5dv.h and wqe.h, and
// of the kernel's include/linux/mlx5/{qp,device}.h.
package wqe

import "math/bits"

// The lengths of a queue's units, in bytes.
const (
	SegmentSize = 16
	BlockSize   = 64 // a basic block (WQEBB)
	BlockSegs   = BlockSize / SegmentSize
)

// be64 and be32 convert between the device's byte order and the processor's, which is
// little-endian on every architecture that package mmio supports.
func be64(v uint64) uint64 { return bits.ReverseBytes64(v) }
func be32(v uint32) uint32 { return bits.ReverseBytes32(v) }
