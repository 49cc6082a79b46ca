package rdmatest

import (
	"testing"

	"github.com/goverbs/goverbs/verbs"
)

// QKey is the Q_Key of UD queue pairs.
const QKey = 0x1ee7

// All has the access flags of local writes and of all remote access.
const All = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// A Spec describes a Pair. Default returns one.
type Spec struct {
	Type      verbs.QPType
	Cap       verbs.QPCap
	SignalAll bool
	CQE       int
	Channel   bool // each end's CQ has its own completion channel
	SRQ       bool // each end has an SRQ in place of the receive queue
	Global    bool // packets have a GRH also over InfiniBand
	Len       int  // length of each end's memory

	ScatterToCQE, SignWQEs bool // see verbs.QPOptions

	CQESize     int // see verbs.CQOptions
	Compression verbs.CQECompression
	Fields      verbs.WCFields

	A, B SpecEnd
}

// A SpecEnd describes one end of a Pair.
type SpecEnd struct {
	MR   verbs.AccessFlags
	QP   verbs.AccessFlags
	Tune func(*verbs.QPAttr) // changes the attributes before the QP is connected
	Idle bool                // the QP stays in RESET
}

// Default returns the Spec of a pair of RC queue pairs that allows all access.
func Default() Spec {
	end := SpecEnd{MR: All | verbs.AccessMWBind, QP: All &^ verbs.AccessLocalWrite}
	return Spec{
		Type: verbs.RC,
		Cap:  verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64},
		CQE:  64,
		Len:  16384,
		A:    end,
		B:    end,
	}
}

// A Pair is two connected queue pairs on one PD.
type Pair struct {
	Ctx     *verbs.Device
	PD      *verbs.PD
	GID     verbs.GIDEntry
	Address verbs.AHAttr // the address of the device itself
	A, B    *End
}

// An End is one end of a Pair. All its completions go to one CQ.
type End struct {
	CQ   *verbs.CQ
	Chan *verbs.CompChannel // nil without Spec.Channel
	SRQ  *verbs.SRQ         // nil without Spec.SRQ
	QP   *verbs.QP
	MR   *verbs.MR
	AH   *verbs.AH // UD: the peer's address

	Spec SpecEnd
}

// ConnectIWARP connects the ends of a Pair on siw, unless they are Idle. Packages with such
// tests set it to iwarp.Connect.
var ConnectIWARP func(t testing.TB, a, b *End)

// NewPair opens the device and creates a connected pair on it.
func NewPair(t testing.TB, s Spec) *Pair {
	t.Helper()
	return PairOn(t, Open(t), s)
}

// PairOn creates a connected pair on an open device.
func PairOn(t testing.TB, c *verbs.Device, s Spec) *Pair {
	t.Helper()
	if KindOf() == SIW {
		p := &Pair{Ctx: c, PD: Must(c.AllocPD())(t)}
		p.A, p.B = p.end(t, &s, &s.A), p.end(t, &s, &s.B)
		ConnectIWARP(t, p.A, p.B)
		return p
	}
	p := &Pair{Ctx: c, GID: GID(t, c), Address: Address(t, c)}
	if s.Global {
		p.Address = GlobalAddress(t, c)
	}
	p.PD = Must(c.AllocPD())(t)
	p.A, p.B = p.end(t, &s, &s.A), p.end(t, &s, &s.B)
	p.connect(t, p.A, p.B)
	p.connect(t, p.B, p.A)
	return p
}

