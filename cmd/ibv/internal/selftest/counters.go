package selftest

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// completionsPlanned exceeds a counter of 24 bits, the widest counter of a queue.
const completionsPlanned = 17_000_000

// counters completes enough requests to wrap each counter of a queue: the 16 bits of a
// request's number, the 24 bits of a CQ's index, and all rings.
func counters(r *run) {
	r.planned(completionsPlanned, "completions")
	r.check("completions of one queue", func(c *check) error {
		const deep, batch, least = 128, 64, 8 * 128
		c.plan = completionsPlanned
		p, err := c.pair(shape{typ: verbs.RC, sends: deep, recvs: 1})
		if err != nil {
			return err
		}
		var wrs [batch]verbs.SendWR
		var wcs [batch]verbs.WC
		var posted, done uint64
		for w := c.wait(); done < completionsPlanned && (done < least || !c.timeUp()); {
			for posted-done <= deep-batch {
				for i := range wrs {
					wrs[i] = verbs.SendWR{WRID: posted, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, Remote: p.b.mr.Remote()}
					posted++
				}
				if err := p.post(wrs[:]...); err != nil {
					return err
				}
			}
			n, err := p.a.send.Poll(wcs[:])
			if err != nil {
				return err
			}
			for i := range wcs[:n] {
				if wc := &wcs[i]; wc.WRID != done || wc.Status != verbs.WCSuccess || wc.QPNum != p.a.qp.Num() {
					c.at("%v, request %d, number %#x of its queue", p, done, done&0xffff)
					return &Failure{Object: c.what(), Expected: "its completion", Seen: describe(wc)}
				}
				done++
			}
			if n > 0 {
				w = c.wait()
				c.done(n)
			} else if err := w.more(); err != nil {
				c.at("%v, request %d of %d that were posted", p, done, posted)
				return c.lost(err, "its completion", fmt.Sprintf("%d were completed before it", done))
			}
		}
		return c.ctx.Err()
	})
}
