package verbs

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// fullAttr returns attributes with a different value in each field, so that a swap shows.
func fullAttr() QPAttr {
	path := func(n uint8, port int) AHAttr {
		return AHAttr{
			IsGlobal: true, DGID: GID{n, 15: n}, SGIDIndex: int(n) + 1, HopLimit: n + 2, TrafficClass: n + 3, FlowLabel: uint32(n) + 4,
			DLID: uint16(n) + 5, SL: n % 16, SrcPathBits: n + 6, StaticRate: Rate(n + 7), Port: port,
		}
	}
	return QPAttr{
		State: QPRTS, CurState: QPSQD, PathMTU: MTU2048, QKey: 0x11121314, RQPSN: 0x212223, SQPSN: 0x313233, DestQPN: 0x414243,
		Access: AccessRemoteWrite, AH: path(0x51, 1), AltAH: path(0x62, 2), PKeyIndex: 0x7172, AltPKeyIndex: 0x8182, Port: 1, AltPort: 2, PathMigState: 2,
		Timeout: 20, AltTimeout: 21, RetryCount: 5, RNRRetry: 6, MinRNRTimer: 22, MaxRDAtomic: 91, MaxDestRDAtomic: 92, EnSQDAsyncNotify: true,
	}
}

func kernelPath(n uint8, port uint8) uapi.IbUverbsQpDest {
	return uapi.IbUverbsQpDest{
		Dgid: [16]byte{n, 15: n}, FlowLabel: uint32(n) + 4, Dlid: uint16(n) + 5, SgidIndex: n + 1, HopLimit: n + 2, TrafficClass: n + 3,
		Sl: n % 16, SrcPathBits: n + 6, StaticRate: n + 7, IsGlobal: 1, PortNum: port,
	}
}

// TestModifyFields: each attribute is in its place in the command, and in the response to a query.
func TestModifyFields(t *testing.T) {
	dev, k := fakeContext(t)
	x := makeFakes(t, dev)
	var got uapi.IbUverbsModifyQp
	k.answerTo("modify_qp", func(f *fakeCall) error {
		got = in[uapi.IbUverbsModifyQp](f, uapi.UVERBS_ATTR_CORE_IN)
		return errPassOn
	})
	a := fullAttr()
	all := QPAttrMask(uapi.IB_QP_ATTR_STANDARD_BITS)
	if err := x.qp.move("modify QP", &a, all, QPSQD, QPRTS); err != nil {
		t.Fatal(err)
	}
	want := uapi.IbUverbsModifyQp{
		Dest: kernelPath(0x51, 1), AltDest: kernelPath(0x62, 2), QpHandle: x.qp.handle, AttrMask: uint32(all),
		Qkey: 0x11121314, RqPsn: 0x212223, SqPsn: 0x313233, DestQpNum: 0x414243, QpAccessFlags: uint32(AccessRemoteWrite),
		PkeyIndex: 0x7172, AltPkeyIndex: 0x8182, QpState: uint8(QPRTS), CurQpState: uint8(QPSQD), PathMtu: uint8(MTU2048), PathMigState: 2,
		EnSqdAsyncNotify: 1, MaxRdAtomic: 91, MaxDestRdAtomic: 92, MinRnrTimer: 22, PortNum: 1, Timeout: 20, RetryCnt: 5, RnrRetry: 6,
		AltPortNum: 2, AltTimeout: 21,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("MODIFY_QP (-want +got):\n%s", d)
	}
	if q := dev.prov.(*fakeProvider).qps[0]; x.qp.State() != QPRTS || len(q.moved) != 1 || q.moved[0] != uapi.IB_QPS_RTS {
		t.Errorf("state %v, moved %v", x.qp.State(), q.moved)
	}
	// Paths and a state that the mask doesn't select are not in the command.
	if err := x.qp.move("modify QP", &a, QPAttrQKey, QPRTS, QPRTS); err != nil {
		t.Fatal(err)
	}
	if got.Dest != (uapi.IbUverbsQpDest{}) || got.AltDest != (uapi.IbUverbsQpDest{}) || got.AttrMask != uint32(QPAttrQKey) || len(dev.prov.(*fakeProvider).qps[0].moved) != 1 {
		t.Errorf("%+v", got)
	}

	k.answerTo("query_qp", func(f *fakeCall) error {
		if q := in[uapi.IbUverbsQueryQp](f, uapi.UVERBS_ATTR_CORE_IN); q.QpHandle != x.qp.handle || q.AttrMask != uint32(all) {
			t.Errorf("%+v", q)
		}
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsQueryQpResp{
			Dest: want.Dest, AltDest: want.AltDest, MaxSendWr: 1001, MaxRecvWr: 1002, MaxSendSge: 1003, MaxRecvSge: 1004, MaxInlineData: 1005,
			Qkey: want.Qkey, RqPsn: want.RqPsn, SqPsn: want.SqPsn, DestQpNum: want.DestQpNum, QpAccessFlags: want.QpAccessFlags,
			PkeyIndex: want.PkeyIndex, AltPkeyIndex: want.AltPkeyIndex, QpState: want.QpState, CurQpState: want.CurQpState,
			PathMtu: want.PathMtu, PathMigState: want.PathMigState, SqDraining: 1, MaxRdAtomic: want.MaxRdAtomic,
			MaxDestRdAtomic: want.MaxDestRdAtomic, MinRnrTimer: want.MinRnrTimer, PortNum: want.PortNum, Timeout: want.Timeout,
			RetryCnt: want.RetryCnt, RnrRetry: want.RnrRetry, AltPortNum: want.AltPortNum, AltTimeout: want.AltTimeout, SqSigAll: 1,
		})
	})
	back, init, err := x.qp.Query()
	if err != nil {
		t.Fatal(err)
	}
	a.EnSQDAsyncNotify, a.SQDraining = false, true
	if d := cmp.Diff(a, back); d != "" {
		t.Errorf("QUERY_QP (-want +got):\n%s", d)
	}
	if init.Type != RC || init.SendCQ != x.cq || init.RecvCQ != x.cq || init.SRQ != nil || !init.SignalAll || init.Cap != x.qp.Cap() {
		t.Errorf("%+v", init)
	}
}

