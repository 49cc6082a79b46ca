// Package misuse calls every verb wrongly: on nil or closed objects, with objects of
// another context, with impossible sizes and flags. Each call must return an error that
// names the mistake, and must not reach the kernel.
package misuse

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) { rdmatest.Main(m, rdmatest.OnRXE, rdmatest.OnMLX5) }

// A world has every object that a verb can be called on or with: pairs of each type on
// one PD, and the same objects on another context, on another PD, and closed.
type world struct {
	c          *verbs.Device
	gids       verbs.GIDTable
	rc, uc, ud *rdmatest.Pair
	srq        *rdmatest.Pair // its receives come from an SRQ
	ch         *verbs.CompChannel
	mw1, mw2   *verbs.MW

	foreign, other, closed things
}

// things has one object of each kind.
type things struct {
	pd  *verbs.PD
	mr  *verbs.MR
	mw  *verbs.MW // of type 2
	mw1 *verbs.MW
	ah  *verbs.AH
	ch  *verbs.CompChannel
	cq  *verbs.CQ
	srq *verbs.SRQ
	qp  *verbs.QP // UD, in RTS
}

func makeThings(t *testing.T, c *verbs.Device) things {
	t.Helper()
	s := rdmatest.Default()
	s.Type, s.Channel = verbs.UD, true
	p := rdmatest.PairOn(t, c, s)
	return things{
		pd: p.PD, mr: p.A.MR, ah: p.A.AH, ch: p.A.Chan, cq: p.A.CQ, qp: p.A.QP,
		mw:  rdmatest.Must(p.PD.AllocMW(verbs.MWType2))(t),
		mw1: rdmatest.Must(p.PD.AllocMW(verbs.MWType1))(t),
		srq: rdmatest.Must(p.PD.CreateSRQ(verbs.SRQOptions{MaxWR: 4, MaxSGE: 1}))(t),
	}
}

func (x things) all() []interface{ Close() error } {
	return []interface{ Close() error }{x.mw, x.mw1, x.qp, x.srq, x.ah, x.cq, x.ch, x.mr}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := rdmatest.Open(t)
	w := &world{c: c, gids: rdmatest.Must(c.GIDTable())(t)}
	pair := func(typ verbs.QPType, srq bool) *rdmatest.Pair {
		s := rdmatest.Default()
		s.Type, s.SRQ = typ, srq
		return rdmatest.PairOn(t, c, s)
	}
	w.rc, w.uc, w.ud, w.srq = pair(verbs.RC, false), pair(verbs.UC, false), pair(verbs.UD, false), pair(verbs.RC, true)
	w.ch = rdmatest.Must(c.CreateCompChannel())(t)
	w.mw1 = rdmatest.Must(w.rc.PD.AllocMW(verbs.MWType1))(t)
	w.mw2 = rdmatest.Must(w.rc.PD.AllocMW(verbs.MWType2))(t)
	w.other = makeThings(t, c)
	w.closed = makeThings(t, c)
	for _, x := range w.closed.all() {
		rdmatest.Close(t, x)
	}
	w.foreign = makeThings(t, rdmatest.Open(t)) // last, as it counts the existing objects
	return w
}

// A misuse is one wrong call.
type misuse struct {
	name string
	want error
	says string // what the error must mention
	do   func(w *world) error
}

// drop2 discards a verb's first result.
func drop2[T any](_ T, err error) error { return err }

// post posts a request that the QP must refuse without any effect.
func post(qp *verbs.QP, wr verbs.SendWR) error {
	n, err := qp.PostSend(wr)
	if n != 0 {
		return fmt.Errorf("%d requests were posted", n)
	}
	return err
}

func (w *world) sge(n int) []verbs.SGE { return []verbs.SGE{w.rc.A.MR.SGE(0, n)} }

// toUD returns a valid datagram request.
func (w *world) toUD() verbs.SendWR {
	return verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{w.ud.A.MR.SGE(0, 8)}, AH: w.ud.A.AH, RemoteQPN: w.ud.B.QP.Num(), RemoteQKey: rdmatest.QKey}
}

// bind returns a valid bind request.
func (w *world) bind() verbs.SendWR {
	return verbs.SendWR{Opcode: verbs.OpBindMW, MW: w.mw2, NewRKey: verbs.NextRKey(w.mw2.RKey()), Bind: w.bindInfo()}
}

func (w *world) bindInfo() verbs.MWBindInfo {
	mr := w.rc.A.MR
	return verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: 64, Access: verbs.AccessRemoteWrite}
}

func (w *world) qpOptions() verbs.QPOptions {
	return verbs.QPOptions{Type: verbs.RC, SendCQ: w.rc.A.CQ, RecvCQ: w.rc.A.CQ, Cap: rdmatest.Default().Cap}
}

