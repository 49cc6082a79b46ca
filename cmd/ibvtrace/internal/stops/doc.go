// Package stops selects the system calls of a program that stop for the tracer.
//
// Seccomp filters select them. Every program is started with a first filter. It selects the system calls that
// concern RDMA by their arguments alone: the verbs ioctl, shared mappings of files, opens that may open a
// device, and calls by which such a descriptor may arrive. Reads and writes stop only on descriptors of RDMA
// files. When such a descriptor appears, a filter for its number is added to the program. rxe's doorbell is a
// write to such a descriptor, and does not stop.
//
// A process that takes no filters stops at every system call. So does a process whose own
// filters do not allow the system calls that ibvtrace would inject: see sandbox_linux.go.
package stops
