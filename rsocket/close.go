package rsocket

import (
	"net"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

const (
	// graceful is for how long Close waits for what was written, and lingering for how long that
	// is then tried in the background.
	graceful  = time.Second
	lingering = time.Minute
	// answering is for how long a peer that has closed first is given an answer, and for how long
	// Close waits when the port is down.
	answering = 5 * time.Millisecond
)

// SetLinger sets what Close does with data that has not yet arrived in the peer's memory. It is as
// for a net.TCPConn. If sec is negative, which is the default, Close waits for it for a second at
// most, and the data is sent in the background for up to a minute more, or until the process ends:
// so a program that ends right after Close needs a positive sec, if the network may lose packets.
// If sec is 0, the data is dropped, and the peer's reads fail with ECONNRESET. If sec is positive,
// Close waits for up to so many seconds, then drops the data.
func (c *Conn) SetLinger(sec int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opErr("set", net.ErrClosed)
	}
	c.linger = max(sec, -1)
	return nil
}

// Close closes the connection. Calls that wait on it return an error that matches net.ErrClosed.
// What was written is still sent: see SetLinger. If the peer is known to be gone, Close doesn't wait.
// If the peer has closed first, Close waits for a few milliseconds at most. So it does if this side's
// port is down, unless SetLinger has said for how long.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.opErr("close", net.ErrClosed)
	}
	c.closed = true
	linger := c.linger
	if linger != 0 && c.err == nil {
		// Also if the peer has left: librdmacm waits for an acknowledgement of its last message, or for
		// this one. Soft-RoCE reports a message before it acknowledges it, and doesn't once the QP is gone.
		c.control(ctlDisconnect)
	}
	if c.keepalive != nil {
		c.keepalive.Stop()
	}
	c.wakeAll()
	c.mu.Unlock()

	wait, try := graceful, lingering
	if linger >= 0 {
		try = time.Duration(linger) * time.Second
		wait = try + graceful // for what finish does then
	}
	go c.finish(try)
	done := c.finishes(answering)
	if !done && (linger >= 0 || c.reachable()) {
		done = c.finishes(wait - answering)
	}
	if done && c.result != nil {
		return c.opErr("close", c.result)
	}
	return nil
}

// finishes waits for the end of finish, for a time, and reports whether it has come.
func (c *Conn) finishes(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.finished:
		return true
	case <-timer.C:
		return false
	}
}

// reachable reports whether the connection's port is up.
func (c *Conn) reachable() bool {
	port, err := c.sync.Device().QueryPort(c.sync.Port())
	return err == nil && port.State == verbs.PortActive
}

// finish sends the rest, then releases everything.
func (c *Conn) finish(try time.Duration) {
	defer close(c.finished)
	if try > 0 {
		c.end.turn.Lock()
		c.mu.Lock()
		c.end.due.set(time.Now().Add(try))
		if c.left {
			c.answer()
		}
		_ = c.await(&c.end, func(c *Conn) (bool, error) { return c.over(), nil })
		c.mu.Unlock()
		c.end.due.set(time.Time{})
		c.end.turn.Unlock()
	}
	c.mu.Lock()
	c.fail(net.ErrClosed) // unless it has failed
	c.mu.Unlock()
	// A WriteTo or ReadFrom may be waiting for its other side.
	c.rd.turn.Lock()
	c.wr.turn.Lock()
	defer c.rd.turn.Unlock()
	defer c.wr.turn.Unlock()
	c.mu.Lock()
	c.dead = true
	c.mu.Unlock()
	c.rd.due.set(time.Time{})
	c.wr.due.set(time.Time{})
	c.result = c.release()
	if err := c.unmanage(); c.result == nil {
		c.result = err
	}
}

// answer leaves a little time for the last message, because the peer has left.
func (c *Conn) answer() { c.end.due.set(time.Now().Add(answering)) }
