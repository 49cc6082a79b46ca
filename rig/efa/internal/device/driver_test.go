package device

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rig/efa/internal/wire"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

// A world has some devices on a wire, and a clock that advances only when nothing else can
// happen.
type world struct {
	t       *testing.T
	wire    *wire.Wire
	now     time.Duration
	drivers []*driver
}

// A driver does with one device what the kernel's and libefa do.
type driver struct {
	*world
	d          *Device
	ram        *bus.RAM
	used       uint64
	interrupts map[int]int
	violations []error
	expected   bool // violations are what the test is about

	in, out, aenq, answer uint64 // bus addresses of the admin queues and of read registers
	issued                uint32
	requests              uint16
	uar, pd               uint32
	eqs                   []uint64
}

const (
	ramBase   = 1 << 32
	adminSize = 8 // entries
	eqSize    = 8
)

func newWorld(t *testing.T, profiles ...string) *world {
	t.Helper()
	w := &world{t: t}
	w.wire = wire.New(1, func() time.Duration { return w.now })
	for i, name := range profiles {
		p, err := ProfileOf(name)
		if err != nil {
			t.Fatal(err)
		}
		x := &driver{world: w, ram: &bus.RAM{Base: ramBase, Data: make([]byte, 8<<20)}, interrupts: map[int]int{}}
		x.d = New(Config{
			Profile: p, GID: wire.GID{0: 0xfe, 1: 0x80, 15: byte(i + 1)}, Wire: w.wire, Memory: x.ram,
			LLQ:       make([]byte, 16*maxLLQ), // of the first QPs
			Interrupt: func(vector int) { x.interrupts[vector]++ }, Now: func() time.Duration { return w.now },
			Violation: func(err error) {
				x.violations = append(x.violations, err)
				if !x.expected {
					t.Errorf("violation: %v", err)
				}
			},
		})
		x.probe()
		w.drivers = append(w.drivers, x)
	}
	return w
}

// settle lets happen what can happen within a time.
func (w *world) settle(limit time.Duration) {
	end := w.now + limit
	for {
		for w.wire.Deliver() {
		}
		next, ok := w.wire.Next()
		if !ok || next > end {
			w.now = end
			return
		}
		w.now = next
	}
}

// alloc returns n bytes of memory, which begin a page.
func (x *driver) alloc(n int) uint64 {
	x.used = (x.used + 4095) &^ 4095
	at := ramBase + x.used
	x.used += uint64(n)
	return at
}

func (x *driver) bytes(at uint64, n int) []byte {
	b := x.ram.Bytes(at, n)
	if b == nil {
		x.t.Fatalf("no memory at %#x", at)
	}
	return b
}

func le32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }

func (x *driver) write(register uint64, v uint32) { x.d.WriteRegisters(register, le32(v)) }

func (x *driver) writeAddress(low uint64, high uint64, at uint64) {
	x.write(low, uint32(at))
	x.write(high, uint32(at>>32))
}

// read reads a register as the driver does.
func (x *driver) read(register uint32) uint32 {
	x.requests++
	x.write(regRead, register<<16|uint32(x.requests))
	b := x.bytes(x.answer, 8)
	if got := binary.LittleEndian.Uint32(b); got != register<<16|uint32(x.requests) {
		x.t.Fatalf("the answer to reading %#x begins with %#x", register, got)
	}
	return binary.LittleEndian.Uint32(b[4:])
}

