package device

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rig/efa/internal/wire"
)

// pair returns QPs of one type on two devices, each with a CQ of its own and an AH of the
// other's device.
func pair(t *testing.T, kind, flags uint8, o cqOptions, profiles ...string) (a, b *testQP, toB, toA uint16) {
	t.Helper()
	w := newWorld(t, profiles...)
	x, y := w.drivers[0], w.drivers[1]
	a, b = x.qp(kind, x.cq(64, o), flags), y.qp(kind, y.cq(64, o), flags)
	return a, b, x.ah(y), y.ah(x)
}

func TestUD(t *testing.T) {
	a, b, toB, fromA := pair(t, typeUD, 0, cqOptions{entry: 16}, "efa0", "efa0")
	buffer := b.x.region(100, localWrite)
	b.want(7, buffer)
	a.post(imm(inline(a.entry(wire.Send, 3, toB, b), "hello"), 0x12345678))
	a.send.expect(a.sent(wire.Send, 3, wire.OK))
	b.receive.expect(cqe{Queue: receiveQueue, Request: 7, QP: b.number, Length: 45, AH: fromA, From: a.number, Imm: 0x12345678, HasImm: true})
	if string(buffer.data[40:46]) != "hello\x00" || !bytes.Equal(buffer.data[8:24], a.x.d.GID[:]) || !bytes.Equal(buffer.data[24:40], b.x.d.GID[:]) {
		t.Errorf("received % x", buffer.data)
	}
	// What can't be received is lost.
	a.post(inline(a.entry(wire.Send, 4, toB, b), "nobody waits"))
	a.send.expect(a.sent(wire.Send, 4, wire.OK))
	short := b.x.region(44, localWrite)
	b.want(8, short)
	a.post(inline(a.entry(wire.Send, 5, toB, b), "too long"))
	a.send.expect(a.sent(wire.Send, 5, wire.OK))
	e := inline(a.entry(wire.Send, 6, toB, b), "key")
	a.post(put(e, 16, 4, qkey+1))
	a.send.expect(a.sent(wire.Send, 6, wire.OK))
	b.receive.expectNone()
	a.post(inline(a.entry(wire.Send, 9, toB, b), "fits"))
	a.send.expect(a.sent(wire.Send, 9, wire.OK))
	b.receive.expect(cqe{Queue: receiveQueue, Request: 8, QP: b.number, Length: 44, AH: fromA, From: a.number})
	a.post(rdma(a.entry(wire.Read, 10, toB, b), short, short))
	a.send.expect(a.sent(wire.Read, 10, wire.UnsupportedOp))
}

func TestBuffers(t *testing.T) {
	a, b, toB, fromA := pair(t, typeSRD, 0, cqOptions{}, "efa2", "efa2")
	first, second := a.x.region(5000, 0), a.x.region(3000, 0)
	for i := range first.data {
		first.data[i] = byte(i * 7)
	}
	for i := range second.data {
		second.data[i] = byte(i * 11)
	}
	to := []region{b.x.region(1, localWrite), b.x.region(6000, localWrite), b.x.region(4000, localWrite)}
	b.want(1, to...)
	a.post(buffers(a.entry(wire.Send, 2, toB, b), first, second))
	a.send.expect(a.sent(wire.Send, 2, wire.OK))
	b.receive.expect(cqe{Queue: receiveQueue, Request: 1, QP: b.number, Length: 8000, AH: fromA, From: a.number})
	if got := slices.Concat(to[0].data, to[1].data, to[2].data)[:8000]; !bytes.Equal(got, slices.Concat(first.data, second.data)) {
		t.Error("the data differ")
	}
	b.want(2, to[0])
	a.post(buffers(a.entry(wire.Send, 3, toB, b)))
	a.send.expect(a.sent(wire.Send, 3, wire.OK))
	b.receive.expect(cqe{Queue: receiveQueue, Request: 2, QP: b.number, AH: fromA, From: a.number})
}

