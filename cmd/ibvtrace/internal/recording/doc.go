// Package recording traces verbs of C programs without stops, by recording them in the
// program's memory. A recorder (see package recorder) is inserted into a command at the end of
// its first verb on a device, if the command makes its system calls through libc.
//
// Recorded calls are replayed through the code that handles stops, which then sees the
// program's memory as recorded. They are replayed before each stop and each end of a thread, to
// keep the order, and at intervals.
package recording