func (p *Pair) end(t testing.TB, s *Spec, e *SpecEnd) *End {
	t.Helper()
	end := &End{Spec: *e}
	if s.Channel {
		end.Chan = Must(p.Ctx.CreateCompChannel())(t)
	}
	end.CQ = Must(p.Ctx.CreateCQ(verbs.CQOptions{MaxCQE: s.CQE, Channel: end.Chan, CQESize: s.CQESize, Compression: s.Compression, Fields: s.Fields}))(t)
	capacity := s.Cap
	if s.SRQ {
		end.SRQ = Must(p.PD.CreateSRQ(verbs.SRQOptions{MaxWR: capacity.MaxRecvWR, MaxSGE: capacity.MaxRecvSGE}))(t)
		capacity.MaxRecvWR, capacity.MaxRecvSGE = 0, 0
	}
	end.MR = Must(p.PD.AllocMR(s.Len, verbs.MROptions{Access: e.MR}))(t)
	end.QP = Must(p.PD.CreateQP(verbs.QPOptions{
		Type: s.Type, SendCQ: end.CQ, RecvCQ: end.CQ, SRQ: end.SRQ, Cap: capacity, SignalAll: s.SignalAll,
		ScatterToCQE: s.ScatterToCQE, SignWQEs: s.SignWQEs,
	}))(t)
	return end
}

// connect connects e's queue pair to peer's.
func (p *Pair) connect(t testing.TB, e, peer *End) {
	t.Helper()
	if e.Spec.Idle {
		return
	}
	if e.QP.Type() == verbs.UD {
		ah := Must(p.PD.CreateAH(p.Address))(t)
		e.AH = ah
	}
	p.ToRTS(t, e, peer.QP.Num())
}

// ToRTS takes e's queue pair from RESET to RTS. It requests atomics only if the device has them.
func (p *Pair) ToRTS(t testing.TB, e *End, dest uint32) {
	t.Helper()
	limits := Must(p.Ctx.QueryDevice())(t)
	access := e.Spec.QP
	if limits.AtomicCap == verbs.AtomicNone {
		access &^= verbs.AccessRemoteAtomic
	}
	a := verbs.QPAttr{
		Port: Port, QKey: QKey, Access: access,
		PathMTU: verbs.MTU1024, DestQPN: dest, RQPSN: 0x1234, SQPSN: 0x1234, AH: p.Address,
		MinRNRTimer: 12, MaxRDAtomic: uint8(min(4, limits.MaxQPInitRDAtom)), MaxDestRDAtomic: uint8(min(4, limits.MaxQPRDAtom)),
		Timeout: 18, RetryCount: 7, RNRRetry: 7, // retries of about a second, RNR retries for ever
	}
	if e.Spec.Tune != nil {
		e.Spec.Tune(&a)
	}
	for _, s := range []verbs.QPState{verbs.QPInit, verbs.QPRTR, verbs.QPRTS} {
		a.State = s
		Check(t, e.QP.Modify(a, verbs.RequiredMask(e.QP.Type(), s-1, s)))
	}
}

// Recv posts one receive of n bytes from offset off.
func (e *End) Recv(t testing.TB, id uint64, off, n int) {
	t.Helper()
	e.PostRecv(t, verbs.RecvWR{WRID: id, SGL: []verbs.SGE{e.MR.SGE(off, n)}})
}

// PostRecv posts receives to the end's SRQ or receive queue.
func (e *End) PostRecv(t testing.TB, wrs ...verbs.RecvWR) {
	t.Helper()
	post := e.QP.PostRecv
	if e.SRQ != nil {
		post = e.SRQ.PostRecv
	}
	if n, err := post(wrs...); err != nil || n != len(wrs) {
		t.Fatalf("posted %d of %d receives: %v", n, len(wrs), err)
	}
}

// Send posts send requests.
func (e *End) Send(t testing.TB, wrs ...verbs.SendWR) {
	t.Helper()
	if n, err := e.QP.PostSend(wrs...); err != nil || n != len(wrs) {
		t.Fatalf("posted %d of %d requests: %v", n, len(wrs), err)
	}
}

// Fill writes a pattern that depends on seed, offset and length.
func Fill(b []byte, seed int) {
	for i := range b {
		b[i] = byte(seed + i*7 + len(b) + i>>8)
	}
}

// Pattern returns n bytes that Fill has written.
func Pattern(n, seed int) []byte {
	b := make([]byte, n)
	Fill(b, seed)
	return b
}
