package device

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/internal/bus"
)

// An aenq is the queue of the events that concern no completion queue.
type aenq struct {
	ring     ring
	vector   int
	consumed uint32
	groups   uint32 // bits of the groups that the driver wants
}

const aenqEntry = 64

const (
	groupFatal = 1 + iota
	groupWarning
	groupNotification
	groupKeepAlive

	allGroups = 1<<groupFatal | 1<<groupWarning | 1<<groupNotification | 1<<groupKeepAlive
)

// notify writes an event, if the driver wants its group and the queue has room.
func (d *Device) notify(group uint16) bool {
	q := &d.aenq
	if q.groups>>group&1 == 0 || !q.ring.valid() || q.ring.count-q.consumed >= q.ring.size {
		return false
	}
	to := q.ring.entry(d.Memory, aenqEntry)
	if to == nil {
		d.violate("the AENQ is where there is no memory")
		return false
	}
	var e [aenqEntry]byte
	binary.LittleEndian.PutUint16(e[0:], group)
	binary.LittleEndian.PutUint64(e[8:], uint64(d.Now()))
	// The phase is in the second word.
	copy(to, e[:4])
	copy(to[8:], e[8:])
	bus.StoreLE32(to[4:], q.ring.phase())
	q.ring.count++
	if !d.masked() {
		d.Interrupt(q.vector)
	}
	return true
}

// KeepAlive tells the driver that the device works. The device does so once a second.
func (d *Device) KeepAlive() bool { return d.notify(groupKeepAlive) }

// Fail reports a fatal error to the driver.
func (d *Device) Fail() bool { return d.notify(groupFatal) }
