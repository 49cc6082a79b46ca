package selftest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/goverbs/goverbs/efadv"
	"github.com/goverbs/goverbs/internal/scenario"
	"github.com/goverbs/goverbs/verbs"
)

// EFA adapters have datagrams only, which arrive and complete in any order. So the groups have
// other checks for EFA, which identify messages by numbers.

// chooseEFA stores the attributes of an EFA adapter.
func (s *side) chooseEFA() error {
	attr, err := efadv.QueryDevice(s.dev)
	if err != nil {
		return err
	}
	s.efa = &attr
	s.rights = verbs.AccessLocalWrite | verbs.AccessRelaxedOrdering
	if s.reads() {
		s.rights |= verbs.AccessRemoteRead
	}
	if s.writes() {
		s.rights |= verbs.AccessRemoteWrite
	}
	return nil
}

func (s *side) reads() bool  { return s.efa.Caps&efadv.CapRDMARead != 0 }
func (s *side) writes() bool { return s.efa.Caps&efadv.CapRDMAWrite != 0 }

// efaGroups returns the checks of a group, or the reason why there are none.
func efaGroups(name string) (run func(*run), why string) {
	switch name {
	case "identity":
		return identity, ""
	case "data":
		return efaData, ""
	case "doorbells":
		return efaDoorbells, ""
	case "wraps":
		return efaWraps, ""
	case "cqs":
		return efaCQs, ""
	case "syndromes":
		return efaSyndromes, ""
	case "memory":
		return efaMemory, ""
	case "peers":
		return efaPeers, ""
	case "host":
		return host, ""
	}
	return nil, map[string]string{
		"counters":  "queues with a completion for several requests: on EFA, each has one; see wraps",
		"clocks":    "a clock that can be read, and timestamps",
		"addresses": "several addresses: a port of EFA has one",
		"raw":       "raw Ethernet frames",
		"combining": "registers that take copies of requests",
		"speed":     "RC, over which this is measured: see ibv send_bw -c SRD",
	}[name]
}

const efaInline = 32 // of each EFA adapter

// efaShape returns the shape of a pair, with the limits of EFA's requests.
func efaShape(typ verbs.QPType, sends, recvs int) shape {
	return shape{typ: typ, sends: sends, recvs: recvs, sges: 2, inline: efaInline}
}

// longest returns the maximum lengths of a message and of RDMA between the sides.
func (r *run) longest(typ verbs.QPType) (message, rdma int) {
	message = r.message()
	if typ == verbs.UD {
		return min(message, r.mtu()), 0
	}
	return message, min(r.sides[0].efa.MaxRDMASize, room, memoryLimit()/4)
}

// efaExchanges returns each operation of a transport with each length, in several layouts.
func (r *run) efaExchanges(typ verbs.QPType) (list []scenario.Exchange) {
	message, rdma := r.longest(typ)
	ops := []verbs.Opcode{verbs.OpSend, verbs.OpSendImm}
	if typ == verbs.SRD && r.sides[1].reads() {
		ops = append(ops, verbs.OpRDMARead)
	}
	if typ == verbs.SRD && r.sides[1].writes() {
		ops = append(ops, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm)
	}
	for _, op := range ops {
		sends, most := op == verbs.OpSend || op == verbs.OpSendImm, rdma
		if sends {
			most = message
		}
		for i, n := range scenario.Lengths(r.mtu(), most, efaInline) {
			list = append(list, scenario.Exchange{Op: op, N: n, From: 1, To: 1})
			if sends && n > 1 {
				list = append(list, scenario.Exchange{Op: op, N: n, From: 1 + i%2, To: 2 - i%2}, scenario.Exchange{Op: op, N: n, From: 2, To: 2})
			}
			if sends && n <= efaInline {
				list = append(list, scenario.Exchange{Op: op, N: n, From: 1, To: 1 + i%2, Inline: true})
			}
		}
	}
	return list
}

