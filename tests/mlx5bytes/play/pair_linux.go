package main

import (
	"github.com/goverbs/goverbs/verbs"
)

// A pair is the peer in a script that is played on a device: another queue pair on the same
// device, to which the script's queue pair is connected.
type pair struct {
	g      *game
	way    verbs.AHAttr // the path to the device itself
	domain *verbs.XRCD
	cq     *verbs.CQ
	qp     *verbs.QP
	srq    *verbs.SRQ
	dest   uint32 // the QP, SRQ or DCT number in requests
}

// As in ../c/pair.h.
const (
	pairAccess = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	pairQKey   = 0x1ee7
	pairDCKey  = 0x1122334455667788
	pairGID    = 1
	pairFlow   = 0x54321
)

func newPair(g *game) *pair {
	port := must(g.ctx.QueryPort(1))
	p := &pair{g: g, way: verbs.AHAttr{Port: 1, DLID: port.LID}, domain: must(g.ctx.OpenXRCD())}
	if port.LinkLayer == verbs.LinkLayerEthernet {
		gid := must(g.ctx.QueryGID(1, pairGID))
		p.way = verbs.AHAttr{Port: 1, IsGlobal: true, SGIDIndex: pairGID, DGID: gid.GID, HopLimit: 64, FlowLabel: pairFlow}
	}
	return p
}

// make creates a peer with room for c's receives, and connects both.
func (p *pair) make(qp *verbs.QP, useSRQ bool, c verbs.QPCap) {
	typ := qp.Type()
	dc, xrc := typ == verbs.DCI, typ == verbs.XRCSend
	p.cq = must(p.g.ctx.CreateCQ(verbs.CQOptions{MaxCQE: 255}))
	if useSRQ || dc || xrc {
		o := verbs.SRQOptions{MaxWR: c.MaxRecvWR, MaxSGE: c.MaxRecvSGE}
		if xrc {
			o.XRCD, o.CQ = p.domain, p.cq
		}
		p.srq = must(p.g.pd.CreateSRQ(o))
		c.MaxRecvWR, c.MaxRecvSGE = 0, 0
	}
	o := verbs.QPOptions{Type: typ, SendCQ: p.cq, RecvCQ: p.cq, SRQ: p.srq, Cap: c}
	switch typ {
	case verbs.XRCSend:
		p.qp = must(p.domain.CreateQP(verbs.QPOptions{}))
	case verbs.DCI:
		o.Type, o.DCKey, o.Cap = verbs.DCT, pairDCKey, verbs.QPCap{}
		fallthrough
	default:
		p.qp = must(p.g.pd.CreateQP(o))
	}
	p.move(p.qp, qp.Num())
	p.move(qp, p.qp.Num())
	if p.dest = p.qp.Num(); xrc {
		p.dest = p.srq.Num()
	}
	p.g.printf("qpn %x\npeer %x\ndest %x\nlid %x\n", qp.Num(), p.qp.Num(), p.dest, p.way.DLID)
}

func (p *pair) move(qp *verbs.QP, dest uint32) {
	a := verbs.QPAttr{
		Port: 1, QKey: pairQKey, Access: pairAccess, PathMTU: verbs.MTU1024, DestQPN: dest,
		AH: p.way, MinRNRTimer: 12, MaxRDAtomic: 4, MaxDestRDAtomic: 4,
		Timeout: 18, RetryCount: 7, RNRRetry: 7,
	}
	for _, a.State = range []verbs.QPState{verbs.QPInit, verbs.QPRTR, verbs.QPRTS} {
		if a.State == verbs.QPRTS && qp.Type() == verbs.DCT {
			return
		}
		check(qp.Modify(a, mask(qp.Type(), a.State)))
	}
}

func (p *pair) close() {
	if p.qp != nil {
		check(p.qp.Close())
		check(p.srq.Close())
		check(p.cq.Close())
	}
	p.qp, p.srq, p.cq = nil, nil, nil
}

// number sets the device's numbers, which the script doesn't know, in a request.
func (p *pair) number(wr *verbs.SendWR, mw *verbs.MW) {
	wr.Remote.RKey = p.g.mr.RKey()
	wr.RemoteQPN, wr.RemoteSRQN = p.dest, p.dest
	switch wr.Opcode {
	case verbs.OpBindMW:
		wr.NewRKey = verbs.NextRKey(mw.RKey())
	case verbs.OpLocalInv, verbs.OpSendInv:
		wr.InvalidateRKey = mw.RKey()
	}
}

func (p *pair) postRecv(wrs ...verbs.RecvWR) (int, error) {
	if p.srq != nil {
		return p.srq.PostRecv(wrs...)
	}
	return p.qp.PostRecv(wrs...)
}

// poll waits for completions.
func (p *pair) poll(cq *verbs.CQ, n int) {
	var wc [1]verbs.WC
	for n > 0 {
		if must(cq.Poll(wc[:])) == 1 {
			n--
			p.g.printf("wc %x status %x\n", wc[0].WRID, uint32(wc[0].Status))
		}
	}
}

// bind makes the peer bind a window to all memory.
func (p *pair) bind(mw *verbs.MW) {
	mr := p.g.mr
	must(p.qp.PostSend(verbs.SendWR{
		WRID: 1, Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, MW: mw, NewRKey: verbs.NextRKey(mw.RKey()),
		Bind: verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: uint64(mr.Len()), Access: verbs.AccessRemoteWrite},
	}))
	p.poll(p.cq, 1)
}
