package device

import "github.com/goverbs/goverbs/rig/efa/internal/wire"

// stats are the counters that the driver can query.
type stats struct {
	sentBytes, sentPackets, receivedBytes, receivedPackets, drops uint64
	sends, sendBytes, receives, receiveBytes                      uint64
	reads, readBytes, readErrors, readAnswered                    uint64
	writes, writeBytes, writeErrors, writtenBytes                 uint64
}

// The types of counters.
const (
	statsBasic = iota
	statsMessages
	statsRead
	statsWrite
)

func (d *Device) getStats(c *command, a *answer) status {
	const all = 0
	s := &d.stats
	var values []uint64
	switch c.u8(16) {
	case statsBasic:
		values = []uint64{s.sentBytes, s.sentPackets, s.receivedBytes, s.receivedPackets, s.drops}
	case statsMessages:
		values = []uint64{s.sendBytes, s.sends, s.receiveBytes, s.receives}
	case statsRead:
		values = []uint64{s.reads, s.readBytes, s.readErrors, s.readAnswered}
	case statsWrite:
		values = []uint64{s.writes, s.writeBytes, s.writeErrors, s.writtenBytes}
	default:
		return illegalParameter
	}
	if c.u8(17) != all {
		return illegalParameter
	}
	for i, v := range values {
		a.put64(8*i, v)
	}
	return success
}

// packets returns how many packets data of this length needs.
func packets(length int) uint64 { return uint64(max(1, (length+mtu-1)/mtu)) }

func (d *Device) countSend(m *wire.Message) {
	s := &d.stats
	s.sentBytes += uint64(len(m.Data))
	s.sentPackets += packets(len(m.Data))
	if m.Op == wire.Send {
		s.sends++
		s.sendBytes += uint64(len(m.Data))
	}
}

// countDone counts the end of a reliable message that was sent.
func (d *Device) countDone(m *wire.Message, status wire.Status) {
	s := &d.stats
	switch {
	case m.Op == wire.Read && status == wire.OK:
		s.reads++
		s.readBytes += uint64(m.RemoteLength)
	case m.Op == wire.Read:
		s.readErrors++
	case m.Op == wire.Write && status == wire.OK:
		s.writes++
		s.writeBytes += uint64(m.RemoteLength)
	case m.Op == wire.Write:
		s.writeErrors++
	}
}

func (d *Device) countReceive(m *wire.Message, status wire.Status) {
	s := &d.stats
	if status != wire.OK {
		s.drops++
		return
	}
	switch m.Op {
	case wire.Send:
		s.receives++
		s.receiveBytes += uint64(len(m.Data))
	case wire.Write:
		s.writtenBytes += uint64(m.RemoteLength)
	case wire.Read:
		s.readAnswered += uint64(m.RemoteLength)
		s.receivedPackets++
		return
	}
	s.receivedBytes += uint64(len(m.Data))
	s.receivedPackets += packets(len(m.Data))
}
