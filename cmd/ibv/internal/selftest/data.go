package selftest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/goverbs/goverbs/internal/scenario"
	"github.com/goverbs/goverbs/verbs"
)

// room is the longest message of the group data.
const room = 4 << 20

// transports are the transports of the group data, by the requester's type.
var transports = []verbs.QPType{verbs.RC, verbs.UC, verbs.UD, verbs.XRCSend, verbs.DCI}

// data exchanges data by each operation of each transport.
func data(r *run) {
	if err := r.hatch(); err != nil {
		r.check("canary", func(*check) error { return err })
		return
	}
	large := min(room, r.message(), memoryLimit()/4)
	list := func(s *shape) []scenario.Exchange {
		return scenario.Exchanges(s.typ, r.mtu(), large, s.inline, s.sges)
	}
	shapes := make([]shape, len(transports))
	for i, t := range transports {
		shapes[i] = shape{typ: t, sends: 16, recvs: 16, sges: dataSGEs, inline: inlineAsked, fewer: true, memory: scenario.Memory(large)}
		r.g.Planned += len(list(&shapes[i]))
	}
	r.planned(r.g.Planned+sweepPlan, "messages")
	switch {
	case large == room:
	case large == r.message():
		r.lacks(fmt.Sprintf("messages of more than %d bytes", large))
	default:
		r.lacks(fmt.Sprintf("messages of more than %d bytes: the limit of locked memory is %d", large, memoryLimit()))
	}
	for i, t := range transports {
		r.check(t.String(), func(c *check) error {
			c.plan = len(list(&shapes[i]))
			p, err := c.pair(shapes[i])
			if err != nil {
				return err
			}
			exchanges := list(&p.shape)
			r.g.Planned += len(exchanges) - c.plan
			return c.all(p, exchanges)
		})
	}
	r.check("atomics", atomics)
	r.check("fence", func(c *check) error { return fence(c, false) })
	r.check("fence after a bind", func(c *check) error { return fence(c, true) })
	r.check("every length", everyLength)
}

// inlineAsked is the number of inline bytes that the pairs of the group request. It is more than one
// WQE block, and less than most devices' limits.
const inlineAsked = 200

// dataSGEs is how many entries a request of the group can have.
const dataSGEs = 4

// A tally collects the failures of one operation and layout, which differ in length only.
type tally struct {
	c      *check
	first  *Failure
	failed []string
	right  []string
}

// add records the result of one length. It reports whether the check can continue. After a
// mismatch it can. After a failed completion it can't, because the queues are in error.
func (t *tally) add(n int, err error) (goOn bool) {
	if err == nil {
		t.right = append(t.right, strconv.Itoa(n))
		return true
	}
	if t.c.ctx.Err() != nil {
		return false
	}
	t.failed = append(t.failed, strconv.Itoa(n))
	m, goOn := err.(*mismatch)
	if t.first != nil {
		return goOn
	}
	if goOn {
		t.first = &m.Failure
	} else if f, ok := err.(*Failure); ok {
		t.first = f
	} else {
		t.first = &Failure{Object: t.c.what(), Expected: "success", Seen: err.Error()}
	}
	return goOn
}

// file reports the failure, if there is one.
func (t *tally) file() {
	if t.first == nil {
		return
	}
	if len(t.failed) > 1 {
		t.first.Also = append(t.first.Also, "at lengths "+few(t.failed[1:]))
	}
	if len(t.right) > 0 {
		t.first.Right = append(t.first.Right, "at lengths "+few(t.right))
	}
	t.c.fail(t.first)
	t.first = nil
}

// A mismatch is wrong data after successful completions.
type mismatch struct{ Failure }

// all does all exchanges of a pair.
func (c *check) all(p *pair, list []scenario.Exchange) error {
	tallies := make(map[string]*tally)
	for i, x := range list {
		t := tallies[x.String()]
		if t == nil {
			t = &tally{c: c}
			tallies[x.String()] = t
			defer t.file()
		}
		if c.over() || !t.add(x.N, c.exchange(p, x, uint64(i))) {
			return c.ctx.Err()
		}
		c.done(1)
	}
	return nil
}

// exchange does one exchange, and compares the data and the memory around it.
func (c *check) exchange(p *pair, x scenario.Exchange, id uint64) error {
	c.at("%v, %v of %d bytes", p, x, x.N)
	t := x.Begin(p.shape.typ, p.a.mr, p.b.mr, p.shape.sges, scenario.Mix(c.o.Seed+id<<20+uint64(x.N)), id)
	if err := c.transfer(p, t); err != nil {
		return err
	}
	if expected, seen, details := t.Compare(); seen != "" {
		return &mismatch{Failure{Object: c.what(), Expected: expected, Seen: seen, Details: details}}
	}
	return nil
}

