package verbs

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/provider"
)

// A nullQP accepts every request and forgets it.
type nullQP struct {
	provider.QP
	put, rung, takenBack int
	full                 bool
}

func (q *nullQP) PostSend(wrs []provider.SendWR, more bool) (int, error) {
	if q.full {
		return 0, provider.ErrQueueFull
	}
	q.put += len(wrs)
	if !more {
		q.rung++
	}
	return len(wrs), nil
}

func (q *nullQP) TakeBack() { q.takenBack++ }

func (q *nullQP) PostRecv(wrs []provider.RecvWR) (int, error) {
	q.put += len(wrs)
	q.rung++
	return len(wrs), nil
}

func nullRC() (*QP, *nullQP) {
	p := new(nullQP)
	qp := &QP{pd: new(PD), typ: RC, prov: p}
	qp.dev = new(Device)
	qp.batch.qp, qp.batch.n = qp, ended
	qp.setState(QPRTS)
	return qp, p
}

func window(t MWType) *MW {
	mw := new(MW)
	mw.ref.Type = uint8(t)
	return mw
}

func TestPostAllocatesNothing(t *testing.T) {
	qp, p := nullRC()
	if n := testing.AllocsPerRun(1000, func() {
		posted, err := qp.PostSend(
			SendWR{Opcode: OpSend, Flags: SendSignaled, SGL: []SGE{{Addr: 1, Length: 2, LKey: 3}, {}}},
			SendWR{Opcode: OpRDMAWrite, Inline: []byte{1, 2, 3}},
			SendWR{Opcode: OpFetchAdd, Add: 1, SGL: []SGE{{Length: 8}}})
		if posted != 3 || err != nil {
			t.Fatal(posted, err)
		}
		if posted, err := qp.PostRecv(RecvWR{SGL: []SGE{{Length: 5}}}); posted != 1 || err != nil {
			t.Fatal(posted, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for four requests", n)
	}
	if p.put != 4*1001 || p.rung != 2*1001 {
		t.Errorf("%d requests, %d doorbells: a batch must ring once", p.put, p.rung)
	}
}

// TestOperations: each operation works on the types of QP on which the specification, libmlx5
// or libefa has it.
func TestOperations(t *testing.T) {
	types := []QPType{RC, UC, UD, RawPacket, XRCSend, XRCRecv, DCI, DCT, SRD}
	for op, want := range map[Opcode][]QPType{
		OpSend:              {RC, UC, UD, RawPacket, XRCSend, DCI, SRD},
		OpSendImm:           {RC, UC, UD, XRCSend, DCI, SRD},
		OpSendInv:           {RC, UC, XRCSend, DCI},
		OpRDMAWrite:         {RC, UC, XRCSend, DCI, SRD},
		OpRDMAWriteImm:      {RC, UC, XRCSend, DCI, SRD},
		OpRDMARead:          {RC, XRCSend, DCI, SRD},
		OpCompareSwap:       {RC, XRCSend, DCI},
		OpFetchAdd:          {RC, XRCSend, DCI},
		OpMaskedCompareSwap: {RC, XRCSend, DCI},
		OpMaskedFetchAdd:    {RC, XRCSend, DCI},
		OpLocalInv:          {RC, UC, XRCSend, DCI},
		OpBindMW:            {RC, UC, XRCSend, DCI},
		OpFlush:             {RC},
		OpAtomicWrite:       {RC},
		OpTSO:               {RawPacket},
		OpNop:               {RC, UC, UD, RawPacket, XRCSend, DCI},
	} {
		for _, typ := range types {
			qp := QP{typ: typ}
			if got := qp.checkSend(&SendWR{Opcode: op}) != errOpType; got != slices.Contains(want, typ) {
				t.Errorf("%v on %v: %t", op, typ, got)
			}
		}
	}
}

// TestPostSendRefuses: a refused request rings no doorbell of its own, and doesn't hide the
// requests before it.
func TestPostSendRefuses(t *testing.T) {
	mr := &MR{iova: 0x1000, length: 0x1000}
	tests := []struct {
		name string
		typ  QPType
		wr   SendWR
		want error
	}{
		{"unknown opcode", RC, SendWR{Opcode: 200}, ErrInvalid},
		{"unknown flags", RC, SendWR{Flags: 1 << 20}, ErrInvalid},
		{"inline and SGL", RC, SendWR{Opcode: OpSend, Inline: []byte{}, SGL: []SGE{{}}}, ErrInvalid},
		{"inline read", RC, SendWR{Opcode: OpRDMARead, Inline: []byte{1}}, ErrInvalid},
		{"too long", RC, SendWR{Opcode: OpSend, SGL: []SGE{{Length: 1 << 31}}}, ErrInvalid},
		{"length overflow", RC, SendWR{Opcode: OpSend, SGL: []SGE{{Length: 0xffffffff}, {Length: 2}}}, ErrInvalid},
		{"read on UC", UC, SendWR{Opcode: OpRDMARead}, ErrInvalid},
		{"local invalidate on UD", UD, SendWR{Opcode: OpLocalInv}, ErrInvalid},
		{"write on UD", UD, SendWR{Opcode: OpRDMAWrite}, ErrInvalid},
		{"UD without AH", UD, SendWR{Opcode: OpSend}, ErrInvalid},
		{"UD with a zero AH", UD, SendWR{Opcode: OpSend, AH: &AH{}}, ErrInvalid},
		{"odd atomic address", RC, SendWR{Opcode: OpFetchAdd, Remote: Remote{Addr: 4}, SGL: []SGE{{Length: 8}}}, ErrInvalid},
		{"atomic into 4 bytes", RC, SendWR{Opcode: OpCompareSwap, SGL: []SGE{{Length: 4}}}, ErrInvalid},
		{"atomic write of 4 bytes", RC, SendWR{Opcode: OpAtomicWrite, Inline: make([]byte, 4)}, ErrInvalid},
		{"local invalidate with data", RC, SendWR{Opcode: OpLocalInv, SGL: []SGE{{}}}, ErrInvalid},
		{"flush of nothing", RC, SendWR{Opcode: OpFlush}, ErrInvalid},
		{"bind without MW", RC, SendWR{Opcode: OpBindMW}, ErrInvalid},
		{"bind of a type 1 MW", RC, SendWR{Opcode: OpBindMW, MW: window(MWType1), Bind: MWBindInfo{MR: mr}}, ErrInvalid},
		{"bind beyond the MR", RC, SendWR{Opcode: OpBindMW, MW: window(MWType2), Bind: MWBindInfo{MR: mr, Addr: 0x1001, Length: 0x1000}}, ErrInvalid},
		{"bind overflows", RC, SendWR{Opcode: OpBindMW, MW: window(MWType2), Bind: MWBindInfo{MR: mr, Addr: 0x1000, Length: ^uint64(0)}}, ErrInvalid},
		{"zero-based bind", RC, SendWR{Opcode: OpBindMW, MW: window(MWType2), Bind: MWBindInfo{Access: AccessZeroBased}}, ErrInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			qp, p := nullRC()
			qp.typ = tt.typ
			qp.setState(QPRTS)
			if n, err := qp.PostSend(tt.wr); n != 0 || !errors.Is(err, tt.want) {
				t.Errorf("posted %d, error %v, want %v", n, err, tt.want)
			}
			if p.rung != 0 || p.put != 0 {
				t.Errorf("%d put, %d rung", p.put, p.rung)
			}
		})
	}
	qp, p := nullRC()
	if n, err := qp.PostSend(SendWR{Opcode: OpSend}, SendWR{Opcode: OpSend}, SendWR{Opcode: OpFlush}, SendWR{Opcode: OpSend}); n != 2 || err == nil {
		t.Errorf("posted %d, error %v, want 2 and the third's error", n, err)
	}
	if p.put != 2 || p.rung != 1 {
		t.Errorf("%d put, %d rung", p.put, p.rung)
	}
	p.full = true
	if n, err := qp.PostSend(SendWR{Opcode: OpSend}); n != 0 || !errors.Is(err, ErrQueueFull) {
		t.Errorf("full queue: %d, %v", n, err)
	}
	for _, s := range []QPState{QPReset, QPInit, QPRTR} {
		qp.setState(s)
		if _, err := qp.PostSend(SendWR{Opcode: OpSend}); !errors.Is(err, ErrInvalid) {
			t.Errorf("send in %v: %v", s, err)
		}
	}
	qp.setState(QPReset)
	if _, err := qp.PostRecv(RecvWR{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("receive in RESET: %v", err)
	}
}

func TestSingleOwnerDetectsMisuse(t *testing.T) {
	l := queueLock{single: true}
	l.Lock()
	defer func() {
		if recover() == nil {
			t.Error("a second user inside was not noticed")
		}
	}()
	l.Lock()
}

// BenchmarkPostSend measures the cost that this package adds to a provider's post.
func BenchmarkPostSend(b *testing.B) {
	for _, bench := range []struct {
		name   string
		single bool
	}{{"locked", false}, {"single owner", true}} {
		b.Run(bench.name, func(b *testing.B) {
			qp, _ := nullRC()
			qp.sendMu.single = bench.single
			b.ReportAllocs()
			for b.Loop() {
				if _, err := qp.PostSend(SendWR{Opcode: OpRDMAWrite, Flags: SendSignaled, SGL: []SGE{{Length: 64}}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestPostBounds: requests just within the limits are posted. A request just beyond is
// refused, and only the requests before it in the list are posted.
func TestPostBounds(t *testing.T) {
	const longest = 1<<31 - 1
	qp, _ := nullRC()
	mr := &MR{iova: 0x1000, length: 0x1000}
	mr.dev = qp.dev
	closedMR := &MR{iova: 0x1000, length: 0x1000}
	closedMR.dev = qp.dev
	closedMR.holds.Store(closedHolds)
	mw, closedMW, foreignMW := window(MWType2), window(MWType2), window(MWType2)
	mw.dev, closedMW.dev, foreignMW.dev = qp.dev, qp.dev, new(Device)
	closedMW.holds.Store(closedHolds)
	ah, closedAH, otherAH := &AH{pd: qp.pd}, &AH{pd: qp.pd}, &AH{pd: &PD{object: object{handle: 1}}}
	closedAH.holds.Store(closedHolds)

	bind := func(mw *MW, mr *MR, addr, length uint64) SendWR {
		return SendWR{Opcode: OpBindMW, MW: mw, Bind: MWBindInfo{MR: mr, Addr: addr, Length: length}}
	}
	to := func(ah *AH, qpn uint32) SendWR { return SendWR{Opcode: OpSend, AH: ah, RemoteQPN: qpn} }
	atomic := func(addr uint64, n uint32) SendWR {
		return SendWR{Opcode: OpFetchAdd, Remote: Remote{Addr: addr}, SGL: []SGE{{Length: n}}}
	}
	flush := func(typ FlushType, level FlushLevel) SendWR {
		return SendWR{Opcode: OpFlush, FlushType: typ, FlushLevel: level}
	}
	sized := func(lengths ...uint32) SendWR {
		wr := SendWR{Opcode: OpRDMAWrite}
		for _, n := range lengths {
			wr.SGL = append(wr.SGL, SGE{Length: n})
		}
		return wr
	}
	for _, tt := range []struct {
		name string
		typ  QPType
		wr   SendWR
		ok   bool
	}{
		{"all of the MR", RC, bind(mw, mr, 0x1000, 0x1000), true},
		{"its last byte", RC, bind(mw, mr, 0x1fff, 1), true},
		{"its end", RC, bind(mw, mr, 0x2000, 1), false},
		{"before it", RC, bind(mw, mr, 0xfff, 1), false},
		{"before it, wrapped", RC, bind(mw, mr, 0, 0x800), false},
		{"nothing", RC, bind(mw, nil, 0, 0), true},
		{"no MR", RC, bind(mw, nil, 0x1000, 1), false},
		{"a closed MR", RC, bind(mw, closedMR, 0x1000, 1), false},
		{"a closed MW", RC, bind(closedMW, mr, 0x1000, 1), false},
		{"another's MW", RC, bind(foreignMW, mr, 0x1000, 1), false},
		{"bind on UD", UD, bind(mw, mr, 0x1000, 1), false},

		{"longest", RC, sized(longest), true},
		{"longest of two", RC, sized(longest-1, 1), true},
		{"too long", RC, sized(longest + 1), false},
		{"too long of two", RC, sized(longest, 1), false},

		{"atomic", RC, atomic(8, 8), true},
		{"atomic at 4", RC, atomic(12, 8), false},
		{"atomic into 7", RC, atomic(8, 7), false},
		{"atomic write", RC, SendWR{Opcode: OpAtomicWrite, Remote: Remote{Addr: 8}, Inline: make([]byte, 8)}, true},
		{"atomic write at 4", RC, SendWR{Opcode: OpAtomicWrite, Remote: Remote{Addr: 4}, Inline: make([]byte, 8)}, false},
		{"atomic write of 9", RC, SendWR{Opcode: OpAtomicWrite, Remote: Remote{Addr: 8}, Inline: make([]byte, 9)}, false},
		{"atomic write on UC", UC, SendWR{Opcode: OpAtomicWrite, Remote: Remote{Addr: 8}, Inline: make([]byte, 8)}, false},

		{"flush", RC, flush(FlushGlobal|FlushPersistent, FlushMR), true},
		{"flush of no type", RC, flush(0, FlushRange), false},
		{"flush of a type", RC, flush(4, FlushRange), false},
		{"flush of a level", RC, flush(FlushGlobal, FlushMR+1), false},
		{"flush on UC", UC, flush(FlushGlobal, FlushMR), false},

		{"datagram", UD, to(ah, 1<<24-1), true},
		{"QPN", UD, to(ah, 1<<24), false},
		{"closed AH", UD, to(closedAH, 1), false},
		{"AH of another PD", UD, to(otherAH, 1), false},
		{"DCI", DCI, to(ah, 1<<24-1), true},
		{"DCI, QPN", DCI, to(ah, 1<<24), false},
		{"DCI, no AH", DCI, to(nil, 1), false},
		{"DCI, nothing needs no AH", DCI, SendWR{Opcode: OpNop}, true},

		{"flags", RC, SendWR{Opcode: OpSend, Flags: SendFence | SendSignaled | SendSolicited}, true},
		{"checksum on RC", RC, SendWR{Opcode: OpSend, Flags: SendIPChecksum}, false},
		{"checksum", RawPacket, SendWR{Opcode: OpSend, Flags: SendIPChecksum}, true},
		{"the flag for inline data", RC, SendWR{Opcode: OpSend, Flags: sendKnown + 1}, false},
		{"inline", RC, SendWR{Opcode: OpSend, Inline: []byte{1}}, true},
		{"inline local invalidate", RC, SendWR{Opcode: OpLocalInv, Inline: []byte{1}}, false},
		{"operation 32", RC, SendWR{Opcode: 32}, false},
	} {
		for _, list := range [][]SendWR{{tt.wr}, {{Opcode: OpNop}, tt.wr}} { // the short way, and the other
			q, p := nullRC()
			q.typ, q.pd, q.dev = tt.typ, qp.pd, qp.dev
			q.setState(QPRTS)
			if tt.typ == UD {
				list = list[len(list)-1:] // known to it
			}
			n, err := q.PostSend(list...)
			switch {
			case tt.ok && (n != len(list) || err != nil || p.put != n || p.rung != 1):
				t.Errorf("%s: %d of %d, %v", tt.name, n, len(list), err)
			case !tt.ok && (n != len(list)-1 || !errors.Is(err, ErrInvalid) || p.put != n):
				t.Errorf("%s: %d of %d, %v, %d put", tt.name, n, len(list), err, p.put)
			}
		}
	}
}

// TestPostStates tests from which state on a QP accepts requests.
func TestPostStates(t *testing.T) {
	for _, s := range []QPState{QPReset, QPInit, QPRTR, QPRTS, QPSQD, QPSQE, QPErr} {
		for _, wr := range []SendWR{{Opcode: OpSend}, {Opcode: OpLocalInv}} { // the short way, and the other
			qp, p := nullRC()
			qp.setState(s)
			want := s >= QPRTS
			if n, err := qp.PostSend(wr); (n == 1) != want || (err == nil) != want || (p.put == 1) != want {
				t.Errorf("%v in %v: %d, %v", wr.Opcode, s, n, err)
			}
		}
		qp, p := nullRC()
		qp.setState(s)
		want := s >= QPInit
		if n, err := qp.PostRecv(RecvWR{}); (n == 1) != want || (err == nil) != want || (p.put == 1) != want {
			t.Errorf("a receive in %v: %d, %v", s, n, err)
		}
	}
	for name, change := range map[string]func(*QP){
		"with an SRQ": func(qp *QP) { qp.srq = new(SRQ) },
		"XRCSend":     func(qp *QP) { qp.typ = XRCSend },
		"DCI":         func(qp *QP) { qp.typ = DCI },
	} {
		qp, p := nullRC()
		change(qp)
		qp.setState(QPRTS)
		if n, err := qp.PostRecv(RecvWR{}); n != 0 || !errors.Is(err, ErrInvalid) || p.put != 0 {
			t.Errorf("a receive %s: %d, %v", name, n, err)
		}
	}
}

// TestPostWaits: a post waits for another user of its queue, and is complete then.
func TestPostWaits(t *testing.T) {
	for name, post := range map[string]func(*QP) (*queueLock, func() (int, error)){
		"send": func(qp *QP) (*queueLock, func() (int, error)) {
			return &qp.sendMu, func() (int, error) { return qp.PostSend(SendWR{Opcode: OpSend}) }
		},
		"receive": func(qp *QP) (*queueLock, func() (int, error)) {
			return &qp.recvMu, func() (int, error) { return qp.PostRecv(RecvWR{}) }
		},
	} {
		qp, p := nullRC()
		l, post := post(qp)
		l.Lock()
		done := make(chan struct{})
		go func() {
			defer close(done)
			if n, err := post(); n != 1 || err != nil || p.put != 1 {
				t.Errorf("%s: %d, %v, and %d put", name, n, err, p.put)
			}
		}()
		yield(func() bool { return atomic.LoadInt32(&l.waiting) == 1 })
		if p.put != 0 {
			t.Errorf("%s: it hasn't waited", name)
		}
		l.Unlock()
		<-done
	}
}

// A failQP accepts every request, but its doorbell fails.
type failQP struct {
	nullQP
	err error
}

func (q *failQP) PostSend(wrs []provider.SendWR, more bool) (int, error) {
	n, _ := q.nullQP.PostSend(wrs, more)
	if more {
		return n, nil
	}
	return n, q.err
}

// TestDoorbellFails: all requests count as posted, and the error is the doorbell's.
func TestDoorbellFails(t *testing.T) {
	bad := errors.New("no bell")
	for _, op := range []Opcode{OpSend, OpLocalInv} {
		qp, _ := nullRC()
		qp.prov = &failQP{err: bad}
		if n, err := qp.PostSend(SendWR{Opcode: op}); n != 1 || !errors.Is(err, bad) {
			t.Errorf("%v: %d, %v", op, n, err)
		}
		if n, err := qp.Sends(func(b *SendBuilder) error { b.Send(1, 0, SGE{}); return nil }); n != 1 || !errors.Is(err, bad) {
			t.Errorf("built: %d, %v", n, err)
		}
	}
}

// TestBindType1: a type 1 window gets the next key, and a type 2 window is refused.
func TestBindType1(t *testing.T) {
	qp, _ := keepRC()
	p := qp.prov.(*keepQP)
	mr := &MR{iova: 0x1000, length: 0x1000}
	one, two := window(MWType1), window(MWType2)
	mr.dev, one.dev, two.dev = qp.dev, qp.dev, qp.dev
	one.ref.RKey.Store(0x12ff)
	info := MWBindInfo{MR: mr, Addr: 0x1800, Length: 0x800, Access: AccessRemoteRead}
	if err := qp.BindMW(two, MWBind{MWBindInfo: info}); !errors.Is(err, ErrInvalid) || len(p.wrs) != 0 {
		t.Errorf("type 2: %v", err)
	}
	beyond := info
	beyond.Length++
	if err := qp.BindMW(one, MWBind{MWBindInfo: beyond}); !errors.Is(err, ErrInvalid) || len(p.wrs) != 0 {
		t.Errorf("beyond the MR: %v", err)
	}
	if err := qp.BindMW(one, MWBind{WRID: 5, Flags: 1 << 20, MWBindInfo: info}); !errors.Is(err, ErrInvalid) || len(p.wrs) != 0 {
		t.Errorf("flags: %v", err)
	}
	if err := qp.BindMW(one, MWBind{WRID: 5, Flags: SendSignaled, MWBindInfo: info}); err != nil || len(p.wrs) != 1 {
		t.Fatal(err)
	}
	wr := p.wrs[0]
	if wr.WRID != 5 || wr.Flags != uint32(SendSignaled) || wr.NewRKey != 0x1200 || wr.MW != &one.ref || wr.Bind.MR != &mr.ref ||
		wr.Bind.Addr != 0x1800 || wr.Bind.Length != 0x800 || wr.Bind.Access != uint32(AccessRemoteRead) {
		t.Errorf("%+v", wr)
	}
	if one.holds.Load() != 0 || qp.holds.Load() != 0 {
		t.Error("something is held")
	}
	for _, s := range []QPState{QPReset, QPInit, QPRTR} {
		qp.setState(s)
		if err := qp.BindMW(one, MWBind{MWBindInfo: info}); !errors.Is(err, ErrInvalid) || len(p.wrs) != 1 {
			t.Errorf("in %v: %v", s, err)
		}
	}
}
