package cq

import (
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/mutant"
)

type armed uint8

const (
	armedNot armed = iota
	armedSolicited
	armedAny
)

// Arm handles the arm doorbell's first word, written at UAR offset 0x20: two bits of
// sequence number, the command and the consumer index. (The second word has the queue's
// number.) Entries beyond that index cause an event at once. A sequence number that
// already caused an event is stale, because the driver increments it with each event.
func (q *CQ) Arm(word uint32, now time.Duration) {
	sn := int(word >> 28 & 3)
	if q.armed == armedNot && sn == q.sn {
		return
	}
	q.sn = sn
	q.armed = armedAny
	newer := q.producer
	if word&(1<<24) != 0 {
		q.armed = armedSolicited
		newer = q.solicited
	}
	if beyond(newer, word&indexMask) {
		q.fire()
	}
}

// beyond reports whether index a is after b, modulo their width.
func beyond(a, b uint32) bool {
	d := (a - b) & indexMask
	return d != 0 && d < 1<<23
}

// notify is called after n entries were written, any of which was solicited.
func (q *CQ) notify(n uint32, solicited bool, now time.Duration) {
	if q.status != StatusOK {
		return
	}
	if q.armed == armedSolicited && q.c.Mutant.Is(mutant.SolicitedIgnored) {
		solicited = false
	}
	if solicited {
		q.solicited = q.producer
	}
	if q.armed == armedNot || q.armed == armedSolicited && !solicited {
		return
	}
	count := (q.producer - q.notified) & indexMask
	switch {
	case q.c.Period == 0, q.c.MaxCount != 0 && count >= uint32(q.c.MaxCount):
		q.fire()
	case q.due == 0 || q.c.FromCQE:
		q.due = now + time.Duration(q.c.Period)*time.Microsecond
	}
}

func (q *CQ) fire() {
	q.due = 0
	if q.armed == armedNot {
		return
	}
	q.armed = armedNot
	q.notified = q.producer
	q.c.Event()
}

// Moderate changes the moderation (MODIFY_CQ with MLX5_CQ_MODIFY_PERIOD and _COUNT). An
// event waits until count entries follow the last event (0: no such limit), or until the
// first of them is period microseconds old. Without a period, events don't wait.
func (q *CQ) Moderate(period, count uint16) {
	q.c.Period, q.c.MaxCount = period, count
	if period == 0 && q.due != 0 {
		q.fire()
	}
}
