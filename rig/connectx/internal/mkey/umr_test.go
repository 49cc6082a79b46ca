package mkey

import (
	"testing"
)

// request is a UMR as the drivers write it, field by field.
type request struct {
	flags  byte
	octs   uint16
	offset uint64 // in octowords
	mask   uint64
	status byte // the segment's byte 0
	access byte // byte 2: rights and mode
	qpnKey uint32
	pd     uint32
	start  uint64
	len    uint64
	shift  byte
	rest   []byte
}

func (r request) umr(key uint32) UMR {
	ctrl, seg := make([]byte, CtrlSize), make([]byte, ContextSize)
	ctrl[0] = r.flags
	be.PutUint16(ctrl[4:], r.octs)
	be.PutUint16(ctrl[6:], uint16(r.offset))
	be.PutUint32(ctrl[16:], uint32(r.offset>>16))
	be.PutUint64(ctrl[8:], r.mask)
	seg[0], seg[2], seg[59] = r.status, r.access, r.shift
	be.PutUint32(seg[4:], r.qpnKey)
	be.PutUint32(seg[12:], r.pd)
	be.PutUint64(seg[16:], r.start)
	be.PutUint64(seg[24:], r.len)
	return UMR{Key: key, Ctrl: ctrl, Mkey: seg, Rest: r.rest}
}

func pad(b []byte, n int) []byte { return append(b, make([]byte, n-len(b))...) }

// A region from mlx5_ib's cache: mlx5r_umr_update_mr_pas posts the pages in two pieces by
// pointer, then mlx5r_umr_revoke_mr revokes it.
func TestCachedRegion(t *testing.T) {
	m := ram()
	tab := New(m)
	const umrPD = 1
	dma := create(t, tab, Context{Mode: PA, Length64: true, Access: 0x1f, PD: umrPD, QPN: AnyQP})
	key := create(t, tab, Context{Mode: MTT, Free: true, UMREnabled: true, Key: 0x33, PD: umrPD, QPN: AnyQP, PageShift: 12, Octowords: 6})
	if _, f := tab.Resolve(nil, key, umrPD, qpn, 0, 8, LocalRead); f != FaultKey {
		t.Fatalf("a free key opens: fault %d", f)
	}
	list := m.Bytes(base, 128)
	for i := range 16 {
		be.PutUint64(list[i*8:], base+uint64(16+i)*page|3)
	}
	seg := be.AppendUint64(be.AppendUint32(be.AppendUint32(nil, 64), dma), base)

	r := request{flags: umrCheckFree, octs: 4, rest: seg}
	post := func(r request) Fault {
		u := r.umr(key)
		u.Privileged = true
		return tab.UMR(qpn, umrPD, u)
	}
	if f := post(r); f != FaultNone {
		t.Fatalf("first half: fault %d", f)
	}
	r.flags |= umrOffset
	r.offset = 4
	r.rest = be.AppendUint64(be.AppendUint32(be.AppendUint32(nil, 64), dma), base+64)
	r.mask = 1<<13 | 1<<29 | 0x1f<<17 | 1<<25 | 1<<47 | 1<<7 | 1<<0 | 1<<1 | 1<<6
	r.access = 0x3c
	r.qpnKey, r.pd, r.start, r.len, r.shift = 0xffffff00|0x34, pd, iova, 12*page, 12
	if f := post(r); f != FaultNone {
		t.Fatalf("second half: fault %d", f)
	}
	key++
	for i := range uint64(12) {
		parts, f := tab.Resolve(nil, key, pd, qpn, iova+i*page, 8, RemoteWrite)
		if addrs, _ := words(parts); f != FaultNone || addrs[0] != base+(16+i)*page {
			t.Fatalf("page %d: %#x, fault %d", i, addrs, f)
		}
	}
	if f := post(r); f != FaultState {
		t.Errorf("enabled twice: fault %d", f)
	}

	revoke := request{flags: umrInline, mask: 1<<7 | 1<<29, status: 0x40, pd: umrPD, qpnKey: 0xffffff34}
	if f := post(revoke); f != FaultNone {
		t.Fatalf("revoke: fault %d", f)
	}
	if c, _ := tab.Query(key >> 8); !c.Free || c.PD != umrPD || c.Start != iova {
		t.Errorf("revoked: %+v", c)
	}
	if _, f := tab.Resolve(nil, key, pd, qpn, iova, 8, RemoteWrite); f != FaultKey {
		t.Errorf("revoked: fault %d", f)
	}
}

