package mkey

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/rig/internal/bus"
)

var be = binary.BigEndian

const (
	base  = 0x100000
	page  = 0x1000
	pages = 64
	pd    = 7
	qpn   = 0x42
	iova  = 0x7f0000000000
)

// ram returns memory in which each word has its own address.
func ram() *bus.RAM {
	m := &bus.RAM{Base: base, Data: make([]byte, pages*page)}
	for i := 0; i < len(m.Data); i += 8 {
		be.PutUint64(m.Data[i:], base+uint64(i))
	}
	return m
}

func mtts(addrs ...uint64) (b []byte) {
	for _, a := range addrs {
		b = be.AppendUint64(b, a|3) // readable and writable
	}
	return b
}

func klm(n, key uint32, va uint64) (b []byte) {
	b = be.AppendUint32(b, n)
	b = be.AppendUint32(b, key)
	return be.AppendUint64(b, va)
}

// region returns an MR of 3 pages in arbitrary order, whose address isn't page-aligned.
func region(a Access) Context {
	return Context{
		Mode: MTT, Key: 0x5a, Access: a, PD: pd, QPN: AnyQP, PageShift: 12,
		Start: iova + 0x100, Len: 3*page - 0x200, Octowords: 2,
		XLT: mtts(base+5*page, base+2*page, base+9*page),
	}
}

func create(t *testing.T, tab *Table, c Context) uint32 {
	t.Helper()
	index, err := tab.Create(c)
	if err != nil {
		t.Fatal(err)
	}
	return index<<8 | uint32(c.Key)
}

// words returns the first word of each piece that Resolve found, which is its address, and
// the pieces' total length.
func words(parts [][]byte) (addrs []uint64, n int) {
	for _, p := range parts {
		addrs = append(addrs, be.Uint64(p))
		n += len(p)
	}
	return addrs, n
}

func equal(a, b []uint64) bool {
	return bytes.Equal(mtts(a...), mtts(b...))
}

func TestResolvePages(t *testing.T) {
	tab := New(ram())
	key := create(t, tab, region(LocalRead|RemoteRead))
	for _, c := range []struct {
		addr uint64
		n    int
		want []uint64
		f    Fault
	}{
		{iova + 0x100, 8, []uint64{base + 5*page + 0x100}, FaultNone},
		{iova + 0xf00, 0x200, []uint64{base + 5*page + 0xf00, base + 2*page}, FaultNone},
		{iova + 0x100, 3*page - 0x200, []uint64{base + 5*page + 0x100, base + 2*page, base + 9*page}, FaultNone},
		{iova + 0xf8, 8, nil, FaultBounds},
		{iova + 3*page - 0x100, 1, nil, FaultBounds},
		{iova + 3*page - 0x108, 9, nil, FaultBounds},
		{iova + 0x100, 3*page - 0x1ff, nil, FaultBounds},
		{0, 1, nil, FaultBounds},
		{^uint64(0), 2, nil, FaultBounds},
		{iova + 0x100, -1, nil, FaultBounds},
		{0xdead, 0, nil, FaultNone},
	} {
		parts, f := tab.Resolve(nil, key, pd, qpn, c.addr, c.n, RemoteRead)
		addrs, n := words(parts)
		if f != c.f || !equal(addrs, c.want) || f == FaultNone && n != c.n {
			t.Errorf("[%#x, +%#x): %#x, %d bytes, fault %d; want %#x, fault %d", c.addr, c.n, addrs, n, f, c.want, c.f)
		}
	}
}

