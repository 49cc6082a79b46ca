package conformance

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// windowPair returns a pair whose memory the peer can access only through windows.
func windowPair(t *testing.T) *rdmatest.Pair {
	t.Helper()
	s := rdmatest.Default()
	s.A.MR = verbs.AccessLocalWrite | verbs.AccessMWBind
	s.B.MR = s.A.MR
	return rdmatest.NewPair(t, s)
}

func window(t *testing.T, p *rdmatest.Pair, typ verbs.MWType) *verbs.MW {
	t.Helper()
	mw := rdmatest.Must(p.PD.AllocMW(typ))(t)
	if mw.Type() != typ {
		t.Errorf("the window is of type %d, not %d", mw.Type(), typ)
	}
	return mw
}

// writeThrough makes A write to B's memory with a key, and returns the status.
func writeThrough(t *testing.T, p *rdmatest.Pair, rkey uint32, off int) verbs.WCStatus {
	t.Helper()
	wr := to(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{p.A.MR.SGE(0, 256)}}, p.B.MR, off)
	wr.Remote.RKey = rkey
	p.A.Send(t, wr)
	return rdmatest.Poll(t, p.A.CQ, 1)[0].Status
}

func wantWritten(t *testing.T, p *rdmatest.Pair, rkey uint32, off, seed int) {
	t.Helper()
	data := fresh(p, 256, seed)
	if s := writeThrough(t, p, rkey, off); s != verbs.WCSuccess {
		t.Fatalf("a write through the window: %v", s)
	}
	wantArrived(t, p.B.MR.Bytes(), off, data)
}

func wantRefused(t *testing.T, p *rdmatest.Pair, rkey uint32, off int) {
	t.Helper()
	clear(p.B.MR.Bytes())
	if s := writeThrough(t, p, rkey, off); s != verbs.WCRemAccessErr {
		t.Errorf("a write without a window: %v", s)
	}
	wantArrived(t, p.B.MR.Bytes(), 0, nil)
}

// bind1 binds a window of type 1 to n bytes of B's memory.
func bind1(t *testing.T, p *rdmatest.Pair, mw *verbs.MW, off, n int) {
	t.Helper()
	before := mw.RKey()
	err := p.B.QP.BindMW(mw, verbs.MWBind{
		WRID: 77, Flags: verbs.SendSignaled,
		MWBindInfo: verbs.MWBindInfo{MR: p.B.MR, Addr: p.B.MR.Addr() + uint64(off), Length: uint64(n), Access: verbs.AccessRemoteWrite},
	})
	if err != nil {
		t.Fatal(err)
	}
	if wc := rdmatest.PollOK(t, p.B.CQ, 1)[0]; wc.Opcode != verbs.WCBindMW || wc.WRID != 77 {
		t.Errorf("%+v", wc)
	}
	if after := mw.RKey(); after == before || after>>8 != before>>8 {
		t.Errorf("the key changed from %#x to %#x", before, after)
	}
	if want := (verbs.Remote{Addr: p.B.MR.Addr() + uint64(off), RKey: mw.RKey()}); mw.Remote() != want {
		t.Errorf("Remote returns %v, want %v", mw.Remote(), want)
	}
}

func TestMWType1(t *testing.T) {
	p := windowPair(t)
	mw := window(t, p, verbs.MWType1)
	bind1(t, p, mw, 512, 1024)
	first := mw.RKey()
	wantWritten(t, p, first, 512, 1)
	wantWritten(t, p, first, 512+1024-256, 2)

	bind1(t, p, mw, 4096, 256) // another range: the old key becomes invalid
	wantWritten(t, p, mw.RKey(), 4096, 3)
	wantRefused(t, p, first, 512)
}

func TestMWType1Invalidate(t *testing.T) {
	p := windowPair(t)
	mw := window(t, p, verbs.MWType1)
	bind1(t, p, mw, 0, 4096)
	wantWritten(t, p, mw.RKey(), 0, 1)
	bind1(t, p, mw, 0, 0) // length 0 closes the window
	wantRefused(t, p, mw.RKey(), 0)
}

