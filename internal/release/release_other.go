//go:build !amd64 || race

package release

import "sync/atomic"

// Store stores v where other goroutines read it with sync/atomic, after all
// memory accesses before it.
func Store(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
