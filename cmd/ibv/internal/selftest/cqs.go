package selftest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/internal/scenario"
	"github.com/goverbs/goverbs/verbs"
)

// armsPlanned is how often CQs are armed, resizesPlanned how often a CQ is resized.
const (
	armsPlanned    = 100_000
	resizesPlanned = 300
	sizeMessages   = 64
)

// cqs tests completion queues.
func cqs(r *run) {
	r.planned(armsPlanned+resizesPlanned, "events and resizes")
	r.check("sizes", cqSizes)
	r.check("compressed completions", compressed)
	r.check("completions of 128 bytes", func(c *check) error {
		if !c.sides[1].mlx5 {
			return notThere("completions of 128 bytes")
		}
		return c.burst(func(o *verbs.CQOptions) { o.CQESize = 128 }, "completions of 128 bytes")
	})
	r.check("completions of a closed queue pair", closedQueuePair)
	r.check("resize under load", resizeUnderLoad)
	r.check("events", func(c *check) error { return c.arms(verbs.RC, false) })
	r.check("solicited events", func(c *check) error { return c.arms(verbs.RC, true) })
	r.check("sleeping goroutine", func(c *check) error { return c.pollWait(verbs.RC) })
	r.check("overrun", overrun)
}

// write posts n writes of 8 bytes, numbered from first on.
func (p *pair) write(first uint64, n int) error {
	for i := range n {
		wr := verbs.SendWR{WRID: first + uint64(i), Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(0, 8)}, Remote: p.b.mr.Remote()}
		if err := p.post(wr); err != nil {
			return err
		}
	}
	return nil
}

// inOrder polls n completions, which must be those of the requests from first on.
func (c *check) inOrder(cq *verbs.CQ, first uint64, n int) error {
	wcs, err := c.await(cq, n)
	if err != nil {
		return c.lost(err, fmt.Sprintf("the completions of requests %d to %d", first, first+uint64(n)-1))
	}
	for i := range wcs {
		if wcs[i].WRID != first+uint64(i) || wcs[i].Status != verbs.WCSuccess {
			return &Failure{Object: c.what(), Expected: fmt.Sprintf("the completion of request %d", first+uint64(i)), Seen: describe(&wcs[i])}
		}
	}
	return nil
}

// cqSizes fills CQs of several sizes to the last entry, twice around.
func cqSizes(c *check) error {
	for _, n := range []int{1, 2, 3, 4, 7, 8, 31, 32, 63, 100} {
		p, err := c.pair(shape{typ: verbs.RC, sends: 128, recvs: 1, cqe: n})
		if err != nil {
			return err
		}
		c.at("%v, a CQ for %d completions with room for %d", p, n, p.a.send.MaxCQE())
		if p.a.send.MaxCQE() < n {
			return &Failure{Object: c.what(), Expected: "as much room as was asked for", Seen: "less"}
		}
		full := min(n, p.a.qp.Cap().MaxSendWR)
		id := uint64(1)
		for range 5 {
			if err := p.write(id, full); err != nil {
				return err
			}
			if err := c.inOrder(p.a.send, id, full); err != nil {
				return err
			}
			id += uint64(full)
		}
		if err := c.close(); err != nil { // this size's objects
			return err
		}
	}
	return nil
}

// compressed receives messages of several lengths into a CQ with compression.
func compressed(c *check) error {
	caps := c.sides[1].attr.CQECompression
	if caps.MaxNum == 0 {
		return notThere("compressed completions")
	}
	for _, f := range []verbs.CQECompression{verbs.CompressHash, verbs.CompressChecksum, verbs.CompressStride} {
		if caps.Formats&f == 0 {
			c.g.NotThere = append(c.g.NotThere, "compression "+f.String())
			continue
		}
		if err := c.burst(func(o *verbs.CQOptions) { o.Compression = f }, "compression "+f.String()); err != nil {
			return err
		}
	}
	return nil
}

