package selftest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// receivesPlanned exceeds a 16-bit counter, for each kind of receive queue.
const receivesPlanned = 70_000

// wraps makes the counters and the rings of all queues wrap.
func wraps(r *run) {
	const tiny = 2000
	kinds := []struct {
		name      string
		shape     shape
		n, window int
	}{
		{"receive queue", shape{typ: verbs.RC, sends: 32, recvs: 24}, receivesPlanned, 24},
		{"shared receive queue", shape{typ: verbs.RC, sends: 32, recvs: 24, srq: true}, receivesPlanned, 24},
		{"XRC shared receive queue", shape{typ: verbs.XRCSend, sends: 32, recvs: 24}, receivesPlanned, 24},
		{"datagrams", shape{typ: verbs.UD, sends: 32, recvs: 24}, receivesPlanned, 24},
		{"rings of one request", shape{typ: verbs.RC, sends: 1, recvs: 1, cqe: 1}, tiny, 1},
		{"rings of two requests, shared", shape{typ: verbs.RC, sends: 2, recvs: 2, cqe: 2, srq: true}, tiny, 2},
	}
	r.planned(flushes, "messages")
	for _, k := range kinds {
		r.g.Planned += k.n
	}
	for i, k := range kinds {
		r.check(k.name, func(c *check) error {
			c.plan = k.n
			k.shape.memory = 64 * 128
			p, err := c.pair(k.shape)
			if err != nil {
				return err
			}
			return c.flow(p, k.n, k.window, c.share(len(kinds)-i+1))
		})
	}
	r.check("shared receives returned out of order", outOfOrder)
	r.check("full queues", full)
	r.check("flush and reuse", flushAndReuse)
}

// stamp is the length of a message of flow: its number, and its number inverted.
const stamp = 16

// flow sends n messages, with up to window receives posted. Each message must arrive once,
// in order, in the receive that the completion names. The receives of a queue are used in
// order, also those of a shared queue, because no other queue pair uses it. flow ends early when
// the time is up, but not before the rings have wrapped.
func (c *check) flow(p *pair, n, window int, until time.Time) error {
	slot := 64
	lead := 0
	if p.shape.typ == verbs.UD {
		lead = verbs.GRHLen
	}
	least := 8*window + 300
	var next, sent, done uint64
	recv := func() error {
		at := int(next % uint64(window) * uint64(slot))
		next++
		return p.receive(verbs.RecvWR{WRID: next, SGL: []verbs.SGE{p.b.mr.SGE(at, lead+stamp)}})
	}
	for range window {
		if err := recv(); err != nil {
			return err
		}
	}
	mem := p.b.mr.Bytes()
	for int(done) < n {
		if int(done) >= least && time.Now().After(until) || c.over() {
			break
		}
		// A message for each receive. Each has its own memory until it has arrived.
		batch := min(uint64(window), uint64(n)-done)
		for range batch {
			sent++
			at := int(sent % uint64(window) * uint64(stamp))
			b := p.a.mr.Bytes()[at : at+stamp]
			binary.LittleEndian.PutUint64(b, sent)
			binary.LittleEndian.PutUint64(b[8:], ^sent)
			if err := p.post(verbs.SendWR{WRID: sent, Opcode: verbs.OpSendImm, Imm: uint32(sent), Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(at, stamp)}}); err != nil {
				return err
			}
		}
		for i := range batch {
			c.at("%v, message %d of %d, %d receives in the queue", p, done+i+1, n, window)
			if _, err := c.one(p.a.send, done+i+1, verbs.WCSend, "message"); err != nil {
				return err
			}
		}
		for range batch {
			done++
			c.at("%v, message %d of %d, %d receives in the queue", p, done, n, window)
			wc, err := c.one(p.b.recv, done, verbs.WCRecv, "receive")
			if err != nil {
				return err
			}
			at := int((done-1)%uint64(window)*uint64(slot)) + lead
			got, inverted := binary.LittleEndian.Uint64(mem[at:]), ^binary.LittleEndian.Uint64(mem[at+8:])
			imm, _ := wc.Imm()
			if got != done || inverted != done || imm != uint32(done) || int(wc.ByteLen) != lead+stamp {
				return &Failure{Object: c.what(), Expected: fmt.Sprintf("number %d in the message and as immediate", done),
					Seen: fmt.Sprintf("number %d and %d, %s", got, inverted, describe(wc))}
			}
			if err := recv(); err != nil {
				return err
			}
		}
		c.done(int(batch))
	}
	return c.ctx.Err()
}

