// Package memorder has a store with release semantics. It ends a critical section,
// or publishes what was written before it. The stores of sync/atomic are
// sequentially consistent, which costs more on amd64.
package memorder