// What a sender is told when a message isn't delivered.
func TestErrors(t *testing.T) {
	a, b, toB, _ := pair(t, typeSRD, 0, cqOptions{}, "efa2", "efa2")
	nowhere := a.x.ah(&driver{d: &Device{Config: Config{GID: wire.GID{1}}}})
	good, large := a.x.region(64, localWrite), a.x.region(9000, 0)
	bad := good
	bad.key++
	remote, hidden := b.x.region(64, remoteRead|remoteWrite|localWrite), b.x.region(64, localWrite)
	unsent := func(op wire.Operation) []byte { return a.entry(op, 5, toB, b) }
	for _, c := range []struct {
		what  string
		entry []byte
		op    wire.Operation
		want  wire.Status
	}{
		{"no AH", inline(put(unsent(wire.Send), 12, 2, 99), "x"), wire.Send, wire.BadAH},
		{"no device", inline(put(unsent(wire.Send), 12, 2, uint64(nowhere)), "x"), wire.Send, wire.Unreachable},
		{"no QP", inline(put(unsent(wire.Send), 4, 2, uint64(b.number+1)), "x"), wire.Send, wire.BadQP},
		{"an earlier QP", inline(put(unsent(wire.Send), 4, 2, uint64(b.number-0x100)), "x"), wire.Send, wire.BadQP},
		{"another key", inline(put(unsent(wire.Send), 16, 4, 1), "x"), wire.Send, wire.BadQP},
		{"lkey", buffers(unsent(wire.Send), bad), wire.Send, wire.BadLKey},
		{"long", buffers(unsent(wire.Send), large), wire.Send, wire.TooLong},
		{"long inline", put(inline(unsent(wire.Send), "x"), 6, 2, 33), wire.Send, wire.TooLong},
		{"buffers", put(buffers(unsent(wire.Send), good), 6, 2, 3), wire.Send, wire.TooLong},
		{"operation", unsent(7), 7, wire.UnsupportedOp},
		{"read to nothing", rdma(unsent(wire.Read), bad, remote), wire.Read, wire.BadLKey},
		{"read to read-only", rdma(unsent(wire.Read), region{large.addr, large.data[:64], large.key}, remote), wire.Read, wire.BadLKey},
		{"read of nothing", rdma(unsent(wire.Read), good, bad), wire.Read, wire.BadAddress},
		{"read of hidden", rdma(unsent(wire.Read), good, hidden), wire.Read, wire.BadAddress},
		{"write from nothing", rdma(unsent(wire.Write), bad, remote), wire.Write, wire.BadLKey},
		{"write to hidden", rdma(unsent(wire.Write), good, hidden), wire.Write, wire.BadAddress},
		{"lengths", put(rdma(unsent(wire.Write), good, remote), sqeLocal, 4, 63), wire.Write, wire.TooLong},
	} {
		c.entry[3] = c.entry[3]&^sqePhase | byte(^a.posted/sqDepth&1)
		a.post(c.entry)
		a.x.settle(time.Second)
		if got := a.send.poll(); got == nil || decode(got) != a.sent(c.op, 5, c.want) {
			t.Errorf("%s: completion % x, want status %d", c.what, got, c.want)
		}
	}
	b.want(1, region{hidden.addr, hidden.data, hidden.key + 1})
	a.post(inline(unsent(wire.Send), "x"))
	a.send.expect(a.sent(wire.Send, 5, wire.BadStatus))
	b.receive.expect(cqe{Queue: receiveQueue, Request: 1, Status: wire.BadLKey, QP: b.number, Length: 1, AH: 0, From: a.number})
	b.want(2, b.x.region(4, localWrite))
	a.post(inline(unsent(wire.Send), "12345"))
	a.send.expect(a.sent(wire.Send, 5, wire.BadLength))
	b.receive.expectNone()
}

