package tracer

// Options say what to trace: a command to start, or running processes.
type Options struct {
	Command []string
	PIDs    []int
	Data    bool // trace data verbs too
	Raw     bool // show the ioctls' attributes too
	Stop    bool // stop at each control verb; do not insert a recorder

	// NoFilter: the command gets no filter. It stops at every system call, and its
	// descendants can outlive the tracer.
	NoFilter bool
}
