package firmware

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// On request, an HCA is hostile to programs, and does what no healthy HCA does. It doesn't
// attack what the drivers trust: the numbers of new objects, and the drivers' own queues.
// From then on, errors of drivers are no violations, because they got nonsense.

// Lie is a single wrong response to a command.
type Lie struct {
	Opcode uint16
	N      int // the N-th of the opcode from now on
	// Status refuses the command, which is not executed. If it is OK, the
	// response is random, generated from Seed.
	Status   Status
	Syndrome uint32
	Seed     uint64
}

// Repent makes the HCA honest again. Programs that got nonsense should have ended.
func (h *HCA) Repent() { h.hostile, h.lies = false, nil }

// queries lists the commands whose responses may be anything.
var queries = []uint16{0x402, 0x50b, 0x702, 0x707, 0x713, 0x90f, 0x773}

// Lie arms a lie.
func (h *HCA) Lie(l Lie) error {
	switch {
	case l.N < 1:
		return errors.New("counted from 1")
	case opcodes[l.Opcode].execute == nil:
		return fmt.Errorf("no command %#x", l.Opcode)
	case l.Status == OK && !slices.Contains(queries, l.Opcode):
		return fmt.Errorf("the driver believes what %s says", opcodes[l.Opcode].name)
	}
	h.hostile = true
	h.lies = append(h.lies, l)
	return nil
}

// lie returns the lie that is due for a command.
func (h *HCA) lie(opcode uint16) (due Lie, ok bool) {
	h.lies = slices.DeleteFunc(h.lies, func(l Lie) bool { return l.N == 0 })
	for i := range h.lies {
		l := &h.lies[i]
		if l.Opcode != opcode {
			continue
		}
		if l.N--; l.N == 0 && !ok {
			due, ok = *l, true
		}
	}
	return due, ok
}

// noise fills a response with random bytes.
func (l *Lie) noise(out []byte) {
	r := rand.New(rand.NewPCG(l.Seed, 0))
	for i := min(8, len(out)); i < len(out); i++ {
		out[i] = byte(r.Uint32())
	}
}

// Forge writes a CQE of 64 bytes into a QP's send or receive CQ, like one more completion.
// Only its owner bit is right.
func (h *HCA) Forge(qpn uint32, receive bool, cqe []byte) error {
	_, q, err := h.victim(qpn, receive)
	if err != nil {
		return err
	}
	if len(cqe) != 64 {
		return errors.New("a CQE has 64 bytes")
	}
	q.Forge([64]byte(cqe), h.c.Now())
	return nil
}

// Tell posts an event of a QP, a TypeCQError of the QP's receive CQ, or an event with an
// unused number.
func (h *HCA) Tell(typ uint8, qpn uint32) error {
	h.hostile = true
	switch typ {
	case eq.TypeCompletion, eq.TypeCQError:
		cqn := qpn
		events := h.listener(eq.TypeCQError)
		if _, q, err := h.victim(qpn, true); err == nil {
			cqn, events = uint32(q.Number()), q.events
		} else if h.cqs.items[qpn] != nil {
			return errors.New("a CQ that may be the driver's")
		}
		if events == nil {
			return errors.New("no event queue")
		}
		e := eq.Completion(cqn)
		if typ == eq.TypeCQError {
			e, events = eq.CQError(cqn, 1), h.listener(typ)
		}
		events.Post(e)
	case eq.TypePathMigrated, eq.TypeCommEst, eq.TypeSQDrained, eq.TypeQPFatal, eq.TypeQPRequest, eq.TypeQPAccess, eq.TypeLastWQE:
		if _, _, err := h.victim(qpn, true); err != nil && h.engine.Taken(qpn) {
			return err
		}
		h.Post(eq.QP(typ, eq.ResourceQP, qpn))
	default:
		return fmt.Errorf("events of type %#x are the driver's", typ)
	}
	return nil
}

// Scribble writes n random bytes to a QP's doorbell records or rings, or to the rings of
// its CQs.
func (h *HCA) Scribble(qpn uint32, where string, n int, seed uint64) error {
	c, q, err := h.victim(qpn, where != "send cq")
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(seed, 0))
	for range n {
		at, value := r.Uint64(), byte(r.Uint32())
		switch where {
		case "records":
			// Of the receive queue and the send queue.
			if b := h.c.Memory.Bytes(c.DBRAddr, 8); b != nil {
				b[at%8] = value
			}
		case "rings":
			// The last page may be large, and end after the rings in memory of others.
			size := c.RingBytes()
			if size == 0 {
				return errors.New("no rings")
			}
			if b := c.Buffer.Bytes(h.c.Memory, at%size, 1); b != nil {
				b[0] = value
			}
		case "send cq", "receive cq":
			q.Scribble(at, value)
		default:
			return fmt.Errorf("nothing is called %q", where)
		}
	}
	return nil
}

// victim returns a program's QP, and its receive or send CQ.
func (h *HCA) victim(qpn uint32, receive bool) (c transport.QPContext, q *completionQueue, err error) {
	c, ok := h.engine.QueryQP(qpn)
	if !ok || h.qps[qpn] == nil {
		return c, nil, errors.New("no such QP")
	}
	// The drivers' own QPs have no user index, and the key to all memory.
	if c.RLKey || c.Service == transport.QP0 || c.Service == transport.QP1 || c.Service == transport.RegUMR {
		return c, nil, errors.New("the driver's own QP")
	}
	cqn := c.CQNSend
	if receive {
		cqn = c.CQNRecv
	}
	if q = h.cqs.items[cqn]; q == nil {
		return c, nil, errors.New("the QP has no such CQ")
	}
	h.hostile = true
	return c, q, nil
}

// violation reports an error of the driver.
func (h *HCA) violation(err error) {
	if h.c.Violation != nil && !h.hostile {
		h.c.Violation(err)
	}
}
