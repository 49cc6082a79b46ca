//go:build !race

package release

// Store stores v where other goroutines read it with sync/atomic, after all
// memory accesses before it.
//
// On this architecture an ordinary store is that, once the compiler can't move
// it: a call that is not inlined is a border to the compiler.
// atomic.StoreUint32 is an exchange here, which also waits until all stores
// have left the processor. After a doorbell that takes longer than the rest of
// a post.
//
//go:noinline
func Store(p *uint32, v uint32) { *p = v }
