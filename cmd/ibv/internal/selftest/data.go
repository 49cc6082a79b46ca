package selftest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/goverbs/goverbs/verbs"
)

// room is the longest message of the group data, and margin the memory before and after it
// whose bytes must not change.
const (
	room   = 4 << 20
	margin = 256
)

// transports are what data goes over, by the requester's type.
var transports = []verbs.QPType{verbs.RC, verbs.UC, verbs.UD, verbs.XRCSend, verbs.DCI}

// An exchange is one operation with one length and layout.
type exchange struct {
	op       verbs.Opcode
	n        int
	from, to int // pieces
	inline   bool
}

func (x exchange) String() string {
	s := fmt.Sprintf("%v, ", x.op)
	if x.inline {
		return s + fmt.Sprintf("inline to %d pieces", x.to)
	}
	return s + fmt.Sprintf("%d to %d pieces", x.from, x.to)
}

// data exchanges data by each operation of each transport.
func data(r *run) {
	if err := r.hatch(); err != nil {
		r.check("canary", func(*check) error { return err })
		return
	}
	large := min(room, memoryLimit()/4)
	lists := make(map[verbs.QPType][]exchange)
	for _, t := range transports {
		lists[t] = exchanges(t, r.mtu(), large, inlineAsked)
		r.g.Planned += len(lists[t])
	}
	r.planned(r.g.Planned+sweepPlan, "messages")
	if large < room {
		r.g.NotThere = append(r.g.NotThere, fmt.Sprintf("messages of more than %d bytes: the limit of locked memory is %d", large, memoryLimit()))
	}
	for _, t := range transports {
		r.check(t.String(), func(c *check) error {
			p, err := c.pair(shape{typ: t, sends: 16, recvs: 16, sges: dataSGEs, inline: inlineAsked, memory: large + 2*margin + 4*gap})
			if err != nil {
				r.g.Planned -= len(lists[t])
				return err
			}
			return c.all(p, lists[t])
		})
	}
	r.check("atomics", atomics)
	r.check("fence", func(c *check) error { return fence(c, false) })
	r.check("fence after a bind", func(c *check) error { return fence(c, true) })
	r.check("every length", everyLength)
}

// inlineAsked is how many inline bytes the pairs of the group ask for. It is more than one
// WQE block, and less than any device's limit.
const inlineAsked = 200

// dataSGEs is how many entries a request of the group can have.
const dataSGEs = 4

// lengths returns the lengths at which something changes: words, the inline limit, the
// MTU, pages, and the longest.
func lengths(mtu, large, inline int) []int {
	list := []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129,
		inline - 1, inline, inline + 1, 255, 256, 257, mtu - 1, mtu, mtu + 1, 2*mtu - 1, 2 * mtu, 2*mtu + 1,
		4095, 4096, 4097, 65535, 65536, 65537, 1<<20 + 1, large}
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(n int) bool { return n > large })
}

// operations returns the data operations of a transport.
func operations(t verbs.QPType) []verbs.Opcode {
	switch t {
	case verbs.UD:
		return []verbs.Opcode{verbs.OpSend, verbs.OpSendImm}
	case verbs.UC:
		return []verbs.Opcode{verbs.OpSend, verbs.OpSendImm, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm}
	}
	return []verbs.Opcode{verbs.OpSend, verbs.OpSendImm, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm, verbs.OpRDMARead}
}

// exchanges returns each operation of a transport with each length, in several layouts.
func exchanges(t verbs.QPType, mtu, large, inline int) (list []exchange) {
	for _, op := range operations(t) {
		for i, n := range lengths(mtu, large, inline) {
			if t == verbs.UD && n > mtu {
				continue
			}
			list = append(list, exchange{op: op, n: n, from: 1, to: 1})
			if n > 1 && n <= 1<<17 {
				list = append(list, exchange{op: op, n: n, from: 2 + i%3, to: 4 - i%3})
			}
			if n <= inline && op != verbs.OpRDMARead {
				list = append(list, exchange{op: op, n: n, from: 1, to: 1 + i%2, inline: true})
			}
		}
	}
	return list
}

// A tally collects the failures of one operation and layout, which differ in length only.
type tally struct {
	c      *check
	first  *Failure
	failed []string
	right  []string
}

// add files the outcome of one length. It reports whether the check can go on: after a
// mismatch it can, after a failed completion the queues are in error.
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

