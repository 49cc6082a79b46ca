// Package memorder orders accesses to memory that several processors share. It has a store with
// release semantics, which ends a critical section, or publishes earlier stores. The stores of
// sync/atomic are sequentially consistent, which costs more on amd64.
package memorder

// Apart separates the fields before it in a struct from those after it: they are never in one
// cache line, wherever the lines begin. (Objects begin at multiples of 8 bytes.) Processors
// that write to one line wait for each other, even if they write to different words of it.
type Apart [64 - 8]byte
