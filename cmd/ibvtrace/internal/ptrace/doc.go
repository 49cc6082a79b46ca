// Package ptrace handles a single thread: the requests of ptrace(2), its registers and
// memory, its files in /proc, and system calls that ibvtrace injects into it (see
// [Injector]).
package ptrace
