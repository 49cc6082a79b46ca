package device

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rig/efa/internal/wire"
)

func TestProbe(t *testing.T) {
	x := newWorld(t, "efa1").drivers[0]
	if v, c := x.read(regVersion), x.read(regCaps); v != 1 || c>>8&0xff != 52 || c>>1&0x1f == 0 {
		t.Errorf("version %#x, capabilities %#x", v, c)
	}
	get := func(feature byte) (command, status) {
		c := make([]byte, adminEntry)
		c[17] = feature
		return x.do(11, c)
	}
	device := x.must(get(featureDevice))
	if device.u32(8+32) != capRDMARead|capRNRRetry || device.u16(8+28) != doorbellsBAR || device.u64(8) != 0xfe ||
		!bytes.Equal(device[8+40:][:8], x.d.GID[8:]) {
		t.Errorf("device attributes % x", *device)
	}
	if n := x.must(get(featureNetwork)); !bytes.Equal(n[8:24], x.d.GID[:]) || n.u32(24) != mtu {
		t.Errorf("network attributes % x", *n)
	}
	if q := x.must(get(featureQueues)); q.u32(8) != maxQP || q.u16(8+24) != 2 || q.u32(8+48) != maxLLQ {
		t.Errorf("queue attributes % x", *q)
	}
	for _, unknown := range []byte{0, featureHost, 8, 63, 64, 255} {
		if _, s := get(unknown); s != illegalParameter {
			t.Errorf("feature %d: status %d", unknown, s)
		}
	}
	host := x.alloc(4096)
	copy(x.bytes(host, 128), "6.1.0\x00rest")
	c := put(put(nil, 4, 4, 180), 8, 8, host)
	c[3], c[17] = flagControl, featureHost
	if x.must(x.do(12, c)); x.d.Host() != "6.1.0" {
		t.Errorf("the host is %q", x.d.Host())
	}
	if _, s := x.do(99, nil); s != badOpcode {
		t.Errorf("status %d of an unknown command", s)
	}
}

func TestKeepAlive(t *testing.T) {
	x := newWorld(t, "efa2").drivers[0]
	if x.d.KeepAlive() {
		t.Error("an event that the driver doesn't want")
	}
	c := put(nil, 24, 4, 1<<groupKeepAlive)
	c[17] = featureAENQ
	x.must(x.do(12, c))
	before := x.interrupts[adminVector]
	for i := range adminSize {
		if !x.d.KeepAlive() {
			t.Fatalf("event %d got lost", i)
		}
	}
	if x.d.KeepAlive() {
		t.Error("an event was written to a full queue")
	}
	if n := x.interrupts[adminVector] - before; n != adminSize {
		t.Errorf("%d interrupts", n)
	}
	if e := x.bytes(x.aenq, aenqEntry); binary.LittleEndian.Uint16(e) != groupKeepAlive || e[4]&1 != 1 {
		t.Errorf("event % x", e[:16])
	}
	x.write(regAENQDoorbell, adminSize)
	if !x.d.KeepAlive() || x.bytes(x.aenq, aenqEntry)[4]&1 != 0 {
		t.Error("no event of the next round")
	}
	if x.d.Fail() {
		t.Error("a fatal event that the driver doesn't want")
	}
}