// efaData exchanges data by each operation of both transports.
func efaData(r *run) {
	types := []verbs.QPType{verbs.SRD, verbs.UD}
	for _, t := range types {
		r.g.Planned += len(r.efaExchanges(t))
	}
	message, _ := r.longest(verbs.SRD)
	r.planned(r.g.Planned+message+1, "messages")
	for _, t := range types {
		r.check(t.String(), func(c *check) error {
			s := efaShape(t, 16, 16)
			_, rdma := r.longest(t)
			s.memory = scenario.Memory(max(message, rdma))
			p, err := c.pair(s)
			if err != nil {
				return err
			}
			return c.all(p, r.efaExchanges(t))
		})
	}
	r.check("every length", efaLengths)
	if !r.sides[1].reads() {
		r.lacks("RDMA reads, of this device or its driver")
	}
	if !r.sides[1].writes() {
		r.lacks("RDMA writes, of this device or its driver")
	}
	r.g.NotThere = append(r.g.NotThere, "RC, UC, XRC and DC", "atomic operations", "fences")
}

// efaLengths sends messages of all lengths over SRD, many at a time, in an order without pattern.
func efaLengths(c *check) error {
	message, _ := c.longest(verbs.SRD)
	limit := message + 1
	p, err := c.pair(shape{typ: verbs.SRD, sends: sweepBatch, recvs: sweepBatch, memory: (sweepBatch + 1) * (message + scenario.Margin)})
	if err != nil {
		return err
	}
	from, to := p.a.mr.Bytes(), p.b.mr.Bytes()
	scenario.Fill(from, c.o.Seed)
	step := 7919 // a prime
	for limit%step == 0 {
		step++
	}
	for first := 0; first < limit; first += sweepBatch {
		if c.timeUp() && first > 4*sweepBatch {
			return c.ctx.Err()
		}
		n := min(sweepBatch, limit-first)
		length := func(i int) int { return (first + i) * step % limit }
		wrs := make([]verbs.SendWR, n)
		scenario.Fill(to, ^c.o.Seed)
		was := bytes.Clone(to)
		for i := range n {
			if err := p.receive(verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{p.b.mr.SGE(i*(message+scenario.Margin), message)}}); err != nil {
				return err
			}
			wrs[i] = verbs.SendWR{WRID: uint64(first + i), Opcode: verbs.OpSendImm, Flags: verbs.SendSignaled, Imm: uint32(i),
				SGL: []verbs.SGE{p.a.mr.SGE(length(i)%61, length(i))}}
		}
		c.at("%v, messages of %d bytes and %d other lengths at once", p, length(0), n-1)
		if err := p.post(wrs...); err != nil {
			return err
		}
		if err := c.eachOnce(p.a.send, uint64(first), n); err != nil {
			return err
		}
		wcs, err := c.await(p.b.recv, n)
		if err != nil {
			return c.lost(err, fmt.Sprintf("%d receives", n))
		}
		for i := range wcs {
			wc := &wcs[i]
			imm, ok := wc.Imm()
			if wc.Err() != nil || !ok || int(imm) >= n || int(wc.ByteLen) != length(int(imm)) || wc.WRID >= sweepBatch {
				return &Failure{Object: c.what(), Expected: "a message with its number and length", Seen: describe(wc)}
			}
			place, m := int(wc.WRID)*(message+scenario.Margin), length(int(imm))
			copy(was[place:], from[m%61:][:m])
		}
		if seen, details := scenario.Differences(to, was, nil, []scenario.Piece{{N: len(to)}}); seen != "" {
			return &Failure{Object: c.what(), Expected: "the bytes that were sent, and no others changed", Seen: seen, Details: details}
		}
		c.done(n)
	}
	return nil
}

// eachOnce awaits the completions of n requests from first on, in any order.
func (c *check) eachOnce(cq *verbs.CQ, first uint64, n int) error {
	wcs, err := c.await(cq, n)
	if err != nil {
		return c.lost(err, fmt.Sprintf("the completions of requests %d to %d", first, first+uint64(n)-1))
	}
	seen := make(map[uint64]bool)
	for i := range wcs {
		wc := &wcs[i]
		if wc.Err() != nil || wc.WRID-first >= uint64(n) || seen[wc.WRID] {
			return &Failure{Object: c.what(), Expected: fmt.Sprintf("each of requests %d to %d to succeed once", first, first+uint64(n)-1), Seen: describe(wc)}
		}
		seen[wc.WRID] = true
	}
	return nil
}

