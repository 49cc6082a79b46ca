// Package recording has the verbs of C programs recorded in the programs' own memory, so
// that they need not stop. A program that was started gets a recorder (see package
// recorder) at the end of its first verb on a device, if libc is where it calls the kernel
// from.
//
// Recorded calls are handled by what handles stops, which sees the program's memory as it
// was then. They are handled before each stop and each end of a thread, so that what
// happened before is handled before, and every now and then.
package recording
