package transport_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/cq"
	"github.com/goverbs/goverbs/rig/connectx/internal/eq"
	"github.com/goverbs/goverbs/rig/connectx/internal/loop"
	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// pager is a driver that makes a region's pages present, one for each fault.
type pager struct {
	h      *loop.HCA
	key    uint32
	addr   uint64 // of the region's pages
	there  int    // pages
	denies bool
	faults []eq.Event
}

const (
	pagedAt    = 0x7f0000000000
	pagedPages = 8
)

func (g *pager) region() {
	g.key = g.h.Key(mkey.Context{Mode: mkey.MTT, UMREnabled: true, PD: loop.PD, QPN: mkey.AnyQP, Access: 0x1f,
		PageShift: 12, Start: pagedAt, Len: pagedPages << 12, Octowords: 4})
}

// resolve resolves a fault.
func (g *pager) resolve(t *testing.T, e eq.Event) {
	xlt := make([]byte, pagedPages*8)
	g.there++
	for i := range min(g.there, pagedPages) {
		binary.BigEndian.PutUint64(xlt[i*8:], g.addr+uint64(i)<<12|3)
	}
	ctrl := make([]byte, mkey.CtrlSize)
	ctrl[0], ctrl[5] = 1<<7, 4 // inline
	if f := g.h.Keys.UMR(0, loop.PD, mkey.UMR{Key: g.key, Ctrl: ctrl, Mkey: make([]byte, mkey.ContextSize), Rest: xlt}); f != mkey.FaultNone {
		t.Fatalf("UMR: fault %d", f)
	}
	token := binary.BigEndian.Uint32(e.Data[12:])
	if e.Subtype == eq.PageFaultRDMA {
		token = binary.BigEndian.Uint32(e.Data[24:]) & 0xffffff
	}
	if err := g.h.Engine.Resume(token, e.Data[24]&7, g.denies); err != nil {
		t.Fatal(err)
	}
}

// paged is a pair whose regions have no present pages at first.
type paged struct {
	*pair
	ga, gb *pager
	queue  []func()
}

func newPaged(t *testing.T) *paged {
	p := &paged{ga: &pager{}, gb: &pager{}}
	o := loop.Options{PageFault: func(h *loop.HCA, e eq.Event) bool {
		g := p.ga
		if h == p.gb.h {
			g = p.gb
		}
		g.faults = append(g.faults, e)
		p.queue = append(p.queue, func() { g.resolve(t, e) })
		return true
	}}
	p.pair = newPair(t, transport.RC, o, nil)
	p.ga.h, p.ga.addr = p.a.H, p.aAddr
	p.gb.h, p.gb.addr = p.b.H, p.bAddr
	p.ga.region()
	p.gb.region()
	return p
}

// done waits for a completion, and resolves faults meanwhile.
func (p *paged) done(c *loop.CQ) (e loop.CQE) {
	p.Helper()
	for {
		answered := false
		ok := p.w.Idle(100*loop.Second, func() (ok bool) {
			answered = len(p.queue) > 0
			for _, f := range p.queue {
				f()
			}
			p.queue = p.queue[:0]
			e, ok = c.Poll()
			return ok
		})
		if ok {
			return e
		}
		if !answered {
			p.Fatal("no completion")
		}
	}
}

// kinds returns the kinds of the faults.
func kinds(events []eq.Event) (b []byte) {
	for _, e := range events {
		if kind := e.Subtype<<4 | e.Data[24]&7; !bytes.Contains(b, []byte{kind}) {
			b = append(b, kind)
		}
	}
	return b
}

const pagedBytes = pagedPages << 12

