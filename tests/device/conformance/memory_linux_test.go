package conformance

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// resident counts the pages of a buffer that are in RAM and mapped.
func resident(t *testing.T, buf []byte) int {
	t.Helper()
	f := rdmatest.Must(os.Open("/proc/self/pagemap"))(t)
	defer f.Close()
	entries := make([]byte, len(buf)/page*8)
	at := int64(uintptr(unsafe.Pointer(&buf[0]))) / int64(page) * 8
	if _, err := f.ReadAt(entries, at); err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; len(entries) > 0; entries = entries[8:] {
		if binary.NativeEndian.Uint64(entries)>>63 != 0 {
			n++
		}
	}
	return n
}

// TestAdviseMR: a prefetch brings pages into RAM, unless the advice forbids faults.
func TestAdviseMR(t *testing.T) {
	e := expect(t)
	p := rdmatest.NewPair(t, rdmatest.Default())
	if !e.advise {
		err := p.PD.AdviseMR(verbs.AdvicePrefetch, verbs.AdviseFlush, p.A.MR.SGE(0, page))
		if !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("a driver without advice returns %v", err)
		}
		return
	}
	mr := odpMR(t, p, 8*page)
	for _, tt := range []struct {
		advice  verbs.Advice
		touched int // pages that are in RAM before
		advised int // pages
		want    int // in RAM afterwards
	}{
		{verbs.AdvicePrefetch, 0, 8, 8},
		{verbs.AdvicePrefetchWrite, 0, 8, 8},
		{verbs.AdvicePrefetchWrite, 0, 3, 3},
		{verbs.AdvicePrefetchNoFault, 0, 8, 0},
		{verbs.AdvicePrefetchNoFault, 8, 8, 8},
	} {
		drop(t, mr)
		rdmatest.Fill(mr.Bytes()[:tt.touched*page], 3)
		if n := resident(t, mr.Bytes()); n != tt.touched {
			t.Fatalf("%v: %d pages are in RAM before, want %d", tt.advice, n, tt.touched)
		}
		if err := p.PD.AdviseMR(tt.advice, verbs.AdviseFlush, mr.SGE(0, tt.advised*page)); err != nil {
			t.Errorf("%v: %v", tt.advice, err)
		}
		if n := resident(t, mr.Bytes()); n != tt.want {
			t.Errorf("%v of %d pages: %d are in RAM, want %d", tt.advice, tt.advised, n, tt.want)
		}
		rdmatest.Fill(mr.Bytes()[:odp], tt.want)
		clear(p.B.MR.Bytes())
		p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{mr.SGE(0, odp)}}, p.B.MR, 0))
		rdmatest.PollOK(t, p.A.CQ, 1)
		wantArrived(t, p.B.MR.Bytes(), 0, rdmatest.Pattern(odp, tt.want))
	}
	// Advice without a flush, and about several pieces at once, is accepted, too.
	drop(t, mr)
	rdmatest.Check(t, p.PD.AdviseMR(verbs.AdvicePrefetchWrite, 0, mr.SGE(0, page), mr.SGE(2*page, page)))
	rdmatest.Check(t, p.PD.AdviseMR(verbs.AdvicePrefetchWrite, verbs.AdviseFlush, mr.SGE(0, page), mr.SGE(2*page, page)))
	if n := resident(t, mr.Bytes()); n != 2 {
		t.Errorf("%d pages are in RAM, want 2", n)
	}
	// Memory that is pinned, of another PD, or read-only can't be prefetched in this way.
	other := allocPD(t, p.Ctx)
	readOnly := rdmatest.Must(p.PD.RegMR(mr.Bytes(), verbs.MROptions{Access: verbs.AccessOnDemand}))(t)
	defer rdmatest.Close(t, readOnly)
	for name, err := range map[string]error{
		"pinned":     p.PD.AdviseMR(verbs.AdvicePrefetch, verbs.AdviseFlush, p.A.MR.SGE(0, page)),
		"another PD": other.AdviseMR(verbs.AdvicePrefetch, verbs.AdviseFlush, mr.SGE(0, page)),
		"read-only":  p.PD.AdviseMR(verbs.AdvicePrefetchWrite, verbs.AdviseFlush, readOnly.SGE(0, page)),
	} {
		if err == nil {
			t.Errorf("%s: it was accepted", name)
		}
	}
}

