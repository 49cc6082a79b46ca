package selftest

import (
	"fmt"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// copiesPlanned is how many NOPs the group combining copies to each register.
const copiesPlanned = 32

// combining proves that the processor combines the stores of a request's copy, and that the
// device executes the copy. Of a NOP, the copy in the register asks for a completion, and the
// request in the ring doesn't. If stores aren't combined, the device takes the first 8
// bytes for a doorbell and executes the request in the ring. Then everything works, too, but slower.
func combining(r *run) {
	sides := r.sides[:]
	if r.loopback() {
		sides = sides[:1]
	}
	r.planned(len(sides)*copiesPlanned, "copies")
	for i, s := range sides {
		r.check("registers of "+s.dev.Info().Name(), func(c *check) error { return c.combined(i) })
	}
}

// combined posts NOPs to a QP of one side. After each it posts a second NOP, which completes
// in any case, so that no time limit decides whether the first completes.
func (c *check) combined(side int) error {
	c.plan = copiesPlanned
	p, err := c.pair(shape{typ: verbs.RC, sends: 2 * copiesPlanned, recvs: 1, cqe: 2*copiesPlanned + 1})
	if err != nil {
		return err
	}
	e := []*end{p.a, p.b}[side]
	q, err := newNops(e.qp, e.send)
	if err != nil {
		return unlessThere(err, "registers that take copies of requests")
	}
	var executed [2]int // by buffer of the register
	for i := range copiesPlanned {
		buffer := q.buffer()
		c.at("QP %#x of %s, NOP %d, copied to buffer %d of its register", e.qp.Num(), e.side.dev.Info().Name(), i, buffer)
		first := q.copied()
		// A busy device may read the ring although it has the copy. So it gets a
		// moment before the next request.
		for begin := time.Now(); !q.ready() && time.Since(begin) < time.Millisecond; {
		}
		second := q.rung()
		done, err := c.nop(q)
		if err == nil && done == first {
			executed[buffer]++
			done, err = c.nop(q)
		}
		if err != nil {
			return err
		}
		if done != second {
			return &Failure{Object: c.what(), Expected: fmt.Sprintf("the completion of request %d", second), Seen: fmt.Sprintf("that of request %d", done)}
		}
		c.done(1)
	}
	c.g.fact(e.side.dev.Info().Name()+" copies executed, by buffer", executed)
	for buffer, n := range executed {
		if n == 0 {
			return &Failure{Object: fmt.Sprintf("QP %#x of %s, buffer %d of its register, %d bytes long", e.qp.Num(), e.side.dev.Info().Name(), buffer, q.bell.Size),
				Expected: "copies of requests to be executed", Seen: fmt.Sprintf("the requests in the ring were executed, all %d times", copiesPlanned/2),
				Details: []string{"the processor doesn't combine its stores, or the device doesn't take copies there", fmt.Sprintf("copies executed in the other buffer: %d of %d", executed[1-buffer], copiesPlanned/2)}}
		}
	}
	return nil
}

// nop awaits a completion, and returns the number of its request.
func (c *check) nop(q *nops) (uint32, error) {
	for w := c.wait(); ; {
		n, ok, err := q.poll()
		if ok || err != nil {
			return n, err
		}
		if err := w.more(); err != nil {
			return 0, c.lost(err, "the completion of the NOP after it")
		}
	}
}
