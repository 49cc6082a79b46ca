package selftest

import (
	"fmt"
	"slices"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// A provocation is one wrong request, and the statuses that the specification has for it.
type provocation struct {
	name  string
	shape func(*shape)
	act   func(p *pair) error // nil for a write with the change
	send  verbs.WCStatus      // the requester's completion
	recv  verbs.WCStatus      // the responder's; WCSuccess for none

	// orSend is another status that a device may have for the requester: the specification
	// lets a responder choose how it refuses what its QP doesn't allow.
	orSend verbs.WCStatus

	// What some kernels' rxe reports in place of that. That of 7.2 flushes a request that it
	// can't send, and so doesn't say why.
	rxeSend []verbs.WCStatus
	rxeRecv verbs.WCStatus
}

// only gives a shape's responder and requester these rights.
func only(access, allow verbs.AccessFlags) func(*shape) {
	return func(s *shape) { s.access, s.allow = access, allow }
}

// rdma is a request with a remote address and key that are off.
func rdma(op verbs.Opcode, n, shift int, key uint32) func(*pair) error {
	return func(p *pair) error {
		remote := p.b.mr.Remote().At(uint64(shift))
		remote.RKey += key
		return p.post(verbs.SendWR{WRID: 1, Opcode: op, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(0, n)}, Remote: remote})
	}
}

// messageTo is a send of n bytes to a receive of m, whose entries are changed.
func messageTo(n, m int, change func(from, to *verbs.SGE)) func(*pair) error {
	return func(p *pair) error {
		from, to := p.a.mr.SGE(0, n), p.b.mr.SGE(0, m)
		if change != nil {
			change(&from, &to)
		}
		if err := p.receive(verbs.RecvWR{WRID: 2, SGL: []verbs.SGE{to}}); err != nil {
			return err
		}
		return p.post(verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{from}})
	}
}

const end4K = 4096 // of the memory of each side

var provocations = []provocation{
	{name: "send with a wrong local key", act: messageTo(64, 64, func(from, _ *verbs.SGE) { from.LKey++ }), send: verbs.WCLocProtErr, rxeSend: []verbs.WCStatus{verbs.WCLocQPOpErr, verbs.WCWRFlushErr}},
	{name: "send beyond the memory's end", act: messageTo(64, 64, func(from, _ *verbs.SGE) { from.Addr += end4K - 32 }), send: verbs.WCLocProtErr, rxeSend: []verbs.WCStatus{verbs.WCWRFlushErr}},
	{name: "receive that is too short", act: messageTo(64, 32, nil), send: verbs.WCRemInvReqErr, recv: verbs.WCLocLenErr, rxeSend: []verbs.WCStatus{verbs.WCRemOpErr}, rxeRecv: verbs.WCLocQPOpErr},
	{name: "receive with a wrong local key", act: messageTo(64, 64, func(_, to *verbs.SGE) { to.LKey++ }), send: verbs.WCRemOpErr, recv: verbs.WCLocProtErr, rxeRecv: verbs.WCLocQPOpErr},
	{name: "receive beyond the memory's end", act: messageTo(64, 64, func(_, to *verbs.SGE) { to.Addr += end4K - 32 }), send: verbs.WCRemOpErr, recv: verbs.WCLocProtErr, rxeRecv: verbs.WCLocQPOpErr},
	{name: "receive into memory without local write", shape: only(none, 0), act: messageTo(64, 64, nil), send: verbs.WCRemOpErr, recv: verbs.WCLocProtErr, rxeRecv: verbs.WCLocQPOpErr},
	{name: "no receive posted", shape: func(s *shape) { s.connect = func(o *verbs.ConnectOptions) { o.RNRRetry = 1 } },
		act: func(p *pair) error {
			return p.post(verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(0, 64)}})
		}, send: verbs.WCRNRRetryExcErr},
	{name: "write with a wrong key", act: rdma(verbs.OpRDMAWrite, 64, 0, 1), send: verbs.WCRemAccessErr},
	{name: "write beyond the memory's end", act: rdma(verbs.OpRDMAWrite, 64, end4K-32, 0), send: verbs.WCRemAccessErr},
	{name: "write before the memory", act: rdma(verbs.OpRDMAWrite, 64, -8, 0), send: verbs.WCRemAccessErr},
	{name: "write to memory without remote write", shape: only(verbs.AccessLocalWrite|verbs.AccessRemoteRead, 0), act: rdma(verbs.OpRDMAWrite, 64, 0, 0), send: verbs.WCRemAccessErr},
	{name: "read with a wrong key", act: rdma(verbs.OpRDMARead, 64, 0, 1), send: verbs.WCRemAccessErr},
	{name: "read beyond the memory's end", act: rdma(verbs.OpRDMARead, 64, end4K-32, 0), send: verbs.WCRemAccessErr},
	{name: "read of memory without remote read", shape: only(verbs.AccessLocalWrite|verbs.AccessRemoteWrite, 0), act: rdma(verbs.OpRDMARead, 64, 0, 0), send: verbs.WCRemAccessErr},
	{name: "read into memory with a wrong local key", act: func(p *pair) error {
		g := p.a.mr.SGE(0, 64)
		g.LKey++
		return p.post(verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{g}, Remote: p.b.mr.Remote()})
	}, send: verbs.WCLocProtErr},
	{name: "write to a QP without remote write", shape: only(0, verbs.AccessRemoteRead), act: rdma(verbs.OpRDMAWrite, 64, 0, 0), send: verbs.WCRemInvReqErr, orSend: verbs.WCRemAccessErr},
	{name: "read from a QP without remote read", shape: only(0, verbs.AccessRemoteWrite), act: rdma(verbs.OpRDMARead, 64, 0, 0), send: verbs.WCRemInvReqErr, orSend: verbs.WCRemAccessErr},
	{name: "atomic with a wrong key", act: rdma(verbs.OpFetchAdd, 8, 0, 1), send: verbs.WCRemAccessErr},
	{name: "atomic on memory without remote atomics", shape: only(verbs.AccessLocalWrite|verbs.AccessRemoteWrite, 0), act: rdma(verbs.OpCompareSwap, 8, 0, 0), send: verbs.WCRemAccessErr},
	{name: "atomic on a QP without remote atomics", shape: only(0, verbs.AccessRemoteWrite), act: rdma(verbs.OpFetchAdd, 8, 0, 0), send: verbs.WCRemInvReqErr, orSend: verbs.WCRemAccessErr},
}

