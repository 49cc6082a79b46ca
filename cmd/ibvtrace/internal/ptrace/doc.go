// Package ptrace has what ibvtrace does to one thread, whatever that thread is for: the
// requests of ptrace(2), its registers and its memory, what /proc says of it, and system
// calls that it makes on ibvtrace's behalf (see [Injector]).
package ptrace