// burst sends messages of different lengths without polling, in bursts of many lengths, and
// checks each completion.
func (c *check) burst(cq func(*verbs.CQOptions), what string) error {
	p, err := c.pair(shape{typ: verbs.RC, sends: sizeMessages, recvs: sizeMessages, cq: cq, memory: 64 * sizeMessages})
	if err != nil {
		return unlessThere(err, what)
	}
	id := uint64(1)
	for round, n := range []int{1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 40, 63, 64, 64, 64, 5, 64, 33} {
		c.at("%v, %s, burst %d of %d messages", p, what, round, n)
		for i := range n {
			if err := p.receive(verbs.RecvWR{WRID: id + uint64(i), SGL: []verbs.SGE{p.b.mr.SGE(64*i, 64)}}); err != nil {
				return err
			}
		}
		length := func(i int) int { return 1 + (i*13+round)%60 }
		// Without a doorbell in between, so that they arrive together.
		wrs := make([]verbs.SendWR, n)
		for i := range wrs {
			wrs[i] = verbs.SendWR{WRID: id + uint64(i), Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(0, length(i))}}
		}
		if err := p.post(wrs...); err != nil {
			return err
		}
		if err := c.inOrder(p.a.send, id, n); err != nil {
			return err
		}
		wcs, err := c.await(p.b.recv, n)
		if err != nil {
			return c.lost(err, fmt.Sprintf("%d receives", n))
		}
		for i := range wcs {
			if wc := &wcs[i]; wc.WRID != id+uint64(i) || wc.Status != verbs.WCSuccess || int(wc.ByteLen) != length(i) || wc.QPNum != p.b.qp.Num() {
				return &Failure{Object: c.what(), Expected: fmt.Sprintf("receive %d with %d bytes of QP %#x", id+uint64(i), length(i), p.b.qp.Num()), Seen: fmt.Sprintf("number %d: %s", i, describe(wc))}
			}
		}
		id += uint64(n)
	}
	return nil
}

// closedQueuePair closes one of two queue pairs that have completions in a CQ. The completions of the
// other queue pair must remain. Those of the closed queue pair must not, except with rxe, which
// leaves them.
func closedQueuePair(c *check) error {
	const n = 16
	p, err := c.pair(shape{typ: verbs.RC, sends: n + 2, recvs: 1, cqe: 2*n + 2})
	if err != nil {
		return err
	}
	gone, err := c.sibling(p, nil)
	if err != nil {
		return err
	}
	for i := range uint64(n) {
		if err := gone.write(100+i, 1); err != nil {
			return err
		}
		if err := p.write(i, 1); err != nil {
			return err
		}
	}
	c.at("%v, which shares a CQ with %v, of which one is closed with %d requests", p, gone, n)
	number := gone.a.qp.Num()
	// Poll two completions, so that the CQ has been read before.
	wcs, err := c.await(p.a.send, 2)
	if err != nil {
		return c.lost(err, "the first completions")
	}
	next := uint64(0)
	for i := range wcs {
		if wcs[i].QPNum != number {
			next++
		}
	}
	if err := gone.settle(c); err != nil {
		return err
	}
	if err := gone.a.qp.Close(); err != nil {
		return err
	}
	for next < n {
		wcs, err := c.await(p.a.send, 1)
		if err != nil {
			return c.lost(err, fmt.Sprintf("the completion of request %d", next))
		}
		wc := &wcs[0]
		if wc.QPNum == number && !p.a.side.mlx5 {
			continue
		}
		if wc.WRID != next || wc.QPNum != p.a.qp.Num() || wc.Status != verbs.WCSuccess {
			return &Failure{Object: c.what(), Expected: fmt.Sprintf("the completion of request %d, QP %#x", next, p.a.qp.Num()), Seen: describe(wc)}
		}
		next++
	}
	if !p.a.side.mlx5 {
		return nil
	}
	// The completions of the closed queue pair may be last.
	var rest [1]verbs.WC
	switch n, err := p.a.send.Poll(rest[:]); {
	case err != nil:
		return &Failure{Object: c.what(), Expected: "no more completions", Seen: "polling failed: " + err.Error()}
	case n > 0:
		return &Failure{Object: c.what(), Expected: "no more completions", Seen: describe(&rest[0])}
	}
	return nil
}

// settle waits until the completions of all writes of 8 bytes are in the CQ, without polling it. The
// answer to a read acknowledges all earlier requests, and a write with a fence waits for the answer.
func (p *pair) settle(c *check) error {
	const at, mark = 64, 0x5e
	p.a.mr.Bytes()[at], p.b.mr.Bytes()[at] = mark, 0
	requests := []verbs.SendWR{
		{Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(0, 8)}, Remote: p.b.mr.Remote()},
		{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled | verbs.SendFence, SGL: []verbs.SGE{p.a.mr.SGE(at, 1)}, Remote: p.b.mr.Remote().At(at)},
	}
	if err := p.post(requests...); err != nil {
		return err
	}
	for w := c.wait(); p.b.mr.Bytes()[at] != mark; {
		if err := w.more(); err != nil {
			return c.lost(err, "the effect of a write after a read")
		}
	}
	return nil
}

