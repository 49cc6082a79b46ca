// Package probes traces the data verbs of C programs.
//
// Data verbs bypass the kernel. libibverbs' functions are inline, and call through tables of
// pointers with a public layout, in the context, in extended QPs and in extended CQs. The
// package replaces the pointers by those of probes. A probe is code, in memory that is
// mapped into the program, that reports to the tracer and calls the function. Unlike a uprobe,
// it does not change the program's code. So threads need not stop when it is inserted, and no
// instruction must be single-stepped.
//
// A probe reports by a trap: a getpid. getpid takes no arguments, so its argument registers
// carry the report. The kernel stops the program there for the tracer. Without a tracer, the
// getpid has no effect.
package probes