// file files the failure, if there is one.
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
func (c *check) all(p *pair, list []exchange) error {
	tallies := make(map[string]*tally)
	for i, x := range list {
		t := tallies[x.String()]
		if t == nil {
			t = &tally{c: c}
			tallies[x.String()] = t
			defer t.file()
		}
		if c.over() || !t.add(x.n, c.exchange(p, x, uint64(i))) {
			return c.ctx.Err()
		}
		c.done(1)
	}
	return nil
}

// A window is the memory of an exchange at one end: the data, and the bytes around it.
type window struct {
	mem    []byte // from the MR's beginning
	pieces []piece
	sges   int // that a request can have
}

// window returns the window of n bytes in k pieces, of requests with so many entries at most.
func (e *end) window(n, k, lead, sges int) window {
	size := lead + extent(n, k) + 2*margin
	return window{mem: e.mr.Bytes()[:size], pieces: divide(n, k, lead+margin), sges: sges}
}

// sgl returns the entries of the pieces. lead is the length of a header before them. After the
// first of two or three entries is one of no bytes, which must change nothing.
func (w *window) sgl(mr *verbs.MR, lead int) (list []verbs.SGE) {
	for i, p := range w.pieces {
		if i == 0 && lead > 0 {
			p = piece{p.off - lead, p.n + lead}
		}
		list = append(list, mr.SGE(p.off, p.n))
		if n := len(w.pieces); i == 0 && n > 1 && n < w.sges {
			list = append(list, mr.SGE(p.off, 0))
		}
	}
	if len(w.pieces) == 0 && lead > 0 {
		list = append(list, mr.SGE(margin, lead))
	}
	return list
}

// exchange does one exchange and compares all memory that is near the data. With two
// pieces or more at the side that RDMA addresses, they are one piece there.
func (c *check) exchange(p *pair, x exchange, id uint64) error {
	c.at("%v, %v of %d bytes", p, x, x.n)
	seed := mix(c.o.Seed + id<<20 + uint64(x.n))
	rdma := x.op == verbs.OpRDMAWrite || x.op == verbs.OpRDMAWriteImm || x.op == verbs.OpRDMARead
	source, sink := p.a, p.b
	if x.op == verbs.OpRDMARead {
		source, sink = p.b, p.a
	}
	from, to := x.from, x.to
	switch {
	case x.op == verbs.OpRDMARead:
		from = 1
	case rdma:
		to = 1
	}
	lead := 0
	if p.shape.typ == verbs.UD {
		lead = verbs.GRHLen
	}
	out, in := source.window(x.n, from, 0, p.shape.sges), sink.window(x.n, to, lead, p.shape.sges)
	fill(out.mem, seed)
	fill(in.mem, ^seed)
	before := slices.Clone(out.mem)
	was := slices.Clone(in.mem)
	message := gather(nil, out.mem, out.pieces)
	want := slices.Clone(was)
	scatter(want, in.pieces, message)

	wr := verbs.SendWR{WRID: id, Opcode: x.op, Flags: verbs.SendSignaled, Imm: uint32(seed)}
	switch {
	case x.inline:
		wr.Inline = message
	case x.op == verbs.OpRDMARead:
		wr.SGL = in.sgl(sink.mr, 0)
	default:
		wr.SGL = out.sgl(source.mr, 0)
	}
	if rdma {
		peer := in
		if x.op == verbs.OpRDMARead {
			peer = out
		}
		off := margin
		if len(peer.pieces) > 0 {
			off = peer.pieces[0].off
		}
		wr.Remote = p.b.mr.Remote().At(uint64(off))
	}
	if err := c.message(p, wr, &in, lead); err != nil {
		return err
	}
	if lead > 0 {
		copy(want[margin:margin+lead], in.mem[margin:]) // the GRH is none of our data
	}
	if seen, details := differences(in.mem, want, was, in.pieces); seen != "" {
		return &mismatch{Failure{Object: c.what(), Expected: "the bytes that were sent, and no others changed", Seen: seen, Details: details}}
	}
	if seen, details := differences(out.mem, before, before, out.pieces); seen != "" {
		return &mismatch{Failure{Object: c.what(), Expected: "the source to stay as it is", Seen: "the source has changed: " + seen, Details: details}}
	}
	return nil
}

