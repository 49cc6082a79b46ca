//go:build !amd64 || race

package mlx5

import "sync/atomic"

// release stores v where another goroutine reads it atomically, after all
// memory accesses before it.
func release(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
