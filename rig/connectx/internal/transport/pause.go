package transport

import (
	"slices"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
)

// A pause is the flow control of the port: its neighbor tells it when it may send. What it may
// not send waits.
type pause struct {
	on      bool
	since   time.Duration // when it began
	before  time.Duration // how long earlier ones took
	packets []held
	queues  []*QP // with requests
	// From when on something waits, and how long it waited in earlier pauses.
	waits, waited time.Duration
}

// held is a packet that waits.
type held struct {
	port *fabric.Port
	p    *fabric.Packet
}

// Pause keeps the port from sending, or lets it send again.
func (e *Engine) Pause(now time.Duration, on bool) {
	p := &e.pause
	if p.on == on {
		return
	}
	p.on = on
	if on {
		p.since = now
		return
	}
	p.before += now - p.since
	if len(p.packets)+len(p.queues) > 0 {
		p.waited += now - p.waits
	}
	for _, x := range p.packets {
		x.port.Send(x.p)
	}
	for _, q := range p.queues {
		if !q.dead {
			e.activate(q)
		}
	}
	p.packets, p.queues = nil, nil
}

// Paused returns for how long the port was paused, and how long something waited for that.
func (e *Engine) Paused(now time.Duration) (paused, waited time.Duration) {
	p := &e.pause
	paused, waited = p.before, p.waited
	if p.on {
		paused += now - p.since
		if len(p.packets)+len(p.queues) > 0 {
			waited += now - p.waits
		}
	}
	return paused, waited
}

// wait is called before something waits.
func (p *pause) wait(now time.Duration) {
	if len(p.packets)+len(p.queues) == 0 {
		p.waits = now
	}
}

// pauses reports whether a queue pair must not send a request. The driver's own for memory keys
// sends nothing through the port.
func (q *QP) pauses() bool {
	p := &q.e.pause
	if !p.on || q.c.Service == RegUMR {
		return false
	}
	if (q.req.cursor != q.req.tail || q.sqPosted() > 0) && !slices.Contains(p.queues, q) {
		p.wait(q.e.now)
		p.queues = append(p.queues, q)
	}
	return true
}

// send sends a packet, now or after the pause.
func (e *Engine) send(port *fabric.Port, p *fabric.Packet) {
	if !e.pause.on {
		port.Send(p)
		return
	}
	e.pause.wait(e.now)
	e.pause.packets = append(e.pause.packets, held{port, p})
}
