package conformance

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// dmOf allocates n bytes of the device's memory and registers them for everything.
func dmOf(t *testing.T, p *rdmatest.Pair, n uint64) (*verbs.DM, *verbs.MR) {
	t.Helper()
	dm := rdmatest.Must(p.Ctx.AllocDM(verbs.DMOptions{Length: n}))(t)
	return dm, rdmatest.Must(p.PD.RegDM(verbs.DMRegion{DM: dm}, rdmatest.All))(t)
}

// TestDM moves data from the processor to memory of the device, from there to the peer, and
// back.
func TestDM(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	limit := rdmatest.Must(p.Ctx.QueryDevice())(t).MaxDMSize
	if !expect(t).dm {
		if _, err := p.Ctx.AllocDM(verbs.DMOptions{Length: 64}); !errors.Is(err, verbs.ErrNotSupported) || limit != 0 {
			t.Errorf("a driver without device memory has %d bytes, and returns %v", limit, err)
		}
		return
	}
	for i, n := range []uint64{4, 64, 100, 4096, 8000, limit} {
		dm, mr := dmOf(t, p, n)
		data := rdmatest.Pattern(int(n), i)
		if wrote, err := dm.WriteAt(data, 0); err != nil || wrote != int(n) {
			t.Fatalf("wrote %d of %d bytes: %v", wrote, n, err)
		}
		got := make([]byte, n)
		if read, err := dm.ReadAt(got, 0); err != nil || read != int(n) {
			t.Fatalf("read %d of %d bytes: %v", read, n, err)
		}
		wantBytes(t, got, data)

		// As the source of a message, and as the target of another.
		part := min(int(n), 8192)
		clear(p.B.MR.Bytes())
		p.B.Recv(t, 1, 7, part)
		p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{mr.SGE(int(n)-part, part)}})
		rdmatest.PollOK(t, p.A.CQ, 1)
		rdmatest.PollOK(t, p.B.CQ, 1)
		wantArrived(t, p.B.MR.Bytes(), 7, data[int(n)-part:])
		back := fresh(p, part, i+1)
		p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{p.A.MR.SGE(0, part)}}, mr, int(n)-part))
		rdmatest.PollOK(t, p.A.CQ, 1)
		copy(data[int(n)-part:], back)
		rdmatest.Must(dm.ReadAt(got, 0))(t)
		wantBytes(t, got, data)
		rdmatest.Close(t, mr)
		rdmatest.Close(t, dm)
	}
	if _, err := p.Ctx.AllocDM(verbs.DMOptions{Length: limit + 1}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("more than the limit: %v", err)
	}
}

// TestDMRegions: several allocations, and several MRs of one, don't mix.
func TestDMRegions(t *testing.T) {
	if !expect(t).dm {
		return // TestDM asserts the refusal
	}
	p := rdmatest.NewPair(t, rdmatest.Default())
	one := rdmatest.Must(p.Ctx.AllocDM(verbs.DMOptions{Length: 200, Align: 256}))(t)
	two := rdmatest.Must(p.Ctx.AllocDM(verbs.DMOptions{Length: 64}))(t)
	zeros := make([]byte, 200)
	rdmatest.Must(one.WriteAt(zeros, 0))(t)
	rdmatest.Must(two.WriteAt(zeros[:64], 0))(t)
	head := rdmatest.Must(p.PD.RegDM(verbs.DMRegion{DM: one, Length: 100}, rdmatest.All))(t)
	tail := rdmatest.Must(p.PD.RegDM(verbs.DMRegion{DM: one, Offset: 96}, rdmatest.All))(t)
	if head.Len() != 100 || tail.Len() != 104 {
		t.Errorf("the MRs have %d and %d bytes", head.Len(), tail.Len())
	}
	data := fresh(p, 50, 1)
	p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{p.A.MR.SGE(0, 50)}}, tail, 10))
	rdmatest.PollOK(t, p.A.CQ, 1)
	got := make([]byte, 200)
	rdmatest.Must(one.ReadAt(got, 0))(t)
	wantArrived(t, got, 106, data)
	rdmatest.Must(two.ReadAt(got[:64], 0))(t)
	wantBytes(t, got[:64], zeros[:64])
	if err := one.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("memory with MRs: %v", err)
	}
	// An MR ends where it ends.
	p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{p.A.MR.SGE(0, 50)}}, head, 60))
	if wc := rdmatest.Poll(t, p.A.CQ, 1)[0]; wc.Status != verbs.WCRemAccessErr {
		t.Errorf("a write across the end: %v", wc.Status)
	}
}

// TestDMAtomics counts in memory of the device.
func TestDMAtomics(t *testing.T) {
	if !expect(t).dm {
		return // TestDM asserts the refusal
	}
	p := rdmatest.NewPair(t, rdmatest.Default())
	dm, mr := dmOf(t, p, 64)
	b := make([]byte, 8)
	binary.NativeEndian.PutUint64(b, 40)
	rdmatest.Must(dm.WriteAt(b, 16))(t)
	p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpFetchAdd, Add: 3, SGL: []verbs.SGE{p.A.MR.SGE(0, 8)}}, mr, 16))
	p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpCompareSwap, Compare: 43, Swap: 9, SGL: []verbs.SGE{p.A.MR.SGE(8, 8)}}, mr, 16))
	rdmatest.PollOK(t, p.A.CQ, 2)
	rdmatest.Must(dm.ReadAt(b, 16))(t)
	if before, then, now := word(p.A.MR, 0), word(p.A.MR, 8), binary.NativeEndian.Uint64(b); before != 40 || then != 43 || now != 9 {
		t.Errorf("add returned %d, swap %d; memory has %d", before, then, now)
	}
}

// TestDMExport registers memory of the device as a dma-buf.
func TestDMExport(t *testing.T) {
	e := expect(t)
	if !e.dm {
		return // TestDM asserts the refusal
	}
	p := rdmatest.NewPair(t, rdmatest.Default())
	dm := rdmatest.Must(p.Ctx.AllocDM(verbs.DMOptions{Length: 4096}))(t)
	f, off, err := dm.ExportDmabuf()
	if !e.dmExport {
		if !errors.Is(err, verbs.ErrNotSupported) && !errors.Is(err, unix.EPROTONOSUPPORT) {
			t.Errorf("a kernel without exports returns %v", err)
		}
		return
	}
	rdmatest.Check(t, err)
	defer f.Close()
	if off != 0 {
		t.Errorf("a whole page begins at %#x", off)
	}
}
