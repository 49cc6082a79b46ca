//go:build !race

package release

// Store stores v where other goroutines read it with sync/atomic, after all
// memory accesses before it.
//
// On this architecture an ordinary store is that, and Go's compiler lets no load
// or store sink below a store: in its intermediate form the accesses to memory
// are one chain. atomic.StoreUint32 is an exchange here, which also waits until
// all stores have left the processor. After a doorbell that takes longer than
// the rest of a post.
func Store(p *uint32, v uint32) { *p = v }