// TestImplicitMR: one key covers all memory, including memory that is mapped later, and
// across the pieces of 1 GiB in which mlx5 registers it.
func TestImplicitMR(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	all, err := p.PD.RegImplicitMR(rdmatest.All)
	if !expect(t).implicit {
		if !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("a driver without implicit on-demand paging returns %v", err)
		}
		return
	}
	rdmatest.Check(t, err)
	defer rdmatest.Close(t, all)
	const piece = 1 << 30
	mapped := rdmatest.Must(unix.Mmap(-1, 0, 2*piece, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE))(t)
	defer unix.Munmap(mapped)
	border := piece - int(uintptr(unsafe.Pointer(&mapped[0]))%piece)
	const n = 9000
	for i, src := range [][]byte{mapped[:n], mapped[border-n/2:][:n], mapped[border+100*page+77:][:n], mapped[2*piece-n:]} {
		dst := mapped[border+(i+1)<<20-n/3:][:n]
		for round := range 2 { // once with page faults, once without
			rdmatest.Fill(src, 10*i+round)
			clear(dst)
			p.A.Send(t, verbs.SendWR{
				Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{all.SGEOf(src)},
				Remote: all.Remote().At(uint64(uintptr(unsafe.Pointer(&dst[0])))),
			})
			rdmatest.PollOK(t, p.A.CQ, 1)
			wantBytes(t, dst, rdmatest.Pattern(n, 10*i+round))
			clear(dst)
			p.B.PostRecv(t, verbs.RecvWR{SGL: []verbs.SGE{all.SGEOf(dst)}})
			p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{all.SGEOf(src)}})
			rdmatest.PollOK(t, p.A.CQ, 1)
			rdmatest.PollOK(t, p.B.CQ, 1)
			wantBytes(t, dst, rdmatest.Pattern(n, 10*i+round))
		}
	}
	// A prefetch works in the implicit MR, too.
	rdmatest.Check(t, unix.Madvise(mapped[:1<<20], unix.MADV_DONTNEED))
	whole := mapped[:8*page]
	rdmatest.Check(t, p.PD.AdviseMR(verbs.AdvicePrefetchWrite, verbs.AdviseFlush, all.SGEOf(whole)))
	if got := resident(t, whole); got != 8 {
		t.Errorf("%d pages are in RAM, want 8", got)
	}
	// Memory that isn't mapped fails the request.
	hole := rdmatest.Must(unix.Mmap(-1, 0, page, unix.PROT_READ, unix.MAP_ANON|unix.MAP_PRIVATE))(t)
	gone := all.SGEOf(hole)
	rdmatest.Check(t, unix.Munmap(hole))
	p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{gone}})
	if wc := rdmatest.Poll(t, p.A.CQ, 1)[0]; wc.Status != verbs.WCLocProtErr {
		t.Errorf("memory that isn't mapped: %v", wc.Status)
	}
}

// TestNullMR: data received into the null MR is dropped, and data sent from it is zeros.
func TestNullMR(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	null, err := p.PD.AllocNullMR()
	if !expect(t).nullMR {
		if !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("a driver without null MRs returns %v", err)
		}
		return
	}
	rdmatest.Check(t, err)
	defer rdmatest.Close(t, null)
	for i, n := range []int{1, 100, 5000} {
		data := fresh(p, 300, i)
		p.B.PostRecv(t, verbs.RecvWR{SGL: []verbs.SGE{p.B.MR.SGE(50, 20), null.SGE(1<<40, n), p.B.MR.SGE(1000, 8000)}})
		p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{
			p.A.MR.SGE(0, 100), null.SGE(7, n), p.A.MR.SGE(100, 200),
		}})
		rdmatest.PollOK(t, p.A.CQ, 1)
		if wc := rdmatest.PollOK(t, p.B.CQ, 1)[0]; wc.ByteLen != uint32(300+n) {
			t.Errorf("received %d bytes, want %d", wc.ByteLen, 300+n)
		}
		message := append(append(append([]byte{}, data[:100]...), make([]byte, n)...), data[100:300]...)
		want := make([]byte, len(p.B.MR.Bytes()))
		copy(want[50:], message[:20])
		copy(want[1000:], message[20+n:])
		wantBytes(t, p.B.MR.Bytes(), want)
	}
	before := rdmatest.Pattern(len(p.A.MR.Bytes()), 9)
	copy(p.A.MR.Bytes(), before)
	p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{null.SGE(0, 6000)}}, p.B.MR, 0))
	p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpFetchAdd, Add: 1, SGL: []verbs.SGE{null.SGE(0, 8)}}, p.B.MR, 0))
	rdmatest.PollOK(t, p.A.CQ, 2)
	wantBytes(t, p.A.MR.Bytes(), before)
}

// TestCompCounters: neither rdma_rxe nor the adapters of the rig have completion counters, and
// old kernels don't know them.
func TestCompCounters(t *testing.T) {
	c := rdmatest.Open(t)
	if k, err := c.CreateCompCounter(); !errors.Is(err, verbs.ErrNotSupported) {
		t.Errorf("got %v, %v", k, err)
	}
	if caps, err := c.CompCounterCaps(); !errors.Is(err, verbs.ErrNotSupported) {
		t.Errorf("got %+v, %v", caps, err)
	}
}

// TestDMAH: neither rdma_rxe nor the adapters of the rig have PCIe's processing hints, and old
// kernels don't know them.
func TestDMAH(t *testing.T) {
	c := rdmatest.Open(t)
	if d, err := c.AllocDMAH(verbs.DMAHOptions{}); !errors.Is(err, verbs.ErrNotSupported) {
		t.Errorf("got %v, %v", d, err)
	}
}
