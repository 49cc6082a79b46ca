package verbs

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uapi"
)

// fakePort answers query_port.
func fakePort(k *fakeKernel, layer LinkLayer, port uapi.IbUverbsQueryPortResp) {
	k.answerTo("query_port", func(f *fakeCall) error {
		port.LinkLayer = uint8(layer)
		return f.out(uapi.UVERBS_ATTR_QUERY_PORT_RESP, &uapi.IbUverbsQueryPortRespEx{LegacyResp: port})
	})
}

// fakeOf creates a QP of a type.
func fakeOf(t *testing.T, d *Device, typ QPType) *QP {
	t.Helper()
	cq := must(d.CreateCQ(CQOptions{MaxCQE: 4}))(t)
	return must(must(d.AllocPD())(t).CreateQP(QPOptions{Type: typ, SendCQ: cq, RecvCQ: cq, Cap: QPCap{MaxSendWR: 1, MaxRecvWR: 1}}))(t)
}

var peer = Endpoint{QPN: 0x123456, PSN: 0xabcdef, LID: 9, GID: GID{0: 0xfe, 1: 0x80, 15: 7}, MTU: MTU2048, MaxRDAtomic: 3}

// TestConnect: the two modifications that connect a QP have the values of both endpoints,
// and the options or their defaults.
func TestConnect(t *testing.T) {
	d, k := fakeContext(t)
	gid := GIDEntry{GID: GID{0: 0xfe, 1: 0x80, 15: 1}, Port: 1, Index: 5, Type: GIDTypeRoCEv2}
	fakeGIDs(k, gid)
	var reqs []uapi.IbUverbsModifyQp
	k.answerTo("modify_qp", func(f *fakeCall) error {
		reqs = append(reqs, in[uapi.IbUverbsModifyQp](f, uapi.UVERBS_ATTR_CORE_IN))
		return nil
	})
	all := ConnectOptions{
		Access: AccessRemoteRead, MTU: MTU512, AckTimeout: -1, RNRTimer: time.Second, RetryCount: -1, RNRRetry: 3, MaxRDAtomic: -1,
		PKeyIndex: 2, SL: 4, TrafficClass: 5, FlowLabel: 6, StaticRate: Rate10Gbps, HopLimit: 8,
	}
	for _, tt := range []struct {
		layer LinkLayer
		lid   uint16
		o     ConnectOptions
	}{{LinkLayerInfiniBand, 8, ConnectOptions{}}, {LinkLayerEthernet, 0, ConnectOptions{}}, {LinkLayerEthernet, 0, all}} {
		fakePort(k, tt.layer, uapi.IbUverbsQueryPortResp{Lid: tt.lid, ActiveMtu: uint8(MTU4096)})
		reqs = nil
		qp := fakeOf(t, d, RC)
		me := must(qp.Endpoint(gid))(t)
		want := Endpoint{QPN: qp.Num(), PSN: me.PSN, LID: tt.lid, GID: gid.GID, MTU: MTU4096, MaxRDAtomic: 5}
		if me != want || me.PSN > maxPSN {
			t.Errorf("the endpoint is %+v, want %+v", me, want)
		}
		if again := must(qp.Endpoint(gid))(t); again != me {
			t.Errorf("the endpoint is %+v, and then %+v", me, again)
		}
		if err := qp.Connect(peer, tt.o); err != nil {
			t.Fatal(err)
		}
		path := uapi.IbUverbsQpDest{Dlid: peer.LID, PortNum: 1}
		if tt.layer == LinkLayerEthernet {
			path.IsGlobal, path.Dgid, path.SgidIndex, path.HopLimit = 1, peer.GID, 5, 64
		}
		rtr := uapi.IbUverbsModifyQp{
			Dest: path, QpHandle: qp.handle, AttrMask: uint32(RequiredMask(RC, QPInit, QPRTR) | QPAttrAccess | QPAttrPKeyIndex),
			RqPsn: peer.PSN, SqPsn: me.PSN, DestQpNum: peer.QPN, QpState: uint8(QPRTR), PathMtu: uint8(MTU2048), MaxRdAtomic: 3,
			MaxDestRdAtomic: me.MaxRDAtomic, MinRnrTimer: 12, Timeout: 14, RetryCnt: 7, RnrRetry: 7,
		}
		if tt.o != (ConnectOptions{}) {
			rtr.Dest.Sl, rtr.Dest.TrafficClass, rtr.Dest.FlowLabel, rtr.Dest.StaticRate, rtr.Dest.HopLimit = 4, 5, 6, uint8(Rate10Gbps), 8
			rtr.QpAccessFlags, rtr.PkeyIndex, rtr.PathMtu = uint32(AccessRemoteRead), 2, uint8(MTU512)
			rtr.Timeout, rtr.MinRnrTimer, rtr.RetryCnt, rtr.RnrRetry, rtr.MaxRdAtomic = 0, 0, 0, 3, 0
		}
		rts := rtr // without the path, which its mask doesn't select
		rts.Dest, rts.QpState, rts.AttrMask = uapi.IbUverbsQpDest{}, uint8(QPRTS), uint32(RequiredMask(RC, QPRTR, QPRTS))
		if len(reqs) != 3 || QPState(reqs[0].QpState) != QPInit || reqs[0].PortNum != 1 {
			t.Fatalf("%+v", reqs)
		}
		for i, want := range []uapi.IbUverbsModifyQp{rtr, rts} {
			if got := reqs[1+i]; !reflect.DeepEqual(got, want) {
				t.Errorf("%v: modified with\n%+v, want\n%+v", tt.layer, got, want)
			}
		}
	}
}