// Objects count their users, and a number that is gone names nothing.
func TestLifetimes(t *testing.T) {
	w := newWorld(t, "efa2", "efa2")
	x := w.drivers[0]
	m := x.region(100, localWrite)
	q := x.cq(16, cqOptions{eq: 1})
	p := x.qp(typeSRD, q, 0)
	a := x.ah(w.drivers[1])
	if again := x.ah(w.drivers[1]); again != a {
		t.Errorf("the same address has the numbers %d and %d", a, again)
	}
	want := map[string]int{"uar": 1, "pd": 1, "mr": 1, "ah": 1, "eq": 2, "cq": 1, "qp": 1}
	for kind, n := range x.d.Resources() {
		if n != want[kind] {
			t.Errorf("%d objects of kind %s, not %d", n, kind, want[kind])
		}
	}
	pd, cqn, uar := put(nil, 4, 2, uint64(x.pd)), put(nil, 4, 2, uint64(q.number)), put(nil, 4, 2, uint64(x.uar))
	try := func(opcode uint8, c []byte, want status) {
		t.Helper()
		if _, s := x.do(opcode, c); s != want {
			t.Errorf("command %d: status %d, want %d", opcode, s, want)
		}
	}
	try(15, pd, busy)
	try(10, cqn, busy)
	try(17, uar, busy)
	try(19, put(nil, 4, 2, 0), busy)
	if s := p.destroy(); s != success {
		t.Errorf("status %d", s)
	}
	if s := p.destroy(); s != illegalParameter {
		t.Errorf("status %d of destroying a QP twice", s)
	}
	try(10, cqn, success)
	try(10, cqn, illegalParameter)
	try(17, uar, success)
	try(17, uar, illegalParameter)
	try(8, put(nil, 4, 4, uint64(m.key)), success)
	try(8, put(nil, 4, 4, uint64(m.key)), illegalParameter)
	for range 2 {
		try(6, put(put(nil, 4, 2, uint64(a)), 6, 2, uint64(x.pd)), success)
	}
	try(6, put(put(nil, 4, 2, uint64(a)), 6, 2, uint64(x.pd)), illegalParameter)
	try(15, pd, success)
	try(15, pd, illegalParameter)
	try(19, put(nil, 4, 2, 0), success)
	try(19, put(nil, 4, 2, 0), illegalParameter)
}

func TestReset(t *testing.T) {
	w := newWorld(t, "efa2", "efa2")
	a, b := w.drivers[0], w.drivers[1]
	q := a.cq(16, cqOptions{})
	p := a.qp(typeSRD, q, 0)
	peer := b.qp(typeSRD, b.cq(16, cqOptions{}), 0)
	p.post(inline(p.entry(wire.Send, 1, a.ah(b), peer), "x")) // waits for a receive
	a.probe()
	if n := a.d.Resources()["qp"]; n != 0 {
		t.Errorf("%d QPs after a reset", n)
	}
	q.expectNone()
	b.d.Remove(true)
	var id [8]byte
	b.d.ReadRegisters(regStatus-2, id[:])
	if id != [8]byte{255, 255, 255, 255, 255, 255, 255, 255} {
		t.Errorf("a device that is gone answers % x", id)
	}
	b.write(regControl, controlReset)
	b.d.WriteDoorbells(0, le32(1))
	p = a.qp(typeSRD, a.cq(16, cqOptions{}), 0)
	p.post(inline(p.entry(wire.Send, 2, a.ah(b), peer), "x"))
	p.send.expect(p.sent(wire.Send, 2, wire.Unreachable))
	b.d.Remove(false)
	b.probe()
}

func TestStates(t *testing.T) {
	x := newWorld(t, "efa2").drivers[0]
	p := x.qp(typeSRD, x.cq(16, cqOptions{}), 0)
	for _, s := range []struct {
		to   uint32
		want status
	}{
		{stateInit, illegalParameter}, {stateSQD, success}, {stateRTS, success}, {stateError, success},
		{stateRTS, illegalParameter}, {stateReset, success}, {stateError, illegalParameter}, {stateRTR, illegalParameter},
		{stateInit, success}, {stateRTR, success}, {stateRTS, success},
	} {
		if got := p.tryModify(s.to); got != s.want {
			t.Errorf("to state %d: status %d, want %d", s.to, got, s.want)
		}
	}
	const current = 1 | 2
	if _, s := x.do(2, put(put(put(put(nil, 4, 4, current), 8, 4, uint64(p.handle)), 12, 4, stateSQD), 16, 4, stateSQD)); s != illegalParameter {
		t.Errorf("status %d of a change from another state", s)
	}
	c := put(put(nil, 4, 4, 8|32), 8, 4, uint64(p.handle))
	put(c, 24, 4, 77)
	c[29] = 3
	x.must(x.do(2, c))
	if a := x.must(x.do(3, put(nil, 4, 4, uint64(p.handle)))); a.u32(8) != stateRTS || a.u32(12) != qkey || a.u32(16) != 77 || a[21] != 3 {
		t.Errorf("the QP is % x", a[8:24])
	}
}