// A layout is the placement of the bytes of a short message.
type layout int

const (
	inlined layout = iota
	onePiece
	twoPieces
	layouts
)

// A correspondence sends short messages, each with its number, from one end of a pair to the
// other. They may arrive and complete in any order.
type correspondence struct {
	c    *check
	p    *pair
	next uint64
	lead int
}

const envelope = 64 // the memory of a short message, with the bytes before it

func (c *check) correspond(s shape) (*correspondence, error) {
	s.memory = max(s.sends, s.recvs) * envelope
	p, err := c.pair(s)
	if err != nil {
		return nil, err
	}
	m := &correspondence{c: c, p: p, next: 1}
	if s.typ == verbs.UD {
		m.lead = verbs.GRHLen
	}
	return m, nil
}

// batch sends a message of each layout with one post, and awaits all completions.
func (m *correspondence) batch(list ...layout) error {
	c, p, n, first := m.c, m.p, len(list), m.next
	c.at("%v, messages %d to %d", p, first, first+uint64(n)-1)
	wrs := make([]verbs.SendWR, n)
	for i, l := range list {
		if err := p.receive(verbs.RecvWR{WRID: first + uint64(i), SGL: []verbs.SGE{p.b.mr.SGE(i*envelope, m.lead+stamp)}}); err != nil {
			return err
		}
		at := i * envelope
		b := p.a.mr.Bytes()[at : at+stamp]
		binary.LittleEndian.PutUint64(b, m.next)
		binary.LittleEndian.PutUint64(b[8:], ^m.next)
		wrs[i] = verbs.SendWR{WRID: m.next, Opcode: verbs.OpSendImm, Imm: uint32(m.next), Flags: verbs.SendSignaled}
		switch l {
		case inlined:
			wrs[i].Inline = b
		case onePiece:
			wrs[i].SGL = []verbs.SGE{p.a.mr.SGE(at, stamp)}
		case twoPieces:
			wrs[i].SGL = []verbs.SGE{p.a.mr.SGE(at, 3), p.a.mr.SGE(at+3, stamp-3)}
		}
		m.next++
	}
	if err := p.post(wrs...); err != nil {
		return err
	}
	if err := c.eachOnce(p.a.send, first, n); err != nil {
		return err
	}
	return m.arrive(first, n)
}

// arrive awaits n messages from first on, in receives that have the same numbers.
func (m *correspondence) arrive(first uint64, n int) error {
	c, p := m.c, m.p
	wcs, err := c.await(p.b.recv, n)
	if err != nil {
		return c.lost(err, fmt.Sprintf("messages %d to %d to arrive", first, first+uint64(n)-1))
	}
	receives, arrived := make(map[uint64]bool), make(map[uint64]bool)
	for i := range wcs {
		wc := &wcs[i]
		imm, ok := wc.Imm()
		place := wc.WRID - first
		wrong := wc.Err() != nil || !ok || place >= uint64(n) || receives[wc.WRID] || int(wc.ByteLen) != m.lead+stamp || wc.SrcQP != p.a.qp.Num()
		var number, inverted uint64
		if !wrong {
			b := p.b.mr.Bytes()[int(place)*envelope+m.lead:]
			number, inverted = binary.LittleEndian.Uint64(b), ^binary.LittleEndian.Uint64(b[8:])
			wrong = number != inverted || uint32(number) != imm || number-first >= uint64(n) || arrived[number]
		}
		if wrong {
			return &Failure{Object: c.what(), Expected: "each message once, in a receive of its own, with its number and its sender", Seen: fmt.Sprintf("%s, number %d and %d", describe(wc), number, inverted)}
		}
		receives[wc.WRID], arrived[number] = true, true
	}
	return nil
}

