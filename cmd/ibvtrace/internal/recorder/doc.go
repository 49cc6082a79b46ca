// Package recorder is what ibvtrace puts into a program so that its verbs are traced
// without a stop: code that makes the system call in the program's place and writes down
// what went in and what came out, and the memory to which it writes, which ibvtrace
// shares.
//
// # The code
//
// libc calls the kernel by two instructions, one that loads the number of the call and
// one that makes it. The first is replaced, for ioctl and mmap, by a jump to a detour in
// memory of the recorder's own, which calls the recorder and goes back behind the
// second. Both have their length from before and the second is left as it is, so that a
// thread may be in front of either, or in the kernel. See [Sites] and [Code].
//
// The recorder touches no memory of the program by itself, but asks the kernel to copy it,
// which refuses what a fault would be. It takes no locks, so that signals may come at any
// moment and their handlers call verbs, and a thread may die at any moment: a record
// that it was writing then stays as it is, with the thread's id in it.
//
// # What is recorded
//
// Verbs by ioctl, and shared mappings, on the descriptors that [Memory.Allow] has
// named. What is not simple goes the way without a recorder: the recorder then makes the
// same system call as the program would have, and that stops. So does a verb if
//
//   - there is no room, because nobody has read the records for a while;
//   - it opens a file, for which ibvtrace has to prepare;
//   - the schema of package uapi lacks it, or one of its attributes;
//   - its data has more than some 1500 bytes, or cannot be read.
//
// A system call that is recorded says so by an argument which the kernel ignores there,
// see [Mark]; the seccomp filter lets it pass.
//
// # Trust
//
// The memory is written by the program, and what is in it can be anything at any moment.
// It is copied before it is looked at, and bounds are checked on the copy. It is
// sealed: it can't become shorter while ibvtrace reads it.
package recorder
