package syscalltest

import "runtime"

// A Crowd is a set of goroutines that run on request, to test that the scheduler and the
// garbage collector still work.
type Crowd struct {
	asked   []chan struct{}
	answers chan struct{}
}

// NewCrowd starts n goroutines.
func NewCrowd(n int) *Crowd {
	c := &Crowd{asked: make([]chan struct{}, n), answers: make(chan struct{}, n)}
	for i := range c.asked {
		c.asked[i] = make(chan struct{})
		go func() {
			for range c.asked[i] {
				c.answers <- struct{}{}
			}
		}()
	}
	return c
}

// Round runs one whole garbage collection, and then each goroutine once.
func (c *Crowd) Round() {
	runtime.GC()
	for _, a := range c.asked {
		a <- struct{}{}
	}
	for range c.asked {
		<-c.answers
	}
}

// Close stops the goroutines.
func (c *Crowd) Close() {
	for _, a := range c.asked {
		close(a)
	}
}