// completes has the completions of the operations at both ends; 0 for none at the responder.
var completes = map[verbs.Opcode][2]verbs.WCOpcode{
	verbs.OpSend:         {verbs.WCSend, verbs.WCRecv},
	verbs.OpSendImm:      {verbs.WCSend, verbs.WCRecv},
	verbs.OpRDMAWrite:    {verbs.WCRDMAWrite, 0},
	verbs.OpRDMAWriteImm: {verbs.WCRDMAWrite, verbs.WCRecvRDMAWithImm},
	verbs.OpRDMARead:     {verbs.WCRDMARead, 0},
}

// message posts a request and awaits all its completions. A write without one at the
// responder is followed by a message of no bytes, because only a completion there says
// that the data has arrived. What UC and UD lose is sent again, at most twice.
func (c *check) message(p *pair, wr verbs.SendWR, in *window, lead int) error {
	ops := completes[wr.Opcode]
	receives := ops[1] != 0
	announce := wr.Opcode == verbs.OpRDMAWrite
	id := wr.WRID + 1<<32
	if receives || announce {
		recv := verbs.RecvWR{WRID: id}
		if wr.Opcode == verbs.OpSend || wr.Opcode == verbs.OpSendImm {
			recv.SGL = in.sgl(p.b.mr, lead)
		}
		if len(recv.SGL) == 0 && p.b.side.efa != nil { // it needs a buffer in each receive
			recv.SGL = []verbs.SGE{p.b.mr.SGE(0, 1)}
		}
		if err := p.receive(recv); err != nil {
			return err
		}
	}
	unreliable := p.shape.typ == verbs.UC || p.shape.typ == verbs.UD
	for try := 1; ; try++ {
		if err := p.post(wr); err != nil {
			return err
		}
		sent, err := c.one(p.a.send, wr.WRID, ops[0], "request")
		if err != nil {
			return err
		}
		if n := uint32(max(0, total(in.pieces))); wr.Opcode == verbs.OpRDMARead && sent.ByteLen != n {
			return &Failure{Object: c.what(), Expected: fmt.Sprintf("a completion of %d bytes", n), Seen: describe(sent)}
		}
		if announce {
			if err := p.post(verbs.SendWR{WRID: wr.WRID, Opcode: verbs.OpSend, Flags: verbs.SendSignaled}); err != nil {
				return err
			}
			if _, err := c.one(p.a.send, wr.WRID, verbs.WCSend, "message after it,"); err != nil {
				return err
			}
		}
		if !receives && !announce {
			return nil
		}
		op := ops[1]
		if announce {
			op = verbs.WCRecv
		}
		got, err := c.one(p.b.recv, id, op, "receive")
		if f, ok := err.(*Failure); ok && unreliable && try < 3 && got == nil && f.lost() {
			c.g.fact("lost and sent again", c.what())
			continue
		}
		if err != nil {
			return err
		}
		return c.arrived(p, &wr, got, in, lead, announce)
	}
}

// lost reports whether the failure is that nothing came.
func (f *Failure) lost() bool { return f.Seen != "" && f.Seen[0] == '0' }

// arrived checks a receive's completion.
func (c *check) arrived(p *pair, wr *verbs.SendWR, got *verbs.WC, in *window, lead int, announce bool) error {
	n := total(in.pieces) + lead
	if announce {
		n = 0
	}
	bad := got.ByteLen != uint32(n)
	imm, has := got.Imm()
	if want := wr.Opcode == verbs.OpSendImm || wr.Opcode == verbs.OpRDMAWriteImm; has != want || want && imm != wr.Imm {
		bad = true
	}
	if (p.shape.typ == verbs.UD || p.shape.typ == verbs.SRD) && got.SrcQP != p.a.qp.Num() {
		bad = true
	}
	if bad {
		return &Failure{Object: c.what(), Expected: fmt.Sprintf("a receive of %d bytes from QP %#x with immediate %#x if it has any", n, p.a.qp.Num(), wr.Imm),
			Seen: describe(got) + fmt.Sprintf(", from QP %#x", got.SrcQP)}
	}
	return nil
}