func TestRDMA(t *testing.T) {
	a, b, toB, fromA := pair(t, typeSRD, 0, cqOptions{}, "efa2", "efa2")
	local, remote := a.x.region(70000, localWrite), b.x.region(80000, remoteRead|remoteWrite|localWrite)
	for i := range remote.data {
		remote.data[i] = byte(i*3 + i>>8)
	}
	part := region{remote.addr + 1234, remote.data[1234:][:70000], remote.key}
	a.post(rdma(a.entry(wire.Read, 1, toB, b), local, part))
	a.send.expect(a.sent(wire.Read, 1, wire.OK))
	if !bytes.Equal(local.data, part.data) {
		t.Error("the data that were read differ")
	}
	clear(remote.data)
	a.post(rdma(a.entry(wire.Write, 2, toB, b), local, part))
	a.send.expect(a.sent(wire.Write, 2, wire.OK))
	b.receive.expectNone()
	if !bytes.Equal(local.data, part.data) || remote.data[1233] != 0 || remote.data[1234+70000] != 0 {
		t.Error("the data that were written differ")
	}
	b.want(9, b.x.region(1, localWrite))
	a.post(imm(rdma(a.entry(wire.Write, 3, toB, b), local, part), 5))
	a.send.expect(a.sent(wire.Write, 3, wire.OK))
	b.receive.expect(cqe{Queue: receiveQueue, Op: uint8(wire.Write), Request: 9, QP: b.number, Length: 70000, AH: fromA, From: a.number, Imm: 5, HasImm: true})
	a.post(put(rdma(a.entry(wire.Read, 4, toB, b), region{}, part), 6, 2, 0))
	a.send.expect(a.sent(wire.Read, 4, wire.OK))

	// Without an address of the peer, no RDMA with it.
	x := newWorld(t, "efa2", "efa2")
	c, d := x.drivers[0].qp(typeSRD, x.drivers[0].cq(16, cqOptions{}), 0), x.drivers[1].qp(typeSRD, x.drivers[1].cq(16, cqOptions{}), 0)
	from, to := x.drivers[0].region(8, localWrite), x.drivers[1].region(8, remoteRead|remoteWrite)
	c.post(rdma(c.entry(wire.Read, 1, x.drivers[0].ah(x.drivers[1]), d), from, to))
	c.send.expect(c.sent(wire.Read, 1, wire.UnknownPeer))
}

func TestUnsolicited(t *testing.T) {
	const unsolicited = 1 << 2
	a, b, toB, fromA := pair(t, typeSRD, unsolicited, cqOptions{}, "efa2", "efa2")
	local, remote := a.x.region(8, localWrite), b.x.region(8, remoteWrite)
	b.want(1, b.x.region(1, localWrite))
	a.post(imm(rdma(a.entry(wire.Write, 3, toB, b), local, remote), 5))
	a.send.expect(a.sent(wire.Write, 3, wire.OK))
	b.receive.expect(cqe{Queue: receiveQueue, Op: uint8(wire.Write), QP: b.number, Length: 8, AH: fromA, From: a.number, Imm: 5, HasImm: true, Unsolicited: true})
	a.post(inline(a.entry(wire.Send, 4, toB, b), "x"))
	a.send.expect(a.sent(wire.Send, 4, wire.OK))
	b.receive.expect(cqe{Queue: receiveQueue, Request: 1, QP: b.number, Length: 1, AH: fromA, From: a.number})
}

// A profile without an operation refuses it, whichever side it is on.
func TestProfilesOfRDMA(t *testing.T) {
	a, b, toB, _ := pair(t, typeSRD, 0, cqOptions{}, "efa2", "efa1")
	local, remote := a.x.region(8, localWrite), b.x.region(8, remoteRead)
	a.post(rdma(a.entry(wire.Read, 1, toB, b), local, remote))
	a.send.expect(a.sent(wire.Read, 1, wire.OK))
	a.post(rdma(a.entry(wire.Write, 2, toB, b), local, remote))
	a.send.expect(a.sent(wire.Write, 2, wire.BadStatus))
	toA := b.x.ah(a.x)
	b.post(rdma(b.entry(wire.Write, 3, toA, a), b.x.region(8, localWrite), local))
	b.send.expect(b.sent(wire.Write, 3, wire.UnsupportedOp))
}