// pagesOf registers memory of scattered pages, listed directly or by a chain of lists.
func pagesOf(x *driver, count int, indirect bool) (r region, pages []uint64) {
	base := x.alloc(2 * count * 4096)
	var list []uint64
	for i := range count {
		pages = append(pages, base+uint64(2*(count-1-i))*4096)
		list = append(list, pages[i])
	}
	store := func(list []uint64, more int) uint64 {
		at := x.alloc(8*len(list) + more)
		b := x.bytes(at, 8*len(list)+more)
		for i, v := range list {
			put(b, 8*i, 8, v)
		}
		return at
	}
	c := put(nil, 4, 2, uint64(x.pd))
	length, at := 8*count, uint64(0)
	if !indirect {
		at = store(list, 0)
		c[3] = flagControl
	} else {
		c[3] = flagControl | flagIndirect
		var leaves []uint64
		for len(list) > 0 {
			n := min(512, len(list))
			leaves = append(leaves, store(list[:n], 0))
			list = list[n:]
		}
		// Chunks of one pointer each, from the last to the first.
		length = 0
		for i := len(leaves) - 1; i >= 0; i-- {
			next, nextLength := at, length
			at, length = store(leaves[i:i+1], 12), 8+12
			put(put(x.bytes(at+8, 12), 0, 4, uint64(nextLength)), 4, 8, next)
		}
	}
	put(put(c, 8, 4, uint64(length)), 12, 8, at)
	const offset = 100 // in the first page
	n := count*4096 - offset
	put(c, 40, 8, uint64(n))
	c[48], c[49] = 12, localWrite|remoteRead
	start := uint64(virtual + offset)
	put(c, 56, 8, start)
	return region{addr: start, data: make([]byte, n), key: x.must(x.do(7, c)).u32(8)}, pages
}

func TestPageLists(t *testing.T) {
	for _, c := range []struct {
		count    int
		indirect bool
	}{{1, false}, {5, false}, {600, false}, {5, true}, {600, true}} {
		x := newWorld(t, "efa2").drivers[0]
		r, pages := pagesOf(x, c.count, c.indirect)
		for i, page := range pages {
			for at := range 4096 / 4 {
				put(x.bytes(page+uint64(4*at), 4), 0, 4, uint64(i*1024+at))
			}
		}
		pieces, ok := x.d.access(r.key, x.pd, r.addr, uint32(len(r.data)), localWrite)
		if !ok {
			t.Fatalf("%+v: no access", c)
		}
		data := gather(nil, pieces)
		if len(data) != len(r.data) {
			t.Fatalf("%+v: %d bytes, not %d", c, len(data), len(r.data))
		}
		for i := 0; i < len(data); i += 4 {
			if v := binary.LittleEndian.Uint32(data[i:]); v != uint32(100+i)/4 {
				t.Fatalf("%+v: at %d is the word %d", c, i, v)
			}
		}
		end := r.addr + uint64(len(r.data))
		for _, bad := range []struct {
			addr uint64
			n    uint32
			perm uint8
			key  uint32
			pd   uint32
		}{
			{r.addr - 1, 2, 0, r.key, x.pd}, {end - 1, 2, 0, r.key, x.pd}, {end + 1, 0, 0, r.key, x.pd}, {^uint64(0), 2, 0, r.key, x.pd},
			{r.addr, 1, remoteWrite, r.key, x.pd}, {r.addr, 1, 0, r.key + maxMR, x.pd}, {r.addr, 1, 0, r.key, x.pd + 1},
		} {
			if _, ok := x.d.access(bad.key, bad.pd, bad.addr, bad.n, bad.perm); ok {
				t.Errorf("%+v: access to %+v", c, bad)
			}
		}
	}
}