func TestProtection(t *testing.T) {
	tab := New(ram())
	key := create(t, tab, region(LocalRead|RemoteWrite))
	bound := region(LocalRead)
	bound.QPN = qpn
	own := create(t, tab, bound)
	for _, c := range []struct {
		name string
		key  uint32
		pd   uint32
		qpn  uint32
		want Access
		f    Fault
	}{
		{"right", key, pd, qpn, LocalRead, FaultNone},
		{"remote write", key, pd, qpn, RemoteWrite, FaultNone},
		{"local write", key, pd, qpn, LocalWrite, FaultAccess},
		{"remote read", key, pd, qpn, RemoteRead, FaultAccess},
		{"atomic", key, pd, qpn, Atomic, FaultAccess},
		{"variable part", key + 1, pd, qpn, LocalRead, FaultKey},
		{"index", key + 0x1000, pd, qpn, LocalRead, FaultKey},
		{"terminator", InvalidLkey, pd, qpn, LocalRead, FaultKey},
		{"zero", 0, pd, qpn, LocalRead, FaultKey},
		{"PD", key, pd + 1, qpn, LocalRead, FaultPD},
		{"its QP", own, pd, qpn, LocalRead, FaultNone},
		{"other QP", own, pd, qpn + 1, LocalRead, FaultPD},
	} {
		if _, f := tab.Resolve(nil, c.key, c.pd, c.qpn, iova+0x100, 8, c.want); f != c.f {
			t.Errorf("%s: fault %d, want %d", c.name, f, c.f)
		}
	}
}

func TestPhysicalKeys(t *testing.T) {
	tab := New(ram())
	c := Context{Mode: PA, Length64: true, Access: 0x1f, PD: pd, QPN: AnyQP}
	key := create(t, tab, c)
	for _, k := range []uint32{key, ReservedLkey} {
		parts, f := tab.Resolve(nil, k, pd, qpn, base+0x1230, 0x2000, LocalWrite)
		if addrs, n := words(parts); f != FaultNone || n != 0x2000 || addrs[0] != base+0x1230 {
			t.Errorf("key %#x: %#x, %d bytes, fault %d", k, addrs, n, f)
		}
		if _, f := tab.Resolve(nil, k, pd, qpn, base-8, 16, LocalRead); f != FaultMemory {
			t.Errorf("key %#x outside of memory: fault %d", k, f)
		}
	}
	if _, f := tab.Resolve(nil, ReservedLkey, pd, qpn, base, 8, RemoteRead); f != FaultAccess {
		t.Errorf("the reserved key from outside: fault %d", f)
	}
}

func TestPagesTakenAway(t *testing.T) {
	tab := New(ram())
	c := region(LocalRead)
	be.PutUint64(c.XLT[8:], 0)
	key := create(t, tab, c)
	dst := [][]byte{{1}}
	got, f := tab.Resolve(dst, key, pd, qpn, iova+0x100, 2*page, LocalRead)
	if f != FaultPage || len(got) != 1 {
		t.Errorf("a page without translation: fault %d, %d pieces", f, len(got))
	}
	c.XLT = c.XLT[:8]
	key = create(t, tab, c)
	if _, f := tab.Resolve(nil, key, pd, qpn, iova+page, 8, LocalRead); f != FaultPage {
		t.Errorf("fewer translations than the length has pages: fault %d", f)
	}
	c.Len = 1 << 20
	key = create(t, tab, c)
	if _, f := tab.Resolve(nil, key, pd, qpn, iova+16*page, 8, LocalRead); f != FaultMemory {
		t.Errorf("beyond the room for translations: fault %d", f)
	}
	c.XLT = be.AppendUint64(nil, base|1)
	c.Access = 0x1f
	key = create(t, tab, c)
	for want, f := range map[Access]Fault{LocalRead: FaultNone, RemoteRead: FaultNone, LocalWrite: FaultPage, RemoteWrite: FaultPage, Atomic: FaultPage} {
		if _, got := tab.Resolve(nil, key, pd, qpn, iova+0x100, 8, want); got != f {
			t.Errorf("a page to be read only, wanted for %#x: fault %d, want %d", want, got, f)
		}
	}
}

