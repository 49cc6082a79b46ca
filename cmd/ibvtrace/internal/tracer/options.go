package tracer

import "github.com/goverbs/goverbs/cmd/ibvtrace/internal/inject"

// Options say what to trace: a command to start, or running processes.
type Options struct {
	Command []string
	PIDs    []int
	Data    bool // trace data verbs too
	Raw     bool // show the ioctls' attributes too

	// NoFilter: the command gets no filter. It stops at every system call, and its
	// descendants can outlive the tracer.
	NoFilter bool

	Inject []*inject.Rule // what is made to fail

	// How says how calls are seen. Data, NoFilter and Inject take ptrace, All and Cgroup the
	// kernel.
	How    How
	All    bool   // trace all processes
	Cgroup string // trace the processes of the cgroup in this folder
}

// A How is a way in which calls are seen.
type How uint8

const (
	Either How = iota // in the kernel where that can be had, else by ptrace
	Kernel            // in the kernel, without stops, see package kernel
	Ptrace
)
