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

// A phase is how far the caller has ended a connection.
type phase uint8

const (
	connOpen     phase = iota
	connClosing        // after Close: written data is still sent
	connReleased       // the memory and the queues are being released
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

	armed      atomic.Bool // the CQ will report its next completion
	creditsDue atomic.Bool // the event handler must give credits to the peer
	keepalive  *time.Timer
	ended      chan struct{} // closed when err is set

	mu       mutex // protects all fields below; held briefly
	phase    phase
	err      error // why the connection has ended
	cqFailed bool  // the CQ will have no more completions
	linger   int   // SetLinger

	in      inbound
	out     outbound
	copying bool // a Read copies from the ring
	targets targets
	order   byteOrder // of the peer
	peer    sge       // the peer's list of targets
	entry   uint32    // the entry to write next

	slots         int    // free slots in the send queue for data
	space         int    // free bytes in the send buffer
	fillAt        int    // where the next byte goes in the send buffer
	unsignaledWRs uint64 // requests and bytes since the last signaled request
	unsignaledLen uint64
	lentWRs       int  // requests with a caller's memory, in the send queue
	creditWRs     int  // credit messages in the send queue
	probing       bool // a keepalive is in the send queue

	theirs []mapping   // the peer's mapped memory, for WriteAt
	ours   []*verbs.MR // memory mapped for the peer

	wcs    [recvBatch]verbs.WC
	recvs  [recvBatch]verbs.RecvWR
	sgl    [1]verbs.SGE
	small  [sgeLen]byte
	single [1][]byte // under wr.callMu
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
	phase := c.phase
	c.mu.Unlock()
	if phase != connOpen {
		return c.opErr("set", net.ErrClosed)
	}
	s.deadline.set(t)
	return nil
}

// hasData reports whether Read need not wait.
func (c *Conn) hasData() (bool, error) {
	switch {
	case c.phase != connOpen:
		return false, net.ErrClosed
	case c.in.dropped:
		return false, io.EOF
	case c.in.unread > 0:
		return true, nil
	case c.in.ended:
		return false, io.EOF
	}
	return false, c.err
}

// hasUnread reports whether there is something to read on a connection that has ended.
func (c *Conn) hasUnread() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.in.unread > 0
}

// hasRoom reports whether Write can send a message.
func (c *Conn) hasRoom() (bool, error) {
	ok, err := c.hasSlot()
	return ok && c.hasBuffer(), err
}

// hasSlot is hasRoom for a message from a caller's memory, which needs no space in the send buffer.
func (c *Conn) hasSlot() (bool, error) {
	err := c.writable()
	return err == nil && !c.out.blocked && c.out.room() > 0 && c.slots > 0, err
}

// hasBuffer reports whether the send buffer has enough free space for Write to go on.
func (c *Conn) hasBuffer() bool { return c.space >= min(lowWater, c.o.SendBuffer/2) }

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
		c.fail(violation("a target of %d bytes at %#x", target.length, target.addr))
		return
	}
	c.out.target = target
	c.out.next = (c.out.next + 1) % entries
}

// lowWater is the free space in the send buffer that Write waits for. With less, it would send many short
// messages.
const lowWater = 2048

func (c *Conn) writable() error {
	switch {
	case c.phase != connOpen:
		return net.ErrClosed
	case c.out.shut:
		return errPipe
	case c.err != nil:
		return c.err
	case c.out.refused:
		return errReset
	}
	return nil
}

// Read reads bytes that have arrived, and waits if there are none. After the peer's last byte it returns
// io.EOF.
func (c *Conn) Read(b []byte) (int, error) {
	c.rd.callMu.Lock()
	defer c.rd.callMu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(b) == 0 {
		if c.phase != connOpen {
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
	c.wr.callMu.Lock()
	defer c.wr.callMu.Unlock()
	c.single[0] = b
	n, err := c.write(c.single[:])
	c.single[0] = nil
	return int(n), err
}

// WriteBuffers sends the buffers as if they were one, and removes from them what it has sent. It is
// writev for a Conn: net.Buffers.WriteTo calls Write for each buffer.
func (c *Conn) WriteBuffers(bufs *net.Buffers) (int64, error) {
	c.wr.callMu.Lock()
	defer c.wr.callMu.Unlock()
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

// write sends the buffers. The caller has wr.callMu.
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
		wr := c.request(m, inline)
		if err := c.postData(&wr, m); err != nil {
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

// request returns a request with n bytes: the inline ones, or the next ones in the send buffer, which
// has room for them. Not every request is signaled. But when Write waits for space or for slots, an
// earlier request is signaled, because unsignaled ones in a row take about a quarter of them at most.
func (c *Conn) request(n int, inline []byte) verbs.SendWR {
	wr := verbs.SendWR{WRID: wridData}
	if inline != nil {
		wr.Inline = inline
	} else {
		c.sgl[0] = c.memory.SGE(c.fillAt, n)
		wr.SGL = c.sgl[:]
		c.space -= n
		c.unsignaledLen += uint64(n)
		if c.fillAt += n; c.fillAt == c.o.SendBuffer {
			c.fillAt = 0
		}
	}
	if c.unsignaledWRs >= uint64(c.o.SendQueue/4) || c.unsignaledLen > uint64(c.o.SendBuffer/4) {
		wr.Flags = verbs.SendSignaled
	}
	return wr
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
	c.slots--
	c.unsignaledWRs++
	wr.WRID |= c.unsignaledWRs<<32 | c.unsignaledLen
	if wr.Flags&verbs.SendSignaled != 0 {
		c.unsignaledWRs, c.unsignaledLen = 0, 0
	}
	return c.post(wr)
}

// post posts a request. Over iWARP, it posts a message (a write with immediate data) as iWARP needs it.
func (c *Conn) post(wr *verbs.SendWR) (err error) {
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
	case c.phase != connOpen:
		return c.opErr("close", net.ErrClosed)
	case c.out.shut:
		return nil
	case c.err != nil && !c.out.refused:
		return c.opErr("close", &lostError{syscall.ENOTCONN, c.err})
	}
	c.out.shut = true
	if !c.out.refused {
		c.postControl(ctlShutdown)
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
	if c.phase != connOpen {
		return c.opErr("close", net.ErrClosed)
	}
	c.in.dropped = true
	c.rd.signal()
	return nil
}
