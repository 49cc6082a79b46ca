// Package probes traces the verbs of C programs that post and poll.
//
// They go past the kernel: libibverbs' functions are inline and call through tables of
// pointers, which have a public layout, in the context, in extended QPs and in extended
// CQs. The pointers are made to lead to probes. A probe is a piece of code, in memory that
// the program is made to map, that tells the tracer and calls the function. It is what a
// uprobe is, but without a change to the program's code, so that threads need not stop for
// it and nothing needs stepping over.
//
// A probe tells by a trap: a getpid, which takes no arguments and so can carry some.
// The kernel stops there for the tracer as at other system calls. When no tracer is
// left, it is a getpid.
//
// There is code for amd64 alone; elsewhere these verbs are not traced.
package probes
