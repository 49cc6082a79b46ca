// Package bpf assembles BPF programs, loads them into the kernel, and reads what they put into
// a ring buffer.
//
// Programs are written in Go, with an [Asm]: there is no compiler at run time, and no compiled
// program in the tree. All calls are bpf(2) and perf_event_open(2) by golang.org/x/sys/unix.
// If the verifier refuses a program, the error has the end of the verifier's log.
//
// What is loaded lives as long as its descriptors. When this process ends, even by SIGKILL, the
// kernel removes all of it.
package bpf
