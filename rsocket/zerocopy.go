package rsocket

import (
	"net"
	"time"

	"github.com/goverbs/goverbs/internal/netconn"
	"github.com/goverbs/goverbs/verbs"
)

// PD returns the protection domain for memory that WriteMR sends. Its memory regions must be closed
// before the last connection of the device.
func (c *Conn) PD() *verbs.PD { return c.link.Sync.PD() }

// WriteMR sends n bytes at an offset in registered memory without a copy on this side. Like Write, it
// sends a part and returns an error if the deadline or the connection ends it.
//
// WriteMR returns when the bytes are in the peer's ring, and the device no longer uses the memory. To
// this end, it ends the connection if the bytes in flight have not arrived within a second after the
// deadline. If the connection is closed meanwhile, WriteMR may take as long as SetLinger says. Like
// MR.SGE of package verbs, WriteMR panics if the bytes are out of the MR's range.
func (c *Conn) WriteMR(mr *verbs.MR, off, n int) (int, error) {
	mr.SGE(off, n) // panics like a slice expression
	c.link.Lent.Call.Lock()
	defer c.link.Lent.Call.Unlock()
	sent, err := c.lend(mr, off, n)
	// The deadline may have passed while the ring was full. The bytes in flight still have time to arrive.
	// Other writes don't wait for them.
	if late := c.awaitLent(); err == nil {
		err = late
	}
	if err != nil {
		return sent, c.link.OpErr("write", err)
	}
	return sent, nil
}

// lend posts the requests of WriteMR. The caller has lent.Call.
func (c *Conn) lend(mr *verbs.MR, off, n int) (sent int, err error) {
	c.link.Wr.Call.Lock()
	defer c.link.Wr.Call.Unlock()
	c.link.Waits.Mu.Lock()
	defer c.link.Waits.Mu.Unlock()
	c.process()
	err = c.writable()
	for sent < n && err == nil {
		if err = netconn.Await(&c.link.Waits, &c.link.Wr, &c.sender, (*netconn.Sender).HasSlot); err != nil {
			break
		}
		m := min(n-sent, c.room())
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
func (c *Conn) lentReturned() bool { return c.lentWRs == 0 || c.link.CQFailed }

// lentLost returns why bytes of the caller's memory may not have arrived, or nil. The device uses none.
func (c *Conn) lentLost() error {
	switch {
	case !c.lentFailed && c.lentWRs == 0:
		return nil
	case c.link.Phase != netconn.Open:
		return net.ErrClosed
	}
	return c.link.Err
}

// awaitLent waits until the device uses no caller's memory any more. The caller has lent.Call.
func (c *Conn) awaitLent() error {
	c.link.Waits.Mu.Lock()
	defer c.link.Waits.Mu.Unlock()
	returned := func(c *Conn) (bool, error) { return c.lentReturned(), nil }
	if c.lentReturned() {
		return c.lentLost()
	}
	c.link.Lent.Deadline.Set(time.Now().Add(netconn.Graceful))
	late := netconn.Await(&c.link.Waits, &c.link.Lent, c, returned)
	c.link.Lent.Deadline.Set(time.Time{})
	if late == nil {
		return c.lentLost()
	}
	if c.link.Phase != netconn.Open {
		late = net.ErrClosed // Close gives up later
	} else {
		c.link.Fail(netconn.Lost(late))
	}
	// The queue pair flushes its requests, at the latest. Nobody closes it while this call has lent.Call.
	_ = netconn.Await(&c.link.Waits, &c.link.Lent, c, returned)
	return late
}
