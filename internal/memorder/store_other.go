//go:build !amd64 || race

package memorder

import "sync/atomic"

// StoreRelease stores v after all earlier memory accesses. Other goroutines read it with
// sync/atomic.
func StoreRelease(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
