package held

import "runtime"

// A Crowd is goroutines that run when they are asked to. They show that the scheduler
// and the garbage collector go on.
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

// Round collects garbage, from beginning to end, and then has each goroutine run.
func (c *Crowd) Round() {
	runtime.GC()
	for _, a := range c.asked {
		a <- struct{}{}
	}
	for range c.asked {
		<-c.answers
	}
}

// Close ends the goroutines.
func (c *Crowd) Close() {
	for _, a := range c.asked {
		close(a)
	}
}