// resizeUnderLoad resizes a CQ while completions arrive.
func resizeUnderLoad(c *check) error {
	c.plan = resizesPlanned
	p, err := c.pair(shape{typ: verbs.RC, sends: 64, recvs: 1, cqe: 64})
	if err != nil {
		return err
	}
	until := c.share(4)
	id := uint64(1)
	for i := range resizesPlanned {
		if i >= 20 && time.Now().After(until) || c.over() {
			return c.ctx.Err()
		}
		size := 64 + int(scenario.Mix(c.o.Seed+uint64(i))%400)
		c.at("%v, resize %d to %d completions, requests from %d on", p, i, size, id)
		n := 1 + int(scenario.Mix(uint64(i))%50)
		n = min(n, p.a.qp.Cap().MaxSendWR)
		if err := p.write(id, n/2); err != nil {
			return err
		}
		done := make(chan error, 1)
		go func() { done <- p.a.send.Resize(size) }()
		posting := p.write(id+uint64(n/2), n-n/2)
		if err := <-done; err != nil {
			return unlessThere(err, "resizing a CQ")
		}
		if posting != nil {
			return posting
		}
		if got := p.a.send.MaxCQE(); got < size {
			return &Failure{Object: c.what(), Expected: fmt.Sprintf("room for %d", size), Seen: fmt.Sprint(got)}
		}
		if err := c.inOrder(p.a.send, id, n); err != nil {
			return err
		}
		id += uint64(n)
		c.done(1)
	}
	return nil
}

// arms arms a CQ again and again. Each time, one completion must cause one event.
func (c *check) arms(typ verbs.QPType, solicited bool) error {
	const n = armsPlanned / 2
	c.plan = n
	p, err := c.pair(shape{typ: typ, sends: 8, recvs: 8, events: true})
	if err != nil {
		return err
	}
	flags := verbs.SendSignaled
	if solicited {
		flags |= verbs.SendSolicited
	}
	until := c.share(3)
	for i := range n {
		if i >= 200 && time.Now().After(until) || c.over() {
			return c.ctx.Err()
		}
		id := uint64(i)
		c.at("%v, arm %d", p, i)
		// Every other time, the receives' CQ is armed after the message: then the event is due at once.
		late := !solicited && i%2 == 1
		if !late {
			if err := p.b.recv.Arm(solicited); err != nil {
				return err
			}
		}
		if err := c.exchangeOne(p, id, flags); err != nil {
			return err
		}
		if late {
			// The completion is there already, so that arming now may or may not deliver an event: poll decides.
			if err := p.b.recv.Arm(false); err != nil {
				return err
			}
			if _, err := c.one(p.b.recv, id, verbs.WCRecv, "receive"); err != nil {
				return err
			}
			// The CQ is armed for the next message.
			if err := c.exchangeOne(p, id, verbs.SendSignaled); err != nil {
				return err
			}
		}
		if err := c.event(p.b.chR, p.b.recv, "armed"); err != nil {
			return err
		}
		if _, err := c.one(p.b.recv, id, verbs.WCRecv, "receive"); err != nil {
			return err
		}
		c.done(1)
	}
	return nil
}

// sendOne posts a message, and awaits its completion.
func (c *check) sendOne(p *pair, id uint64, flags verbs.SendFlags) error {
	if err := p.post(verbs.SendWR{WRID: id, Opcode: verbs.OpSend, Flags: flags, SGL: []verbs.SGE{p.a.mr.SGE(0, 8)}}); err != nil {
		return err
	}
	_, err := c.one(p.a.send, id, verbs.WCSend, "message")
	return err
}

// exchangeOne posts a receive and a message for it, and awaits the message's completion.
func (c *check) exchangeOne(p *pair, id uint64, flags verbs.SendFlags) error {
	if err := p.receive(verbs.RecvWR{WRID: id, SGL: []verbs.SGE{p.b.mr.SGE(0, 8)}}); err != nil {
		return err
	}
	return c.sendOne(p, id, flags)
}

