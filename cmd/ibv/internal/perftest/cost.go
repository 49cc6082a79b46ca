package perftest

import (
	"time"
)

// A cost is the processor time that the messages took in this process.
type cost struct {
	cpu      time.Duration // of all its threads
	messages uint64
}

// start begins to count. stop adds the time and the messages since then.
func (c *cost) start(messages func() uint64) (stop func()) {
	before := cpuTime()
	return func() {
		c.cpu += cpuTime() - before
		c.messages += messages()
	}
}

// perMessage returns the average per message, in µs.
func (c cost) perMessage(messages uint64) float64 {
	return float64(c.cpu.Nanoseconds()) / 1e3 / float64(max(messages, 1))
}

// A load is the use of all processors, by any process: the time in user mode, and the idle
// time.
type load struct{ user, idle [2]int64 }

func (l *load) read(i int) {
	if l != nil {
		l.user[i], l.idle[i] = processors()
	}
}

// percent returns perftest's figure, which leaves out the kernel's time.
func (l *load) percent() float64 {
	user, idle := l.user[1]-l.user[0], l.idle[1]-l.idle[0]
	if user+idle == 0 {
		return 0
	}
	return 100 * float64(user) / float64(user+idle)
}