// TestGIDMoves: a QP is connected with its endpoint's GID, at whatever index that has by then, and
// with no other GID.
func TestGIDMoves(t *testing.T) {
	d, k := fakeContext(t)
	fakePort(k, LinkLayerEthernet, uapi.IbUverbsQueryPortResp{ActiveMtu: uint8(MTU4096)})
	var index uint8
	k.answerTo("modify_qp", func(f *fakeCall) error {
		if req := in[uapi.IbUverbsModifyQp](f, uapi.UVERBS_ATTR_CORE_IN); QPState(req.QpState) == QPRTR {
			index = req.Dest.SgidIndex
		}
		return nil
	})
	known := GIDEntry{GID: gidOf("fe80::1"), Port: 1, Index: 3, Type: GIDTypeRoCEv2, IfIndex: 4}
	with := func(change func(*GIDEntry)) GIDEntry {
		e := known
		change(&e)
		return e
	}
	v1, vlan, port2 := with(func(e *GIDEntry) { e.Type = GIDTypeRoCEv1 }), with(func(e *GIDEntry) { e.IfIndex = 5 }), with(func(e *GIDEntry) { e.Port = 2 })
	other := with(func(e *GIDEntry) { e.GID = gidOf("fe80::2") })
	at := func(e GIDEntry, index int) GIDEntry {
		e.Index = index
		return e
	}
	for name, tt := range map[string]struct {
		now  GIDTable
		want int // -1 for none
	}{
		"where it was":   {GIDTable{at(known, 1), known, at(known, 5)}, 3},
		"moved":          {GIDTable{at(v1, 1), at(vlan, 2), other, at(known, 5)}, 5},
		"replaced":       {GIDTable{other}, -1},
		"of another":     {GIDTable{v1, at(vlan, 4), port2}, -1},
		"an empty table": {nil, -1},
	} {
		fakeGIDs(k, tt.now...)
		qp := fakeOf(t, d, RC)
		must(qp.Endpoint(known))(t)
		err := qp.Connect(peer, ConnectOptions{})
		if tt.want < 0 {
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "fe80::1") || qp.State() != QPInit {
				t.Errorf("%s: %v", name, err)
			}
		} else if err != nil || int(index) != tt.want {
			t.Errorf("%s: connected with index %d, %v, want %d", name, index, err, tt.want)
		}
	}
}