// probe brings the device up.
func (x *driver) probe() {
	x.answer = x.alloc(8)
	x.writeAddress(regReadAnswerLow, regReadAnswerHigh, x.answer)
	x.write(regControl, controlReset)
	x.writeAddress(regReadAnswerLow, regReadAnswerHigh, x.answer)
	if s := x.read(regStatus); s&statusResetting == 0 {
		x.t.Fatalf("status %#x during a reset", s)
	}
	x.write(regControl, 0)
	if s := x.read(regStatus); s != statusReady {
		x.t.Fatalf("status %#x after a reset", s)
	}
	x.issued = 0
	x.in, x.out, x.aenq = x.alloc(adminSize*adminEntry), x.alloc(adminSize*adminEntry), x.alloc(adminSize*aenqEntry)
	x.writeAddress(regAQBaseLow, regAQBaseHigh, x.in)
	x.write(regAQCaps, adminSize|adminEntry<<16)
	x.writeAddress(regACQBaseLow, regACQBaseHigh, x.out)
	x.write(regACQCaps, adminSize|adminEntry<<16)
	x.writeAddress(regAENQBaseLow, regAENQBaseHigh, x.aenq)
	x.write(regAENQCaps, adminSize|aenqEntry<<16)
	x.write(regAENQDoorbell, 0)
	x.uar = uint32(x.must(x.do(16, nil)).u16(8))
	x.pd = uint32(x.must(x.do(14, nil)).u16(8))
	x.eqs = nil
	if x.d.Profile.EQs {
		for i := range 2 {
			x.eqs = append(x.eqs, x.alloc(eqSize*eqEntry))
			c := put(nil, 4, 2, eqSize)
			c[6], c[7] = byte(1+i), eqEntry/4
			put(put(c, 8, 8, x.eqs[i]), 16, 4, 1)
			eqn := x.must(x.do(18, c)).u16(8)
			x.write(regEQDoorbell, 1<<31|uint32(eqn))
		}
	}
}

// put stores a little-endian number of some bytes into a command, which it makes if there is
// none.
func put(c []byte, off, bytes int, v uint64) []byte {
	if c == nil {
		c = make([]byte, adminEntry)
	}
	for i := range bytes {
		c[off+i] = byte(v >> (8 * i))
	}
	return c
}

// do executes a command, whose common part it sets.
func (x *driver) do(opcode uint8, c []byte) (answer command, s status) {
	if c == nil {
		c = make([]byte, adminEntry)
	}
	phase := func(n uint32) byte { return byte(^n / adminSize & 1) }
	put(c, 0, 2, uint64(x.issued&commandID))
	c[2], c[3] = opcode, c[3]&^1|phase(x.issued)
	at := uint64(x.issued%adminSize) * adminEntry
	copy(x.bytes(x.in+at, adminEntry), c)
	x.write(regAQDoorbell, x.issued+1)
	copy(answer[:], x.bytes(x.out+at, adminEntry))
	if answer[3]&1 != phase(x.issued) || uint32(answer.u16(0)) != x.issued&commandID {
		x.t.Fatalf("no completion of command %d: % x", opcode, answer[:8])
	}
	x.issued++
	return answer, status(answer[2])
}

func (x *driver) must(answer command, s status) *command {
	x.t.Helper()
	if s != success {
		x.t.Fatalf("status %d", s)
	}
	return &answer
}

// A region is memory that is registered at the virtual address that is its bus address plus
// virtual.
type region struct {
	addr uint64
	data []byte
	key  uint32
}

const virtual = 0x7000_0000_0000

func (x *driver) region(n int, permissions uint8) region {
	x.t.Helper()
	at := x.alloc(n)
	c := put(nil, 4, 2, uint64(x.pd))
	list, count := c[8:], (n+4095)/4096
	if count > pageListInline {
		pages := x.alloc(8 * count)
		list = x.bytes(pages, 8*count)
		c[3] = flagControl
		put(put(c, 8, 4, uint64(8*count)), 12, 8, pages)
	}
	for i := range count {
		put(list, 8*i, 8, at+uint64(i)*4096)
	}
	put(c, 40, 8, uint64(n))
	c[48], c[49] = 12, permissions
	put(c, 56, 8, at+virtual)
	return region{addr: at + virtual, data: x.bytes(at, n), key: x.must(x.do(7, c)).u32(8)}
}

func (x *driver) ah(to *driver) uint16 {
	x.t.Helper()
	c := put(nil, 20, 2, uint64(x.pd))
	copy(c[4:], to.d.GID[:])
	return x.must(x.do(5, c)).u16(8)
}

// A testCQ reads completions as libefa does.
type testCQ struct {
	x        *driver
	number   uint32
	base     uint64
	depth    uint32
	entry    int
	doorbell uint32
	read     []uint32 // in each sub-CQ
	consumed uint16
}

type cqOptions struct {
	entry  int
	source bool
	eq     int // plus 1
}

