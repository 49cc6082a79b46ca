//go:build !race

package memorder

// StoreRelease stores v after all earlier memory accesses. Other goroutines read it with
// sync/atomic.
//
// On this architecture every store is a release store. Go's compiler moves no load or store
// below a store, because the memory accesses form one chain in its intermediate
// representation. atomic.StoreUint32 would be an exchange instruction, which also waits
// until all stores have left the processor. After a doorbell, this wait takes longer than
// the rest of a post.
func StoreRelease(p *uint32, v uint32) { *p = v }
