package selftest

import (
	"bytes"
	"fmt"

	"github.com/goverbs/goverbs/internal/scenario"
	"github.com/goverbs/goverbs/verbs"
)

// sweepPlan is how many messages everyLength sends: three times all lengths with an MTU of
// 4096.
const sweepPlan = 3 * (2*4096 + sweepRest)

// sweepRest is how far lengths go beyond twice the MTU, and sweepBatch how many messages are
// in flight.
const (
	sweepRest  = 65
	sweepBatch = 16
)

// A sweep sends messages of all lengths up to twice the MTU. Each memory begins with the
// data of all messages, and has a place for each message in flight behind it.
type sweep struct {
	c     *check
	p     *pair
	limit int
	guard []byte // the contents of a place before a message
}

// everyLength sends messages of all lengths by three operations, in an order without
// pattern, so that a run that ends early has tested lengths of all kinds.
func everyLength(c *check) error {
	s := &sweep{c: c, limit: min(2*c.mtu()+sweepRest, c.message()+1)}
	var err error
	s.p, err = c.pair(shape{typ: verbs.RC, sends: 2 * sweepBatch, recvs: 2 * sweepBatch, memory: s.place(sweepBatch)})
	if err != nil {
		return err
	}
	s.guard = make([]byte, s.place(1)-s.place(0))
	scenario.Fill(s.guard, c.o.Seed+1)
	for _, e := range []*end{s.p.a, s.p.b} {
		scenario.Fill(e.mr.Bytes()[:s.place(0)], c.o.Seed)
		for i := range sweepBatch {
			copy(e.mr.Bytes()[s.place(i):], s.guard)
		}
	}
	ops := []verbs.Opcode{verbs.OpRDMAWrite, verbs.OpSend, verbs.OpRDMARead}
	tallies := make([]*tally, len(ops))
	for i := range tallies {
		tallies[i] = &tally{c: c}
		defer tallies[i].file()
	}
	for round := 0; round*sweepBatch < s.limit; round++ {
		for i, op := range ops {
			if c.timeUp() && round > 2 {
				return c.ctx.Err()
			}
			if goOn, err := s.batch(op, s.order(round), tallies[i]); err != nil || !goOn {
				return err
			}
			c.done(sweepBatch)
		}
	}
	c.g.Done = max(c.g.Done, c.g.Planned) // with a smaller MTU, there are fewer lengths
	return nil
}

// place returns the offset of the memory of a message in flight.
func (s *sweep) place(i int) int { return s.limit + 64 + i*(s.limit+2*scenario.Margin) }

// order returns the lengths of a round. 7919 is a prime that divides no limit, so that
// each length occurs once.
func (s *sweep) order(round int) (list [sweepBatch]int) {
	for i := range list {
		list[i] = (round*sweepBatch + i) * 7919 % s.limit
	}
	return list
}

// batch sends a message of each length, and compares them.
func (s *sweep) batch(op verbs.Opcode, list [sweepBatch]int, t *tally) (goOn bool, err error) {
	c, p := s.c, s.p
	c.at("%v, %v of %d bytes and %d others at once", p, op, list[0], len(list)-1)
	sink := p.b
	if op == verbs.OpRDMARead {
		sink = p.a
	}
	wrs := make([]verbs.SendWR, len(list))
	for i, n := range list {
		from := n % 61 // odd addresses too
		in := sink.mr.SGE(s.place(i)+scenario.Margin, n)
		wrs[i] = verbs.SendWR{WRID: uint64(i), Opcode: op, Flags: verbs.SendSignaled}
		switch op {
		case verbs.OpSend:
			if err := p.receive(verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{in}}); err != nil {
				return false, err
			}
			wrs[i].SGL = []verbs.SGE{p.a.mr.SGE(from, n)}
		case verbs.OpRDMAWrite:
			wrs[i].SGL, wrs[i].Remote = []verbs.SGE{p.a.mr.SGE(from, n)}, p.b.mr.Remote().At(uint64(s.place(i)+scenario.Margin))
		default:
			wrs[i].SGL, wrs[i].Remote = []verbs.SGE{in}, p.b.mr.Remote().At(uint64(from))
		}
	}
	if op == verbs.OpRDMAWrite { // a message after the writes shows that they have arrived
		if err := p.receive(verbs.RecvWR{}); err != nil {
			return false, err
		}
		wrs = append(wrs, verbs.SendWR{WRID: sweepBatch, Opcode: verbs.OpSend, Flags: verbs.SendSignaled})
	}
	if err := p.post(wrs...); err != nil {
		return false, err
	}
	if err := c.inOrder(p.a.send, 0, len(wrs)); err != nil {
		return false, err
	}
	receives := map[verbs.Opcode]int{verbs.OpSend: len(list), verbs.OpRDMAWrite: 1}[op]
	wcs, err := c.await(p.b.recv, receives)
	if err != nil {
		return false, c.lost(err, fmt.Sprintf("%d receives", receives))
	}
	for i := range wcs {
		if want := list[i]; wcs[i].WRID != uint64(i) || wcs[i].Err() != nil || op == verbs.OpSend && int(wcs[i].ByteLen) != want {
			return false, &Failure{Object: c.what(), Expected: fmt.Sprintf("receive %d of %d bytes", i, want), Seen: describe(&wcs[i])}
		}
	}
	for i, n := range list {
		if !t.add(n, s.compare(sink, op, i, n)) {
			return false, nil
		}
	}
	return true, nil
}

// compare compares a message, and restores its place.
func (s *sweep) compare(sink *end, op verbs.Opcode, i, n int) error {
	mem := sink.mr.Bytes()
	place := mem[s.place(i):s.place(i+1)]
	sent := mem[n%61:][:n] // both ends have the same data there
	end := scenario.Margin + n
	if bytes.Equal(place[:scenario.Margin], s.guard[:scenario.Margin]) && bytes.Equal(place[scenario.Margin:end], sent) && bytes.Equal(place[end:], s.guard[end:]) {
		copy(place[scenario.Margin:end], s.guard[scenario.Margin:])
		return nil
	}
	want := bytes.Clone(s.guard)
	copy(want[scenario.Margin:], sent)
	seen, details := scenario.Differences(place, want, s.guard, []scenario.Piece{{Off: scenario.Margin, N: n}})
	copy(place, s.guard)
	return &mismatch{Failure{Object: fmt.Sprintf("%v, %v of %d bytes", s.p, op, n), Expected: "the bytes that were sent, and no others changed", Seen: seen, Details: details}}
}