func (w *world) createQP(change func(*verbs.QPOptions)) error {
	o := w.qpOptions()
	change(&o)
	return drop2(w.rc.PD.CreateQP(o))
}

func (w *world) createAH(change func(*verbs.AHAttr)) error {
	a := w.rc.Address
	change(&a)
	return drop2(w.rc.PD.CreateAH(a))
}

func gid(s string) verbs.GID { return verbs.GID(netip.MustParseAddr(s).As16()) }

const huge = math.MaxInt

var misuses = []misuse{
	// Sizes, flags and numbers.
	{"open no device", verbs.ErrNoDevice, "nonsense9", func(w *world) error { return drop2(verbs.Open("nonsense9")) }},
	{"port 0", verbs.ErrInvalid, "port 0", func(w *world) error { return drop2(w.c.QueryPort(0)) }},
	{"port 2", verbs.ErrInvalid, "port 2", func(w *world) error { return drop2(w.c.QueryPort(2)) }},
	{"port -1", verbs.ErrInvalid, "port -1", func(w *world) error { return drop2(w.c.QueryPort(-1)) }},
	{"port speed of port 0", verbs.ErrInvalid, "port 0", func(w *world) error { return drop2(w.c.QueryPortSpeed(0)) }},
	{"P_Key of port 9", verbs.ErrInvalid, "port 9", func(w *world) error { return drop2(w.c.QueryPKey(9, 0)) }},
	{"P_Key -1", verbs.ErrInvalid, "-1", func(w *world) error { return drop2(w.c.QueryPKey(1, -1)) }},
	{"P_Key of no index", verbs.ErrInvalid, "70000", func(w *world) error { return drop2(w.c.QueryPKey(1, 70000)) }},
	{"GID of port 9", verbs.ErrInvalid, "port 9", func(w *world) error { return drop2(w.c.QueryGID(9, 0)) }},
	{"GID -1", verbs.ErrInvalid, "-1", func(w *world) error { return drop2(w.c.QueryGID(1, -1)) }},
	{"GID of no index", verbs.ErrInvalid, "100000", func(w *world) error { return drop2(w.c.QueryGID(1, 100000)) }},
	{"find no GID", verbs.ErrInvalid, "203.0.113.9", func(w *world) error {
		return drop2(w.gids.Find(verbs.GIDSelector{Addr: netip.MustParseAddr("203.0.113.9")}))
	}},

	{"MR of nothing", verbs.ErrInvalid, "length 0", func(w *world) error { return drop2(w.rc.PD.RegMR(nil, verbs.MROptions{})) }},
	{"MR of no bytes", verbs.ErrInvalid, "length 0", func(w *world) error { return drop2(w.rc.PD.RegMR(make([]byte, 0, 9), verbs.MROptions{})) }},
	{"alloc MR of no bytes", verbs.ErrInvalid, "length 0", func(w *world) error { return drop2(w.rc.PD.AllocMR(0, verbs.MROptions{})) }},
	{"alloc MR of -1 bytes", verbs.ErrInvalid, "-1", func(w *world) error { return drop2(w.rc.PD.AllocMR(-1, verbs.MROptions{})) }},
	{"MR access", verbs.ErrInvalid, "0x80000000", func(w *world) error { return drop2(w.rc.PD.AllocMR(9, verbs.MROptions{Access: 1 << 31})) }},
	{"MR access without local write", verbs.ErrInvalid, "LOCAL_WRITE", func(w *world) error {
		return drop2(w.rc.PD.AllocMR(9, verbs.MROptions{Access: verbs.AccessRemoteAtomic}))
	}},
	{"dma-buf -1", verbs.ErrInvalid, "-1", func(w *world) error { return drop2(w.rc.PD.RegDmabufMR(verbs.DmabufOptions{FD: -1, Length: 4096})) }},
	{"dma-buf of no bytes", verbs.ErrInvalid, "length 0", func(w *world) error { return drop2(w.rc.PD.RegDmabufMR(verbs.DmabufOptions{})) }},
	{"dma-buf past the end", verbs.ErrInvalid, "overflow", func(w *world) error {
		return drop2(w.rc.PD.RegDmabufMR(verbs.DmabufOptions{Offset: math.MaxUint64 - 1, Length: 4096}))
	}},
	{"dma-buf misaligned", verbs.ErrInvalid, "page", func(w *world) error { return drop2(w.rc.PD.RegDmabufMR(verbs.DmabufOptions{Offset: 1, Length: 4096})) }},
	{"dma-buf access", verbs.ErrInvalid, "LOCAL_WRITE", func(w *world) error {
		return drop2(w.rc.PD.RegDmabufMR(verbs.DmabufOptions{Length: 4096, Access: verbs.AccessRemoteWrite}))
	}},
	{"rereg nothing", verbs.ErrInvalid, "nothing", func(w *world) error { return w.rc.A.MR.Rereg(verbs.ReregOptions{}) }},
	{"rereg of own memory", verbs.ErrInvalid, "AllocMR", func(w *world) error { return w.rc.A.MR.Rereg(verbs.ReregOptions{Buf: make([]byte, 9)}) }},
	{"rereg access", verbs.ErrInvalid, "LOCAL_WRITE", func(w *world) error {
		access := verbs.AccessRemoteWrite
		return w.rc.A.MR.Rereg(verbs.ReregOptions{Access: &access})
	}},
	{"MW of type 0", verbs.ErrInvalid, "type 0", func(w *world) error { return drop2(w.rc.PD.AllocMW(0)) }},
	{"MW of type 3", verbs.ErrInvalid, "type 3", func(w *world) error { return drop2(w.rc.PD.AllocMW(3)) }},

	{"AH of port 0", verbs.ErrInvalid, "port 0", func(w *world) error { return w.createAH(func(a *verbs.AHAttr) { a.Port = 0 }) }},
	{"AH of GID index 256", verbs.ErrInvalid, "256", func(w *world) error { return w.createAH(func(a *verbs.AHAttr) { a.SGIDIndex = 256 }) }},
	{"AH of GID index -1", verbs.ErrInvalid, "-1", func(w *world) error { return w.createAH(func(a *verbs.AHAttr) { a.SGIDIndex = -1 }) }},
	{"AH of flow label", verbs.ErrInvalid, "20 bits", func(w *world) error { return w.createAH(func(a *verbs.AHAttr) { a.FlowLabel = 1 << 20 }) }},
	{"AH of SL", verbs.ErrInvalid, "16", func(w *world) error { return w.createAH(func(a *verbs.AHAttr) { a.SL = 16 }) }},
	{"AH of no WC", verbs.ErrInvalid, "completion", func(w *world) error { return drop2(w.rc.PD.CreateAHFromWC(nil, nil, 1)) }},
	{"AH of a short GRH", verbs.ErrInvalid, "39 bytes", func(w *world) error {
		return drop2(w.rc.PD.CreateAHFromWC(&verbs.WC{Flags: verbs.WCGRH}, make([]byte, 39), 1))
	}},
	{"AH of no GRH", verbs.ErrInvalid, "version 0", func(w *world) error {
		return drop2(w.rc.PD.CreateAHFromWC(&verbs.WC{Flags: verbs.WCGRH}, make([]byte, 40), 1))
	}},
	{"AH of a GRH for somebody else", verbs.ErrInvalid, "::", func(w *world) error {
		return drop2(w.rc.PD.CreateAHFromWC(&verbs.WC{Flags: verbs.WCGRH}, append([]byte{0x60, 6: 17}, make([]byte, 33)...), 1))
	}},

	{"CQ of 0", verbs.ErrInvalid, "MaxCQE 0", func(w *world) error { return drop2(w.c.CreateCQ(verbs.CQOptions{})) }},
	{"CQ of -5", verbs.ErrInvalid, "MaxCQE -5", func(w *world) error { return drop2(w.c.CreateCQ(verbs.CQOptions{MaxCQE: -5})) }},
	{"huge CQ", verbs.ErrInvalid, "MaxCQE 9223372036854775807", func(w *world) error { return drop2(w.c.CreateCQ(verbs.CQOptions{MaxCQE: huge})) }},
	{"CQ of vector -1", verbs.ErrInvalid, "vector -1", func(w *world) error { return drop2(w.c.CreateCQ(verbs.CQOptions{MaxCQE: 1, Vector: -1})) }},
	{"CQ of huge vector", verbs.ErrInvalid, "vector 9223372036854775807", func(w *world) error { return drop2(w.c.CreateCQ(verbs.CQOptions{MaxCQE: 1, Vector: huge})) }},
	{"resize CQ to 0", verbs.ErrInvalid, "MaxCQE 0", func(w *world) error { return w.rc.A.CQ.Resize(0) }},
	{"resize CQ to huge", verbs.ErrInvalid, "MaxCQE", func(w *world) error { return w.rc.A.CQ.Resize(huge) }},
	{"arm CQ without channel", verbs.ErrInvalid, "no completion channel", func(w *world) error { return w.rc.A.CQ.Arm(false) }},
	{"wait for CQ without room", verbs.ErrInvalid, "no room", func(w *world) error { return drop2(w.other.cq.PollWait(canceled, nil)) }},
	{"wait for CQ without context", verbs.ErrInvalid, "context", func(w *world) error { return drop2(w.other.cq.PollWait(noContext, make([]verbs.WC, 1))) }},
	{"get CQ event without context", verbs.ErrInvalid, "context", func(w *world) error { return drop2(w.ch.Wait(noContext)) }},
	{"wait for completions without context", verbs.ErrInvalid, "context", func(w *world) error { return last(w.other.cq.All(noContext)) }},
	{"wait for events without context", verbs.ErrInvalid, "context", func(w *world) error { return last(w.c.Events(noContext)) }},

	{"SRQ of 0", verbs.ErrInvalid, "MaxWR 0", func(w *world) error { return drop2(w.rc.PD.CreateSRQ(verbs.SRQOptions{MaxSGE: 1})) }},
	{"SRQ of -1", verbs.ErrInvalid, "MaxWR -1", func(w *world) error { return drop2(w.rc.PD.CreateSRQ(verbs.SRQOptions{MaxWR: -1, MaxSGE: 1})) }},
	{"huge SRQ", verbs.ErrInvalid, "MaxWR", func(w *world) error { return drop2(w.rc.PD.CreateSRQ(verbs.SRQOptions{MaxWR: huge, MaxSGE: 1})) }},
	{"SRQ of -1 SGEs", verbs.ErrInvalid, "MaxSGE -1", func(w *world) error { return drop2(w.rc.PD.CreateSRQ(verbs.SRQOptions{MaxWR: 1, MaxSGE: -1})) }},
	{"SRQ of huge SGEs", verbs.ErrInvalid, "MaxSGE", func(w *world) error { return drop2(w.rc.PD.CreateSRQ(verbs.SRQOptions{MaxWR: 1, MaxSGE: huge})) }},
	{"SRQ limit -1", verbs.ErrInvalid, "-1", func(w *world) error { return w.srq.A.SRQ.SetLimit(-1) }},
	{"huge SRQ limit", verbs.ErrInvalid, "Limit", func(w *world) error { return w.srq.A.SRQ.SetLimit(huge) }},
	{"resize SRQ to 0", verbs.ErrInvalid, "MaxWR 0", func(w *world) error { return w.srq.A.SRQ.Resize(0) }},
	{"resize SRQ to huge", verbs.ErrInvalid, "MaxWR", func(w *world) error { return w.srq.A.SRQ.Resize(huge) }},
	{"post SRQ receive of too many SGEs", verbs.ErrInvalid, "scatter", func(w *world) error {
		return drop2(w.srq.A.SRQ.PostRecv(verbs.RecvWR{SGL: make([]verbs.SGE, 100)}))
	}},

	{"QP of no type", verbs.ErrInvalid, "type", func(w *world) error { return w.createQP(func(o *verbs.QPOptions) { o.Type = 0 }) }},
	{"QP of type 99", verbs.ErrInvalid, "type", func(w *world) error { return w.createQP(func(o *verbs.QPOptions) { o.Type = 99 }) }},
	{"QP without send CQ", verbs.ErrInvalid, "SendCQ", func(w *world) error { return w.createQP(func(o *verbs.QPOptions) { o.SendCQ = nil }) }},
	{"QP without receive CQ", verbs.ErrInvalid, "RecvCQ", func(w *world) error { return w.createQP(func(o *verbs.QPOptions) { o.RecvCQ = nil }) }},
	{"QP of -1 sends", verbs.ErrInvalid, "MaxSendWR -1", func(w *world) error { return w.createQP(func(o *verbs.QPOptions) { o.Cap.MaxSendWR = -1 }) }},
	{"QP of huge sends", verbs.ErrInvalid, "MaxSendWR", func(w *world) error { return w.createQP(func(o *verbs.QPOptions) { o.Cap.MaxSendWR = huge }) }},
	{"QP of huge receives", verbs.ErrInvalid, "MaxRecvWR", func(w *world) error { return w.createQP(func(o *verbs.QPOptions) { o.Cap.MaxRecvWR = huge }) }},
	{"QP of huge send SGEs", verbs.ErrInvalid, "MaxSendSGE", func(w *world) error { return w.createQP(func(o *verbs.QPOptions) { o.Cap.MaxSendSGE = huge }) }},
	{"QP of huge receive SGEs", verbs.ErrInvalid, "MaxRecvSGE", func(w *world) error { return w.createQP(func(o *verbs.QPOptions) { o.Cap.MaxRecvSGE = huge }) }},
	{"QP of unknown flags", verbs.ErrInvalid, "0x80000000", func(w *world) error { return w.createQP(func(o *verbs.QPOptions) { o.CreateFlags = 1 << 31 }) }},
	{"RC QP that blocks multicast", verbs.ErrInvalid, "BLOCK_MULTICAST_LOOPBACK", func(w *world) error {
		return w.createQP(func(o *verbs.QPOptions) { o.CreateFlags = verbs.QPBlockSelfMcast })
	}},
	{"advise nothing", verbs.ErrInvalid, "0 pieces", func(w *world) error { return w.rc.PD.AdviseMR(verbs.AdvicePrefetch, 0) }},
	{"no advice", verbs.ErrInvalid, "advice 9", func(w *world) error { return w.rc.PD.AdviseMR(9, 0, w.rc.A.MR.SGE(0, 8)) }},
	{"moderate by -1", verbs.ErrInvalid, "count -1", func(w *world) error { return w.rc.A.CQ.Moderate(-1, time.Microsecond) }},
	{"moderate without a period", verbs.ErrInvalid, "both", func(w *world) error { return w.rc.A.CQ.Moderate(1, 0) }},
	{"find no P_Key", verbs.ErrInvalid, "0x1234", func(w *world) error { return drop2(w.c.PKeyIndex(1, 0x1234)) }},
	{"import no file", verbs.ErrInvalid, "no file", func(w *world) error { return drop2(verbs.ImportDevice(nil)) }},
	{"QP of huge inline data", verbs.ErrInvalid, "MaxInlineData", func(w *world) error { return w.createQP(func(o *verbs.QPOptions) { o.Cap.MaxInlineData = huge }) }},

	{"modify QP with no mask", nil, "", func(w *world) error { return w.rc.A.QP.Modify(verbs.QPAttr{}, 0) }},
	{"modify QP with unknown mask", verbs.ErrInvalid, "0x80000000", func(w *world) error { return w.rc.A.QP.Modify(verbs.QPAttr{}, 1<<31) }},
	{"modify QP to no state", verbs.ErrInvalid, "state 77", func(w *world) error { return w.rc.A.QP.Modify(verbs.QPAttr{State: 77}, verbs.QPAttrState) }},
	{"modify QP from no state", verbs.ErrInvalid, "state 77", func(w *world) error {
		return w.rc.A.QP.Modify(verbs.QPAttr{CurState: 77, State: verbs.QPRTS}, verbs.QPAttrState|verbs.QPAttrCurState)
	}},
	{"modify QP backwards", verbs.ErrInvalid, "RTS to INIT", func(w *world) error {
		return w.rc.A.QP.Modify(verbs.QPAttr{State: verbs.QPInit, Port: 1}, verbs.RequiredMask(verbs.RC, verbs.QPReset, verbs.QPInit))
	}},
	{"modify QP's Q_Key, of RC", verbs.ErrInvalid, "QKEY", func(w *world) error { return w.rc.A.QP.Modify(verbs.QPAttr{}, verbs.QPAttrQKey) }},
	{"modify QP's capabilities", verbs.ErrInvalid, "CAP", func(w *world) error { return w.rc.A.QP.Modify(verbs.QPAttr{}, verbs.QPAttrCap) }},
	{"modify QP's access", verbs.ErrInvalid, "0x80000000", func(w *world) error { return w.rc.A.QP.Modify(verbs.QPAttr{Access: 1 << 31}, verbs.QPAttrAccess) }},
	{"modify QP's RNR timer", verbs.ErrInvalid, "32", func(w *world) error { return w.rc.A.QP.Modify(verbs.QPAttr{MinRNRTimer: 32}, verbs.QPAttrMinRNRTimer) }},
	{"modify QP's alternate path", verbs.ErrInvalid, "port 0", func(w *world) error { return w.rc.A.QP.Modify(verbs.QPAttr{}, verbs.QPAttrAltPath) }},

	{"multicast for RC", verbs.ErrInvalid, "UD", func(w *world) error { return w.rc.A.QP.AttachMcast(gid("ff0e::1"), 0) }},
	{"multicast to one", verbs.ErrInvalid, "2001:db8::1", func(w *world) error { return w.ud.A.QP.AttachMcast(gid("2001:db8::1"), 0) }},
	{"multicast to one IPv4 address", verbs.ErrInvalid, "10.1.2.3", func(w *world) error { return w.ud.A.QP.AttachMcast(gid("10.1.2.3"), 0) }},
	{"leave no multicast", verbs.ErrInvalid, "ff0e::2", func(w *world) error { return w.ud.A.QP.DetachMcast(gid("ff0e::2"), 0) }},

	// Posting.
	{"post unknown flags", verbs.ErrInvalid, "flags", func(w *world) error { return post(w.rc.A.QP, verbs.SendWR{Flags: 1 << 20}) }},
	{"post unknown operation", verbs.ErrInvalid, "operation", func(w *world) error { return post(w.rc.A.QP, verbs.SendWR{Opcode: 200}) }},
	{"post huge operation", verbs.ErrInvalid, "operation", func(w *world) error { return post(w.rc.A.QP, verbs.SendWR{Opcode: math.MaxUint32}) }},
	{"post inline and not", verbs.ErrInvalid, "Inline", func(w *world) error { return post(w.rc.A.QP, verbs.SendWR{Inline: []byte{1}, SGL: w.sge(8)}) }},
	{"post too much inline", verbs.ErrInvalid, "inline", func(w *world) error {
		return post(w.rc.A.QP, verbs.SendWR{Opcode: verbs.OpSend, Inline: make([]byte, 10000)})
	}},
	{"post too many SGEs", verbs.ErrInvalid, "scatter", func(w *world) error {
		return post(w.rc.A.QP, verbs.SendWR{Opcode: verbs.OpSend, SGL: make([]verbs.SGE, 100)})
	}},
	{"post 2 GiB", verbs.ErrInvalid, "2 GiB", func(w *world) error {
		return post(w.rc.A.QP, verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{{Length: 1 << 31}}})
	}},
	{"post 4 GiB in pieces", verbs.ErrInvalid, "2 GiB", func(w *world) error {
		return post(w.rc.A.QP, verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{{Length: 1<<32 - 1}, {Length: 1}}})
	}},
	{"post inline read", verbs.ErrInvalid, "inline", func(w *world) error {
		return post(w.rc.A.QP, verbs.SendWR{Opcode: verbs.OpRDMARead, Inline: []byte{1}})
	}},
	{"post a short atomic", verbs.ErrInvalid, "8 bytes", func(w *world) error { return post(w.rc.A.QP, verbs.SendWR{Opcode: verbs.OpFetchAdd, SGL: w.sge(7)}) }},
	{"post an unaligned atomic", verbs.ErrInvalid, "multiple of 8", func(w *world) error {
		return post(w.rc.A.QP, verbs.SendWR{Opcode: verbs.OpCompareSwap, SGL: w.sge(8), Remote: verbs.Remote{Addr: 4}})
	}},
	{"post a short atomic write", verbs.ErrInvalid, "8 bytes", func(w *world) error {
		return post(w.rc.A.QP, verbs.SendWR{Opcode: verbs.OpAtomicWrite, Inline: []byte{1}})
	}},
	{"post an unaligned atomic write", verbs.ErrInvalid, "multiple of 8", func(w *world) error {
		return post(w.rc.A.QP, verbs.SendWR{Opcode: verbs.OpAtomicWrite, Inline: make([]byte, 8), Remote: verbs.Remote{Addr: 1}})
	}},
	{"post data to invalidate", verbs.ErrInvalid, "no data", func(w *world) error { return post(w.rc.A.QP, verbs.SendWR{Opcode: verbs.OpLocalInv, SGL: w.sge(1)}) }},
	{"post a flush of no type", verbs.ErrInvalid, "FlushType", func(w *world) error { return post(w.rc.A.QP, verbs.SendWR{Opcode: verbs.OpFlush}) }},
	{"post a flush of all types", verbs.ErrInvalid, "FlushType", func(w *world) error { return post(w.rc.A.QP, verbs.SendWR{Opcode: verbs.OpFlush, FlushType: 255}) }},
	{"post a flush of no level", verbs.ErrInvalid, "FlushLevel", func(w *world) error {
		return post(w.rc.A.QP, verbs.SendWR{Opcode: verbs.OpFlush, FlushType: verbs.FlushGlobal, FlushLevel: 9})
	}},
	{"post a read to UC", verbs.ErrInvalid, "type of QP", func(w *world) error { return post(w.uc.A.QP, verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: w.sge(8)}) }},
	{"post an atomic to UC", verbs.ErrInvalid, "type of QP", func(w *world) error { return post(w.uc.A.QP, verbs.SendWR{Opcode: verbs.OpFetchAdd, SGL: w.sge(8)}) }},
	{"post a write to UD", verbs.ErrInvalid, "type of QP", func(w *world) error { return post(w.ud.A.QP, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: w.sge(8)}) }},
	{"post send and invalidate to UD", verbs.ErrInvalid, "type of QP", func(w *world) error { return post(w.ud.A.QP, verbs.SendWR{Opcode: verbs.OpSendInv, SGL: w.sge(8)}) }},
	{"post a datagram without AH", verbs.ErrInvalid, "AH", func(w *world) error {
		wr := w.toUD()
		wr.AH = nil
		return post(w.ud.A.QP, wr)
	}},
	{"post a datagram to a QPN of 25 bits", verbs.ErrInvalid, "24 bits", func(w *world) error {
		wr := w.toUD()
		wr.RemoteQPN = 1 << 24
		return post(w.ud.A.QP, wr)
	}},
	{"post a bind without MW", verbs.ErrInvalid, "MW", func(w *world) error { return post(w.rc.A.QP, verbs.SendWR{Opcode: verbs.OpBindMW}) }},
	{"post a bind of a type 1 MW", verbs.ErrInvalid, "type 2", func(w *world) error {
		wr := w.bind()
		wr.MW = w.mw1
		return post(w.rc.A.QP, wr)
	}},
	{"post a bind without MR", verbs.ErrInvalid, "MR", func(w *world) error {
		wr := w.bind()
		wr.Bind.MR = nil
		return post(w.rc.A.QP, wr)
	}},
	{"post a bind past the end", verbs.ErrInvalid, "MR", func(w *world) error {
		wr := w.bind()
		wr.Bind.Addr += uint64(w.rc.A.MR.Len()) - 63
		return post(w.rc.A.QP, wr)
	}},
	{"post a huge bind", verbs.ErrInvalid, "MR", func(w *world) error {
		wr := w.bind()
		wr.Bind.Length = math.MaxUint64
		return post(w.rc.A.QP, wr)
	}},
	{"bind a type 2 MW", verbs.ErrInvalid, "type 2", func(w *world) error { return w.rc.A.QP.BindMW(w.mw2, verbs.MWBind{MWBindInfo: w.bindInfo()}) }},
	{"bind no MW", verbs.ErrInvalid, "nil", func(w *world) error { return w.rc.A.QP.BindMW(nil, verbs.MWBind{MWBindInfo: w.bindInfo()}) }},
	{"bind with unknown flags", verbs.ErrInvalid, "flags", func(w *world) error {
		return w.rc.A.QP.BindMW(w.mw1, verbs.MWBind{Flags: 1 << 30, MWBindInfo: w.bindInfo()})
	}},
	{"bind no MR", verbs.ErrInvalid, "MR", func(w *world) error {
		return w.rc.A.QP.BindMW(w.mw1, verbs.MWBind{MWBindInfo: verbs.MWBindInfo{Length: 1}})
	}},
	{"bind on UD", verbs.ErrInvalid, "type of QP", func(w *world) error { return w.ud.A.QP.BindMW(w.mw1, verbs.MWBind{MWBindInfo: w.bindInfo()}) }},
	{"post a receive of too many SGEs", verbs.ErrInvalid, "scatter", func(w *world) error {
		return drop2(w.rc.A.QP.PostRecv(verbs.RecvWR{SGL: make([]verbs.SGE, 100)}))
	}},
	{"post a receive of 2 GiB", verbs.ErrInvalid, "2 GiB", func(w *world) error {
		return drop2(w.rc.A.QP.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{{Length: 1 << 31}}}))
	}},
	{"post a receive of 2 GiB to the SRQ", verbs.ErrInvalid, "2 GiB", func(w *world) error {
		return drop2(w.srq.B.SRQ.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{{Length: 1 << 31}}}))
	}},
	{"post a receive of 4 GiB", verbs.ErrInvalid, "2 GiB", func(w *world) error {
		return drop2(w.rc.A.QP.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{{Length: 1<<32 - 1}, {Length: 1}}}))
	}},
	{"post a receive beside the SRQ", verbs.ErrInvalid, "SRQ", func(w *world) error { return drop2(w.srq.A.QP.PostRecv(verbs.RecvWR{})) }},

	// Objects of another context or PD.
	{"CQ on a foreign channel", verbs.ErrInvalid, "another Device", func(w *world) error {
		return drop2(w.c.CreateCQ(verbs.CQOptions{MaxCQE: 1, Channel: w.foreign.ch}))
	}},
	{"QP on a foreign send CQ", verbs.ErrInvalid, "another Device", func(w *world) error { return w.createQP(func(o *verbs.QPOptions) { o.SendCQ = w.foreign.cq }) }},
	{"QP on a foreign receive CQ", verbs.ErrInvalid, "another Device", func(w *world) error { return w.createQP(func(o *verbs.QPOptions) { o.RecvCQ = w.foreign.cq }) }},
	{"QP on a foreign SRQ", verbs.ErrInvalid, "another Device", func(w *world) error { return w.createQP(func(o *verbs.QPOptions) { o.SRQ = w.foreign.srq }) }},
	{"rereg to a foreign PD", verbs.ErrInvalid, "another Device", func(w *world) error { return w.rc.A.MR.Rereg(verbs.ReregOptions{PD: w.foreign.pd}) }},
	{"bind a foreign MW", verbs.ErrInvalid, "another Device", func(w *world) error {
		return w.rc.A.QP.BindMW(w.foreign.mw1, verbs.MWBind{MWBindInfo: w.bindInfo()})
	}},
	{"bind a foreign MR", verbs.ErrInvalid, "MR", func(w *world) error {
		mr := w.foreign.mr
		return w.rc.A.QP.BindMW(w.mw1, verbs.MWBind{MWBindInfo: verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: 8}})
	}},
	{"post a bind of a foreign MW", verbs.ErrInvalid, "MW", func(w *world) error {
		wr := w.bind()
		wr.MW = w.foreign.mw
		return post(w.rc.A.QP, wr)
	}},
	{"post a datagram to a foreign AH", verbs.ErrInvalid, "AH", func(w *world) error {
		wr := w.toUD()
		wr.AH = w.foreign.ah
		return post(w.ud.A.QP, wr)
	}},
	{"post a datagram to another PD's AH", verbs.ErrInvalid, "PD", func(w *world) error {
		wr := w.toUD()
		wr.AH = w.other.ah
		return post(w.ud.A.QP, wr)
	}},

	// Closed objects.
	{"CQ on a closed channel", verbs.ErrClosed, "completion channel", func(w *world) error {
		return drop2(w.c.CreateCQ(verbs.CQOptions{MaxCQE: 1, Channel: w.closed.ch}))
	}},
	{"QP on a closed CQ", verbs.ErrClosed, "CQ", func(w *world) error { return w.createQP(func(o *verbs.QPOptions) { o.SendCQ = w.closed.cq }) }},
	{"QP on a closed SRQ", verbs.ErrClosed, "SRQ", func(w *world) error { return w.createQP(func(o *verbs.QPOptions) { o.SRQ = w.closed.srq }) }},
	{"bind a closed MW", verbs.ErrClosed, "MW", func(w *world) error { return w.rc.A.QP.BindMW(w.closed.mw1, verbs.MWBind{MWBindInfo: w.bindInfo()}) }},
	{"bind a closed MR", verbs.ErrInvalid, "open MR", func(w *world) error {
		return w.rc.A.QP.BindMW(w.mw1, verbs.MWBind{MWBindInfo: verbs.MWBindInfo{MR: w.closed.mr, Addr: w.closed.mr.Addr(), Length: 8}})
	}},
	{"post a bind of a closed MW", verbs.ErrInvalid, "open type 2 MW", func(w *world) error {
		wr := w.bind()
		wr.MW = w.closed.mw
		return post(w.rc.A.QP, wr)
	}},
	{"post a datagram to a closed AH", verbs.ErrInvalid, "AH", func(w *world) error {
		wr := w.toUD()
		wr.AH = w.closed.ah
		return post(w.ud.A.QP, wr)
	}},

	// Objects in use.
	{"close a PD in use", verbs.ErrBusy, "PD", func(w *world) error { return w.rc.PD.Close() }},
	{"close a CQ in use", verbs.ErrBusy, "CQ", func(w *world) error { return w.rc.A.CQ.Close() }},
	{"close an SRQ in use", verbs.ErrBusy, "SRQ", func(w *world) error { return w.srq.A.SRQ.Close() }},
	{"close a channel in use", verbs.ErrBusy, "completion channel", func(w *world) error { return w.other.ch.Close() }},
}