// The sender's address is in the completion if the receiver has no AH of it, and the CQ is for
// that.
func TestUnknownSender(t *testing.T) {
	w := newWorld(t, "efa2", "efa2")
	x, y := w.drivers[0], w.drivers[1]
	a, b := x.qp(typeSRD, x.cq(16, cqOptions{}), 0), y.qp(typeSRD, y.cq(16, cqOptions{source: true}), 0)
	ah := x.ah(y)
	b.want(1, y.region(8, localWrite))
	a.post(inline(a.entry(wire.Send, 1, ah, b), "x"))
	got := b.receive.expect(cqe{Queue: receiveQueue, Request: 1, QP: b.number, Length: 1, AH: unknownAH, From: a.number})
	if !bytes.Equal(got[16:], x.d.GID[:]) {
		t.Errorf("its address is % x", got[16:])
	}
}

// Messages over a wire that reorders and loses them arrive once each, in another order.
func TestReordering(t *testing.T) {
	a, b, toB, fromA := pair(t, typeSRD, 0, cqOptions{}, "efa1", "efa2")
	a.x.wire.Faults = wire.Faults{Reorder: 0.5, Loss: 0.1, Duplicate: 0.5, Jitter: 10 * time.Microsecond}
	const rounds = 100
	overtaken, next, mark := 0, uint16(0), b.x.used
	for round := range rounds {
		var buffers []region
		for i := range sqDepth {
			buffers = append(buffers, b.x.region(4, localWrite))
			b.want(uint16(i), buffers[i])
		}
		for i := range sqDepth {
			a.post(inline(a.entry(wire.Send, uint16(i), toB, b), string(le32(uint32(round*sqDepth+i)))))
		}
		a.x.settle(time.Second)
		seen := map[uint32]bool{}
		for i := range sqDepth {
			got := b.receive.poll()
			if got == nil {
				t.Fatalf("%d messages arrived", i)
			}
			c := decode(got)
			if want := (cqe{Queue: receiveQueue, Request: uint16(i), QP: b.number, Length: 4, AH: fromA, From: a.number}); c != want {
				t.Fatalf("completion %+v, want %+v", c, want)
			}
			v := uint32(buffers[i].data[0]) | uint32(buffers[i].data[1])<<8
			if v != uint32(next) {
				overtaken++
			}
			next++
			seen[v] = true
		}
		sent := map[uint16]bool{}
		for range sqDepth {
			c := decode(a.send.poll())
			if c.Status != wire.OK || c.Queue != sendQueue {
				t.Fatalf("completion %+v", c)
			}
			sent[c.Request] = true
		}
		if len(seen) != sqDepth || len(sent) != sqDepth {
			t.Fatalf("%d messages of %d arrived, %d were completed", len(seen), sqDepth, len(sent))
		}
		b.x.used = mark
	}
	b.receive.expectNone()
	if overtaken == 0 || a.x.wire.Stats.Overtaken == 0 || a.x.wire.Stats.Lost == 0 || a.x.wire.Stats.Duplicated != 0 {
		t.Errorf("%d messages were out of order; %+v", overtaken, a.x.wire.Stats)
	}
}

func TestReceiverNotReady(t *testing.T) {
	a, b, toB, fromA := pair(t, typeSRD, 0, cqOptions{}, "efa2", "efa2")
	a.post(inline(a.entry(wire.Send, 1, toB, b), "x"))
	a.send.expectNone()
	b.want(1, b.x.region(8, localWrite))
	b.receive.expect(cqe{Queue: receiveQueue, Request: 1, QP: b.number, Length: 1, AH: fromA, From: a.number})
	a.send.expect(a.sent(wire.Send, 1, wire.OK))

	c := put(put(nil, 4, 4, 32), 8, 4, uint64(a.handle))
	c[29] = 3
	a.x.must(a.x.do(2, c))
	before := a.x.wire.Stats.NotReady
	a.post(inline(a.entry(wire.Send, 2, toB, b), "x"))
	a.send.expect(a.sent(wire.Send, 2, wire.NotReady))
	if n := a.x.wire.Stats.NotReady - before; n != 3 {
		t.Errorf("it tried again %d times", n)
	}
}

