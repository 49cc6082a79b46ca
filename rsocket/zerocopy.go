package rsocket

import (
	"net"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// PD returns the protection domain for memory that WriteMR sends. Its memory regions must be closed
// before the last connection of the device.
func (c *Conn) PD() *verbs.PD { return c.sync.PD() }

// WriteMR sends n bytes at an offset in registered memory without a copy on this side. Like Write, it
// sends a part and returns an error if the deadline or the connection ends it.
//
// WriteMR returns when the bytes are in the peer's ring, and the device no longer uses the memory. To
// this end, it ends the connection if the bytes in flight have not arrived within a second after the
// deadline. If the connection is closed meanwhile, WriteMR may take as long as SetLinger says.
func (c *Conn) WriteMR(mr *verbs.MR, off, n int) (int, error) {
	mr.SGE(off, n) // panics like a slice expression
	c.lent.callMu.Lock()
	defer c.lent.callMu.Unlock()
	sent, err := c.lend(mr, off, n)
	// The deadline may have passed while the ring was full. The bytes in flight still have time to arrive.
	// Other writes don't wait for them.
	if late := c.awaitLent(); err == nil {
		err = late
	}
	if err != nil {
		return sent, c.opErr("write", err)
	}
	return sent, nil
}

// lend posts the requests of WriteMR. The caller has lent.callMu.
func (c *Conn) lend(mr *verbs.MR, off, n int) (sent int, err error) {
	c.wr.callMu.Lock()
	defer c.wr.callMu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process()
	err = c.writable()
	for sent < n && err == nil {
		if err = c.await(&c.wr, (*Conn).hasSlot); err != nil {
			break
		}
		m := min(n-sent, c.out.room())
		c.sgl[0] = mr.SGE(off+sent, m)
		wr := verbs.SendWR{WRID: wridData | wridLent, Flags: verbs.SendSignaled, SGL: c.sgl[:]}
		c.lentWRs++
		if err = c.postData(&wr, m); err != nil {
			c.lentWRs--
			break
		}
		sent += m
	}
	return sent, err
}

// lentReturned reports whether the device uses no caller's memory any more.
func (c *Conn) lentReturned() bool { return c.lentWRs == 0 || c.cqFailed }

// awaitLent waits until the device uses no caller's memory any more. The caller has lent.callMu.
func (c *Conn) awaitLent() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	returned := func(c *Conn) (bool, error) { return c.lentReturned(), nil }
	if c.lentReturned() {
		return nil
	}
	c.lent.deadline.set(time.Now().Add(graceful))
	late := c.await(&c.lent, returned)
	c.lent.deadline.set(time.Time{})
	if late == nil {
		return nil
	}
	if c.phase != connOpen {
		late = net.ErrClosed // Close gives up later
	} else {
		c.fail(lost(late))
	}
	// The queue pair flushes its requests, at the latest. Nobody closes it while this call has lent.callMu.
	_ = c.await(&c.lent, returned)
	return late
}