// TestModifyRefuses: values that don't fit are refused, at their limits.
func TestModifyRefuses(t *testing.T) {
	d, k := fakeContext(t)
	ok := fullAttr()
	if err := ok.check("modify QP", d, QPAttrMask(uapi.IB_QP_ATTR_STANDARD_BITS)); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		mask      QPAttrMask
		good, bad func(*QPAttr)
	}{
		"MTU low":       {QPAttrPathMTU, func(a *QPAttr) { a.PathMTU = MTU256 }, func(a *QPAttr) { a.PathMTU = 0 }},
		"MTU high":      {QPAttrPathMTU, func(a *QPAttr) { a.PathMTU = MTU4096 }, func(a *QPAttr) { a.PathMTU = MTU4096 + 1 }},
		"RQ PSN":        {QPAttrRQPSN, func(a *QPAttr) { a.RQPSN = 1<<24 - 1 }, func(a *QPAttr) { a.RQPSN = 1 << 24 }},
		"SQ PSN":        {QPAttrSQPSN, func(a *QPAttr) { a.SQPSN = 1<<24 - 1 }, func(a *QPAttr) { a.SQPSN = 1 << 24 }},
		"QPN":           {QPAttrDestQPN, func(a *QPAttr) { a.DestQPN = 1<<24 - 1 }, func(a *QPAttr) { a.DestQPN = 1 << 24 }},
		"P_Key":         {QPAttrPKeyIndex, func(a *QPAttr) { a.PKeyIndex = 0xffff }, func(a *QPAttr) { a.PKeyIndex = 1 << 16 }},
		"P_Key -1":      {QPAttrPKeyIndex, func(a *QPAttr) { a.PKeyIndex = 0 }, func(a *QPAttr) { a.PKeyIndex = -1 }},
		"alt P_Key":     {QPAttrAltPath, func(a *QPAttr) { a.AltPKeyIndex = 0xffff }, func(a *QPAttr) { a.AltPKeyIndex = 1 << 16 }},
		"alt P_Key -1":  {QPAttrAltPath, func(a *QPAttr) { a.AltPKeyIndex = 0 }, func(a *QPAttr) { a.AltPKeyIndex = -1 }},
		"timeout":       {QPAttrTimeout, func(a *QPAttr) { a.Timeout = 31 }, func(a *QPAttr) { a.Timeout = 32 }},
		"alt timeout":   {QPAttrAltPath, func(a *QPAttr) { a.AltTimeout = 31 }, func(a *QPAttr) { a.AltTimeout = 32 }},
		"retries":       {QPAttrRetryCount, func(a *QPAttr) { a.RetryCount = 7 }, func(a *QPAttr) { a.RetryCount = 8 }},
		"RNR retries":   {QPAttrRNRRetry, func(a *QPAttr) { a.RNRRetry = 7 }, func(a *QPAttr) { a.RNRRetry = 8 }},
		"RNR timer":     {QPAttrMinRNRTimer, func(a *QPAttr) { a.MinRNRTimer = 31 }, func(a *QPAttr) { a.MinRNRTimer = 32 }},
		"access":        {QPAttrAccess, func(a *QPAttr) { a.Access = accessKnown }, func(a *QPAttr) { a.Access = 1 << 31 }},
		"migration":     {QPAttrPathMigState, func(a *QPAttr) { a.PathMigState = 0 }, func(a *QPAttr) { a.PathMigState = 3 }},
		"port":          {QPAttrPort, func(a *QPAttr) { a.Port = 2 }, func(a *QPAttr) { a.Port = 3 }},
		"port 0":        {QPAttrPort, func(a *QPAttr) { a.Port = 1 }, func(a *QPAttr) { a.Port = 0 }},
		"path's port":   {QPAttrAV, func(a *QPAttr) { a.AH.Port = 2 }, func(a *QPAttr) { a.AH.Port = 3 }},
		"path's GID":    {QPAttrAV, func(a *QPAttr) { a.AH.SGIDIndex = 255 }, func(a *QPAttr) { a.AH.SGIDIndex = 256 }},
		"path's GID -1": {QPAttrAV, func(a *QPAttr) { a.AH.SGIDIndex = 0 }, func(a *QPAttr) { a.AH.SGIDIndex = -1 }},
		"path's label":  {QPAttrAV, func(a *QPAttr) { a.AH.FlowLabel = 1<<20 - 1 }, func(a *QPAttr) { a.AH.FlowLabel = 1 << 20 }},
		"path's SL":     {QPAttrAV, func(a *QPAttr) { a.AH.SL = 15 }, func(a *QPAttr) { a.AH.SL = 16 }},
		"alt port":      {QPAttrAltPath, func(a *QPAttr) { a.AltPort = 1 }, func(a *QPAttr) { a.AltPort = 3 }},
		"alt path's SL": {QPAttrAltPath, func(a *QPAttr) { a.AltAH.SL = 0 }, func(a *QPAttr) { a.AltAH.SL = 16 }},
	} {
		good, bad := ok, ok
		tt.good(&good)
		tt.bad(&bad)
		if err := good.check("modify QP", d, tt.mask); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := bad.check("modify QP", d, tt.mask); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
		// Unselected values aren't checked.
		if err := bad.check("modify QP", d, 0); err != nil {
			t.Errorf("%s, not asked for: %v", name, err)
		}
	}
	if n := k.count("modify_qp"); n != 0 {
		t.Errorf("the kernel was asked %d times", n)
	}
}