// fence reads, and sends what was read, with a fence between both. Between them may be the
// bind of a window, after which a request has a fence of another kind too.
func fence(c *check, bind bool) error {
	const n = 64 << 10 // so that the read takes a while
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
		fill(p.b.mr.Bytes(), i)
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
		if seen, details := differences(p.b.mr.Bytes()[n:n+64], want, make([]byte, 64), []piece{{0, 64}}); seen != "" {
			return &Failure{Object: c.what(), Expected: "the message to have what was read", Seen: seen, Details: details}
		}
	}
	return nil
}

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
	const at = 512
	mem, back := p.b.mr.Bytes(), p.a.mr.Bytes()
	for i, x := range atomicCases(c.o.Seed) {
		c.at("%v, %v", p, x.name)
		fill(mem[:1024], uint64(i))
		fill(back[:1024], ^uint64(i))
		binary.NativeEndian.PutUint64(mem[at:], x.old)
		want, wantBack := slices.Clone(mem[:1024]), slices.Clone(back[:1024])
		binary.NativeEndian.PutUint64(want[at:], x.new)
		binary.NativeEndian.PutUint64(wantBack[at:], x.old)
		x.wr.WRID, x.wr.Flags, x.wr.SGL, x.wr.Remote = uint64(i), verbs.SendSignaled, []verbs.SGE{p.a.mr.SGE(at, 8)}, p.b.mr.Remote().At(at)
		if err := p.post(x.wr); err != nil {
			if x.masked && (errors.Is(err, verbs.ErrNotSupported) || errors.Is(err, verbs.ErrInvalid)) {
				c.g.NotThere = append(c.g.NotThere, "masked atomics")
				return nil
			}
			return err
		}
		if _, err := c.one(p.a.send, uint64(i), x.op, "request"); err != nil {
			return err
		}
		for _, m := range []struct {
			what            string
			got, want, mine []byte
		}{{"the peer's word", mem[:1024], want, mem[at : at+8]}, {"the returned word", back[:1024], wantBack, back[at : at+8]}} {
			if slices.Equal(m.got, m.want) {
				continue
			}
			return &Failure{Object: c.what() + fmt.Sprintf(" on %#x, operands %#x and %#x", x.old, x.wr.Compare|x.wr.Add, x.wr.Swap),
				Expected: fmt.Sprintf("%s to be %#x", m.what, binary.NativeEndian.Uint64(m.want[at:])),
				Seen:     fmt.Sprintf("it is %#x, or a byte beside it has changed", binary.NativeEndian.Uint64(m.mine))}
		}
	}
	return nil
}

// An atomicCase is one atomic operation, and what it must do.
type atomicCase struct {
	name     string
	wr       verbs.SendWR
	op       verbs.WCOpcode
	old, new uint64
	masked   bool
}

func atomicCases(seed uint64) (list []atomicCase) {
	for i := range uint64(16) {
		old, swap, add := mix(seed+i), mix(seed+i+100), mix(seed+i+200)
		list = append(list,
			atomicCase{name: "compare and swap, equal", wr: verbs.SendWR{Opcode: verbs.OpCompareSwap, Compare: old, Swap: swap}, op: verbs.WCCompareSwap, old: old, new: swap},
			atomicCase{name: "compare and swap, one bit differs", wr: verbs.SendWR{Opcode: verbs.OpCompareSwap, Compare: old ^ 1<<(4*i), Swap: swap}, op: verbs.WCCompareSwap, old: old, new: old},
			atomicCase{name: "compare and swap, the swap is there", wr: verbs.SendWR{Opcode: verbs.OpCompareSwap, Compare: swap, Swap: old}, op: verbs.WCCompareSwap, old: old, new: old},
			atomicCase{name: "fetch and add", wr: verbs.SendWR{Opcode: verbs.OpFetchAdd, Add: add}, op: verbs.WCFetchAdd, old: old, new: old + add})
	}
	list = append(list, atomicCase{name: "fetch and add with a carry through all bytes", wr: verbs.SendWR{Opcode: verbs.OpFetchAdd, Add: 1}, op: verbs.WCFetchAdd, old: 0x00ffffffffffffff, new: 1 << 56},
		atomicCase{name: "masked compare and swap", masked: true, wr: verbs.SendWR{Opcode: verbs.OpMaskedCompareSwap, Compare: 0x8800, CompareMask: 0xff00, Swap: 0xabcd, SwapMask: 0x0ff0}, op: verbs.WCCompareSwap, old: 0x112233445566_8899, new: 0x112233445566_8bc9},
		atomicCase{name: "masked fetch and add", masked: true, wr: verbs.SendWR{Opcode: verbs.OpMaskedFetchAdd, Add: 0x01010101010101ff, CompareMask: 0x8080808080808080}, op: verbs.WCFetchAdd, old: 0x1122334455667788, new: 0x1223344556677887})
	return list
}
