package conformance

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// rxe of Linux 7.2 ignores the offset within a page, and in the data, when it copies to
// or from memory that is paged on demand. Only the data of one packet at the start of a page
// is right. These tests use such data only, as the C stack's own tests do.
const odp = 1000 // less than the path MTU

var page = os.Getpagesize()

// odpMR registers mmapped memory, none of which is resident yet, for on-demand paging.
func odpMR(t *testing.T, p *rdmatest.Pair, n int) *verbs.MR {
	t.Helper()
	buf := rdmatest.Must(unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))(t)
	mr := rdmatest.Must(p.PD.RegMR(buf, verbs.MROptions{Access: rdmatest.All | verbs.AccessOnDemand}))(t)
	t.Cleanup(func() {
		rdmatest.Close(t, mr)
		unix.Munmap(buf)
	})
	return mr
}

// drop discards the pages, so that the next access faults.
func drop(t *testing.T, mr *verbs.MR) {
	t.Helper()
	rdmatest.Check(t, unix.Madvise(mr.Bytes(), unix.MADV_DONTNEED))
}

func odpPair(t *testing.T, s rdmatest.Spec) (p *rdmatest.Pair, local, remote *verbs.MR) {
	t.Helper()
	p = rdmatest.NewPair(t, s)
	return p, odpMR(t, p, 4*page), odpMR(t, p, 4*page)
}

func TestODPCaps(t *testing.T) {
	e := expect(t)
	c := rdmatest.Open(t)
	attr := rdmatest.Must(c.QueryDevice())(t)
	if has := attr.ODP.General&verbs.ODPSupport != 0; has != e.odp {
		t.Errorf("the device reports on-demand paging %v", attr.ODP)
	}
	if e.odp {
		const rc = verbs.ODPSupportSend | verbs.ODPSupportRecv | verbs.ODPSupportWrite | verbs.ODPSupportRead | verbs.ODPSupportAtomic | verbs.ODPSupportSRQRecv
		if attr.ODP.RC&rc != rc || attr.ODP.UD&verbs.ODPSupportSend == 0 {
			t.Errorf("on-demand paging: %+v", attr.ODP)
		}
		return
	}
	pd := allocPD(t, c)
	_, err := pd.AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessOnDemand})
	if !errors.Is(err, verbs.ErrNotSupported) {
		t.Errorf("without on-demand paging: %v", err)
	}
}

func TestODPSend(t *testing.T) {
	if !expect(t).odp {
		return // TestODPCaps asserts the refusal
	}
	for _, srq := range []bool{false, true} {
		s := rdmatest.Default()
		s.SRQ = srq
		p, local, remote := odpPair(t, s)
		for i := range 20 {
			drop(t, local)
			drop(t, remote)
			rdmatest.Fill(local.Bytes()[page:page+odp], i)
			p.B.PostRecv(t, verbs.RecvWR{SGL: []verbs.SGE{remote.SGE(2*page, odp)}})
			p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{local.SGE(page, odp)}})
			rdmatest.PollOK(t, p.A.CQ, 1)
			rdmatest.PollOK(t, p.B.CQ, 1)
			wantArrived(t, remote.Bytes(), 2*page, rdmatest.Pattern(odp, i))
		}
	}
}

// TestODPMixed gathers from and scatters to both pinned memory and memory paged on demand.
func TestODPMixed(t *testing.T) {
	if !expect(t).odp {
		return // TestODPCaps asserts the refusal
	}
	p, local, remote := odpPair(t, rdmatest.Default())
	for i := range 20 {
		drop(t, local)
		drop(t, remote)
		rdmatest.Fill(local.Bytes()[:400], i)
		rdmatest.Fill(p.A.MR.Bytes()[77:277], i+1)
		p.B.PostRecv(t, verbs.RecvWR{SGL: []verbs.SGE{p.B.MR.SGE(33, 400), remote.SGE(page, 200)}})
		p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{local.SGE(0, 400), p.A.MR.SGE(77, 200)}})
		rdmatest.PollOK(t, p.A.CQ, 1)
		rdmatest.PollOK(t, p.B.CQ, 1)
		wantBytes(t, p.B.MR.Bytes()[33:433], rdmatest.Pattern(400, i))
		wantArrived(t, remote.Bytes(), page, rdmatest.Pattern(200, i+1))
	}
}