// TestModifyExplains: the error for a move that a failed QP refuses names the QP's actual state.
func TestModifyExplains(t *testing.T) {
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	x.qp.setState(QPRTS)
	k.answerTo("modify_qp", refuse(unix.EINVAL))
	k.answerTo("query_qp", func(f *fakeCall) error {
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsQueryQpResp{QpState: uint8(QPErr)})
	})
	err := x.qp.Modify(QPAttr{Access: AccessRemoteRead}, QPAttrAccess)
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "ERR to ERR takes no attributes, not ACCESS_FLAGS") || x.qp.State() != QPErr {
		t.Errorf("no change of state: %v", err)
	}
	x.qp.setState(QPRTS)
	err = x.qp.Modify(QPAttr{State: QPSQD}, QPAttrState)
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "ERR to SQD") {
		t.Errorf("%v", err)
	}
}

// TestReset: a move to RESET empties the queues and drops completions, once from each CQ.
func TestReset(t *testing.T) {
	d, _ := fakeContext(t)
	x := makeFakes(t, d)
	other := must(d.CreateCQ(CQOptions{MaxCQE: 1}))(t)
	two := must(x.pd.CreateQP(QPOptions{Type: UC, SendCQ: x.cq, RecvCQ: other}))(t)
	p := d.prov.(*fakeProvider)
	for _, qp := range []*QP{x.qp, two} {
		if err := qp.Modify(QPAttr{State: QPReset}, QPAttrState); err != nil {
			t.Fatal(err)
		}
	}
	if want := []provider.QP{p.qps[0], p.qps[1]}; !reflect.DeepEqual(p.cqs[0].forgotten, want) || len(p.cqs[1].forgotten) != 1 {
		t.Errorf("%d and %d were forgotten", len(p.cqs[0].forgotten), len(p.cqs[1].forgotten))
	}
	if err := two.Close(); err != nil {
		t.Error(err)
	}
	if len(p.cqs[0].forgotten) != 3 || len(p.cqs[1].forgotten) != 2 || p.qps[1].released != 1 {
		t.Error("closing forgets no completions")
	}
}