func (x *driver) cq(depth uint32, o cqOptions) *testCQ {
	x.t.Helper()
	if o.entry == 0 {
		o.entry = 32
	}
	subs := int(x.d.Profile.SubCQs)
	q := &testCQ{x: x, depth: depth, entry: o.entry, read: make([]uint32, subs), base: x.alloc(int(depth) * o.entry * subs)}
	c := put(put(put(put(nil, 6, 2, uint64(depth)), 12, 8, q.base), 24, 2, uint64(subs)), 26, 2, uint64(x.uar))
	c[5] = byte(o.entry / 4)
	if o.source {
		c[5] |= 1 << 5
	}
	if o.eq > 0 {
		c[4] = 1 << 5
		put(c, 8, 2, uint64(o.eq-1))
	}
	a := x.must(x.do(9, c))
	q.number, q.doorbell = uint32(a.u16(8)), a.u32(12)
	return q
}

// poll returns the next completion, nil if there is none.
func (q *testCQ) poll() []byte {
	for sub := range q.read {
		at := q.base + uint64(q.entry)*uint64(uint32(sub)*q.depth+q.read[sub]%q.depth)
		b := q.x.bytes(at, q.entry)
		if uint32(b[3]&1) != ^q.read[sub]/q.depth&1 {
			continue
		}
		q.read[sub]++
		q.consumed++
		return append([]byte(nil), b...)
	}
	return nil
}

// arm asks for an event.
func (q *testCQ) arm(serial uint32) {
	q.x.d.WriteDoorbells(uint64(q.doorbell), le32(1<<31|serial<<29|uint32(q.consumed)))
}

// A testQP posts as libefa does.
type testQP struct {
	x              *driver
	send, receive  *testCQ
	handle         uint32
	number         uint16
	sqDoorbell     uint64
	rqDoorbell     uint64
	sq             []byte
	rq             uint64
	posted, wanted uint16
	flags          uint8
}

const (
	sqDepth = 16
	rqDepth = 16
	qkey    = 0x11111111
)

func (x *driver) qp(kind uint8, q *testCQ, flags uint8) *testQP {
	x.t.Helper()
	p := &testQP{x: x, send: q, receive: q, rq: x.alloc(rqDepth * rqEntry), flags: flags}
	c := put(nil, 4, 2, uint64(x.pd))
	c[6], c[7] = kind, flags
	put(c, 16, 8, p.rq)
	put(put(c, 24, 4, uint64(q.number)), 28, 4, uint64(q.number))
	put(put(c, 40, 4, sqDepth*sqEntry), 44, 4, sqDepth)
	put(put(c, 48, 4, rqDepth*rqEntry), 52, 4, rqDepth)
	put(c, 56, 2, uint64(x.uar))
	a := x.must(x.do(1, c))
	p.handle, p.number = a.u32(8), a.u16(12)
	p.sqDoorbell, p.rqDoorbell = uint64(a.u32(20)), uint64(a.u32(24))
	p.sq = x.d.LLQ[a.u32(28):][:sqDepth*sqEntry]
	for _, state := range []uint32{stateInit, stateRTR, stateRTS} {
		p.modify(state)
	}
	return p
}

// modify changes the QP's state.
func (p *testQP) modify(to uint32) {
	p.x.t.Helper()
	if s := p.tryModify(to); s != success {
		p.x.t.Fatalf("status %d of a change to state %d", s, to)
	}
	if to == stateReset {
		p.posted, p.wanted = 0, 0
	}
}

func (p *testQP) tryModify(to uint32) status {
	const state, key = 1, 4
	c := put(put(put(put(nil, 4, 4, state|key), 8, 4, uint64(p.handle)), 12, 4, uint64(to)), 20, 4, qkey)
	_, s := p.x.do(2, c)
	return s
}

func (p *testQP) destroy() status {
	_, s := p.x.do(4, put(nil, 4, 4, uint64(p.handle)))
	return s
}

// want posts a receive with these buffers.
func (p *testQP) want(request uint16, buffers ...region) {
	for i, r := range buffers {
		b := p.x.bytes(p.rq+uint64(p.wanted%rqDepth)*rqEntry, rqEntry)
		control := r.key
		if i == 0 {
			control |= 1 << 30
			put(b, 8, 2, uint64(request))
		}
		if i == len(buffers)-1 {
			control |= 1 << 31
		}
		put(b, 0, 8, r.addr)
		put(b, 10, 2, uint64(len(r.data)))
		put(b, 12, 4, uint64(control))
		p.wanted++
	}
	p.x.d.WriteDoorbells(p.rqDoorbell, le32(uint32(p.wanted)))
}

