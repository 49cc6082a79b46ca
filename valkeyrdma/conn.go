package valkeyrdma

import (
	"io"
	"net"
	"time"

	"github.com/goverbs/goverbs/internal/netconn"
	"github.com/goverbs/goverbs/verbs"
)

// A Conn is one end of a connection. It is a net.Conn, whose bytes go over RDMA. Its methods are safe for concurrent use.
//
// No goroutine and no thread belongs to a connection: the calls that wait process its completions.
type Conn struct {
	link netconn.Link // Waits.Mu protects all fields below
	o    Options

	arrived  bool // Close's last request has arrived, with all before it
	commands int  // commands in the send queue

	in      netconn.Ring
	sender  netconn.Sender
	target  memory // where the peer wants the next bytes
	flow    flow
	window  uint32 // messages that may be unconfirmed before the peer is asked to confirm; 0: any number
	answers int    // features that the peer has asked for

	sgls  [netconn.Batch][1]verbs.SGE // of link.Recvs
	small [commandLen]byte
}

// A flow counts messages that take one of the peer's receives. The counters wrap around.
type flow struct {
	sent      uint32 // messages
	confirmed uint32 // messages that the peer has surely received
	filled    uint32 // the value of sent when the peer's memory was full
	published uint32 // the value of sent when memory was last registered with the peer
	asked     uint32 // the value of sent with the question that is on its way
	asking    bool
}

// confirm records that the peer has received the messages up to a number.
func (f *flow) confirm(number uint32) {
	if int32(number-f.confirmed) > 0 {
		f.confirmed = number
	}
}

const opNet = "valkeyrdma" // net.OpError.Net

// LocalAddr returns the address of this end, a *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr { return c.link.Local }

// RemoteAddr returns the address of the peer, a *net.TCPAddr.
func (c *Conn) RemoteAddr() net.Addr { return c.link.Remote }

// SetDeadline sets the deadlines of pending and future reads and writes. After its deadline a call
// returns an error that matches os.ErrDeadlineExceeded, until the deadline is changed. A zero t
// stands for none.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets the deadline of reads.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.link.SetDeadline(&c.link.Rd, t) }

// SetWriteDeadline sets the deadline of writes. A Write that has passed it may have sent a part.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.link.SetDeadline(&c.link.Wr, t) }

// hasData reports whether Read need not wait.
func (c *Conn) hasData() (bool, error) {
	switch {
	case c.link.Phase != netconn.Open:
		return false, net.ErrClosed
	case c.in.Unread > 0:
		return true, nil
	case c.link.Err == netconn.ErrReset: // it has left as it should: the wire has no other end
		return false, io.EOF
	}
	return false, c.link.Err
}

// hasUnread reports whether there is something to read on a connection that has ended.
func (c *Conn) hasUnread() bool {
	c.link.Waits.Mu.Lock()
	defer c.link.Waits.Mu.Unlock()
	return c.in.Unread > 0
}

func (c *Conn) writable() error {
	switch {
	case c.link.Phase != netconn.Open:
		return net.ErrClosed
	case c.link.Err == netconn.ErrReset:
		return netconn.ErrPipe
	}
	return c.link.Err
}

// room returns how many bytes a message may carry.
func (c *Conn) room() int {
	if c.window > 0 && c.flow.sent-c.flow.confirmed >= 2*c.window-reserve {
		return 0
	}
	return int(c.target.length)
}

// reserve is how many of the peer's receives are kept for commands.
const reserve = 64

// Read reads bytes that have arrived, and waits if there are none. After the peer's last byte it returns
// io.EOF.
func (c *Conn) Read(b []byte) (int, error) {
	c.link.Rd.Call.Lock()
	defer c.link.Rd.Call.Unlock()
	c.link.Waits.Mu.Lock()
	defer c.link.Waits.Mu.Unlock()
	if len(b) == 0 {
		if c.link.Phase != netconn.Open {
			return 0, c.link.OpErr("read", net.ErrClosed)
		}
		return 0, nil
	}
	if err := netconn.Await(&c.link.Waits, &c.link.Rd, c, (*Conn).hasData); err != nil {
		if err == io.EOF {
			return 0, err
		}
		return 0, c.link.OpErr("read", err)
	}
	n := c.in.Read(&c.link.Waits.Mu, b, c.link.Exposed.Bytes())
	if c.mustPublish() {
		c.process()
	}
	return n, nil
}

// Write sends b. It returns when the last byte is in the send buffer, or on its way.
func (c *Conn) Write(b []byte) (int, error) {
	c.link.Wr.Call.Lock()
	defer c.link.Wr.Call.Unlock()
	c.link.Waits.Mu.Lock()
	defer c.link.Waits.Mu.Unlock()
	c.process() // the peer may have left
	n, err := c.sender.Write(&c.link.Waits, &c.link.Wr, b)
	if err != nil {
		return n, c.link.OpErr("write", err)
	}
	return n, nil
}

// SetLinger sets what Close does with data that has not yet arrived in the peer's memory. It works as
// net.TCPConn's. If sec is negative, which is the default, Close doesn't wait, and the data is sent in the
// background for up to a minute, or until the process ends. If sec is 0, the data is dropped. If sec is
// positive, Close waits for up to sec seconds, then drops the data.
func (c *Conn) SetLinger(sec int) error { return c.link.SetLinger(sec) }

// Close closes the connection. Calls that wait on it return an error that matches net.ErrClosed. Written data is still
// sent: see SetLinger, which also says whether Close waits. The connection's memory and queues are released in the
// background, at the latest a little more than a minute later.
func (c *Conn) Close() error {
	if c == nil {
		return net.ErrClosed
	}
	return c.link.Close(func() { c.link.PostEmpty(wridLast) }, nil)
}