// TestCreateQP: the kernel and the provider get the options.
func TestCreateQP(t *testing.T) {
	dev, k := fakeContext(t)
	x := makeFakes(t, dev)
	recv := must(dev.CreateCQ(CQOptions{MaxCQE: 1}))(t)
	domain := must(dev.OpenXRCD())(t)
	limits := QPCap{MaxSendWR: 11, MaxRecvWR: 12, MaxSendSGE: 13, MaxRecvSGE: 14, MaxInlineData: 15}
	for _, tt := range []struct {
		o          QPOptions
		typ        uapi.IbUverbsQpType
		dc         provider.DriverType
		send, recv bool // has queues of its own
	}{
		{QPOptions{Type: RC, SendCQ: x.cq, RecvCQ: recv}, uapi.IB_UVERBS_QPT_RC, provider.NoDriverType, true, true},
		{QPOptions{Type: RC, SendCQ: x.cq, RecvCQ: recv, SRQ: x.srq, SignalAll: true}, uapi.IB_UVERBS_QPT_RC, provider.NoDriverType, true, false},
		{QPOptions{Type: UD, SendCQ: x.cq, RecvCQ: recv}, uapi.IB_UVERBS_QPT_UD, provider.NoDriverType, true, true},
		{QPOptions{Type: XRCSend, SendCQ: x.cq}, uapi.IB_UVERBS_QPT_XRC_INI, provider.NoDriverType, true, false},
		{QPOptions{}, uapi.IB_UVERBS_QPT_XRC_TGT, provider.NoDriverType, false, false},
		{QPOptions{Type: DCI, SendCQ: x.cq, RecvCQ: recv}, uapi.IB_UVERBS_QPT_DRIVER, provider.DCInitiator, true, false},
		{QPOptions{Type: SRD, SendCQ: x.cq, RecvCQ: recv}, uapi.IB_UVERBS_QPT_DRIVER, provider.SRD, true, true},
		{QPOptions{Type: DCT, SendCQ: x.cq, RecvCQ: recv, SRQ: x.srq, DCKey: 99}, uapi.IB_UVERBS_QPT_DRIVER, provider.DCTarget, false, false},
	} {
		tt.o.Cap = limits
		handle := func(o *object) uint32 {
			if o == nil {
				return 0
			}
			return o.handle
		}
		var seen map[string]any
		var limit uapi.IbUverbsQpCap
		k.answerTo("create_qp", func(f *fakeCall) error {
			limit = in[uapi.IbUverbsQpCap](f, uapi.UVERBS_ATTR_CREATE_QP_CAP)
			seen = map[string]any{
				"type": in[uint64](f, uapi.UVERBS_ATTR_CREATE_QP_TYPE), "flags": in[uint32](f, uapi.UVERBS_ATTR_CREATE_QP_FLAGS),
				"PD": f.handleOf(uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE), "XRCD": f.handleOf(uapi.UVERBS_ATTR_CREATE_QP_XRCD_HANDLE),
				"send CQ": f.handleOf(uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE), "recv CQ": f.handleOf(uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE),
				"SRQ": f.handleOf(uapi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE),
			}
			return errPassOn
		})
		create, ofDomain := x.pd.CreateQP, tt.typ == uapi.IB_UVERBS_QPT_XRC_TGT
		if ofDomain {
			create = domain.CreateQP
		}
		qp, err := create(tt.o)
		if err != nil {
			t.Errorf("%v: %v", tt.typ, err)
			continue
		}
		flags := uint32(0)
		if tt.o.SignalAll {
			flags = uint32(uapi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL)
		}
		want := map[string]any{
			"type": uint64(tt.typ), "flags": flags, "PD": x.pd.handle, "XRCD": uint32(0),
			"send CQ": handle(tt.o.SendCQ.base()), "recv CQ": handle(tt.o.RecvCQ.base()), "SRQ": handle(tt.o.SRQ.base()),
		}
		if ofDomain {
			want["PD"], want["XRCD"] = uint32(0), domain.handle
		}
		if d := cmp.Diff(want, seen); d != "" {
			t.Errorf("%v: %s", tt.o.Type, d)
		}
		asked := limits
		if !tt.send {
			asked.MaxSendWR, asked.MaxSendSGE, asked.MaxInlineData = 0, 0, 0
		}
		if !tt.recv {
			asked.MaxRecvWR, asked.MaxRecvSGE = 0, 0
		}
		if got := (QPCap{int(limit.MaxSendWr), int(limit.MaxRecvWr), int(limit.MaxSendSge), int(limit.MaxRecvSge), int(limit.MaxInlineData)}); got != asked {
			t.Errorf("%v: asked for %+v, want %+v", tt.o.Type, got, asked)
		}
		p := dev.prov.(*fakeProvider)
		init := p.qps[len(p.qps)-1].init
		if init.Type != tt.typ || init.Driver != tt.dc || init.DCKey != tt.o.DCKey || init.Cap != asked.kernel() || init.SignalAll != tt.o.SignalAll ||
			(init.SendCQ == p.cqs[0]) != (tt.o.SendCQ != nil) || (init.RecvCQ == p.cqs[1]) != (tt.o.RecvCQ != nil) || (init.SRQ == p.srqs[0]) != (tt.o.SRQ != nil) {
			t.Errorf("%v: the provider got %+v", tt.o.Type, init)
		}
		if qp.Cap() != asked || qp.State() != QPReset || qp.Num() == 0 {
			t.Errorf("%v: %+v, %v, %d", tt.o.Type, qp.Cap(), qp.State(), qp.Num())
		}
		if err := qp.Close(); err != nil {
			t.Error(err)
		}
	}
	for name, o := range map[string]QPOptions{
		"with a CQ":   {SendCQ: x.cq},
		"with an SRQ": {SRQ: x.srq},
		"RC":          {Type: RC},
	} {
		held, before := domain.holds.Load(), k.count("create_qp")
		if _, err := domain.CreateQP(o); !errors.Is(err, ErrInvalid) || k.count("create_qp") != before || domain.holds.Load() != held {
			t.Errorf("in an XRC domain, %s: %v", name, err)
		}
	}
	// Invalid options.
	for name, o := range map[string]QPOptions{
		"no send CQ":         {Type: RC, RecvCQ: recv},
		"no receive CQ":      {Type: RC, SendCQ: x.cq},
		"XRCSend receives":   {Type: XRCSend, SendCQ: x.cq, RecvCQ: recv},
		"XRCSend with SRQ":   {Type: XRCSend, SendCQ: x.cq, SRQ: x.srq},
		"XRCRecv on a PD":    {Type: XRCRecv},
		"DCT without SRQ":    {Type: DCT, SendCQ: x.cq, RecvCQ: recv},
		"scatter on UC":      {Type: UC, SendCQ: x.cq, RecvCQ: recv, ScatterToCQE: true},
		"no such type":       {Type: 77, SendCQ: x.cq, RecvCQ: recv},
		"too many sends":     {Type: RC, SendCQ: x.cq, RecvCQ: recv, Cap: QPCap{MaxSendWR: 1<<10 + 1}},
		"too many receives":  {Type: RC, SendCQ: x.cq, RecvCQ: recv, Cap: QPCap{MaxRecvWR: 1<<10 + 1}},
		"too many send SGEs": {Type: RC, SendCQ: x.cq, RecvCQ: recv, Cap: QPCap{MaxSendSGE: 17}},
		"too many SGEs":      {Type: RC, SendCQ: x.cq, RecvCQ: recv, Cap: QPCap{MaxRecvSGE: 17}},
		"too much inline":    {Type: RC, SendCQ: x.cq, RecvCQ: recv, Cap: QPCap{MaxInlineData: maxInline + 1}},
		"too long a header":  {Type: RawPacket, SendCQ: x.cq, RecvCQ: recv, MaxTSOHeader: maxInline + 1},
		"-1 receives":        {Type: RC, SendCQ: x.cq, RecvCQ: recv, Cap: QPCap{MaxRecvWR: -1}},
		"-1 inline":          {Type: RC, SendCQ: x.cq, RecvCQ: recv, Cap: QPCap{MaxInlineData: -1}},
	} {
		before := k.count("create_qp")
		held := []int32{x.pd.holds.Load(), x.cq.holds.Load(), recv.holds.Load(), x.srq.holds.Load(), domain.holds.Load()}
		if _, err := x.pd.CreateQP(o); !errors.Is(err, ErrInvalid) || k.count("create_qp") != before {
			t.Errorf("%s: %v", name, err)
		}
		if now := []int32{x.pd.holds.Load(), x.cq.holds.Load(), recv.holds.Load(), x.srq.holds.Load(), domain.holds.Load()}; !reflect.DeepEqual(held, now) {
			t.Errorf("%s: what it is made of is held %v times, before %v", name, now, held)
		}
	}
}

