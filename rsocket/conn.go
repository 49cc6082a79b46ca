package rsocket

import (
	"io"
	"net"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/internal/netconn"
	"github.com/goverbs/goverbs/verbs"
)

// A Conn is one end of a connection. It is a net.Conn, whose bytes go over RDMA. Its methods are
// safe for concurrent use.
//
// Read and Write allocate nothing. No goroutine and no thread belongs to a connection: the calls
// that wait process its completions. The sizes of its memory are in Options.
type Conn struct {
	link  netconn.Link // Waits.Mu protects all fields below
	o     Options
	iwarp *iwarp // nil over InfiniBand and RoCE

	in      inbound
	out     outbound
	targets targets
	order   byteOrder // of the peer
	peer    sge       // the peer's list of targets
	entry   uint32    // the entry to write next

	sender     netconn.Sender
	lentWRs    int  // requests with a caller's memory, in the send queue
	lentFailed bool // one of them has failed, and with it the connection
	creditWRs  int  // credit messages in the send queue

	theirs []mapping   // the peer's mapped memory, for WriteAt
	ours   []*verbs.MR // memory mapped for the peer

	sgl   [1]verbs.SGE
	small [sgeLen]byte
}

const opNet = "rsocket" // net.OpError.Net

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
	case c.in.dropped:
		return false, io.EOF
	case c.in.Unread > 0:
		return true, nil
	case c.in.ended:
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

// room returns how many bytes a message may carry.
func (c *Conn) room() int {
	if c.out.blocked {
		return 0
	}
	return c.out.room()
}

// takeTarget takes the peer's next target, if the last one is full and this side still writes. A bad
// target ends the connection.
func (c *Conn) takeTarget() {
	if c.out.target.length > 0 || c.writable() != nil {
		return
	}
	target, ok := c.targets.take(c.out.next)
	if !ok {
		return
	}
	if !target.fits() {
		c.link.Fail(violation("a target of %d bytes at %#x", target.length, target.addr))
		return
	}
	c.out.target = target
	c.out.next = (c.out.next + 1) % entries
}

func (c *Conn) writable() error {
	switch {
	case c.link.Phase != netconn.Open:
		return net.ErrClosed
	case c.out.shut:
		return netconn.ErrPipe
	case c.link.Err != nil:
		return c.link.Err
	case c.out.refused:
		return netconn.ErrReset
	}
	return nil
}

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
		return 0, c.readErr(err)
	}
	n := c.in.Read(&c.link.Waits.Mu, b, c.link.Exposed.Bytes())
	if c.in.due() {
		c.process() // gives credits, once it has seen that earlier ones were sent
	}
	return n, nil
}

func (c *Conn) readErr(err error) error {
	if err == io.EOF {
		return err
	}
	return c.link.OpErr("read", err)
}

// Write sends b. It returns when the last byte is in the send buffer, or on its way.
func (c *Conn) Write(b []byte) (int, error) {
	c.link.Wr.Call.Lock()
	defer c.link.Wr.Call.Unlock()
	c.link.Waits.Mu.Lock()
	defer c.link.Waits.Mu.Unlock()
	c.process() // the peer may have left
	n, err := c.sender.Write(&c.link.Waits, &c.link.Wr, b)
	return n, c.writeErr(err)
}

func (c *Conn) writeErr(err error) error {
	if err == nil {
		return nil
	}
	return c.link.OpErr("write", err)
}

// WriteBuffers sends the buffers as if they were one, and removes from them what it has sent. It is
// writev for a Conn: net.Buffers.WriteTo calls Write for each buffer.
func (c *Conn) WriteBuffers(bufs *net.Buffers) (int64, error) {
	c.link.Wr.Call.Lock()
	defer c.link.Wr.Call.Unlock()
	list := *bufs
	c.link.Waits.Mu.Lock()
	c.process() // the peer may have left
	n, err := c.sender.WriteBuffers(&c.link.Waits, &c.link.Wr, list)
	c.link.Waits.Mu.Unlock()
	for left := n; len(list) > 0; list = list[1:] {
		if int64(len(list[0])) > left {
			list[0] = list[0][left:]
			break
		}
		left -= int64(len(list[0]))
		list[0] = nil
	}
	*bufs = list
	return n, c.writeErr(err)
}

// postData posts a message with n bytes of data, and takes the next target if this one is full.
func (c *Conn) postData(wr *verbs.SendWR, n int) error {
	addr, key := c.out.write(n)
	wr.Opcode, wr.Imm, wr.Remote = verbs.OpRDMAWriteImm, message(msgData, uint32(n)), verbs.Remote{Addr: addr, RKey: key}
	if err := c.postInSlot(wr); err != nil {
		return err
	}
	c.takeTarget()
	return nil
}

// postInSlot posts a request that takes one of the slots for data.
func (c *Conn) postInSlot(wr *verbs.SendWR) error {
	c.sender.Take(wr)
	return c.post(wr)
}

// post posts a request. Over iWARP, it posts a message (a write with immediate data) as iWARP needs it.
func (c *Conn) post(wr *verbs.SendWR) error {
	if c.iwarp == nil || wr.Opcode != verbs.OpRDMAWriteImm {
		return c.link.Post(wr)
	}
	if err := c.iwarp.post(c.link.QP, wr, c.order); err != nil {
		return c.link.Fail(netconn.Lost(err))
	}
	return nil
}

// CloseWrite notifies the peer that this side sends no more: the peer's reads return io.EOF
// after the last byte. Reads on this side go on.
func (c *Conn) CloseWrite() error {
	c.link.Waits.Mu.Lock()
	defer c.link.Waits.Mu.Unlock()
	switch {
	case c.link.Phase != netconn.Open:
		return c.link.OpErr("close", net.ErrClosed)
	case c.out.shut:
		return nil
	case c.link.Err != nil && !c.out.refused:
		return c.link.OpErr("close", &netconn.LostError{Errno: syscall.ENOTCONN, Cause: c.link.Err})
	}
	c.out.shut = true
	if !c.out.refused {
		c.postControl(ctlShutdown)
		c.process()
	}
	c.link.Wr.Signal()
	return nil
}

// CloseRead ends reads, which return io.EOF. Other calls on the connection drop the bytes that the peer
// sends.
func (c *Conn) CloseRead() error {
	c.link.Waits.Mu.Lock()
	defer c.link.Waits.Mu.Unlock()
	if c.link.Phase != netconn.Open {
		return c.link.OpErr("close", net.ErrClosed)
	}
	c.in.dropped = true
	c.link.Rd.Signal()
	return nil
}