func TestFlush(t *testing.T) {
	a, b, toB, _ := pair(t, typeSRD, 0, cqOptions{}, "efa1", "efa1")
	buffer := a.x.region(8, localWrite)
	a.want(1, buffer)
	a.want(2, buffer, buffer)
	a.post(inline(a.entry(wire.Send, 3, toB, b), "x")) // waits for a receive
	a.modify(stateSQD)
	a.post(inline(a.entry(wire.Send, 4, toB, b), "x"))
	a.modify(stateError)
	seen := map[cqe]bool{}
	for range 4 {
		got := a.send.poll()
		if got == nil {
			t.Fatal("not everything was completed")
		}
		seen[decode(got)] = true
	}
	for _, want := range []cqe{
		a.sent(wire.Send, 3, wire.Flushed), a.sent(wire.Send, 4, wire.Flushed),
		{Queue: receiveQueue, Request: 1, Status: wire.Flushed, QP: a.number}, {Queue: receiveQueue, Request: 2, Status: wire.Flushed, QP: a.number},
	} {
		if !seen[want] {
			t.Errorf("no completion %+v in %+v", want, seen)
		}
	}
	b.want(5, b.x.region(8, localWrite))
	a.send.expectNone()
	a.modify(stateReset)
	for _, state := range []uint32{stateInit, stateRTR, stateRTS} {
		a.modify(state)
	}
	b.want(6, b.x.region(8, localWrite))
	a.post(inline(a.entry(wire.Send, 7, toB, b), "x"))
	a.send.expect(a.sent(wire.Send, 7, wire.OK))
}

// The region that a read's answer goes to is gone when it arrives, or its QP is.
func TestGoneMeanwhile(t *testing.T) {
	a, b, toB, _ := pair(t, typeSRD, 0, cqOptions{}, "efa2", "efa2")
	a.x.wire.Faults.Delay = time.Millisecond
	local, remote := a.x.region(8, localWrite), b.x.region(8, remoteRead)
	a.post(rdma(a.entry(wire.Read, 1, toB, b), local, remote))
	a.x.must(a.x.do(8, put(nil, 4, 4, uint64(local.key))))
	a.send.expect(a.sent(wire.Read, 1, wire.BadLKey))
	a.post(inline(a.entry(wire.Send, 2, toB, b), "x"))
	if s := a.destroy(); s != success {
		t.Fatalf("status %d", s)
	}
	b.want(1, b.x.region(8, localWrite))
	a.send.expectNone()
	if got := b.receive.poll(); got == nil {
		t.Error("what was sent before doesn't arrive")
	}
}

func TestStats(t *testing.T) {
	a, b, toB, _ := pair(t, typeSRD, 0, cqOptions{}, "efa2", "efa2")
	local, remote := a.x.region(100, localWrite), b.x.region(100, remoteRead|remoteWrite|localWrite)
	b.want(1, remote)
	a.post(buffers(a.entry(wire.Send, 1, toB, b), local))
	a.post(rdma(a.entry(wire.Read, 2, toB, b), local, remote))
	a.post(rdma(a.entry(wire.Write, 3, toB, b), local, remote))
	a.post(rdma(a.entry(wire.Write, 4, toB, b), local, region{key: 1}))
	a.x.settle(time.Second)
	for _, c := range []struct {
		x    *driver
		kind byte
		want []uint64
	}{
		{a.x, statsBasic, []uint64{300, 4, 0, 0, 0}},
		{b.x, statsBasic, []uint64{0, 0, 200, 3, 1}},
		{a.x, statsMessages, []uint64{100, 1, 0, 0}},
		{b.x, statsMessages, []uint64{0, 0, 100, 1}},
		{a.x, statsRead, []uint64{1, 100, 0, 0}},
		{b.x, statsRead, []uint64{0, 0, 0, 100}},
		{a.x, statsWrite, []uint64{1, 100, 1, 0}},
		{b.x, statsWrite, []uint64{0, 0, 0, 100}},
	} {
		q := make([]byte, adminEntry)
		q[16] = c.kind
		answer := c.x.must(c.x.do(13, q))
		for i, want := range c.want {
			if got := answer.u64(8 + 8*i); got != want {
				t.Errorf("counters of type %d: number %d is %d, not %d", c.kind, i, got, want)
			}
		}
	}
}

