// Package memorder is for memory that several processors share. It has a store with release
// semantics, which ends a critical section, or publishes earlier writes. The stores of
// sync/atomic are sequentially consistent, which costs more on amd64.
package memorder

// Apart keeps the fields on its two sides in a struct in different cache lines, wherever these
// begin: an object begins at a multiple of 8 bytes. Processors that write to one line wait for
// each other, even if they write to different words of it.
type Apart [64 - 8]byte