// TestODPUD sends datagrams from memory that is paged on demand. The C stack doesn't
// receive datagrams into such memory either.
func TestODPUD(t *testing.T) {
	if !expect(t).odp {
		return // TestODPCaps asserts the refusal
	}
	s := rdmatest.Default()
	s.Type = verbs.UD
	p, local, _ := odpPair(t, s)
	for i := range 20 {
		drop(t, local)
		rdmatest.Fill(local.Bytes()[:odp], i)
		p.B.Recv(t, 1, 0, 2048)
		wr := message(p, 0)
		wr.SGL = []verbs.SGE{local.SGE(0, odp)}
		p.A.Send(t, wr)
		rdmatest.PollOK(t, p.A.CQ, 1)
		wantDatagram(t, p, p.B, p.A.QP.Num(), rdmatest.Pattern(odp, i))
	}
}

func TestODPRemote(t *testing.T) {
	if !expect(t).odp {
		return // TestODPCaps asserts the refusal
	}
	p, local, remote := odpPair(t, rdmatest.Default())
	atomics := hasAtomics(t, p, verbs.OpCompareSwap)
	for i := range 20 {
		drop(t, local)
		drop(t, remote)
		rdmatest.Fill(local.Bytes()[:odp], i)
		p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{local.SGE(0, odp)}}, remote, page))
		rdmatest.PollOK(t, p.A.CQ, 1)
		wantArrived(t, remote.Bytes(), page, rdmatest.Pattern(odp, i))

		drop(t, local)
		p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{local.SGE(page, odp)}}, remote, page))
		rdmatest.PollOK(t, p.A.CQ, 1)
		wantArrived(t, local.Bytes(), page, rdmatest.Pattern(odp, i))

		if !atomics {
			continue
		}
		// The local buffer of atomics must be at the start of a page too. Their
		// target may be anywhere.
		drop(t, local)
		drop(t, remote)
		p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpCompareSwap, Compare: 0, Swap: 9, SGL: []verbs.SGE{local.SGE(0, 8)}}, remote, 2*page+8))
		p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpFetchAdd, Add: 3, SGL: []verbs.SGE{local.SGE(page, 8)}}, remote, 2*page+8))
		rdmatest.PollOK(t, p.A.CQ, 2)
		if a, b, c := word(local, 0), word(local, page), word(remote, 2*page+8); a != 0 || b != 9 || c != 12 {
			t.Fatalf("swap returned %d, add %d; memory has %d", a, b, c)
		}
	}
}

func TestODPAtomicWriteAndFlush(t *testing.T) {
	if e := expect(t); !e.odp || !e.flush {
		return // TestODPCaps and TestFlush assert the refusals
	}
	s := rdmatest.Default()
	s.B.QP |= verbs.AccessFlushGlobal
	p := rdmatest.NewPair(t, s)
	buf := rdmatest.Must(unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))(t)
	remote := rdmatest.Must(p.PD.RegMR(buf, verbs.MROptions{Access: rdmatest.All | verbs.AccessOnDemand | verbs.AccessFlushGlobal}))(t)
	defer func() {
		rdmatest.Close(t, remote)
		unix.Munmap(buf)
	}()
	drop(t, remote)
	data := rdmatest.Pattern(8, 1)
	p.A.Send(t,
		to(verbs.SendWR{Opcode: verbs.OpAtomicWrite, Inline: data}, remote, 64),
		to(verbs.SendWR{Opcode: verbs.OpFlush, FlushType: verbs.FlushGlobal, FlushLevel: verbs.FlushRange, FlushLength: 4096}, remote, 0),
		to(verbs.SendWR{Opcode: verbs.OpFlush, FlushType: verbs.FlushGlobal, FlushLevel: verbs.FlushMR}, remote, 0))
	rdmatest.PollOK(t, p.A.CQ, 3)
	wantArrived(t, remote.Bytes(), 64, data)
}

// TestRelaxedOrdering: the hint is accepted, and the data arrives.
func TestRelaxedOrdering(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UD} {
		s := rdmatest.Default()
		s.Type = typ
		s.A.MR |= verbs.AccessRelaxedOrdering
		s.B.MR |= verbs.AccessRelaxedOrdering
		p := rdmatest.NewPair(t, s)
		for i := range 50 {
			data := fresh(p, 700, i)
			p.B.Recv(t, 1, 0, 1024)
			p.A.Send(t, message(p, 700))
			rdmatest.PollOK(t, p.A.CQ, 1)
			rdmatest.PollOK(t, p.B.CQ, 1)
			if typ == verbs.UD {
				wantBytes(t, p.B.MR.Bytes()[verbs.GRHLen:verbs.GRHLen+700], data)
				continue
			}
			wantArrived(t, p.B.MR.Bytes(), 0, data)
		}
	}
}