// efaDoorbells sends requests of each layout at each place of the ring, one by one and in batches
// of each length.
func efaDoorbells(r *run) {
	const planned = 50_000
	r.planned(planned, "posts")
	r.check("each layout in each place, one by one", func(c *check) error {
		m, err := c.correspond(efaShape(verbs.SRD, 64, 64))
		if err != nil {
			return err
		}
		for l := range layouts {
			for range m.p.a.qp.Cap().MaxSendWR + 1 {
				if err := m.batch(l); err != nil {
					return err
				}
				c.done(1)
			}
		}
		return nil
	})
	r.check("in batches", func(c *check) error {
		m, err := c.correspond(efaShape(verbs.SRD, 64, 64))
		if err != nil {
			return err
		}
		for i := 0; r.g.Done < planned && (i < 200 || !c.timeUp()); i++ {
			list := make([]layout, 1+i%64)
			for j := range list {
				list[j] = layout(scenario.Mix(c.o.Seed+uint64(i*64+j)) % uint64(layouts))
			}
			if err := m.batch(list...); err != nil {
				return err
			}
			c.done(len(list))
		}
		return c.ctx.Err()
	})
}

// efaWraps makes the counters and the rings of all queues wrap, fills the queues, and empties them through
// ERROR and RESET.
func efaWraps(r *run) {
	types := []verbs.QPType{verbs.SRD, verbs.UD}
	r.planned(len(types)*receivesPlanned+flushes, "messages")
	for i, t := range types {
		r.check("queues of "+t.String(), func(c *check) error {
			m, err := c.correspond(efaShape(t, 32, 32))
			if err != nil {
				return err
			}
			list := slices.Repeat([]layout{onePiece}, 24)
			until := c.share(len(types) - i + 1)
			for done := 0; done < receivesPlanned && (done < 500 || time.Now().Before(until) && !c.over()); done += len(list) {
				if err := m.batch(list...); err != nil {
					return err
				}
				c.done(min(len(list), receivesPlanned-done))
			}
			return c.ctx.Err()
		})
	}
	r.check("rings of one request", func(c *check) error {
		m, err := c.correspond(efaShape(verbs.SRD, 1, 1))
		if err != nil {
			return err
		}
		for range 100 {
			if err := m.batch(onePiece); err != nil {
				return err
			}
		}
		return nil
	})
	r.check("full queues", efaFull)
	r.check("flush and reuse", efaFlush)
	r.g.NotThere = append(r.g.NotThere, "shared receive queues")
}

// efaFull posts until a queue refuses more. Messages wait for receives. Each accepted request
// must complete once.
func efaFull(c *check) error {
	p, err := c.pair(efaShape(verbs.SRD, 8, 32))
	if err != nil {
		return err
	}
	sends, recvs := p.a.qp.Cap().MaxSendWR, p.b.qp.Cap().MaxRecvWR
	message := verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(0, 8)}}
	fill := func(what string, room int, post func(id uint64) error) error {
		c.at("%v, a queue for %d %s", p, room, what)
		took := 0
		var err error
		for ; took <= room; took++ {
			if err = post(uint64(took)); err != nil {
				break
			}
		}
		if took != room || !errors.Is(err, verbs.ErrQueueFull) {
			return &Failure{Object: c.what(), Expected: fmt.Sprintf("to take %d, and then to refuse more with %q", room, verbs.ErrQueueFull), Seen: fmt.Sprintf("it took %d, and then: %v", took, err)}
		}
		return nil
	}
	for range 3 {
		if err := fill("sends", sends, func(id uint64) error { message.WRID = id; return p.post(message) }); err != nil {
			return err
		}
		// Each receive has two pieces, so that the ring becomes full, too.
		if err := fill("receives", recvs, func(id uint64) error {
			return p.receive(verbs.RecvWR{WRID: id, SGL: []verbs.SGE{p.b.mr.SGE(0, 4), p.b.mr.SGE(4, 4)}})
		}); err != nil {
			return err
		}
		if err := c.eachOnce(p.a.send, 0, sends); err != nil {
			return err
		}
		for sent := sends; sent < recvs; sent++ {
			if err := c.sendOne(p, uint64(sent), verbs.SendSignaled); err != nil {
				return err
			}
		}
		if err := c.eachOnce(p.b.recv, 0, recvs); err != nil {
			return err
		}
	}
	return nil
}