// What only a wrong driver or program does ends the adapter.
func TestViolations(t *testing.T) {
	for name, do := range map[string]func(a *testQP, entry []byte){
		"a doorbell without an entry": func(a *testQP, _ []byte) { a.x.d.WriteDoorbells(a.sqDoorbell, le32(1)) },
		"an entry of the last round":  func(a *testQP, e []byte) { a.post(e); e[3] ^= sqePhase; a.post(e) },
		"more than the queue has":     func(a *testQP, _ []byte) { a.x.d.WriteDoorbells(a.sqDoorbell, le32(sqDepth+1)) },
		"more receives than it has":   func(a *testQP, _ []byte) { a.x.d.WriteDoorbells(a.rqDoorbell, le32(rqDepth+1)) },
		"another UAR":                 func(a *testQP, e []byte) { a.x.do(16, nil); a.x.d.WriteDoorbells(a.sqDoorbell+doorbellPage, le32(1)) },
		"no UAR":                      func(a *testQP, e []byte) { a.x.d.WriteDoorbells(a.sqDoorbell+2*doorbellPage, le32(1)) },
		"half a doorbell":             func(a *testQP, e []byte) { a.x.d.WriteDoorbells(a.sqDoorbell, []byte{1, 0}) },
		"a CQ without events":         func(a *testQP, e []byte) { a.x.d.WriteDoorbells(cqDoorbells, le32(1)) },
		"a send before RTS":           func(a *testQP, e []byte) { a.modify(stateReset); a.post(e) },
		"a send that is not complete": func(a *testQP, e []byte) { e[3] &^= sqeLast; a.post(e) },
		"a send without completion":   func(a *testQP, e []byte) { e[3] &^= sqeReport; a.post(e) },
		"a register's half":           func(a *testQP, e []byte) { a.x.d.WriteRegisters(regAQDoorbell, []byte{1}) },
		"no EQ":                       func(a *testQP, e []byte) { a.x.write(regEQDoorbell, 1<<31|7) },
		"too many commands":           func(a *testQP, e []byte) { a.x.write(regAQDoorbell, a.x.issued+adminSize+1) },
		"a command of the last round": func(a *testQP, e []byte) { a.x.write(regAQDoorbell, a.x.issued+1) },
		"entries of another size":     func(a *testQP, e []byte) { a.x.write(regAQCaps, adminSize|32<<16) },
		"an answer to nowhere":        func(a *testQP, e []byte) { a.x.write(regReadAnswerHigh, 0); a.x.write(regRead, 1) },
	} {
		a, b, toB, _ := pair(t, typeSRD, 0, cqOptions{}, "efa2", "efa2")
		e := inline(a.entry(wire.Send, 1, toB, b), "x")
		a.x.expected = true
		do(a, e)
		if len(a.x.violations) == 0 {
			t.Errorf("%s: no violation", name)
		}
	}
	// A second descriptor that begins a receive.
	a, b, toB, _ := pair(t, typeSRD, 0, cqOptions{}, "efa2", "efa2")
	r := b.x.region(8, localWrite)
	b.want(1, r, r)
	b.x.bytes(b.rq+rqEntry, rqEntry)[15] |= 1 << 6
	b.x.expected = true
	a.post(inline(a.entry(wire.Send, 1, toB, b), "x"))
	a.x.settle(time.Millisecond)
	if len(b.x.violations) == 0 {
		t.Error("two receives in one: no violation")
	}
}

// Completions go on correctly when the queues wrap, in CQs with one and with two sub-CQs.
func TestWrap(t *testing.T) {
	for _, profile := range []string{"efa2", "efa1"} {
		w := newWorld(t, profile, profile)
		x, y := w.drivers[0], w.drivers[1]
		a, b := x.qp(typeSRD, x.cq(4, cqOptions{entry: 16}), 0), y.qp(typeSRD, y.cq(4, cqOptions{entry: 16}), 0)
		ah, back, buffer := x.ah(y), y.ah(x), y.region(8, localWrite)
		for i := range uint16(200) {
			b.want(i, buffer)
			a.post(inline(a.entry(wire.Send, i, ah, b), "x"))
			a.send.expect(a.sent(wire.Send, i, wire.OK))
			b.receive.expect(cqe{Queue: receiveQueue, Request: i, QP: b.number, Length: 1, AH: back, From: a.number})
		}
	}
}