// IB_WR_REG_MR and IB_WR_LOCAL_INV of a kernel ULP.
func TestFastRegistration(t *testing.T) {
	tab := New(ram())
	key := create(t, tab, Context{Mode: MTT, Free: true, UMREnabled: true, Key: 1, PD: pd, QPN: AnyQP, Octowords: 4})
	reg := request{flags: umrInline, octs: 4, mask: 1<<0 | 1<<1 | 1<<6 | 1<<8 | 1<<13 | 0xf<<17 | 1<<23 | 1<<29,
		access: 0x80 | 0x1c | 1, qpnKey: 0xffffff02, pd: 1 << 24, start: iova, len: 2 * page, shift: 12,
		rest: pad(mtts(base+3*page, base+page), 64)}
	if f := tab.UMR(qpn, pd, reg.umr(key)); f != FaultNone {
		t.Fatalf("register: fault %d", f)
	}
	key++
	if parts, f := tab.Resolve(nil, key, pd, qpn, iova+page, 8, RemoteRead); f != FaultNone || be.Uint64(parts[0]) != base+page {
		t.Fatalf("registered: fault %d", f)
	}
	if f := tab.Invalidate(key, pd, qpn); f != FaultNone { // en_rinval came with it
		t.Errorf("invalidate from outside: fault %d", f)
	}
	if f := tab.UMR(qpn, pd, reg.umr(key)); f != FaultNone {
		t.Fatalf("register again: fault %d", f)
	}
	if f := tab.UMR(qpn, pd, request{flags: umrInline, mask: 1 << 29, status: 0x40}.umr(key)); f != FaultNone {
		t.Fatalf("local invalidate: fault %d", f)
	}
	if _, f := tab.Resolve(nil, key, pd, qpn, iova, 8, RemoteRead); f != FaultKey {
		t.Errorf("invalidated: fault %d", f)
	}
}

// The bind that libmlx5 posts (set_bind_wr of providers/mlx5/qp.c).
func bind(typ2 bool, newKey byte, access byte, mr uint32, addr, n uint64) request {
	r := request{flags: umrOffset | umrInline, mask: 1<<29 | 1<<13, access: access, start: addr, len: n,
		qpnKey: 0xffffff00 | uint32(newKey)}
	if typ2 {
		r.mask |= 1 << 14
	}
	if n == 0 {
		r.status = 0x40
		if typ2 {
			r.flags |= umrCheckQPN
		}
		return r
	}
	r.mask |= 1<<0 | 1<<6 | 0x1e<<17
	r.octs = 4
	r.rest = pad(klm(uint32(n), mr, addr), 64)
	if typ2 {
		r.flags |= umrCheckFree
		r.qpnKey = qpn<<8 | uint32(newKey)
	}
	return r
}

func window(typ2 bool) Context {
	return Context{Mode: KLM, Free: true, UMREnabled: true, RemoteInvalidate: typ2, Access: LocalRead, PD: pd, QPN: AnyQP, Octowords: 4}
}

func TestWindowType1(t *testing.T) {
	tab := New(ram())
	mr := create(t, tab, region(LocalRead|LocalWrite))
	ro := create(t, tab, region(LocalRead))
	mw := create(t, tab, window(false))
	at := uint64(iova + 0x200)
	if f := tab.UMR(qpn, pd, bind(false, 1, 0x20, mr, at, 0x100).umr(mw)); f != FaultNone {
		t.Fatalf("bind: fault %d", f)
	}
	for _, c := range []struct {
		name string
		key  uint32
		pd   uint32
		addr uint64
		want Access
		f    Fault
	}{
		{"write", mw + 1, pd, at, RemoteWrite, FaultNone},
		{"read", mw + 1, pd, at, RemoteRead, FaultAccess},
		{"old key", mw, pd, at, RemoteWrite, FaultKey},
		{"beyond", mw + 1, pd, at + 0x100, RemoteWrite, FaultBounds},
		{"PD", mw + 1, pd + 1, at, RemoteWrite, FaultPD},
	} {
		if _, f := tab.Resolve(nil, c.key, c.pd, 0x99, c.addr, 8, c.want); f != c.f {
			t.Errorf("%s: fault %d, want %d", c.name, f, c.f)
		}
	}
	// The next bind replaces the last.
	zero := bind(false, 2, 0x10, ro, at, 0x100)
	zero.start = 0
	if f := tab.UMR(qpn, pd, zero.umr(mw+1)); f != FaultNone {
		t.Fatalf("bind, based on zero: fault %d", f)
	}
	parts, f := tab.Resolve(nil, mw+2, pd, qpn, 0x10, 8, RemoteRead)
	if f != FaultNone || be.Uint64(parts[0]) != base+5*page+0x210 {
		t.Errorf("based on zero: fault %d", f)
	}
	if f := tab.UMR(qpn, pd, bind(false, 3, 0, 0, 0, 0).umr(mw+2)); f != FaultNone {
		t.Fatalf("unbind: fault %d", f)
	}
	if _, f := tab.Resolve(nil, mw+3, pd, qpn, 0x10, 8, RemoteRead); f != FaultKey {
		t.Errorf("unbound: fault %d", f)
	}

	other := region(LocalRead | LocalWrite)
	other.PD++
	foreign := create(t, tab, other)
	for _, c := range []struct {
		name string
		r    request
		f    Fault
	}{
		{"a writable window on memory that is not", bind(false, 4, 0x20, ro, at, 8), FaultAccess},
		{"an atomic one", bind(false, 4, 0x40, ro, at, 8), FaultAccess},
		{"beyond the region", bind(false, 4, 0x10, mr, at, 3*page), FaultBounds},
		{"no such region", bind(false, 4, 0x10, mr+1, at, 8), FaultKey},
		{"a region of another PD", bind(false, 4, 0x10, foreign, at, 8), FaultPD},
	} {
		if f := tab.UMR(qpn, pd, c.r.umr(mw)); f != c.f {
			t.Errorf("%s: fault %d, want %d", c.name, f, c.f)
		}
		if c, _ := tab.Query(mw >> 8); !c.Free {
			t.Errorf("the window is bound after all")
		}
	}
}

