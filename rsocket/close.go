package rsocket

import (
	"net"
	"time"
)

// answering is how long the last message to a peer that has closed first may take.
const answering = 5 * time.Millisecond

// SetLinger sets what Close does with data that has not yet arrived in the peer's memory. It
// works as for a net.TCPConn. If sec is negative, which is the default, Close doesn't wait,
// and the data is sent in the background for up to a minute, or until the process ends. So a
// program that ends right after Close needs a positive sec. If sec is 0, the data is dropped,
// and the peer's reads fail with ECONNRESET. If sec is positive, Close waits for up to sec
// seconds, then drops the data.
func (c *Conn) SetLinger(sec int) error { return c.link.SetLinger(sec) }

// Close closes the connection. Calls that wait on it return an error that matches net.ErrClosed.
// Written data is still sent: see SetLinger, which also says whether Close waits. The connection's
// memory and queues are released in the background, at the latest a little more than a minute later.
func (c *Conn) Close() error {
	if c == nil {
		return net.ErrClosed
	}
	// The message is sent even if the peer has left: librdmacm waits for an
	// acknowledgement of its last message, or for this message. Soft-RoCE reports a
	// message before it acknowledges it, and acknowledges nothing once the QP is gone.
	last := func() { c.postControl(ctlDisconnect) }
	return c.link.Close(last, func() {
		if c.out.refused {
			c.answer()
		}
	})
}

// answer leaves a little time for the last message, because the peer has left.
func (c *Conn) answer() { c.link.End.Deadline.Set(time.Now().Add(answering)) }