// transfer posts the requests of an exchange and awaits all completions. It sends messages that UC or UD loses
// again, at most twice.
func (c *check) transfer(p *pair, t *scenario.Transfer) error {
	if r := t.Recv; r != nil {
		if len(r.SGL) == 0 && p.b.side.efa != nil { // EFA needs a buffer in each receive
			r.SGL = []verbs.SGE{p.b.mr.SGE(0, 1)}
		}
		if err := p.receive(*r); err != nil {
			return err
		}
	}
	unreliable := p.shape.typ == verbs.UC || p.shape.typ == verbs.UD
	for try := 1; ; try++ {
		for i, wr := range t.Sends {
			if err := p.post(wr); err != nil {
				return err
			}
			sent, err := c.one(p.a.send, wr.WRID, scenario.Completion(wr.Opcode), []string{"request", "message after it,"}[i])
			if err != nil {
				return err
			}
			if expected := t.Sent(sent); expected != "" {
				return &Failure{Object: c.what(), Expected: expected, Seen: describe(sent)}
			}
		}
		if t.Recv == nil {
			return nil
		}
		got, err := c.one(p.b.recv, t.Recv.WRID, t.Receipt(), "receive")
		if f, ok := err.(*Failure); ok && unreliable && try < 3 && got == nil && f.lost() {
			c.g.fact("lost and sent again", c.what())
			continue
		}
		if err != nil {
			return err
		}
		if expected := t.Received(got, p.a.qp.Num()); expected != "" {
			return &Failure{Object: c.what(), Expected: expected, Seen: describe(got) + fmt.Sprintf(", from QP %#x", got.SrcQP)}
		}
		return nil
	}
}

// lost reports whether the failure is that no completion arrived.
func (f *Failure) lost() bool { return f.Seen != "" && f.Seen[0] == '0' }

// fence reads, and sends the data that was read, with a fence in between. With bind, a window is bound in
// between. The request after a bind has another kind of fence, too.
func fence(c *check, bind bool) error {
	n := min(64<<10, c.message()) // so that the read takes a while
	if bind && c.sides[0].attr.DeviceCapFlags&(verbs.DeviceMemWindowType2A|verbs.DeviceMemWindowType2B) == 0 {
		return notThere("memory windows of type 2")
	}
	s := shape{typ: verbs.RC, sends: 8, recvs: 8, memory: 2 * n}
	if bind {
		s.access = localAll | verbs.AccessMWBind
	}
	p, err := c.pair(s)
	if err != nil {
		return err
	}
	var mw *verbs.MW
	if bind {
		if mw, err = p.a.pd.AllocMW(verbs.MWType2); err != nil {
			return unlessThere(err, "memory windows of type 2")
		}
		c.closing("memory window", mw.Close)
	}
	for i := range uint64(8) {
		c.at("%v, read and then send what was read, with a fence, for the %dth time", p, i+1)
		scenario.Fill(p.b.mr.Bytes(), i)
		clear(p.a.mr.Bytes()[:n])
		want := bytes.Clone(p.b.mr.Bytes()[n-64 : n])
		if err := p.receive(verbs.RecvWR{WRID: i, SGL: []verbs.SGE{p.b.mr.SGE(n, 64)}}); err != nil {
			return err
		}
		id := 4 * i
		wrs := []verbs.SendWR{{WRID: id, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(0, n)}, Remote: p.b.mr.Remote()}}
		if bind {
			info := verbs.MWBindInfo{MR: p.a.mr, Addr: p.a.mr.Addr(), Length: 64, Access: verbs.AccessRemoteRead}
			wrs = append(wrs, verbs.SendWR{WRID: id + 1, Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, MW: mw, NewRKey: verbs.NextRKey(mw.RKey()), Bind: info})
		}
		wrs = append(wrs, verbs.SendWR{WRID: id + uint64(len(wrs)), Opcode: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendFence, SGL: []verbs.SGE{p.a.mr.SGE(n-64, 64)}})
		if err := p.post(wrs...); err != nil {
			return err
		}
		if err := c.inOrder(p.a.send, id, len(wrs)); err != nil {
			return err
		}
		if bind { // a window must be free before it is bound again
			wr := verbs.SendWR{WRID: id, Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: mw.RKey()}
			if err := p.post(wr); err != nil {
				return err
			}
			if _, err := c.one(p.a.send, id, verbs.WCLocalInv, "invalidation"); err != nil {
				return err
			}
		}
		if _, err := c.one(p.b.recv, i, verbs.WCRecv, "receive"); err != nil {
			return err
		}
		if seen, details := scenario.Differences(p.b.mr.Bytes()[n:n+64], want, make([]byte, 64), []scenario.Piece{{N: 64}}); seen != "" {
			return &Failure{Object: c.what(), Expected: "the message to have what was read", Seen: seen, Details: details}
		}
	}
	return nil
}

// refusals are the statuses of an operation that a requester or a responder doesn't support.
var refusals = []verbs.WCStatus{verbs.WCLocQPOpErr, verbs.WCRemInvReqErr}

// atomics does each atomic operation on words that show which bytes and which operands the
// device has used.
func atomics(c *check) error {
	for _, s := range c.sides {
		if s.attr.AtomicCap == verbs.AtomicNone {
			return notThere("atomic operations")
		}
	}
	p, err := c.pair(shape{typ: verbs.RC, sends: 8, recvs: 1})
	if err != nil {
		return err
	}
	for i, x := range scenario.Atomics(c.o.Seed) {
		c.at("%v, %v", p, x.Name)
		wr, compare := x.Begin(p.a.mr, p.b.mr, uint64(i))
		if err := p.post(wr); err != nil {
			if x.Masked && (errors.Is(err, verbs.ErrNotSupported) || errors.Is(err, verbs.ErrInvalid)) {
				c.lacks("masked atomics")
				return nil
			}
			return err
		}
		wc, err := c.one(p.a.send, uint64(i), x.Op, "request")
		if x.Masked && wc != nil && slices.Contains(refusals, wc.Status) {
			// The library asks the adapter's firmware, but not every kernel allows that.
			c.lacks("masked atomics: they fail with " + wc.Status.String())
			return nil
		}
		if err != nil {
			return err
		}
		if expected, seen := compare(); seen != "" {
			return &Failure{Object: fmt.Sprintf("%v, %v", p, &x), Expected: expected, Seen: seen}
		}
	}
	return nil
}