func TestWindowType2(t *testing.T) {
	tab := New(ram())
	mr := create(t, tab, region(LocalRead|LocalWrite))
	mw := create(t, tab, window(true))
	at := uint64(iova + 0x200)
	resolve := func(key, qpn uint32) Fault {
		_, f := tab.Resolve(nil, key, pd, qpn, at, 8, RemoteWrite)
		return f
	}
	if f := tab.UMR(qpn, pd, bind(true, 1, 0x20, mr, at, 0x100).umr(mw)); f != FaultNone {
		t.Fatalf("bind: fault %d", f)
	}
	if a, b := resolve(mw+1, qpn), resolve(mw+1, qpn+1); a != FaultNone || b != FaultPD {
		t.Errorf("for its QP: fault %d; for another: %d", a, b)
	}
	if f := tab.UMR(qpn, pd, bind(true, 2, 0x20, mr, at, 0x100).umr(mw+1)); f != FaultState {
		t.Errorf("bound while bound: fault %d", f)
	}
	if f := tab.UMR(qpn+1, pd, bind(true, 0, 0, 0, 0, 0).umr(mw+1)); f != FaultState {
		t.Errorf("invalidated by another QP: fault %d", f)
	}
	if f := tab.UMR(qpn, pd, bind(true, 0, 0, 0, 0, 0).umr(mw+1)); f != FaultNone || resolve(mw+1, qpn) != FaultKey || resolve(mw, qpn) != FaultKey {
		t.Errorf("invalidated: fault %d, then %d", f, resolve(mw+1, qpn))
	}
	if f := tab.UMR(qpn, pd, bind(true, 0, 0, 0, 0, 0).umr(mw)); f != FaultState {
		t.Errorf("invalidated twice: fault %d", f)
	}
	if f := tab.UMR(qpn, pd, bind(true, 2, 0x20, mr, at, 0x100).umr(mw)); f != FaultNone || resolve(mw+2, qpn) != FaultNone {
		t.Errorf("bound again: fault %d", f)
	}
	if f := tab.Invalidate(mw+2, pd, qpn); f != FaultNone || resolve(mw+2, qpn) != FaultKey {
		t.Errorf("invalidated from outside: fault %d", f)
	}
	if err := tab.Destroy(mw >> 8); err != nil {
		t.Error(err)
	}
}

// A list and a pattern from user space, of mlx5dv_wr_mr_list and
// mlx5dv_wr_mr_interleaved.
func TestUserLists(t *testing.T) {
	tab := New(ram())
	mr := create(t, tab, region(LocalRead|LocalWrite))
	key := create(t, tab, Context{Mode: KLM, Free: true, UMREnabled: true, PD: pd, QPN: AnyQP, Octowords: 4})
	r := request{flags: umrInline, octs: 4, mask: 1<<29 | 1<<13 | 1<<0 | 0x1f<<17, access: 0x04, qpnKey: 0xffffff00, len: 72,
		rest: pad(interleaved(mr), 64)}
	if f := tab.UMR(qpn, pd, r.umr(key)); f != FaultNone {
		t.Fatalf("pattern: fault %d", f)
	}
	if parts, f := tab.Resolve(nil, key, pd, qpn, 0, 72, LocalRead); f != FaultNone || len(parts) != 6 {
		t.Errorf("pattern: %d pieces, fault %d", len(parts), f)
	}
	r.len, r.rest = 0x30, pad(append(klm(0x20, mr, iova+0x200), klm(0x10, mr, iova+0x100)...), 64)
	if f := tab.UMR(qpn, pd, r.umr(key)); f != FaultNone {
		t.Fatalf("list: fault %d", f)
	}
	if parts, f := tab.Resolve(nil, key, pd, qpn, 0, 0x30, LocalRead); f != FaultNone || len(parts) != 2 {
		t.Errorf("list: %d pieces, fault %d", len(parts), f)
	}
	// ibv_wr_local_inv of libmlx5 treats every key as a type 2 window.
	if f := tab.UMR(qpn, pd, bind(true, 0, 0, 0, 0, 0).umr(key)); f != FaultNone {
		t.Errorf("invalidated: fault %d", f)
	}
	if _, f := tab.Resolve(nil, key, pd, qpn, 0, 8, LocalRead); f != FaultKey {
		t.Errorf("after it was invalidated: fault %d", f)
	}
}

