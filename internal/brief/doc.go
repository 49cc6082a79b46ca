// Package brief makes system calls of which Go's scheduler is not told.
//
// The scheduler that is told of a call takes the processor from a goroutine
// that is in one for longer than some 20 µs, wakes a thread to use it, keeps
// watch for more of these, and gives a processor back late. Where a program
// makes one call after another, each about that long, this takes as much time as
// the calls do.
//
// Not told of a call, it waits for its end: so do other goroutines, if
// there is no other processor, and all of them while the garbage collector wants
// to begin. A call is brief if the kernel does the work at once, in the
// caller's thread: without a device, a peer, a disk, or memory in proportion to what
// a caller asked for. It must never wait for what another goroutine does.
package brief