func TestLists(t *testing.T) {
	tab := New(ram())
	mr := create(t, tab, region(LocalRead|LocalWrite))
	list := Context{Mode: KLM, Access: 0x1f, PD: pd, QPN: AnyQP, Start: 0x8000, Len: 0x60, Octowords: 4,
		XLT: append(append(klm(0x20, mr, iova+0x200), klm(0, 0, 0)...), klm(0x40, mr, iova+page-0x20)...)}
	key := create(t, tab, list)
	parts, f := tab.Resolve(nil, key, pd, qpn, 0x8010, 0x50, RemoteWrite)
	addrs, n := words(parts)
	if want := []uint64{base + 5*page + 0x210, base + 6*page - 0x20, base + 2*page}; f != FaultNone || n != 0x50 || !equal(addrs, want) {
		t.Errorf("list: %#x, %d bytes, fault %d; want %#x", addrs, n, f, want)
	}
	if _, f := tab.Resolve(nil, key, pd, qpn, 0x8010, 0x51, RemoteWrite); f != FaultBounds {
		t.Errorf("beyond the list: fault %d", f)
	}

	upon := list
	upon.XLT = klm(0x60, key, 0x8000)
	key2 := create(t, tab, upon)
	if parts, f := tab.Resolve(nil, key2, pd, qpn, 0x8000, 0x60, RemoteRead); f != FaultNone || len(parts) != 3 {
		t.Errorf("a list of a list: %d pieces, fault %d", len(parts), f)
	}

	self := list
	self.XLT = klm(0x60, (tab.next)<<8, 0x8000)
	loop := create(t, tab, self)
	if _, f := tab.Resolve(nil, loop, pd, qpn, 0x8000, 8, RemoteRead); f != FaultMemory {
		t.Errorf("a list of itself: fault %d", f)
	}

	reserved := list
	reserved.XLT = klm(0x60, ReservedLkey, base)
	if _, f := tab.Resolve(nil, create(t, tab, reserved), pd, qpn, 0x8000, 8, LocalRead); f != FaultKey {
		t.Errorf("a list of all memory: fault %d", f)
	}

	ksm := Context{Mode: KSM, Access: LocalRead, PD: pd, QPN: AnyQP, PageShift: 4, Start: 0x8, Len: 0x18, Octowords: 2,
		XLT: append(klm(0, mr, iova+0x300), klm(0, mr, iova+0x200)...)}
	parts, f = tab.Resolve(nil, create(t, tab, ksm), pd, qpn, 8, 0x18, LocalRead)
	addrs, _ = words(parts)
	if want := []uint64{base + 5*page + 0x308, base + 5*page + 0x200}; f != FaultNone || !equal(addrs, want) {
		t.Errorf("equal pieces: %#x, fault %d; want %#x", addrs, f, want)
	}

	if tab.Destroy(mr>>8) != nil {
		t.Fatal("destroy")
	}
	if _, f := tab.Resolve(nil, key, pd, qpn, 0x8010, 8, RemoteWrite); f != FaultKey {
		t.Errorf("a list whose region is gone: fault %d", f)
	}
}

// interleaved returns what mlx5dv_wr_mr_interleaved writes: 3 rounds, each with 16 bytes
// from one place and 8 from another.
func interleaved(mr uint32) []byte {
	b := be.AppendUint32(nil, 24)
	b = be.AppendUint32(b, pattern)
	b = be.AppendUint32(b, 3)
	b = be.AppendUint32(b, 2)
	for _, e := range []struct {
		stride, n uint16
		va        uint64
	}{{0x100, 16, iova + 0x100}, {0x20, 8, iova + page}} {
		b = be.AppendUint16(b, e.stride)
		b = be.AppendUint16(b, e.n)
		b = be.AppendUint32(b, mr)
		b = be.AppendUint64(b, e.va)
	}
	return b
}

