package rsocket

import (
	"errors"
	"math"
	"syscall"

	"github.com/goverbs/goverbs/internal/netconn"
	"github.com/goverbs/goverbs/verbs"
)

// ErrNotMapped says that the peer has mapped no memory at the offset.
var ErrNotMapped = errors.New("the peer has mapped no memory there")

// Map lets the peer write to registered memory with its WriteAt, or with riowrite, from offset on
// (riomap). The memory's first byte is at this offset. The MR is on c.PD(), and has AccessLocalWrite and
// AccessRemoteWrite. The peer's writes arrive without notice, and before its later sends.
//
// The peer's Options.Mappings limits how many regions may be mapped at a time. Beyond the limit, the
// error matches syscall.ENOMEM.
func (c *Conn) Map(mr *verbs.MR, offset int64) error {
	if mr == nil || offset < 0 || int64(mr.Len()) > math.MaxUint32 {
		return c.link.OpErr("map", syscall.EINVAL)
	}
	c.link.Wr.Call.Lock()
	defer c.link.Wr.Call.Unlock()
	c.link.Waits.Mu.Lock()
	defer c.link.Waits.Mu.Unlock()
	i := 0
	for i < len(c.ours) && c.ours[i] != nil {
		i++
	}
	if i == len(c.ours) {
		return c.link.OpErr("map", syscall.ENOMEM)
	}
	if err := netconn.Await(&c.link.Waits, &c.link.Wr, c, (*Conn).hasCredit); err != nil {
		return c.link.OpErr("map", err)
	}
	m := mapping{uint64(offset), sge{addr: mr.Addr(), key: mr.RKey(), length: uint32(mr.Len())}}
	var b [mappingLen]byte
	m.put(b[:], c.order)
	wr := c.sender.Request(b[:])
	wr.Opcode, wr.Imm = verbs.OpRDMAWriteImm, message(msgIOMap, uint32(i))
	wr.Remote = verbs.Remote{Addr: c.peer.addr + uint64(c.peer.length)*sgeLen + uint64(i)*mappingLen, RKey: c.peer.key}
	c.out.sent++
	c.ours[i] = mr
	if err := c.postInSlot(wr); err != nil {
		return c.link.OpErr("map", err)
	}
	return nil
}

// Unmap makes room for another Map (riounmap). The peer is not notified, and it can write
// until the MR is closed.
func (c *Conn) Unmap(mr *verbs.MR) error {
	c.link.Waits.Mu.Lock()
	defer c.link.Waits.Mu.Unlock()
	for i := range c.ours {
		if c.ours[i] == mr {
			c.ours[i] = nil
			return nil
		}
	}
	return c.link.OpErr("unmap", syscall.EINVAL)
}

// WriteAt writes to memory that the peer has mapped, with Map or riomap (riowrite). The peer is not
// notified. Later writes arrive after this one. If the peer has mapped no memory at an offset, the
// error matches ErrNotMapped. Like Write, it returns when the last byte is in the send buffer.
func (c *Conn) WriteAt(b []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, c.link.OpErr("write", syscall.EINVAL)
	}
	c.link.Wr.Call.Lock()
	defer c.link.Wr.Call.Unlock()
	c.link.Waits.Mu.Lock()
	defer c.link.Waits.Mu.Unlock()
	c.process() // there may be a new mapping
	for long := netconn.FirstMessage; n < len(b); long = min(2*long, netconn.LongMessage) {
		if err := netconn.Await(&c.link.Waits, &c.link.Wr, c, (*Conn).hasSpace); err != nil {
			return n, c.link.OpErr("write", err)
		}
		remote, m := c.find(uint64(off) + uint64(n))
		if m == 0 {
			return n, c.link.OpErr("write", ErrNotMapped)
		}
		m = min(m, len(b)-n, long)
		var wr *verbs.SendWR
		if m <= c.o.Inline {
			wr = c.sender.Request(b[n : n+m])
		} else {
			m = copy(c.sender.Piece(m), b[n:])
			wr = c.sender.Filled(m)
		}
		wr.Opcode, wr.Remote = verbs.OpRDMAWrite, remote
		err := c.postInSlot(wr)
		wr.Inline = nil // the caller's
		if err != nil {
			return n, c.link.OpErr("write", err)
		}
		n += m
	}
	return n, nil
}

// find returns the peer's memory at an offset, and how much of it there is.
func (c *Conn) find(offset uint64) (verbs.Remote, int) {
	for i := range c.theirs {
		m := &c.theirs[i]
		if addr, n := m.find(offset); n > 0 {
			return verbs.Remote{Addr: addr, RKey: m.memory.key}, n
		}
	}
	return verbs.Remote{}, 0
}

// hasCredit reports whether there is room for a message without data.
func (c *Conn) hasCredit() (bool, error) {
	err := c.writable()
	return err == nil && !c.out.blocked && c.out.sent != c.out.allowed && c.sender.Slots > 0, err
}

// hasSpace reports whether there is room for a write without a message.
func (c *Conn) hasSpace() (bool, error) {
	err := c.writable()
	return err == nil && !c.out.blocked && c.sender.Slots > 0 && c.sender.HasSpace(), err
}
