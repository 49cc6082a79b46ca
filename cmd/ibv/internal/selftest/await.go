package selftest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// A silence is the error that nothing completes.
type silence struct {
	got, want int
	for_      time.Duration
	canary    string
}

func (s *silence) Error() string {
	return fmt.Sprintf("%d of %d completions in %v; %s", s.got, s.want, s.for_, s.canary)
}

// await polls n completions, of which any may be failures. If none arrives within the patience,
// the error is a *silence.
func (c *check) await(cq *verbs.CQ, n int) ([]verbs.WC, error) {
	if cap(c.wcs) < n {
		c.wcs = make([]verbs.WC, n)
	}
	wcs := c.wcs[:n]
	got := 0
	for w := c.wait(); got < n; {
		m, err := cq.Poll(wcs[got:])
		if err != nil {
			return wcs[:got], &Failure{Object: c.what(), Expected: fmt.Sprintf("completion %d of %d", got+1, n), Seen: "polling failed: " + err.Error()}
		}
		if got += m; m > 0 {
			w = c.wait()
			continue
		}
		if err := w.more(); err != nil {
			if s := (*silence)(nil); errors.As(err, &s) {
				s.got, s.want = got, n
			}
			return wcs[:got], err
		}
	}
	return wcs, nil
}

// A waiting waits for an event, first by spinning, then by sleeping.
type waiting struct {
	c     *check
	turns int
	since time.Time
}

func (c *check) wait() *waiting { return &waiting{c: c} }

// more waits a moment. It returns an error if the context has ended, or a *silence after
// the patience.
func (w *waiting) more() error {
	w.turns++
	if w.turns%256 != 0 {
		runtime.Gosched()
		return nil
	}
	if err := w.c.ctx.Err(); err != nil {
		return err
	}
	if w.since.IsZero() {
		w.since = time.Now()
	}
	waited := time.Since(w.since)
	if waited < w.c.o.Patience {
		if waited > time.Millisecond {
			time.Sleep(100 * time.Microsecond)
		}
		return nil
	}
	w.c.timeouts.Add(1)
	return &silence{for_: w.c.o.Patience, canary: w.c.sing()}
}

// one awaits one completion, which must be the request's and successful. With an error, it returns
// the wrong completion, if there is one.
func (c *check) one(cq *verbs.CQ, id uint64, op verbs.WCOpcode, whose string) (*verbs.WC, error) {
	wcs, err := c.await(cq, 1)
	if err != nil {
		return nil, c.lost(err, fmt.Sprintf("the completion of %s %d", whose, id))
	}
	wc := &wcs[0]
	if err := wc.Err(); err != nil {
		return wc, &Failure{Object: c.what(), Expected: fmt.Sprintf("%s %d to succeed", whose, id), Seen: describe(wc)}
	}
	if wc.WRID != id || wc.Opcode != op {
		return wc, &Failure{Object: c.what(), Expected: fmt.Sprintf("the completion of %s %d, %v", whose, id, op), Seen: describe(wc)}
	}
	return wc, nil
}

// lost turns a silence into a failure.
func (c *check) lost(err error, what string, details ...string) error {
	if s := (*silence)(nil); errors.As(err, &s) {
		return &Failure{Object: c.what(), Expected: what, Seen: s.Error(), Details: details}
	}
	return err
}

// describe returns a completion as text, with the device's details of a failure.
func describe(wc *verbs.WC) string {
	s := fmt.Sprintf("completion of %d: %v, QP %#x", wc.WRID, wc.Status, wc.QPNum)
	if wc.Status == verbs.WCSuccess {
		s += fmt.Sprintf(", %v, %d bytes", wc.Opcode, wc.ByteLen)
		if imm, ok := wc.Imm(); ok {
			s += fmt.Sprintf(", immediate %#x", imm)
		}
		return s
	}
	typ, syndrome := wc.Hardware()
	return s + fmt.Sprintf(", vendor error %#x, hardware syndrome %#x of type %#x", wc.VendorErr, syndrome, typ)
}

// A canary is another pair of queues. It distinguishes a lost completion from a device that
// no longer completes anything, and from a slow machine.
type canary struct {
	c *check
	p *pair
	n uint64
}

// hatch creates the canary, before anything can go wrong.
func (r *run) hatch() error {
	c := &check{run: r, name: "canary"}
	p, err := c.pair(shape{typ: verbs.RC, sends: 4, recvs: 1})
	if err != nil {
		c.close()
		return err
	}
	r.canary = &canary{c: c, p: p}
	return nil
}

// sing does a round trip with the canary. It waits up to ten times the patience.
func (c *check) sing() string {
	if c.canary == nil {
		return "no other pair of queues to compare with"
	}
	c.singing.Lock()
	defer c.singing.Unlock()
	k := c.canary
	k.n++
	if err := k.p.post(verbs.SendWR{WRID: k.n, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{k.p.a.mr.SGE(0, 8)}, Remote: k.p.b.mr.Remote()}); err != nil {
		return "posting to another pair of queues fails: " + err.Error()
	}
	ctx, cancel := context.WithTimeout(c.ctx, 10*c.o.Patience)
	defer cancel()
	var wc [1]verbs.WC
	began := time.Now()
	for ctx.Err() == nil {
		n, err := k.p.a.send.Poll(wc[:])
		switch {
		case err != nil:
			return "polling another CQ fails: " + err.Error()
		case n == 1 && wc[0].Err() != nil:
			return "another pair of queues fails too: " + describe(&wc[0])
		case n == 1:
			return fmt.Sprintf("another pair of queues still completes (in %v)", time.Since(began).Round(time.Microsecond))
		}
		time.Sleep(50 * time.Microsecond)
	}
	return "another pair of queues completes nothing either"
}

// retire closes the canary.
func (r *run) retire() {
	if r.canary != nil {
		r.canary.c.close()
		r.canary = nil
	}
}