func TestPattern(t *testing.T) {
	tab := New(ram())
	mr := create(t, tab, region(LocalRead|LocalWrite))
	c := Context{Mode: KLM, Access: LocalRead, PD: pd, QPN: AnyQP, Len: 72, Octowords: 4, XLT: interleaved(mr)}
	key := create(t, tab, c)
	parts, f := tab.Resolve(nil, key, pd, qpn, 8, 64, LocalRead)
	addrs, n := words(parts)
	a, b := uint64(base+5*page+0x100), uint64(base+2*page)
	if want := []uint64{a + 8, b, a + 0x100, b + 0x20, a + 0x200, b + 0x40}; f != FaultNone || n != 64 || !equal(addrs, want) {
		t.Errorf("%#x, %d bytes, fault %d; want %#x", addrs, n, f, want)
	}
	for name, spoil := range map[string]func([]byte){
		"more entries than room": func(x []byte) { x[15] = 200 },
		"no entries":             func(x []byte) { x[15] = 0 },
		"another round":          func(x []byte) { x[3] = 25 },
		"too few rounds":         func(x []byte) { x[11] = 2 },
	} {
		bad := c
		bad.XLT = interleaved(mr)
		spoil(bad.XLT)
		if _, f := tab.Resolve(nil, create(t, tab, bad), pd, qpn, 0, 72, LocalRead); f != FaultMemory {
			t.Errorf("%s: fault %d", name, f)
		}
	}
}

func TestIndexesGoRound(t *testing.T) {
	tab := New(ram())
	first := create(t, tab, region(LocalRead))
	if err := tab.Destroy(first >> 8); err != nil {
		t.Fatal(err)
	}
	if again := create(t, tab, region(LocalRead)); again == first {
		t.Error("an index is used again at once")
	}
	if err := tab.Destroy(first >> 8); !errors.Is(err, ErrNoKey) {
		t.Errorf("destroyed twice: %v", err)
	}
	tab.next = indexes - 1
	create(t, tab, region(LocalRead))
	if k := create(t, tab, region(LocalRead)); k>>8 != firstIndex {
		// firstIndex was destroyed above
		t.Errorf("after the last index comes %#x", k>>8)
	}
	if k := create(t, tab, region(LocalRead)); k>>8 != firstIndex+2 {
		t.Errorf("an index in use was given: %#x", k>>8)
	}
	if n := tab.Count(); n != 4 {
		t.Errorf("%d keys, want 4", n)
	}
}

func TestInvalidate(t *testing.T) {
	tab := New(ram())
	c := region(LocalRead)
	fixed := create(t, tab, c)
	c.RemoteInvalidate = true
	key := create(t, tab, c)
	c.QPN = qpn
	own := create(t, tab, c)
	for _, c := range []struct {
		name     string
		key      uint32
		pd, qpn  uint32
		f, after Fault
	}{
		{"one that must not be", fixed, pd, qpn, FaultAccess, FaultNone},
		{"of another PD", key, pd + 1, qpn, FaultPD, FaultNone},
		{"right", key, pd, qpn, FaultNone, FaultKey},
		{"again", key, pd, qpn, FaultKey, FaultKey},
		{"of another QP", own, pd, qpn + 1, FaultPD, FaultNone},
		{"of the QP", own, pd, qpn, FaultNone, FaultKey},
	} {
		f := tab.Invalidate(c.key, c.pd, c.qpn)
		_, after := tab.Resolve(nil, c.key, pd, qpn, iova+0x100, 8, LocalRead)
		if f != c.f || after != c.after {
			t.Errorf("%s: fault %d, then %d; want %d, %d", c.name, f, after, c.f, c.after)
		}
	}
}