// outOfOrder lets two pairs take receives from one SRQ in turn, and polls all receives of one before
// those of the other. So receives return to the SRQ in another order than they were taken,
// and are posted again in a third order. Each must complete once for each post.
func outOfOrder(c *check) error {
	const depth, rounds = 16, 40
	p, err := c.pair(shape{typ: verbs.RC, sends: depth, recvs: depth, srq: true, memory: depth * 64})
	if err != nil {
		return err
	}
	own, err := p.b.side.dev.CreateCQ(verbs.CQOptions{MaxCQE: depth})
	if err != nil {
		return err
	}
	c.closing("CQ", own.Close)
	second, err := c.sibling(p, own)
	if err != nil {
		return err
	}
	free := make([]int, depth)
	for i := range free {
		free[i] = i
	}
	for round := range rounds {
		c.at("%v and %v, round %d", p, second, round)
		inUse := make(map[uint64]bool)
		for _, i := range free {
			if err := p.receive(verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{p.b.mr.SGE(64*i, 8)}}); err != nil {
				return err
			}
			inUse[uint64(i)] = true
		}
		for i := range depth {
			from := []*pair{p, second}[(i+round)%2]
			if err := c.sendOne(from, uint64(i), verbs.SendSignaled); err != nil {
				return err
			}
		}
		free = free[:0]
		for _, cq := range []*verbs.CQ{own, p.b.recv} {
			wcs, err := c.await(cq, depth/2)
			if err != nil {
				return c.lost(err, fmt.Sprintf("%d receives", depth/2))
			}
			for i := range wcs {
				wc := &wcs[i]
				if wc.Err() != nil || !inUse[wc.WRID] {
					return &Failure{Object: c.what(), Expected: "each receive to complete once", Seen: describe(wc)}
				}
				delete(inUse, wc.WRID)
				free = append(free, int(wc.WRID))
			}
		}
		// Post again in another order: the odd receives backwards, then the even ones.
		mixed := make([]int, 0, depth)
		for i := depth - 1; i >= 0; i -= 2 {
			mixed = append(mixed, free[i])
		}
		for i := 0; i < depth; i += 2 {
			mixed = append(mixed, free[i])
		}
		free = mixed
	}
	return nil
}

// full posts until a queue refuses more, and again when it is empty. The queue must accept its reported
// number of requests, and refuse a request that would overwrite others. Accepted requests must complete, in order.
func full(c *check) error {
	for _, srq := range []bool{false, true} {
		p, err := c.pair(shape{typ: verbs.RC, sends: 8, recvs: 8, srq: srq, cqe: plenty})
		if err != nil {
			return err
		}
		recvs := p.b.qp.Cap().MaxRecvWR
		if srq {
			recvs = p.b.srq.MaxWR()
		}
		for range 3 {
			took, err := c.fill(p, "receives", recvs, func(id uint64) error {
				return p.receive(verbs.RecvWR{WRID: id, SGL: []verbs.SGE{p.b.mr.SGE(0, 8)}})
			})
			if err != nil {
				return err
			}
			for id := range uint64(took) {
				if err := c.sendOne(p, id, verbs.SendSignaled); err != nil {
					return err
				}
				if _, err := c.one(p.b.recv, id, verbs.WCRecv, "receive"); err != nil {
					return err
				}
			}
			took, err = c.fill(p, "sends", p.a.qp.Cap().MaxSendWR, func(id uint64) error { return p.write(id, 1) })
			if err != nil {
				return err
			}
			if err := c.inOrder(p.a.send, 0, took); err != nil {
				return err
			}
		}
	}
	return nil
}

// plenty exceeds the capacity of the queues of full.
const plenty = 512

// fill posts requests with the IDs from 0 on until the queue refuses one, and returns how many
// it accepted. rxe's sends free their slots when they are done, before they are polled. Only such a
// queue may never become full.
func (c *check) fill(p *pair, what string, room int, post func(id uint64) error) (took int, err error) {
	c.at("%v, a queue for %d %s", p, room, what)
	for ; took < plenty; took++ {
		if err = post(uint64(took)); err != nil {
			break
		}
	}
	endless := took == plenty && what == "sends" && !p.a.side.mlx5
	if took < room || took > room && p.a.side.mlx5 || !endless && !errors.Is(err, verbs.ErrQueueFull) {
		return 0, &Failure{Object: c.what(), Expected: fmt.Sprintf("to take %d, and then to refuse more with %q", room, verbs.ErrQueueFull), Seen: fmt.Sprintf("it took %d, and then: %v", took, err)}
	}
	return took, nil
}

// flushes is how many times the queues are flushed.
const flushes = 30

// flushAndReuse moves queues with open requests to the error state, and reuses them.
func flushAndReuse(c *check) error {
	p, err := c.pair(shape{typ: verbs.RC, sends: 8, recvs: 8})
	if err != nil {
		return err
	}
	for round := range flushes {
		if round >= 6 && c.timeUp() {
			return c.ctx.Err()
		}
		open := round % 9
		c.at("%v, flushed for the %dth time, with %d receives", p, round+1, open)
		// One message, so that the rings are at another offset each time.
		if err := c.exchangeOne(p, 99, verbs.SendSignaled); err != nil {
			return err
		}
		if _, err := c.one(p.b.recv, 99, verbs.WCRecv, "receive"); err != nil {
			return err
		}
		for i := range min(open, 8) {
			if err := p.receive(verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{p.b.mr.SGE(0, 8)}}); err != nil {
				return err
			}
		}
		if err := p.b.fail(); err != nil {
			return err
		}
		// Sends in the error state are flushed, too.
		for i := range 3 {
			if _, err := p.b.qp.PostSend(verbs.SendWR{WRID: uint64(i), Opcode: verbs.OpSend}); err != nil {
				return err
			}
		}
		for _, q := range []struct {
			cq *verbs.CQ
			n  int
			is string
		}{{p.b.recv, min(open, 8), "receives"}, {p.b.send, 3, "sends"}} {
			wcs, err := c.await(q.cq, q.n)
			if err != nil {
				return c.lost(err, fmt.Sprintf("%d flushed %s", q.n, q.is))
			}
			for i := range wcs {
				if wcs[i].WRID != uint64(i) || wcs[i].Status != verbs.WCWRFlushErr {
					return &Failure{Object: c.what(), Expected: fmt.Sprintf("%s %d flushed", q.is, i), Seen: describe(&wcs[i])}
				}
			}
		}
		if err := p.reset(); err != nil {
			return err
		}
		c.done(1)
	}
	return nil
}