func TestRefusedUMRs(t *testing.T) {
	tab := New(ram())
	plain := region(LocalRead)
	fixed := create(t, tab, plain)
	plain.UMREnabled = true
	key := create(t, tab, plain)
	plain.QPN = qpn + 1
	own := create(t, tab, plain)
	for _, c := range []struct {
		name string
		key  uint32
		pd   uint32
		r    request
		f    Fault
	}{
		{"no such key", 0x99900, pd, request{}, FaultKey},
		{"not enabled", fixed, pd, request{}, FaultState},
		{"another PD's", key, pd + 1, request{}, FaultPD},
		{"to another PD", key, pd, request{mask: 1 << 7, pd: pd + 1}, FaultPD},
		{"check free", key, pd, request{flags: umrCheckFree}, FaultState},
		{"check QP", own, pd, request{flags: umrCheckQPN}, FaultState},
		{"signature", key, pd, request{mask: 1 << 9}, FaultState},
		{"more than room", key, pd, request{flags: umrInline, octs: 8, rest: make([]byte, 128)}, FaultState},
		{"offset beyond room", key, pd, request{flags: umrInline | umrOffset, octs: 4, offset: 1 << 40, rest: make([]byte, 64)}, FaultState},
		{"inline that is not there", key, pd, request{flags: umrInline, octs: 4, rest: make([]byte, 16)}, FaultState},
		{"no data segment", key, pd, request{octs: 4}, FaultState},
		{"a pointer to nowhere", key, pd, request{octs: 4, rest: pad(klm(64, key+9, 0), 16)}, FaultKey},
	} {
		before, _ := tab.Query(key >> 8)
		if f := tab.UMR(qpn, c.pd, c.r.umr(c.key)); f != c.f {
			t.Errorf("%s: fault %d, want %d", c.name, f, c.f)
		}
		after, _ := tab.Query(key >> 8)
		if string(before.XLT) != string(after.XLT) || before.PD != after.PD || before.Free != after.Free {
			t.Errorf("%s: the key changed", c.name)
		}
	}
	if f := tab.UMR(qpn, pd, UMR{Key: key, Ctrl: make([]byte, 8), Mkey: make([]byte, 8)}); f != FaultState {
		t.Errorf("short segments: fault %d", f)
	}
}

// FuzzUMR uses hostile segments and contexts. Nothing panics, and Resolve returns only
// RAM.
func FuzzUMR(f *testing.F) {
	good := bind(true, 1, 0x20, firstIndex<<8|0x5a, iova+0x200, 0x100).umr((firstIndex + 1) << 8)
	f.Add(good.Ctrl, good.Mkey, good.Rest, uint64(iova+0x200), uint32(64))
	pat := request{flags: umrInline, octs: 4, mask: 1<<29 | 1<<0, access: 0x04, len: 72}.umr(0)
	f.Add(pat.Ctrl, pat.Mkey, pad(interleaved(firstIndex<<8|0x5a), 64), uint64(0), uint32(72))
	f.Fuzz(func(t *testing.T, ctrl, seg, rest []byte, addr uint64, n uint32) {
		tab := New(ram())
		create(t, tab, region(LocalRead|LocalWrite))
		mw := create(t, tab, window(true))
		tab.UMR(qpn, pd, UMR{Key: mw, Ctrl: ctrl, Mkey: seg, Rest: rest, Privileged: true})
		c, _ := tab.Query(mw >> 8)
		n %= 1 << 20
		for want := LocalRead; want <= Atomic; want <<= 1 {
			parts, f := tab.Resolve(nil, mw|uint32(c.Key), c.PD, qpn, addr, int(n), want)
			got := 0
			for _, p := range parts {
				got += len(p)
			}
			if f == FaultNone && got != int(n) || f != FaultNone && got != 0 {
				t.Fatalf("%d bytes of %d, fault %d", got, n, f)
			}
		}
		if len(seg) >= ContextSize {
			if c, err := Decode(seg, rest); err == nil {
				if index, err := tab.Create(c); err == nil {
					tab.Resolve(nil, index<<8|uint32(c.Key), c.PD, qpn, addr, int(n), LocalRead)
				}
			}
		}
	})
}
