package rsocket

import (
	"errors"
	"net"
	"time"
)

const (
	// lingering is how long written data is sent in the background after Close.
	lingering = time.Minute
	// answering is how long the last message to a peer that has closed first may take.
	answering = 5 * time.Millisecond
	// graceful bounds the remaining steps, once no more data is sent.
	graceful = time.Second
)

// SetLinger sets what Close does with data that has not yet arrived in the peer's memory. It works as
// net.TCPConn's. If sec is negative, which is the default, Close doesn't wait, and the data is sent in the
// background for up to a minute, or until the process ends: so a program that ends right after Close needs
// a positive sec. If sec is 0, the data is dropped, and the peer's reads fail with ECONNRESET. If sec is
// positive, Close waits for up to sec seconds, then drops the data.
func (c *Conn) SetLinger(sec int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != connOpen {
		return c.opErr("set", net.ErrClosed)
	}
	c.linger = max(sec, -1)
	return nil
}

// Close closes the connection. Calls that wait on it return an error that matches net.ErrClosed.
// Written data is still sent: see SetLinger, which also says whether Close waits. The connection's
// memory and queues are released in the background, at the latest a little more than a minute later.
func (c *Conn) Close() error {
	if c == nil {
		return net.ErrClosed
	}
	c.mu.Lock()
	if c.phase != connOpen {
		c.mu.Unlock()
		return c.opErr("close", net.ErrClosed)
	}
	c.phase = connClosing
	linger := c.linger
	if linger != 0 && c.err == nil {
		// Sent also if the peer has left: librdmacm waits for an acknowledgement of its last message, or for
		// this message. Soft-RoCE reports a message before it acknowledges it, and acknowledges nothing once
		// the QP is gone.
		c.postControl(ctlDisconnect)
	}
	if c.keepalive != nil {
		c.keepalive.Stop()
	}
	c.wakeAll()
	c.mu.Unlock()

	try := lingering
	if linger >= 0 {
		try = time.Duration(linger) * time.Second
	}
	released := make(chan error, 1)
	go func() { released <- c.finish(try) }()
	if linger <= 0 {
		return nil
	}
	timer := time.NewTimer(try + graceful)
	defer timer.Stop()
	select {
	case err := <-released:
		if err != nil {
			return c.opErr("close", err)
		}
	case <-timer.C:
	}
	return nil
}

// releasing bounds how many connections are released at a time: each takes a thread, because the kernel waits for
// the device.
var releasing = make(chan struct{}, 16)

// finish sends the rest, then releases everything.
func (c *Conn) finish(try time.Duration) error {
	if try > 0 {
		c.mu.Lock()
		c.end.deadline.set(time.Now().Add(try))
		if c.out.refused {
			c.answer()
		}
		_ = c.await(&c.end, func(c *Conn) (bool, error) { return c.flushed(), nil })
		c.end.deadline.set(time.Time{})
		c.mu.Unlock()
	}
	releasing <- struct{}{}
	defer func() { <-releasing }()
	c.mu.Lock()
	c.fail(net.ErrClosed) // unless it has failed
	c.mu.Unlock()
	// Calls that have begun end now, because the connection is closed. Later calls don't use the released
	// objects. Lock one callMu at a time, so that nothing waits for one while it holds another.
	for _, s := range []*side{&c.rd, &c.wr, &c.lent} {
		s.callMu.Lock()
		s.deadline.set(time.Time{})
		s.callMu.Unlock()
	}
	c.mu.Lock()
	c.phase = connReleased
	c.mu.Unlock()
	err := c.release()
	return errors.Join(err, c.unmanage())
}

// answer leaves a little time for the last message, because the peer has left.
func (c *Conn) answer() { c.end.deadline.set(time.Now().Add(answering)) }
