// Package tracee has the state of the traced programs: their threads, processes, open files,
// objects and calls. The mechanisms share a [Set] of them. The package makes events from
// calls, but does not decode calls.
//
// A Set and everything in it must be used by one goroutine at a time.
package tracee
