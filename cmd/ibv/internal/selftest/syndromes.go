package selftest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/goverbs/goverbs/internal/scenario"
	"github.com/goverbs/goverbs/verbs"
)

// syndromes provokes each error, checks its status at both ends, and records the device's
// vendor error. The requests after the failed request must be flushed.
func syndromes(r *run) {
	for _, x := range scenario.Failures {
		r.check(x.Name, func(c *check) error { return c.provoke(&x) })
	}
	r.check("receive that is shorter than the last in its place", shorterReceive)
	r.check("no such peer", noSuchPeer)
}

func (c *check) provoke(x *scenario.Failure) error {
	s := shape{typ: verbs.RC, sends: 8, recvs: 8, memory: scenario.FailureMemory, access: localAll &^ x.Memory, allow: remoteAll &^ x.QP}
	if s.access == 0 {
		s.access = none
	}
	if x.Once {
		s.connect = func(o *verbs.ConnectOptions) { o.RNRRetry = 1 }
	}
	sends, recvs := x.Statuses(!c.sides[0].mlx5), x.Receipts(!c.sides[1].mlx5)
	p, err := c.pair(s)
	if err != nil {
		return err
	}
	if err := p.provoke(x.Post); err != nil {
		return unlessThere(err, x.Name)
	}
	// A request behind the failing one, which must be flushed.
	if err := p.post(verbs.SendWR{WRID: 3, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(0, 8)}, Remote: p.b.mr.Remote()}); err != nil {
		return err
	}
	wcs, err := c.await(p.a.send, 2)
	if err != nil {
		return c.lost(err, fmt.Sprintf("the failure %v and a flushed request", sends))
	}
	c.g.fact(x.Name+", requester", describe(&wcs[0]))
	if wc := &wcs[0]; wc.WRID != 1 || !slices.Contains(sends, wc.Status) {
		return &Failure{Object: c.what() + ", " + x.Name, Expected: fmt.Sprintf("request 1 to fail with %v", sends), Seen: describe(wc)}
	}
	if wc := &wcs[1]; wc.WRID != 3 || wc.Status != verbs.WCWRFlushErr {
		return &Failure{Object: c.what() + ", " + x.Name, Expected: "request 3, posted after it, to be flushed", Seen: describe(wc)}
	}
	if x.Recv != verbs.WCSuccess {
		wcs, err := c.await(p.b.recv, 1)
		if err != nil {
			return c.lost(err, fmt.Sprintf("the receive to fail with %v", recvs))
		}
		c.g.fact(x.Name+", responder", describe(&wcs[0]))
		if wc := &wcs[0]; wc.WRID != 2 || !slices.Contains(recvs, wc.Status) {
			return &Failure{Object: c.what() + ", " + x.Name, Expected: fmt.Sprintf("receive 2 to fail with %v", recvs), Seen: describe(wc)}
		}
	}
	attr, _, err := p.a.qp.Query()
	if err != nil {
		return err
	}
	if attr.State != verbs.QPErr {
		return &Failure{Object: c.what() + ", " + x.Name, Expected: "the requester's QP in " + verbs.QPErr.String(), Seen: attr.State.String()}
	}
	if err := p.reset(); err != nil {
		return err
	}
	// The pair must work again.
	if err := p.receive(verbs.RecvWR{WRID: 5}); err != nil {
		return err
	}
	if err := p.post(verbs.SendWR{WRID: 4, Opcode: verbs.OpSend, Flags: verbs.SendSignaled}); err != nil {
		return err
	}
	if _, err := c.one(p.a.send, 4, verbs.WCSend, "message after the reset,"); err != nil {
		return err
	}
	_, err = c.one(p.b.recv, 5, verbs.WCRecv, "receive after the reset,")
	return err
}

// provoke posts a request, and the receive before it if there is one.
func (p *pair) provoke(x scenario.Post) error {
	recv, send := x(p.a.mr, p.b.mr)
	if recv != nil {
		if err := p.receive(*recv); err != nil {
			return err
		}
	}
	return p.post(send)
}

