//go:build !amd64 || race

package release

import "sync/atomic"

// Store stores v after all earlier memory accesses. Other goroutines read it with
// sync/atomic.
func Store(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