func TestPageFaults(t *testing.T) {
	remote := func(op uint8) func(p *paged) []byte {
		return func(p *paged) []byte {
			return loop.Data(loop.Raddr(loop.WQE(op, loop.Signaled, 0), pagedAt, p.gb.key), pagedAt, pagedBytes, p.ga.key)
		}
	}
	for _, c := range []struct {
		name string
		wqe  func(p *paged) []byte
		back bool   // the data comes from b
		a, b string // kinds of faults
	}{
		{"send", func(p *paged) []byte {
			p.b.PostRecv(loop.Data(nil, pagedAt, pagedBytes, p.gb.key))
			return loop.Data(loop.WQE(loop.Send, loop.Signaled, 0), pagedAt, pagedBytes, p.ga.key)
		}, false, "\x01", "\x02"},
		{"write", remote(loop.Write), false, "\x01", "\x16"},
		{"read", remote(loop.Read), true, "\x03", "\x14"},
	} {
		p := newPaged(t)
		from, to := p.aBuf[:pagedBytes], p.bBuf[:pagedBytes]
		if c.back {
			from, to = to, from
			for i := range from {
				from[i] = byte(i * 11)
			}
		}
		x := p.a.PostRing(c.wqe(p))
		if e := p.done(p.a.Send); e.Kind() != cq.Requester || e.Counter() != x {
			t.Errorf("%s: %v", c.name, &e)
		}
		if !bytes.Equal(from, to) {
			t.Errorf("%s: content differs", c.name)
		}
		if a, b := string(kinds(p.ga.faults)), string(kinds(p.gb.faults)); a != c.a || b != c.b {
			t.Errorf("%s: faults %x and %x, want %x and %x", c.name, a, b, c.a, c.b)
		}
		if len(p.ga.faults) != pagedPages {
			t.Errorf("%s: %d faults for %d pages", c.name, len(p.ga.faults), pagedPages)
		}
	}
}

// If a region's pages are removed during a remote read, the reader waits.
func TestPagesTakenAwayWhileRead(t *testing.T) {
	p := newPaged(t)
	p.ga.there, p.gb.there = pagedPages, pagedPages
	p.ga.resolve(t, fault(p.a.Number))
	p.gb.resolve(t, fault(p.b.Number))
	p.a.PostRing(loop.Data(loop.Raddr(loop.WQE(loop.Read, loop.Signaled, 0), pagedAt, p.gb.key), pagedAt, pagedBytes, p.ga.key))
	for range 3 {
		p.w.Step()
	}
	p.gb.there = 0
	zero := make([]byte, pagedPages*8)
	ctrl := make([]byte, mkey.CtrlSize)
	ctrl[0], ctrl[5] = 1<<7, 4
	p.gb.h.Keys.UMR(0, loop.PD, mkey.UMR{Key: p.gb.key, Ctrl: ctrl, Mkey: make([]byte, mkey.ContextSize), Rest: zero})
	if e := p.done(p.a.Send); e.Kind() != cq.Requester {
		t.Error(&e)
	}
}

// fault returns a page fault event that no queue pair waits for.
func fault(qpn uint32) eq.Event { return eq.PageFaultAt(1, qpn, 0, qpn) }

func TestAtomicPageFault(t *testing.T) {
	p := newPaged(t)
	p.a.PostRing(loop.Data(loop.Words(loop.Raddr(loop.WQE(loop.FA, loop.Signaled, 0), pagedAt, p.gb.key), 5, 0), pagedAt, 8, p.ga.key))
	if e := p.done(p.a.Send); e.Kind() != cq.Requester {
		t.Fatal(&e)
	}
	if v := binary.LittleEndian.Uint64(p.bBuf); v != 5 { // executed once, though requested twice
		t.Errorf("%d, want 5", v)
	}
	if a, b := string(kinds(p.ga.faults)), string(kinds(p.gb.faults)); a != "\x03" || b != "\x16" {
		t.Errorf("faults %x and %x", a, b)
	}
}

func TestPagesDenied(t *testing.T) {
	for _, c := range []struct {
		name     string
		deny     func(p *paged)
		op       uint8
		syndrome uint8
	}{
		{"to send", func(p *paged) { p.ga.denies = true }, loop.Write, cq.SyndromeLocalProt},
		{"to be written", func(p *paged) { p.gb.denies = true }, loop.Write, cq.SyndromeRemoteAccess},
		{"to be read", func(p *paged) { p.gb.denies = true }, loop.Read, cq.SyndromeRemoteAccess},
		{"to read into", func(p *paged) { p.ga.denies = true }, loop.Read, cq.SyndromeLocalProt},
	} {
		p := newPaged(t)
		c.deny(p)
		p.a.PostRing(loop.Data(loop.Raddr(loop.WQE(c.op, loop.Signaled, 0), pagedAt, p.gb.key), pagedAt, pagedBytes, p.ga.key))
		if e := p.done(p.a.Send); e.Kind() != cq.RequesterError || e.Syndrome() != c.syndrome {
			t.Errorf("%s: %v, want syndrome %#x", c.name, &e, c.syndrome)
		}
	}
	p := newPaged(t)
	if p.a.H.Engine.Resume(0x123456, 1, false) == nil {
		t.Error("resumed a queue pair that doesn't exist")
	}
}
