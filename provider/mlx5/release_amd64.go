//go:build !race

package mlx5

// release stores v where another goroutine reads it atomically, after all
// memory accesses before it. On this architecture an ordinary store is that,
// once the compiler can't move it: a call that is not inlined is a border to
// the compiler. atomic.StoreUint32 is an exchange here, which also waits for
// all stores to have left the processor, and costs more than polling a
// completion does otherwise.
//
//go:noinline
func release(p *uint32, v uint32) { *p = v }
