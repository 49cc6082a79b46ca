package rsocket

import (
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// A Conn is one end of a connection. It is a net.Conn, whose bytes go over RDMA. Its methods are
// safe for concurrent use.
//
// Read and Write allocate nothing. No goroutine and no thread belongs to a connection: the calls
// that wait process its completions. The sizes of its memory are in Options.
type Conn struct {
	id            *rdmacm.ID
	sync          *rdmacm.SyncID // id, until it is established
	device        *device
	manager       *manager
	cq            *verbs.CQ
	qp            *verbs.QP
	memory        *verbs.MR // the send buffer, which only this side uses
	exposed       *verbs.MR // the ring and the list of targets, which the peer writes
	local, remote *net.TCPAddr
	o             Options
	iwarp         *iwarp // nil over InfiniBand and RoCE

	rd, wr, end side // waiters for data, for room, and for the end
	lent        side // the WriteMR that waits until its memory is free, or for its turn to write

	armed     atomic.Bool // the CQ will report its next completion
	owing     atomic.Bool // the event handler must give credits to the peer
	keepalive *time.Timer
	ended     chan struct{} // closed when err is set

	mu      mutex // protects all fields below; held briefly
	in      inbound
	out     outbound
	targets targets
	order   byteOrder // of the peer
	peer    sge       // the peer's list of targets
	entry   uint32    // the entry to write next

	places   int    // free places in the send queue for data
	space    int    // free bytes in the send buffer
	fillAt   int    // where the next byte goes in the send buffer
	quietWRs uint64 // requests and bytes since the last signaled request
	quietLen uint64
	lending  int  // requests with a caller's memory, in the send queue
	granting int  // credit messages in the send queue
	asking   bool // a keepalive is in the send queue

	up      bool  // the handshake is over
	hush    bool  // this side may not send yet: see iwarp
	late    uint8 // a bit for each control message that waits for the end of hush
	noRead  bool  // CloseRead
	copying bool  // a Read copies from the ring
	noWrite bool  // CloseWrite
	closed  bool  // Close
	eof     bool  // the peer sends no more
	left    bool  // the peer receives no more
	parted  bool  // ctlDisconnect has arrived at the peer
	dead    bool  // the memory is being released
	broken  bool  // the CQ will have no more completions
	err     error
	linger  int // SetLinger

	theirs []mapping   // the peer's mapped memory, for WriteAt
	ours   []*verbs.MR // memory mapped for the peer

	wcs    [recvBatch]verbs.WC
	recvs  [recvBatch]verbs.RecvWR
	sgl    [1]verbs.SGE
	small  [sgeLen]byte
	single [1][]byte // under wr.turn
}

// LocalAddr returns the address of this end, a *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the address of the peer, a *net.TCPAddr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

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
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.rd, t) }

// SetWriteDeadline sets the deadline of writes. A Write that has passed it may have sent a part.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.wr, t) }

func (c *Conn) setDeadline(s *side, t time.Time) error {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return c.opErr("set", net.ErrClosed)
	}
	s.due.set(t)
	return nil
}

// hasData reports whether Read need not wait.
func (c *Conn) hasData() (bool, error) {
	switch {
	case c.closed:
		return false, net.ErrClosed
	case c.noRead:
		return false, io.EOF
	case c.in.unread > 0:
		return true, nil
	case c.eof:
		return false, io.EOF
	}
	return false, c.err
}

// hasLast reports whether there is something to read on a connection that has ended.
func (c *Conn) hasLast() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.in.unread > 0
}

// hasRoom reports whether Write can send a message. It takes the peer's next target if need be; a bad target
// ends the connection.
func (c *Conn) hasRoom() (bool, error) {
	if err := c.writable(); err != nil {
		return false, err
	}
	if c.out.target.length == 0 {
		if target, ok := c.targets.take(c.out.next); ok {
			if !target.fits() {
				return false, c.fail(violation("a target of %d bytes at %#x", target.length, target.addr))
			}
			c.out.target = target
			c.out.next = (c.out.next + 1) % entries
		}
	}
	return !c.hush && c.out.room() > 0 && c.places > 0 && c.space >= min(lowWater, c.o.SendBuffer/2), nil
}

