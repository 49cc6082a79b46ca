// Package recorder has the code that ibvtrace inserts into a program to trace its verbs without
// stops, and the memory that they share. The code makes the system call in place of the
// program, and records its arguments and results in the memory.
//
// # The code
//
// libc makes a system call with two instructions: one loads the number, the other is syscall.
// For ioctl and mmap, the first is replaced by a jump to a detour in the recorder's memory. The
// detour calls the recorder and returns behind the second instruction. The jump has the length
// of the first instruction, and the second is not changed. So the code is valid for threads
// before either instruction, and for those in the kernel. See [Sites] and [Code].
//
// The recorder does not access the program's memory directly, where it could fault. It makes
// the kernel copy it. It takes no locks. So signal handlers may call verbs at any moment, and
// a thread may die at any moment: its unfinished record then remains, with the thread's ID.
//
// # What is recorded
//
// Verbs by ioctl and shared mappings are recorded, on the descriptors given to [Memory.Allow].
// For other verbs the recorder makes the program's system call unchanged, which stops. A verb
// is not recorded if
//
//   - there is no room, because nobody has read the records for a while;
//   - it opens a file, for which ibvtrace must add a seccomp filter;
//   - the schema of package uapi lacks it, or one of its attributes;
//   - its data has more than about 1500 bytes, or cannot be read.
//
// A recorded system call has a mark in an argument that the kernel ignores, see [Mark]. The
// seccomp filter allows it.
//
// # Trust
//
// The program can write anything to the memory at any moment. ibvtrace copies a record before
// it looks at it, and checks bounds on the copy. The memory is sealed, so that it can't shrink
// while ibvtrace reads it.
package recorder