// TestQPDefaultSGEs: a queue's requests hold one piece of memory by default, and none with a
// negative number.
func TestQPDefaultSGEs(t *testing.T) {
	d, _ := fakeContext(t)
	x := makeFakes(t, d)
	for _, tt := range []struct{ asked, want QPCap }{
		{QPCap{MaxSendWR: 2, MaxRecvWR: 3}, QPCap{MaxSendWR: 2, MaxRecvWR: 3, MaxSendSGE: 1, MaxRecvSGE: 1}},
		{QPCap{MaxSendWR: 2, MaxSendSGE: 4}, QPCap{MaxSendWR: 2, MaxSendSGE: 4}},
		{QPCap{MaxRecvWR: 2, MaxRecvSGE: 4}, QPCap{MaxRecvWR: 2, MaxRecvSGE: 4}},
		{QPCap{}, QPCap{}},
		{QPCap{MaxSendWR: 2, MaxRecvWR: 3, MaxSendSGE: -1}, QPCap{MaxSendWR: 2, MaxRecvWR: 3, MaxRecvSGE: 1}},
		{QPCap{MaxSendWR: 2, MaxRecvWR: 3, MaxRecvSGE: -1}, QPCap{MaxSendWR: 2, MaxRecvWR: 3, MaxSendSGE: 1}},
		{QPCap{MaxSendSGE: -1, MaxRecvSGE: -9}, QPCap{}},
	} {
		qp := must(x.pd.CreateQP(QPOptions{Type: RC, SendCQ: x.cq, RecvCQ: x.cq, Cap: tt.asked}))(t)
		if qp.Cap() != tt.want {
			t.Errorf("asked for %+v, got %+v, want %+v", tt.asked, qp.Cap(), tt.want)
		}
	}
	qp := must(x.pd.CreateQP(QPOptions{Type: RC, SendCQ: x.cq, RecvCQ: x.cq, SRQ: x.srq, Cap: QPCap{MaxSendWR: 1, MaxRecvWR: 1}}))(t)
	if want := (QPCap{MaxSendWR: 1, MaxSendSGE: 1}); qp.Cap() != want {
		t.Errorf("with an SRQ, got %+v, want %+v", qp.Cap(), want)
	}
}