// hasPlace is hasRoom for a message from a caller's memory, which needs no space in the send buffer.
func (c *Conn) hasPlace() (bool, error) {
	_, err := c.hasRoom()
	return err == nil && !c.hush && c.out.room() > 0 && c.places > 0, err
}

// lowWater is the free space in the send buffer that Write waits for. With less, it would send many short
// messages.
const lowWater = 2048

func (c *Conn) writable() error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.noWrite:
		return errPipe
	case c.err != nil:
		return c.err
	case c.left:
		return errReset
	}
	return nil
}

// Read reads bytes that have arrived, and waits if there are none. After the peer's last byte it returns
// io.EOF.
func (c *Conn) Read(b []byte) (int, error) {
	c.rd.turn.Lock()
	defer c.rd.turn.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(b) == 0 {
		if c.closed {
			return 0, c.opErr("read", net.ErrClosed)
		}
		return 0, nil
	}
	if err := c.await(&c.rd, (*Conn).hasData); err != nil {
		return 0, c.readErr(err)
	}
	n := 0
	for n < len(b) && c.in.unread > 0 {
		from, to := c.in.next()
		to = min(to, from+len(b)-n)
		c.copying = true // so that nobody else touches these bytes
		c.mu.Unlock()
		copied := copy(b[n:], c.exposed.Bytes()[from:to])
		c.mu.Lock()
		c.copying = false
		c.in.read(copied)
		n += copied
	}
	if c.in.due() {
		c.process() // gives credits, once it has seen that earlier ones were sent
	}
	return n, nil
}

func (c *Conn) readErr(err error) error {
	if err == io.EOF {
		return err
	}
	return c.opErr("read", err)
}

// Write sends b. It returns when the last byte is in the send buffer, or on its way.
func (c *Conn) Write(b []byte) (int, error) {
	c.wr.turn.Lock()
	defer c.wr.turn.Unlock()
	c.single[0] = b
	n, err := c.write(c.single[:])
	c.single[0] = nil
	return int(n), err
}

// WriteBuffers sends the buffers as if they were one, and removes from them what it has sent. It is
// writev for a Conn: net.Buffers.WriteTo calls Write for each buffer.
func (c *Conn) WriteBuffers(bufs *net.Buffers) (int64, error) {
	c.wr.turn.Lock()
	defer c.wr.turn.Unlock()
	list := *bufs
	n, err := c.write(list)
	for left := n; len(list) > 0; list = list[1:] {
		if int64(len(list[0])) > left {
			list[0] = list[0][left:]
			break
		}
		left -= int64(len(list[0]))
		list[0] = nil
	}
	*bufs = list
	return n, err
}

const (
	firstMessage = 2 << 10 // a long Write begins with short messages, which overlaps copying and sending
	longMessage  = 64 << 10
)