// TestConnectRefuses: a connection that can't succeed is refused before its first step.
func TestConnectRefuses(t *testing.T) {
	d, k := fakeContext(t)
	gid := GIDEntry{GID: GID{0: 0xfe, 1: 0x80, 15: 1}, Port: 1}
	fakePort(k, LinkLayerInfiniBand, uapi.IbUverbsQueryPortResp{Lid: 1, ActiveMtu: uint8(MTU4096)})
	without := func(f func(*Endpoint)) Endpoint {
		p := peer
		f(&p)
		return p
	}
	ready := func() *QP {
		qp := fakeOf(t, d, RC)
		must(qp.Endpoint(gid))(t)
		return qp
	}
	connected := ready()
	if err := connected.Connect(peer, ConnectOptions{}); err != nil {
		t.Fatal(err)
	}
	ud := fakeOf(t, d, UD)
	if _, err := ud.Endpoint(gid); !errors.Is(err, ErrInvalid) {
		t.Errorf("the endpoint of a UD QP that can't receive: %v", err)
	}
	if _, err := fakeOf(t, d, DCI).Endpoint(gid); !errors.Is(err, ErrInvalid) {
		t.Errorf("the endpoint of a DCI that can't send: %v", err)
	}
	if _, err := ready().Endpoint(GIDEntry{Port: 77}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a port that there is not: %v", err)
	}
	modified := k.count("modify_qp")
	for name, err := range map[string]error{
		"without Endpoint":          fakeOf(t, d, RC).Connect(peer, ConnectOptions{}),
		"twice":                     connected.Connect(peer, ConnectOptions{}),
		"a datagram QP":             ud.Connect(peer, ConnectOptions{}),
		"no LID":                    ready().Connect(without(func(e *Endpoint) { e.LID = 0 }), ConnectOptions{}),
		"another subnet and no GID": ready().Connect(without(func(e *Endpoint) { e.GID = GID{} }), ConnectOptions{}),
		"no MTU":                    ready().Connect(without(func(e *Endpoint) { e.MTU = 0 }), ConnectOptions{}),
		"8 retries":                 ready().Connect(peer, ConnectOptions{RetryCount: 8}),
		"8 RNR retries":             ready().Connect(peer, ConnectOptions{RNRRetry: 8}),
		"256 reads":                 ready().Connect(peer, ConnectOptions{MaxRDAtomic: 256}),
		"a QPN of 25 bits":          ready().Connect(without(func(e *Endpoint) { e.QPN = 1 << 24 }), ConnectOptions{}),
		"a PSN of 25 bits":          ready().Connect(without(func(e *Endpoint) { e.PSN = 1 << 24 }), ConnectOptions{}),
		"an unknown MTU":            ready().Connect(peer, ConnectOptions{MTU: 9}),
		"activated":                 ready().Activate(ActivateOptions{Port: 1}),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := k.count("modify_qp") - modified; n != 10 {
		t.Errorf("%d modifications, want 10, each of Endpoint", n)
	}
	fakePort(k, LinkLayerInfiniBand, uapi.IbUverbsQueryPortResp{})
	if _, err := fakeOf(t, d, RC).Endpoint(gid); !errors.Is(err, ErrInvalid) {
		t.Errorf("a port that is down: %v", err)
	}
}

// TestActivate: a UD QP gets its Q_Key, which its endpoint then has.
func TestActivate(t *testing.T) {
	d, k := fakeContext(t)
	fakePort(k, LinkLayerEthernet, uapi.IbUverbsQueryPortResp{ActiveMtu: uint8(MTU1024)})
	var states []QPState
	var first uapi.IbUverbsModifyQp
	k.answerTo("modify_qp", func(f *fakeCall) error {
		req := in[uapi.IbUverbsModifyQp](f, uapi.UVERBS_ATTR_CORE_IN)
		if states = append(states, QPState(req.QpState)); len(states) == 1 {
			first = req
		}
		return nil
	})
	qp := fakeOf(t, d, UD)
	if err := qp.Activate(ActivateOptions{Port: 1, PKeyIndex: 3, QKey: 0x1234}); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(states, []QPState{QPInit, QPRTR, QPRTS}) || first.Qkey != 0x1234 || first.PkeyIndex != 3 || first.PortNum != 1 {
		t.Errorf("%v, %+v", states, first)
	}
	gid := GIDEntry{GID: GID{15: 9}, Port: 1, Index: 2, Type: GIDTypeRoCEv2}
	fakeGIDs(k, gid)
	e := must(qp.Endpoint(gid))(t)
	if e.QKey != 0x1234 || e.QPN != qp.Num() || e.GID != (GID{15: 9}) {
		t.Errorf("%+v", e)
	}
	path := must(qp.PathTo(peer))(t)
	if want := (AHAttr{IsGlobal: true, DGID: peer.GID, SGIDIndex: 2, HopLimit: 64, DLID: peer.LID, Port: 1}); path != want {
		t.Errorf("the path is %+v, want %+v", path, want)
	}
}

// TestActivateDCT: a DCT ends in RTR, with the requested GID.
func TestActivateDCT(t *testing.T) {
	d, k := fakeContext(t)
	fakePort(k, LinkLayerEthernet, uapi.IbUverbsQueryPortResp{ActiveMtu: uint8(MTU2048)})
	var reqs []uapi.IbUverbsModifyQp
	k.answerTo("modify_qp", func(f *fakeCall) error {
		reqs = append(reqs, in[uapi.IbUverbsModifyQp](f, uapi.UVERBS_ATTR_CORE_IN))
		return nil
	})
	pd, cq := must(d.AllocPD())(t), must(d.CreateCQ(CQOptions{MaxCQE: 4}))(t)
	o := QPOptions{Type: DCT, SendCQ: cq, RecvCQ: cq, SRQ: must(pd.CreateSRQ(SRQOptions{MaxWR: 1, MaxSGE: 1}))(t), DCKey: 1}
	qp := must(pd.CreateQP(o))(t)
	if err := qp.Activate(ActivateOptions{Port: 1, GID: GIDEntry{Port: 2}}); !errors.Is(err, ErrInvalid) || len(reqs) != 0 {
		t.Errorf("another port's GID: %v, after %d requests", err, len(reqs))
	}
	gid := GIDEntry{GID: GID{15: 9}, Port: 1, Index: 2, Type: GIDTypeRoCEv2}
	fakeGIDs(k)
	if err := qp.Activate(ActivateOptions{Port: 1, GID: gid}); !errors.Is(err, ErrInvalid) || len(reqs) != 0 {
		t.Errorf("a GID that is gone: %v, after %d requests", err, len(reqs))
	}
	moved := gid
	moved.Index = 3
	fakeGIDs(k, moved)
	if err := qp.Activate(ActivateOptions{Port: 1, GID: gid, Access: AccessRemoteWrite}); err != nil {
		t.Fatal(err)
	}
	if len(reqs) != 2 || reqs[0].QpState != uint8(QPInit) || reqs[0].QpAccessFlags != uint32(AccessRemoteWrite) || reqs[0].PortNum != 1 {
		t.Fatalf("%+v", reqs)
	}
	if r := reqs[1]; r.QpState != uint8(QPRTR) || r.PathMtu != uint8(MTU2048) || r.MinRnrTimer != uint8(RNRTimerOf(640*time.Microsecond)) ||
		r.Dest.SgidIndex != 3 || r.Dest.HopLimit != 64 || r.Dest.IsGlobal != 1 || r.Dest.PortNum != 1 {
		t.Errorf("%+v", r)
	}
}

// TestRequiredMask: with the mask a transition is allowed; without any one of its attributes
// it isn't.
func TestRequiredMask(t *testing.T) {
	allowed := 0
	for _, typ := range []QPType{RC, UC, UD, RawPacket, XRCSend, XRCRecv, DCI, DCT} {
		for from := QPReset; from <= QPErr; from++ {
			for to := QPReset; to <= QPErr; to++ {
				m := RequiredMask(typ, from, to)
				if m == 0 {
					if err := checkTransition("", typ, from, to, QPAttrState); err == nil {
						t.Errorf("%v %v to %v is allowed", typ, from, to)
					}
					continue
				}
				allowed++
				if err := checkTransition("", typ, from, to, m); err != nil {
					t.Errorf("%v %v to %v: %v", typ, from, to, err)
				}
				for bit := QPAttrCurState; bit <= QPAttrDestQPN; bit <<= 1 {
					if m&bit != 0 && checkTransition("", typ, from, to, m&^bit) == nil {
						t.Errorf("%v %v to %v doesn't need %v", typ, from, to, bit)
					}
				}
			}
		}
	}
	if allowed < 100 {
		t.Errorf("%d transitions are allowed", allowed)
	}
}

// TestConnectReads: a QP has no more reads outstanding than the peer can serve, nor than it can
// request itself, whatever number it can serve.
func TestConnectReads(t *testing.T) {
	d, k := fakeContext(t)
	fakePort(k, LinkLayerInfiniBand, uapi.IbUverbsQueryPortResp{Lid: 1, ActiveMtu: uint8(MTU4096)})
	var req uapi.IbUverbsModifyQp
	k.answerTo("modify_qp", func(f *fakeCall) error {
		req = in[uapi.IbUverbsModifyQp](f, uapi.UVERBS_ATTR_CORE_IN)
		return nil
	})
	for _, tt := range []struct {
		peer  uint8
		asked int
		want  uint8
	}{{9, 0, 4}, {5, 0, 4}, {4, 0, 4}, {3, 0, 3}, {0, 0, 0}, {9, 2, 2}, {9, -1, 0}} {
		qp, peer := fakeOf(t, d, RC), peer
		must(qp.Endpoint(GIDEntry{GID: GID{0: 0xfe, 1: 0x80}, Port: 1}))(t)
		peer.MaxRDAtomic = tt.peer
		if err := qp.Connect(peer, ConnectOptions{MaxRDAtomic: tt.asked}); err != nil {
			t.Fatal(err)
		}
		if QPState(req.QpState) != QPRTS || req.MaxRdAtomic != tt.want || req.MaxDestRdAtomic != 5 {
			t.Errorf("the peer serves %d, asked for %d: %d of %d, want %d of 5", tt.peer, tt.asked, req.MaxRdAtomic, req.MaxDestRdAtomic, tt.want)
		}
	}
}
