package trace

// Options say what to trace: a command that is started, or processes that run.
type Options struct {
	Command []string
	PIDs    []int
	Data    bool // posting and polling too
	Raw     bool // the attributes as they are too
	Stop    bool // at each verb, with nothing put into programs for it
}