// write sends the buffers. The caller has wr.turn.
func (c *Conn) write(bufs [][]byte) (n int64, err error) {
	left := int64(0)
	for _, b := range bufs {
		left += int64(len(b))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process() // the peer may have left
	if left == 0 {
		if err := c.writable(); err != nil {
			return 0, c.opErr("write", err)
		}
		return 0, nil
	}
	i, at := 0, 0 // the next byte is bufs[i][at]
	for long := firstMessage; left > 0; {
		if err := c.await(&c.wr, (*Conn).hasRoom); err != nil {
			return n, c.opErr("write", err)
		}
		m := min(int(min(left, int64(long))), c.out.room())
		for at == len(bufs[i]) {
			i, at = i+1, 0
		}
		var inline []byte
		if m <= c.o.Inline && m <= len(bufs[i])-at {
			inline = bufs[i][at : at+m]
			at += m
		} else {
			m = c.piece(m)
			to := c.memory.Bytes()[c.fillAt : c.fillAt+m]
			c.mu.Unlock() // nobody else touches these bytes
			for filled := 0; filled < m; {
				if at == len(bufs[i]) {
					i, at = i+1, 0
				}
				copied := copy(to[filled:], bufs[i][at:])
				filled, at = filled+copied, at+copied
			}
			c.mu.Lock()
			if err := c.writable(); err != nil {
				return n, c.opErr("write", err)
			}
		}
		if err := c.send(m, inline); err != nil {
			return n, c.opErr("write", err)
		}
		n, left = n+int64(m), left-int64(m)
		long = min(2*long, longMessage)
	}
	return n, nil
}

// piece returns the size of the next message of at most n bytes in the send buffer, which has room for it. At
// the end of the buffer the message may be short.
func (c *Conn) piece(n int) int {
	return min(n, c.out.room(), c.space, c.o.SendBuffer-c.fillAt)
}

// send posts a message with n bytes: the inline ones, or the next ones in the send buffer. The
// caller has checked that there is room. Not every request is signaled. But when Write waits for
// space or for places, an earlier request is signaled, because unsignaled ones in a row take
// about a quarter of them at most.
func (c *Conn) send(n int, inline []byte) error {
	wr := c.request(n, inline)
	return c.post(&wr, n)
}

// request returns a request with n bytes: the inline ones, or the next ones in the send buffer.
func (c *Conn) request(n int, inline []byte) verbs.SendWR {
	wr := verbs.SendWR{WRID: wridData}
	if inline != nil {
		wr.Inline = inline
	} else {
		c.sgl[0] = c.memory.SGE(c.fillAt, n)
		wr.SGL = c.sgl[:]
		c.space -= n
		c.quietLen += uint64(n)
		if c.fillAt += n; c.fillAt == c.o.SendBuffer {
			c.fillAt = 0
		}
	}
	if c.quietWRs >= uint64(c.o.SendQueue/4) || c.quietLen > uint64(c.o.SendBuffer/4) {
		wr.Flags = verbs.SendSignaled
	}
	return wr
}

// post posts a message with n bytes of data.
func (c *Conn) post(wr *verbs.SendWR, n int) error {
	addr, key := c.out.write(n)
	wr.Opcode, wr.Imm, wr.Remote = verbs.OpRDMAWriteImm, message(msgData, uint32(n)), verbs.Remote{Addr: addr, RKey: key}
	return c.queue(wr)
}

// queue posts a request that takes one of the places for data.
func (c *Conn) queue(wr *verbs.SendWR) error {
	c.places--
	c.quietWRs++
	wr.WRID |= c.quietWRs<<32 | c.quietLen
	if wr.Flags&verbs.SendSignaled != 0 {
		c.quietWRs, c.quietLen = 0, 0
	}
	return c.tell(wr)
}

// tell posts a request. Over iWARP, it posts a message (a write with immediate data) as iWARP needs it.
func (c *Conn) tell(wr *verbs.SendWR) (err error) {
	if c.iwarp != nil && wr.Opcode == verbs.OpRDMAWriteImm {
		err = c.iwarp.post(c.qp, wr, c.order)
	} else {
		_, err = c.qp.PostSend(*wr)
	}
	if err != nil {
		return c.fail(lost(err))
	}
	return nil
}

// recvBatch is how many completions a poll takes, and how many receives are posted at once.
const recvBatch = 16

// CloseWrite tells the peer that this side sends no more: the peer's reads return io.EOF after the last byte.
// Reads on this side go on.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return c.opErr("close", net.ErrClosed)
	case c.noWrite:
		return nil
	case c.err != nil && !c.left:
		return c.opErr("close", &lostError{syscall.ENOTCONN, c.err})
	}
	c.noWrite = true
	if !c.left {
		c.control(ctlShutdown)
		c.process()
	}
	c.wr.signal()
	return nil
}

// CloseRead ends reads, which return io.EOF. Other calls on the connection drop the bytes that the peer
// sends.
func (c *Conn) CloseRead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opErr("close", net.ErrClosed)
	}
	c.noRead = true
	c.rd.signal()
	return nil
}