func TestBadRegions(t *testing.T) {
	x := newWorld(t, "efa1").drivers[0]
	good := func() []byte {
		c := put(put(put(put(nil, 4, 2, uint64(x.pd)), 8, 8, ramBase), 40, 8, 100), 56, 8, virtual)
		c[48], c[49] = 12, localWrite
		return c
	}
	x.must(x.do(7, good()))
	for name, c := range map[string][]byte{
		"another PD":        put(good(), 4, 2, 99),
		"no length":         put(good(), 40, 8, 0),
		"beyond the end":    put(good(), 56, 8, ^uint64(0)-10),
		"unaligned page":    put(good(), 8, 8, ramBase+8),
		"page size":         put(good(), 48, 1, 11),
		"physical":          put(good(), 48, 1, 1<<7|12),
		"permission":        put(good(), 49, 1, 8),
		"write on efa1":     put(good(), 49, 1, remoteWrite),
		"too many inline":   put(good(), 40, 8, 5*4096),
		"too many pages":    put(good(), 40, 8, 1<<40),
		"list not in RAM":   put(put(put(put(good(), 3, 1, flagControl), 40, 8, 5*4096), 8, 4, 40), 12, 8, 8),
		"list too short":    put(put(put(put(good(), 3, 1, flagControl), 40, 8, 5*4096), 8, 4, 32), 12, 8, ramBase),
		"chunk too short":   put(put(put(put(good(), 3, 1, flagControl|flagIndirect), 40, 8, 5*4096), 8, 4, 12), 12, 8, ramBase),
		"chunk too long":    put(put(put(put(good(), 3, 1, flagControl|flagIndirect), 40, 8, 5*4096), 8, 4, 8192), 12, 8, ramBase),
		"chunk not in RAM":  put(put(put(put(good(), 3, 1, flagControl|flagIndirect), 40, 8, 5*4096), 8, 4, 20), 12, 8, 8),
		"leaves not in RAM": put(put(put(put(good(), 3, 1, flagControl|flagIndirect), 40, 8, 5*4096), 8, 4, 20), 12, 8, x.alloc(64)),
	} {
		if _, s := x.do(7, c); s == success {
			t.Errorf("%s: the region was registered", name)
		}
	}
	if n := x.d.Resources()["mr"]; n != 1 {
		t.Errorf("%d regions", n)
	}
}

// A completion event comes once for each time that it was asked for.
func TestEvents(t *testing.T) {
	w := newWorld(t, "efa2", "efa2")
	a, b := w.drivers[0], w.drivers[1]
	q := b.cq(16, cqOptions{eq: 2})
	to, from := b.qp(typeSRD, q, 0), a.qp(typeSRD, a.cq(64, cqOptions{}), 0)
	buffer, ah := b.region(64, localWrite), a.ah(b)
	next := uint16(0)
	arrive := func() {
		t.Helper()
		to.want(next, buffer)
		from.post(inline(from.entry(wire.Send, next, ah, to), "x"))
		next++
		w.settle(time.Second)
	}
	events := func() int { return int(b.d.eqs.get(1).ring.count) }
	check := func(what string, wantEvents, wantInterrupts int) {
		t.Helper()
		if n, i := events(), b.interrupts[2]; n != wantEvents || i != wantInterrupts {
			t.Fatalf("%s: %d events and %d interrupts, not %d and %d", what, n, i, wantEvents, wantInterrupts)
		}
	}
	arrive()
	check("not armed", 0, 0)
	q.arm(0)
	check("armed with an unknown completion", 1, 1)
	if e := b.bytes(b.eqs[1], eqEntry); e[0] != 1 || uint32(binary.LittleEndian.Uint16(e[8:])) != q.number {
		t.Errorf("event % x", e)
	}
	arrive()
	check("not armed again", 1, 1)
	q.arm(0)
	check("armed again before the program got the event", 1, 1)
	q.arm(1)
	check("armed while the EQ is not", 2, 1)
	b.write(regEQDoorbell, 1<<31|1)
	check("EQ armed", 2, 2)
	for q.poll() != nil {
	}
	b.write(regEQDoorbell, 1<<31|1)
	q.arm(2)
	check("all completions are known", 2, 2)
	arrive()
	check("the next one", 3, 3)
	for i := range 2 * eqSize {
		for q.poll() != nil {
		}
		b.write(regEQDoorbell, 1<<31|1)
		q.arm(uint32(3+i) & 3)
		arrive()
		check("round", 4+i, 4+i)
	}
}

// QPs one after the other have different numbers, of which none is 0.
func TestNumbers(t *testing.T) {
	x := newWorld(t, "efa2").drivers[0]
	q := x.cq(16, cqOptions{})
	seen := map[uint16]bool{}
	for i := range 600 {
		x.d.qps.next = 0 // as if the other slots were used
		p := x.qp(typeSRD, q, 0)
		if p.number == 0 || i < 255 && seen[p.number] {
			t.Fatalf("QP %d has the number %#x", i, p.number)
		}
		seen[p.number] = true
		if s := p.destroy(); s != success {
			t.Fatalf("status %d", s)
		}
	}
}

// TestProfileIDs: an adapter is named after its PCI ID.
func TestProfileIDs(t *testing.T) {
	for _, p := range Profiles {
		if want := fmt.Sprintf("%x", p.Device); p.Name != want && !p.Future {
			t.Errorf("%s has the PCI ID %s", p.Name, want)
		}
	}
}