// entry returns an entry of the send queue, without data.
func (p *testQP) entry(op wire.Operation, request uint16, ah uint16, to *testQP) []byte {
	e := make([]byte, sqEntry)
	put(e, 0, 2, uint64(request))
	e[2] = byte(op) | sqeMeta
	e[3] = sqeFirst | sqeLast | sqeReport | byte(^p.posted/sqDepth&1)
	put(put(put(e, 4, 2, uint64(to.number)), 12, 2, uint64(ah)), 16, 4, qkey)
	return e
}

func (p *testQP) post(e []byte) {
	copy(p.sq[int(p.posted%sqDepth)*sqEntry:], e)
	p.posted++
	p.x.d.WriteDoorbells(p.sqDoorbell, le32(uint32(p.posted)))
}

// inline makes the entry send these bytes.
func inline(e []byte, data string) []byte {
	e[2] |= sqeInline
	copy(e[sqeData:], data)
	return put(e, 6, 2, uint64(len(data)))
}

// buffers makes the entry send these.
func buffers(e []byte, list ...region) []byte {
	for i, r := range list {
		at := sqeData + 16*i
		put(put(put(e, at, 4, uint64(len(r.data))), at+4, 4, uint64(r.key)), at+8, 8, r.addr)
	}
	return put(e, 6, 2, uint64(len(list)))
}

// rdma makes the entry transfer local's length between it and the beginning of remote.
func rdma(e []byte, local, remote region) []byte {
	n := uint64(len(local.data))
	put(put(put(e, sqeData, 4, n), sqeData+4, 4, uint64(remote.key)), sqeData+8, 8, remote.addr)
	put(put(put(e, sqeLocal, 4, n), sqeLocal+4, 4, uint64(local.key)), sqeLocal+8, 8, local.addr)
	return put(e, 6, 2, 1)
}

func imm(e []byte, v uint32) []byte {
	e[2] |= sqeImm
	return put(e, 8, 4, uint64(v))
}

// A cqe describes a completion, for comparisons.
type cqe struct {
	Queue, Op   uint8
	Request     uint16
	Status      wire.Status
	QP          uint16
	Length      int
	AH, From    uint16
	Imm         uint32
	HasImm      bool
	Unsolicited bool
}

func decode(b []byte) (c cqe) {
	le := binary.LittleEndian
	c = cqe{Queue: b[3] >> 1 & 3, Op: b[3] >> 4 & 7, Request: le.Uint16(b), Status: wire.Status(b[2]), QP: le.Uint16(b[4:])}
	if c.Queue == receiveQueue {
		c.Length, c.AH, c.From = int(le.Uint16(b[6:])), le.Uint16(b[8:]), le.Uint16(b[10:])
		c.Imm, c.HasImm, c.Unsolicited = le.Uint32(b[12:]), b[3]>>3&1 != 0, b[3]>>7 != 0
		if c.Op == uint8(wire.Write) && len(b) > 16 {
			c.Length |= int(le.Uint16(b[16:])) << 16
		}
	}
	return c
}

// expect settles and checks the next completion.
func (q *testCQ) expect(want cqe) []byte {
	q.x.t.Helper()
	q.x.settle(time.Second)
	b := q.poll()
	if b == nil {
		q.x.t.Fatalf("no completion; want %+v", want)
	}
	if got := decode(b); got != want {
		q.x.t.Fatalf("completion\n%+v, want\n%+v", got, want)
	}
	return b
}

func (q *testCQ) expectNone() {
	q.x.t.Helper()
	q.x.settle(time.Second)
	if b := q.poll(); b != nil {
		q.x.t.Fatalf("completion %+v", decode(b))
	}
}

// sent is the completion of a send queue's entry.
func (p *testQP) sent(op wire.Operation, request uint16, s wire.Status) cqe {
	return cqe{Queue: sendQueue, Op: uint8(op), Request: request, Status: s, QP: p.number}
}