// event waits for a channel's event, which must be the CQ's.
func (c *check) event(ch *verbs.CompChannel, cq *verbs.CQ, state string) error {
	ctx, cancel := context.WithTimeout(c.ctx, c.o.Patience)
	defer cancel()
	got, err := ch.Wait(ctx)
	switch {
	case c.ctx.Err() != nil:
		return c.ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		c.timeouts.Add(1)
		var wc [1]verbs.WC
		n, err := cq.Poll(wc[:])
		f := &Failure{Object: c.what(), Expected: "an event of the CQ, which was " + state, Seen: fmt.Sprintf("no event in %v; %s", c.o.Patience, c.sing())}
		switch {
		case err != nil:
			f.Details = append(f.Details, "polling fails: "+err.Error())
		case n == 1:
			f.Details = append(f.Details, "the completion is in the CQ, so the event is lost: "+describe(&wc[0]))
		default:
			f.Details = append(f.Details, "the CQ is empty, so the completion is lost, too")
		}
		return f
	case err != nil:
		return err
	case got != cq:
		return &Failure{Object: c.what(), Expected: "an event of the CQ that was armed", Seen: "one of another CQ"}
	}
	return nil
}

// pollWait lets a goroutine sleep until each message arrives.
func (c *check) pollWait(typ verbs.QPType) error {
	p, err := c.pair(shape{typ: typ, sends: 4, recvs: 4, events: true})
	if err != nil {
		return err
	}
	var wc [1]verbs.WC
	for i := range 200 {
		if i >= 20 && c.timeUp() {
			return c.ctx.Err()
		}
		c.at("%v, message %d", p, i)
		if err := p.receive(verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{p.b.mr.SGE(0, 8)}}); err != nil {
			return err
		}
		done := make(chan error, 1)
		ctx, cancel := context.WithTimeout(c.ctx, c.o.Patience)
		go func() {
			_, err := p.b.recv.PollWait(ctx, wc[:])
			done <- err
		}()
		err := p.post(verbs.SendWR{WRID: uint64(i), Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(0, 8)}})
		waiting := <-done
		cancel()
		if err != nil {
			return err
		}
		if errors.Is(waiting, context.DeadlineExceeded) {
			c.timeouts.Add(1)
			return &Failure{Object: c.what(), Expected: "PollWait to return the receive", Seen: fmt.Sprintf("nothing in %v; %s", c.o.Patience, c.sing())}
		}
		if waiting != nil {
			return waiting
		}
		if wc[0].WRID != uint64(i) || wc[0].Err() != nil {
			return &Failure{Object: c.what(), Expected: fmt.Sprintf("receive %d", i), Seen: describe(&wc[0])}
		}
		if _, err := c.one(p.a.send, uint64(i), verbs.WCSend, "message"); err != nil {
			return err
		}
	}
	return nil
}

// overrun completes more requests than a CQ has room for. The completions before must be
// intact, and the overrun must be reported.
func overrun(c *check) error {
	p, err := c.pair(shape{typ: verbs.RC, sends: 64, recvs: 1, cqe: 4})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	events := p.a.side.dev.Events(ctx)
	room := p.a.send.MaxCQE()
	n := min(room+8, p.a.qp.Cap().MaxSendWR)
	if n <= room {
		return notThere("overrun: the CQ has room for all that the QP posts")
	}
	c.at("%v, %d requests with a CQ for %d", p, n, room)
	if err := p.write(1, n); err != nil {
		return err
	}
	timer := time.AfterFunc(c.o.Patience, cancel)
	defer timer.Stop()
	for e, err := range events {
		if c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		if err != nil {
			c.timeouts.Add(1)
			return &Failure{Object: c.what(), Expected: "the event " + verbs.EventCQErr.String(), Seen: fmt.Sprintf("no event in %v; %s", c.o.Patience, c.sing())}
		}
		if e.Type == verbs.EventCQErr && e.CQ == p.a.send {
			break
		}
	}
	var wc [1]verbs.WC
	for i := 1; ; i++ {
		m, err := p.a.send.Poll(wc[:])
		if errors.Is(err, verbs.ErrCQOverrun) {
			return nil
		}
		if err != nil {
			return err
		}
		if m == 0 {
			return &Failure{Object: c.what(), Expected: "ErrCQOverrun after the completions that fit", Seen: fmt.Sprintf("%d completions, and no error", i-1)}
		}
		if wc[0].WRID != uint64(i) {
			return &Failure{Object: c.what(), Expected: fmt.Sprintf("completion %d", i), Seen: describe(&wc[0])}
		}
	}
}
