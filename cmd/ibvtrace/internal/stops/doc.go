// Package stops chooses which system calls of a program stop for the tracer.
//
// Seccomp filters choose them. The first filter, which every program is started with, has
// those that are about RDMA by their arguments alone: the verbs' ioctl, shared mappings of
// files, and what may open a device. Reading and writing stop on RDMA's descriptors only:
// once such a descriptor appears, the program is made to add a filter for its number. rxe's
// doorbell is a write to such a descriptor, and does not stop.
//
// A process that takes no filters stops at every system call. So does one that has filters
// of its own which do not allow what would be called in its place: sandbox_linux.go looks
// at these.
package stops