// shorterReceive uses receives of four pieces, or of the maximum, once around the
// ring. Then receives of fewer pieces must not use the old pieces: one piece, two pieces, and one piece in each of
// two receives that are posted at once. The library has separate code for each case.
func shorterReceive(c *check) error {
	for _, srq := range []bool{false, true} {
		for _, pieces := range [][]int{{1}, {2}, {1, 1}} {
			var absent *absence
			if err := c.shorter(srq, pieces); errors.As(err, &absent) {
				c.lacks(absent.why)
			} else if err != nil {
				return err
			}
			if err := c.close(); err != nil { // these queues
				return err
			}
		}
	}
	return nil
}

// shorter posts receives of pieces of 16 bytes in the whole ring, and then receives of the numbers in
// pieces. It sends a message that is long enough for the earlier receives.
func (c *check) shorter(srq bool, pieces []int) error {
	p, err := c.pair(shape{typ: verbs.RC, sends: 64, recvs: 8, sges: 4, fewer: true, srq: srq})
	if err != nil {
		return err
	}
	most := p.shape.sges
	if most <= pieces[0] {
		return notThere("receives of more than %d pieces", most)
	}
	list := func(n int) (sgl []verbs.SGE) {
		for i := range n {
			sgl = append(sgl, p.b.mr.SGE(64*i, 16))
		}
		return sgl
	}
	message := verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(0, 16*most)}}
	for id := range uint64(32) {
		if err := p.receive(verbs.RecvWR{WRID: id, SGL: list(most)}); err != nil {
			return err
		}
		message.WRID = id
		if err := p.post(message); err != nil {
			return err
		}
		if _, err := c.one(p.a.send, id, verbs.WCSend, "message"); err != nil {
			return err
		}
		if _, err := c.one(p.b.recv, id, verbs.WCRecv, "receive"); err != nil {
			return err
		}
	}
	c.at("%v, a receive of %d pieces of 16 bytes, where one of %d pieces was, and %d after it", p, pieces[0], most, len(pieces)-1)
	var wrs []verbs.RecvWR
	for _, n := range pieces {
		wrs = append(wrs, verbs.RecvWR{WRID: 40, SGL: list(n)})
	}
	if err := p.receive(wrs...); err != nil {
		return err
	}
	if err := p.post(message); err != nil {
		return err
	}
	wcs, err := c.await(p.b.recv, 1)
	if err != nil {
		return c.lost(err, "the receive to fail")
	}
	if s := wcs[0].Status; s != verbs.WCLocLenErr && (p.b.side.mlx5 || s != verbs.WCLocQPOpErr) {
		return &Failure{Object: c.what(), Expected: verbs.WCLocLenErr.String(), Seen: describe(&wcs[0])}
	}
	if _, err := c.await(p.a.send, 1); err != nil {
		return c.lost(err, "the message to fail")
	}
	return nil
}

// noSuchPeer sends to a QP that doesn't answer: the retries must end.
func noSuchPeer(c *check) error {
	p, err := c.pair(shape{typ: verbs.RC, sends: 4, recvs: 4, connect: func(o *verbs.ConnectOptions) { o.AckTimeout, o.RetryCount = 4*time.Millisecond, 1 }})
	if err != nil {
		return err
	}
	if err := p.b.fail(); err != nil { // it no longer answers
		return err
	}
	if err := p.post(verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(0, 8)}, Remote: p.b.mr.Remote()}); err != nil {
		return err
	}
	wcs, err := c.await(p.a.send, 1)
	if err != nil {
		return c.lost(err, "the failure "+verbs.WCRetryExcErr.String())
	}
	c.g.fact("no such peer, requester", describe(&wcs[0]))
	if wcs[0].Status != verbs.WCRetryExcErr {
		return &Failure{Object: c.what(), Expected: verbs.WCRetryExcErr.String(), Seen: describe(&wcs[0])}
	}
	return nil
}
