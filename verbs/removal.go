package verbs

import "sync/atomic"

// A removal is the news that a Context's device is gone.
//
// Drivers that can part from their users (mlx5) make every call fail with EIO
// then. Drivers that can't (rxe) wait with the removal, in the kernel, until
// the last user has closed, and tell nobody; all that is to be seen is that
// the device node disappears, for which the Context watches.
type removal struct {
	gone     atomic.Bool
	news     chan struct{} // closed when gone is set
	reported atomic.Bool   // EventDeviceFatal was delivered
	stop     func()        // ends the watch
}

// deviceGone wakes all who wait, and has those who post and poll look closer. From
// now on only Close works.
func (c *Context) deviceGone() {
	if !c.removal.gone.CompareAndSwap(false, true) {
		return
	}
	close(c.removal.news)
	c.async.poke()
	for _, m := range c.membersOf(kindCQ) {
		m.(*CQ).silent.Store(true)
	}
	for _, m := range c.membersOf(kindQP) {
		m.(*QP).usualOps.Store(0)
	}
	for _, m := range c.membersOf(kindChannel) {
		m.(*CompChannel).events.poke()
	}
}