// syndromes provokes each error, checks its status at both ends, and records what the
// device says beside it. The requests after the failed one must be flushed.
func syndromes(r *run) {
	for _, x := range provocations {
		r.check(x.name, func(c *check) error { return c.provoke(&x) })
	}
	r.check("receive that is shorter than the last in its place", shorterReceive)
	r.check("no such peer", noSuchPeer)
}

func (c *check) provoke(x *provocation) error {
	s := shape{typ: verbs.RC, sends: 8, recvs: 8, memory: end4K}
	sends, recvs := []verbs.WCStatus{x.send}, []verbs.WCStatus{x.recv}
	if x.orSend != verbs.WCSuccess {
		sends = append(sends, x.orSend)
	}
	if !c.sides[0].mlx5 {
		sends = append(sends, x.rxeSend...)
	}
	if !c.sides[1].mlx5 && x.rxeRecv != verbs.WCSuccess {
		recvs = append(recvs, x.rxeRecv)
	}
	if x.shape != nil {
		x.shape(&s)
	}
	p, err := c.pair(s)
	if err != nil {
		return err
	}
	if err := x.act(p); err != nil {
		return unlessThere(err, x.name)
	}
	// A request behind the failing one, which must be flushed.
	if err := p.post(verbs.SendWR{WRID: 3, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(0, 8)}, Remote: p.b.mr.Remote()}); err != nil {
		return err
	}
	wcs, err := c.await(p.a.send, 2)
	if err != nil {
		return c.lost(err, fmt.Sprintf("the failure %v and a flushed request", sends))
	}
	c.g.fact(x.name+", requester", describe(&wcs[0]))
	if wc := &wcs[0]; wc.WRID != 1 || !slices.Contains(sends, wc.Status) {
		return &Failure{Object: c.what() + ", " + x.name, Expected: fmt.Sprintf("request 1 to fail with %v", sends), Seen: describe(wc)}
	}
	if wc := &wcs[1]; wc.WRID != 3 || wc.Status != verbs.WCWRFlushErr {
		return &Failure{Object: c.what() + ", " + x.name, Expected: "request 3, posted after it, to be flushed", Seen: describe(wc)}
	}
	if x.recv != verbs.WCSuccess {
		wcs, err := c.await(p.b.recv, 1)
		if err != nil {
			return c.lost(err, fmt.Sprintf("the receive to fail with %v", recvs))
		}
		c.g.fact(x.name+", responder", describe(&wcs[0]))
		if wc := &wcs[0]; wc.WRID != 2 || !slices.Contains(recvs, wc.Status) {
			return &Failure{Object: c.what() + ", " + x.name, Expected: fmt.Sprintf("receive 2 to fail with %v", recvs), Seen: describe(wc)}
		}
	}
	attr, _, err := p.a.qp.Query()
	if err != nil {
		return err
	}
	if attr.State != verbs.QPErr {
		return &Failure{Object: c.what() + ", " + x.name, Expected: "the requester's QP in " + verbs.QPErr.String(), Seen: attr.State.String()}
	}
	if err := p.reset(); err != nil {
		return err
	}
	// The pair works again.
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

// shorterReceive uses receives of four pieces once around the ring. Then a receive of fewer
// must not be longer than they are: one piece, two, and one piece of two receives that are
// posted at once, each of which the library posts in its own way.
func shorterReceive(c *check) error {
	for _, srq := range []bool{false, true} {
		for _, pieces := range [][]int{{1}, {2}, {1, 1}} {
			if err := c.shorter(srq, pieces); err != nil {
				return err
			}
			if err := c.close(); err != nil { // these queues
				return err
			}
		}
	}
	return nil
}

// shorter posts a receive of four pieces everywhere in a ring, and then receives of so many
// pieces of 16 bytes, and sends 64 bytes.
func (c *check) shorter(srq bool, pieces []int) error {
	p, err := c.pair(shape{typ: verbs.RC, sends: 64, recvs: 8, sges: 4, srq: srq})
	if err != nil {
		return err
	}
	list := func(n int) (sgl []verbs.SGE) {
		for i := range n {
			sgl = append(sgl, p.b.mr.SGE(64*i, 16))
		}
		return sgl
	}
	message := verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(0, 64)}}
	for id := range uint64(32) {
		if err := p.receive(verbs.RecvWR{WRID: id, SGL: list(4)}); err != nil {
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
	c.at("%v, a receive of %d pieces of 16 bytes, where one of 4 pieces was, and %d after it", p, pieces[0], len(pieces)-1)
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

// noSuchPeer sends to a QP that is gone: the retries end.
func noSuchPeer(c *check) error {
	p, err := c.pair(shape{typ: verbs.RC, sends: 4, recvs: 4, connect: func(o *verbs.ConnectOptions) { o.AckTimeout, o.RetryCount = 4*time.Millisecond, 1 }})
	if err != nil {
		return err
	}
	if err := p.b.fail(); err != nil { // it answers no more
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
