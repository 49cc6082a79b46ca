// Package memorder is about memory that several processors share. It has a store with release
// semantics, which ends a critical section, or publishes what was written before it. The stores
// of sync/atomic are sequentially consistent, which costs more on amd64.
package memorder

// Apart keeps what is on its two sides in a struct in different cache lines, wherever these
// begin: an object begins at a multiple of 8 bytes. Processors that write to one line wait for
// each other, even if they write to different words of it.
type Apart [64 - 8]byte