// witnessed selects the tests that run a second time under ibvtrace.
const witnessed = "TestMisuses|TestClosed"

// last returns the error with which a loop ends.
func last[T any](seq iter.Seq2[T, error]) (err error) {
	for _, err = range seq {
	}
	return err
}

func TestMisuses(t *testing.T) {
	w := newWorld(t)
	names := make(map[string]bool)
	for _, m := range misuses {
		if names[m.name] {
			t.Fatalf("two misuses are called %q", m.name)
		}
		names[m.name] = true
		t.Run(m.name, func(t *testing.T) {
			err := m.do(w) // a panic ends the test too
			if m.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, m.want) {
				t.Fatalf("got %v, want %v", err, m.want)
			}
			if !strings.HasPrefix(err.Error(), "verbs: ") || !strings.Contains(err.Error(), m.says) {
				t.Errorf("%q should begin with verbs: and mention %q", err, m.says)
			}
		})
	}
	// Everything still works.
	for _, p := range []*rdmatest.Pair{w.rc, w.uc, w.ud, w.srq} {
		data := rdmatest.Pattern(60, 7)
		p.B.Recv(t, 1, 0, 1024)
		p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, Inline: data, AH: p.A.AH, RemoteQPN: p.B.QP.Num(), RemoteQKey: rdmatest.QKey})
		rdmatest.PollOK(t, p.A.CQ, 1)
		wc := rdmatest.PollOK(t, p.B.CQ, 1)[0]
		if got := p.B.MR.Bytes()[wc.ByteLen-60 : wc.ByteLen]; string(got) != string(data) {
			t.Errorf("%v: %x arrived", p.A.QP.Type(), got)
		}
		rdmatest.Idle(t, p.A.CQ)
		rdmatest.Idle(t, p.B.CQ)
	}
	if os.Getenv(witnessVar) != "" {
		fmt.Fprintln(os.Stderr, "witnessed") // tells the parent that the misuses did run
	}
}

// TestSGEOutOfRange: SGE panics as a slice expression does, as documented.
func TestSGEOutOfRange(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	mr := p.A.MR
	for _, x := range [][2]int{{0, mr.Len() + 1}, {-1, 1}, {1, -1}, {mr.Len(), 1}, {huge, huge}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("SGE(%d, %d) of %d bytes", x[0], x[1], mr.Len())
				}
			}()
			mr.SGE(x[0], x[1])
		}()
	}
	if g := mr.SGE(mr.Len(), 0); g.Length != 0 {
		t.Errorf("%+v", g)
	}
}