// bind2 binds a window of type 2 to B's memory and returns its key.
func bind2(t *testing.T, p *rdmatest.Pair, mw *verbs.MW) uint32 {
	t.Helper()
	key := verbs.NextRKey(mw.RKey())
	p.B.Send(t, verbs.SendWR{
		Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, MW: mw, NewRKey: key,
		Bind: verbs.MWBindInfo{MR: p.B.MR, Addr: p.B.MR.Addr(), Length: uint64(p.B.MR.Len()), Access: verbs.AccessRemoteWrite},
	})
	if wc := rdmatest.PollOK(t, p.B.CQ, 1)[0]; wc.Opcode != verbs.WCBindMW {
		t.Errorf("%+v", wc)
	}
	if mw.RKey() != key {
		t.Errorf("the window's key is %#x, not %#x", mw.RKey(), key)
	}
	if want := (verbs.Remote{Addr: p.B.MR.Addr(), RKey: key}); mw.Remote() != want {
		t.Errorf("Remote returns %v, want %v", mw.Remote(), want)
	}
	return key
}

func TestMWType2(t *testing.T) {
	p := windowPair(t)
	mw := window(t, p, verbs.MWType2)
	key := bind2(t, p, mw)
	wantWritten(t, p, key, 100, 1)
	// While the window is bound, the memory stays registered.
	if expect(t).boundMR {
		if err := p.B.MR.Close(); err == nil {
			t.Error("an MR with a bound window was deregistered")
		}
	}
	wantWritten(t, p, key, 200, 2)
	rdmatest.Close(t, mw)
	wantRefused(t, p, key, 100)
}

func TestMWType2InvalidateLocal(t *testing.T) {
	p := windowPair(t)
	mw := window(t, p, verbs.MWType2)
	key := bind2(t, p, mw)
	wantWritten(t, p, key, 0, 1)
	p.B.Send(t, verbs.SendWR{Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: key})
	if wc := rdmatest.PollOK(t, p.B.CQ, 1)[0]; wc.Opcode != verbs.WCLocalInv {
		t.Errorf("%+v", wc)
	}
	// The window can be bound again.
	key = bind2(t, p, mw)
	wantWritten(t, p, key, 0, 2)
	p.B.Send(t, verbs.SendWR{Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: key})
	rdmatest.PollOK(t, p.B.CQ, 1)
	wantRefused(t, p, key, 0)
}

func TestMWType2InvalidateRemote(t *testing.T) {
	p := windowPair(t)
	mw := window(t, p, verbs.MWType2)
	key := bind2(t, p, mw)
	wantWritten(t, p, key, 0, 1)

	data := fresh(p, 300, 9)
	p.B.Recv(t, 1, 0, 512)
	p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSendInv, Flags: verbs.SendSignaled, InvalidateRKey: key, SGL: []verbs.SGE{p.A.MR.SGE(0, 300)}})
	if wc := rdmatest.PollOK(t, p.A.CQ, 1)[0]; wc.Opcode != verbs.WCSend {
		t.Errorf("%+v", wc)
	}
	wc := rdmatest.PollOK(t, p.B.CQ, 1)[0]
	if got, ok := wc.InvalidatedRKey(); !ok || got != key {
		t.Errorf("invalidated %#x, %v, want %#x", got, ok, key)
	}
	wantArrived(t, p.B.MR.Bytes(), 0, data)
	wantRefused(t, p, key, 0)
}

// TestMWWithoutAccess: a window grants only the access that it was bound with.
func TestMWWithoutAccess(t *testing.T) {
	p := windowPair(t)
	mw := window(t, p, verbs.MWType2)
	key := verbs.NextRKey(mw.RKey())
	p.B.Send(t, verbs.SendWR{
		Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, MW: mw, NewRKey: key,
		Bind: verbs.MWBindInfo{MR: p.B.MR, Addr: p.B.MR.Addr(), Length: 4096, Access: verbs.AccessLocalWrite},
	})
	rdmatest.PollOK(t, p.B.CQ, 1)
	wantRefused(t, p, key, 0)
	rdmatest.Close(t, mw)
}

func TestMWWrongType(t *testing.T) {
	p := windowPair(t)
	_, err := p.PD.AllocMW(3)
	wantInvalid(t, err)
	_, err = p.PD.AllocMW(0)
	wantInvalid(t, err)
}

// TestMWLeftBound closes the device with a window still bound. In the kernel, the window
// holds a reference on its queue pair, so it must be destroyed first.
func TestMWLeftBound(t *testing.T) {
	p := windowPair(t)
	bind2(t, p, window(t, p, verbs.MWType2))
	bind1(t, p, window(t, p, verbs.MWType1), 0, 64)
}