func TestContextRoundTrip(t *testing.T) {
	mkc := make([]byte, ContextSize)
	c := Context{Mode: KSM, Free: true, UMREnabled: true, RemoteInvalidate: true, Length64: true, RelaxedRead: true, RelaxedWrite: true,
		Key: 0x11, Access: Atomic | LocalRead, PD: 0x123456, QPN: 0xabcdef, Start: 0x1122334455667788, Len: 0x99, PageShift: 21, Octowords: 6}
	c.Encode(mkc)
	// From the widths in struct mlx5_ifc_mkc_bits of mlx5_ifc.h.
	want := make([]byte, ContextSize)
	copy(want, []byte{0x40, 0x04, 0xc7, 0, 0xab, 0xcd, 0xef, 0x11, 0, 0, 0, 0, 0x81, 0x12, 0x34, 0x56, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0, 0, 0, 0, 0, 0, 0, 0x99})
	want[55], want[59] = 6, 0x55
	if !bytes.Equal(mkc, want) {
		t.Errorf("encoded % x\nwant    % x", mkc, want)
	}
	got, err := Decode(mkc, nil)
	again := make([]byte, ContextSize)
	got.Encode(again)
	if err != nil || !bytes.Equal(again, mkc) {
		t.Errorf("decoded %+v, %v", got, err)
	}
	mkc[12] |= 0x40
	if _, err := Decode(mkc, nil); !errors.Is(err, ErrBadParam) {
		t.Errorf("a signature key: %v", err)
	}
	if _, err := New(nil).Create(Context{Mode: 5}); !errors.Is(err, ErrBadParam) {
		t.Errorf("device memory: %v", err)
	}
}

func TestResolveAllocatesNothing(t *testing.T) {
	tab := New(ram())
	key := create(t, tab, region(LocalRead))
	dst := make([][]byte, 0, 8)
	if n := testing.AllocsPerRun(100, func() {
		if _, f := tab.Resolve(dst, key, pd, qpn, iova+0x100, 2*page, LocalRead); f != FaultNone {
			t.Fatal(f)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestNowhere: the key of no memory swallows what is written, and reads as zeros.
func TestNowhere(t *testing.T) {
	tab := New(ram())
	for _, n := range []int{1, 4096, 10000} {
		for _, addr := range []uint64{0, iova, ^uint64(0)} {
			for want, fill := range map[Access]byte{LocalWrite: 0xff, LocalRead: 0} {
				parts, f := tab.Resolve(nil, DumpFillKey, pd, qpn, addr, n, want)
				got := 0
				for _, p := range parts {
					got += len(p)
					for i := range p {
						if want == LocalRead && p[i] != 0 {
							t.Fatalf("it reads %#x", p[i])
						}
						p[i] = fill
					}
				}
				if f != FaultNone || got != n {
					t.Errorf("%d bytes at %#x: %d, fault %d", n, addr, got, f)
				}
			}
		}
	}
	for _, want := range []Access{RemoteRead, RemoteWrite, Atomic} {
		if _, f := tab.Resolve(nil, DumpFillKey, pd, qpn, 0, 8, want); f != FaultAccess {
			t.Errorf("access %d: fault %d", want, f)
		}
	}
}

// TestAbsentPiece: a piece that isn't there yet is a page fault.
func TestAbsentPiece(t *testing.T) {
	tab := New(ram())
	child := create(t, tab, Context{
		Mode: MTT, Access: LocalRead | LocalWrite, PD: pd, QPN: AnyQP, PageShift: 12, Len: page, Octowords: 4, XLT: mtts(base + 5*page),
	})
	key := create(t, tab, Context{
		Mode: KSM, Access: LocalRead | RemoteWrite, PD: pd, QPN: AnyQP, PageShift: 12, Length64: true, Octowords: 4,
		XLT: append(klm(0, NullKey, 0), klm(0, child, 0)...),
	})
	for _, tt := range []struct {
		addr uint64
		n    int
		f    Fault
	}{{0, 8, FaultPage}, {page, page, FaultNone}, {page - 8, 16, FaultPage}, {2 * page, 8, FaultMemory}} {
		for _, want := range []Access{LocalRead, RemoteWrite} {
			if _, f := tab.Resolve(nil, key, pd, qpn, tt.addr, tt.n, want); f != tt.f {
				t.Errorf("[%#x, +%#x): fault %d, want %d", tt.addr, tt.n, f, tt.f)
			}
		}
	}
	if _, f := tab.Resolve(nil, NullKey, pd, qpn, 0, 8, LocalRead); f != FaultKey {
		t.Errorf("as a key: fault %d", f)
	}
}
