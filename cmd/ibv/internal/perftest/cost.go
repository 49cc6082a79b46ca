package perftest

import "time"

// A cost is what the messages have cost this process.
type cost struct {
	cpu      time.Duration // of all its threads
	messages uint64
}

// start begins to count. stop adds what has been used since.
func (c *cost) start(messages func() uint64) (stop func()) {
	before := cpuTime()
	return func() {
		c.cpu += cpuTime() - before
		c.messages += messages()
	}
}

// perMessage returns the µs of each message.
func (c cost) perMessage(messages uint64) float64 {
	return float64(c.cpu.Nanoseconds()) / 1e3 / float64(max(messages, 1))
}

// A load is the use of all processors, whoever uses them: the time in user mode, and that in
// which they were idle.
type load struct{ user, idle [2]int64 }

func (l *load) read(i int) {
	if l != nil {
		l.user[i], l.idle[i] = processors()
	}
}

// percent is perftest's number, which leaves out the kernel.
func (l *load) percent() float64 {
	user, idle := l.user[1]-l.user[0], l.idle[1]-l.idle[0]
	if user+idle == 0 {
		return 0
	}
	return 100 * float64(user) / float64(user+idle)
}