// efaFlush moves queues with open receives to the error state, and reuses them.
func efaFlush(c *check) error {
	m, err := c.correspond(efaShape(verbs.SRD, 8, 8))
	if err != nil {
		return err
	}
	for round := range flushes {
		if round >= 6 && c.timeUp() {
			return c.ctx.Err()
		}
		if err := m.batch(onePiece, inlined); err != nil {
			return err
		}
		p, open := m.p, round%9
		c.at("%v, flushed for the %dth time, with %d receives", p, round+1, open)
		for i := range open {
			if err := p.receive(verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{p.b.mr.SGE(0, 8)}}); err != nil {
				return err
			}
		}
		if err := p.b.fail(); err != nil {
			return err
		}
		wcs, err := c.await(p.b.recv, open)
		if err != nil {
			return c.lost(err, fmt.Sprintf("%d flushed receives", open))
		}
		for i := range wcs {
			if wcs[i].WRID >= uint64(open) || wcs[i].Status != verbs.WCWRFlushErr {
				return &Failure{Object: c.what(), Expected: "receives flushed", Seen: describe(&wcs[i])}
			}
		}
		if err := p.b.again(); err != nil {
			return err
		}
		c.done(1)
	}
	return nil
}

// again resets a queue pair for datagrams, and makes it ready again.
func (e *end) again() error {
	if err := e.qp.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.QPAttrState); err != nil {
		return err
	}
	return e.activate()
}

// efaCQs tests completion queues.
func efaCQs(r *run) {
	r.planned(armsPlanned/2, "events")
	r.check("sizes", func(c *check) error {
		for _, n := range []int{1, 2, 3, 4, 7, 8, 31, 32, 63, 64} {
			s := efaShape(verbs.SRD, 64, 64)
			s.cqe = n
			m, err := c.correspond(s)
			if err != nil {
				return err
			}
			for range 5 {
				if err := m.batch(slices.Repeat([]layout{onePiece}, n)...); err != nil {
					return err
				}
			}
			if err := c.close(); err != nil { // this size's objects
				return err
			}
		}
		return nil
	})
	r.check("completions of a closed queue pair", efaClosed)
	if r.sides[1].efa.Caps&efadv.CapCQNotifications != 0 {
		r.check("events", func(c *check) error { return c.arms(verbs.SRD, false) })
		r.check("sleeping goroutine", func(c *check) error { return c.pollWait(verbs.SRD) })
	} else {
		r.planned(0, "events")
		r.g.NotThere = append(r.g.NotThere, "completion events, of this device or its driver")
	}
	r.g.NotThere = append(r.g.NotThere, "compressed completions", "resizing a CQ", "solicited events", "events of an overrun")
}

// efaClosed closes a queue pair whose completions are in the CQ, before those of another queue pair.
func efaClosed(c *check) error {
	const n = 8
	s := efaShape(verbs.SRD, n, n)
	s.cqe = 4 * n
	p, err := c.pair(s)
	if err != nil {
		return err
	}
	gone, err := p.a.pd.CreateQP(verbs.QPOptions{Type: verbs.SRD, SendCQ: p.a.send, RecvCQ: p.a.recv, Cap: verbs.QPCap{MaxSendWR: n, MaxSendSGE: 1}})
	if err != nil {
		return err
	}
	c.closing("QP", gone.Close)
	if err := gone.Activate(verbs.ActivateOptions{Port: p.a.side.num, QKey: qkey}); err != nil {
		return err
	}
	c.at("%v, and QP %#x, which is closed with %d completions in their CQ", p, gone.Num(), n)
	send := func(qp *verbs.QP, first uint64) error {
		for i := range uint64(n) {
			if err := p.receive(verbs.RecvWR{WRID: first + i, SGL: []verbs.SGE{p.b.mr.SGE(0, 8)}}); err != nil {
				return err
			}
			if _, err := qp.PostSend(p.to(verbs.SendWR{WRID: first + i, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(0, 8)}})); err != nil {
				return err
			}
		}
		return c.eachOnce(p.b.recv, first, n)
	}
	if err := send(gone, 100); err != nil {
		return err
	}
	if err := gone.Close(); err != nil {
		return err
	}
	if err := send(p.a.qp, 200); err != nil {
		return err
	}
	return c.eachOnce(p.a.send, 200, n)
}
