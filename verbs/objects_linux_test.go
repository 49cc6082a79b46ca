package verbs

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// holdsOf returns the objects' numbers of holds.
func holdsOf(x fakeThings) [6]int32 {
	return [...]int32{x.pd.holds.Load(), x.mr.holds.Load(), x.ch.holds.Load(), x.cq.holds.Load(), x.srq.holds.Load(), x.qp.holds.Load()}
}

// countOf counts the objects of a device.
func countOf(d *Device) (n int) {
	for range d.members.all() {
		n++
	}
	return n
}

// TestRefusedIsUndone: a verb that the kernel or the provider refuses leaves nothing
// behind: no object in the kernel, no memory of the provider, no hold.
func TestRefusedIsUndone(t *testing.T) {
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	p := d.prov.(*fakeProvider)
	bad := errors.New("the provider refuses")
	for _, tt := range []struct {
		create, destroy string
		make            func() error
		released        func() int
	}{
		{"create_qp", "destroy_qp", func() error {
			_, err := x.pd.CreateQP(QPOptions{Type: RC, SendCQ: x.cq, RecvCQ: x.cq})
			return err
		}, func() int { return p.qps[len(p.qps)-1].released }},
		{"create_cq", "destroy_cq", func() error { _, err := d.CreateCQ(CQOptions{MaxCQE: 1, Channel: x.ch}); return err },
			func() int { return p.cqs[len(p.cqs)-1].released }},
		{"create_srq", "destroy_srq", func() error { _, err := x.pd.CreateSRQ(SRQOptions{MaxWR: 1, MaxSGE: 1}); return err },
			func() int { return p.srqs[len(p.srqs)-1].released }},
		{"create_ah", "destroy_ah", func() error { _, err := x.pd.CreateAH(AHAttr{Port: 1}); return err }, nil},
		{"alloc_pd", "dealloc_pd", func() error { _, err := d.AllocPD(); return err }, nil},
		{"alloc_mw", "dealloc_mw", func() error { _, err := x.pd.AllocMW(MWType2); return err }, nil},
		{"reg_mr", "dereg_mr", func() error { _, err := x.pd.RegMR(make([]byte, 8), MROptions{}); return err }, nil},
		{"reg_mr", "dereg_mr", func() error { _, err := x.pd.AllocMR(8, MROptions{}); return err }, nil},
		{"create_flow", "destroy_flow", func() error { _, err := x.qp.CreateFlow(FlowOptions{}); return err }, nil},
	} {
		if tt.create == "create_flow" {
			x.qp.typ = RawPacket
		}
		before, members := holdsOf(x), countOf(d)
		k.answerTo(tt.create, refuse(unix.EINVAL))
		var refused, after *OpError
		if err := tt.make(); !errors.Is(err, unix.EINVAL) || !errors.As(err, &refused) {
			t.Errorf("%s: %v", tt.create, err)
		}
		if tt.released != nil && tt.released() != 1 {
			t.Errorf("%s: the provider's part was released %d times", tt.create, tt.released())
		}
		k.answerTo(tt.create, nil)
		if tt.released != nil {
			p.adopt = bad
			made, destroyed := k.count(tt.create), k.count(tt.destroy)
			if err := tt.make(); !errors.Is(err, bad) || !errors.As(err, &after) || after.Op != refused.Op || after.Object != refused.Object {
				t.Errorf("%s: %v, when the kernel refuses it %v", tt.create, err, refused)
			}
			if k.count(tt.create) != made+1 || k.count(tt.destroy) != destroyed+1 || tt.released() != 1 {
				t.Errorf("%s: what the provider refuses stays", tt.create)
			}
			p.adopt = nil
		}
		if now := holdsOf(x); now != before || countOf(d) != members || d.holds.Load() != int32(members) {
			t.Errorf("%s: held %v, before %v; %d members, %d holds", tt.create, now, before, countOf(d), d.holds.Load())
		}
	}
	// The same calls succeed, and the new objects' parents are held until they are closed.
	before := holdsOf(x)
	flow, err := x.qp.CreateFlow(FlowOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.qp.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("a QP with a flow: %v", err)
	}
	ah := must(x.pd.CreateAH(AHAttr{Port: 1}))(t)
	if holdsOf(x) == before {
		t.Error("nothing is held")
	}
	for _, o := range []interface{ Close() error }{flow, ah} {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
	if now := holdsOf(x); now != before {
		t.Errorf("held %v, before %v", now, before)
	}
}

// TestLimitsUnknown: if the device's limits can't be queried, verbs that depend on them fail.
func TestLimitsUnknown(t *testing.T) {
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	before := holdsOf(x)
	const query = "query_device_ex"
	k.answerTo(query, refuse(unix.ENOMEM))
	for name, call := range map[string]func() error{
		"create CQ":  func() error { _, err := d.CreateCQ(CQOptions{MaxCQE: 1}); return err },
		"resize CQ":  func() error { return x.cq.Resize(1) },
		"create SRQ": func() error { _, err := x.pd.CreateSRQ(SRQOptions{MaxWR: 1}); return err },
		"create QP":  func() error { _, err := x.pd.CreateQP(QPOptions{Type: RC, SendCQ: x.cq, RecvCQ: x.cq}); return err },
		"register":   func() error { _, err := x.pd.RegMR(make([]byte, 8), MROptions{}); return err },
		"create AH":  func() error { _, err := x.pd.CreateAH(AHAttr{Port: 1}); return err },
		"alloc DM":   func() error { _, err := d.AllocDM(DMOptions{Length: 64}); return err },
		"query port": func() error { _, err := d.QueryPort(1); return err },
	} {
		d.limits.Store(nil)
		asked := len(k.calls)
		if err := call(); !errors.Is(err, unix.ENOMEM) || !slices.Equal(k.calls[asked:], []string{query}) {
			t.Errorf("%s: %v; the kernel was asked for %q", name, err, k.calls[asked:])
		}
	}
	if now := holdsOf(x); now != before {
		t.Errorf("held %v, before %v", now, before)
	}
	k.answerTo(query, nil)
	for _, o := range x.all() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestForeign: objects of another Device are refused, and nothing stays held.
func TestForeign(t *testing.T) {
	dev, _ := fakeContext(t)
	x := makeFakes(t, dev)
	d, _ := fakeContext(t)
	y := makeFakes(t, d)
	mine, theirs := holdsOf(x), holdsOf(y)
	for name, f := range map[string]func() error{
		"CQ":          func() error { _, err := dev.CreateCQ(CQOptions{MaxCQE: 1, Channel: y.ch}); return err },
		"QP, send":    func() error { _, err := x.pd.CreateQP(QPOptions{Type: RC, SendCQ: y.cq, RecvCQ: x.cq}); return err },
		"QP, receive": func() error { _, err := x.pd.CreateQP(QPOptions{Type: RC, SendCQ: x.cq, RecvCQ: y.cq}); return err },
		"QP, SRQ": func() error {
			_, err := x.pd.CreateQP(QPOptions{Type: RC, SendCQ: x.cq, RecvCQ: x.cq, SRQ: y.srq})
			return err
		},
		"rereg": func() error { return x.mr.Rereg(ReregOptions{PD: y.pd}) },
		"bind":  func() error { return x.qp.BindMW(y.mw, MWBind{}) },
		"bind MR": func() error {
			return x.qp.BindMW(x.mw, MWBind{MWBindInfo: MWBindInfo{MR: y.mr, Addr: y.mr.Addr(), Length: 8}})
		},
	} {
		if err := f(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if a, b := holdsOf(x), holdsOf(y); a != mine || b != theirs {
		t.Errorf("held %v and %v, before %v and %v", a, b, mine, theirs)
	}
	// Nothing is created on a closed object, and the objects before it in the list are not held.
	closed := must(dev.CreateCQ(CQOptions{MaxCQE: 1}))(t)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := x.pd.CreateQP(QPOptions{Type: RC, SendCQ: x.cq, RecvCQ: closed}); !errors.Is(err, ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
	if _, err := x.pd.CreateQP(QPOptions{Type: RC, SendCQ: closed, RecvCQ: x.cq}); !errors.Is(err, ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
	if a := holdsOf(x); a != mine {
		t.Errorf("held %v, before %v", a, mine)
	}
}

// TestCQ: the options are checked at their limits, and are in the command.
func TestCQ(t *testing.T) {
	d, k := fakeContext(t)
	d.compVectors = 3
	limits := must(d.deviceLimits())(t)
	limits.CQECompression.Formats = CompressHash | CompressStride
	ch := must(d.CreateCompChannel())(t)
	for _, tt := range []struct {
		o  CQOptions
		ok bool
	}{
		{CQOptions{MaxCQE: 1}, true},
		{CQOptions{MaxCQE: 1, PollOnly: true}, true},
		{CQOptions{MaxCQE: 1, PollOnly: true, Channel: ch}, false},
		{CQOptions{MaxCQE: 0}, false},
		{CQOptions{MaxCQE: 1 << 10}, true},
		{CQOptions{MaxCQE: 1<<10 + 1}, false},
		{CQOptions{MaxCQE: 9, Vector: 2, Channel: ch}, true},
		{CQOptions{MaxCQE: 9, Vector: 3}, false},
		{CQOptions{MaxCQE: 9, Vector: -1}, false},
		{CQOptions{MaxCQE: 9, CQESize: 64}, true},
		{CQOptions{MaxCQE: 9, CQESize: 128}, true},
		{CQOptions{MaxCQE: 9, CQESize: 96}, false},
		{CQOptions{MaxCQE: 9, Compression: CompressHash}, true},
		{CQOptions{MaxCQE: 9, Compression: CompressStride}, true},
		{CQOptions{MaxCQE: 9, Compression: CompressChecksum}, false},
		{CQOptions{MaxCQE: 9, Compression: CompressHash | CompressStride}, false},
	} {
		var entries, vector uint32
		k.answerTo("create_cq", func(f *fakeCall) error {
			entries, vector = in[uint32](f, uapi.UVERBS_ATTR_CREATE_CQ_CQE), in[uint32](f, uapi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR)
			granted := entries + 1
			f.out(uapi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, &granted)
			return errPassOn
		})
		cq, err := d.CreateCQ(tt.o)
		if !tt.ok {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%+v: %v", tt.o, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", tt.o, err)
			continue
		}
		want := provider.CQInit{CQE: uint32(tt.o.MaxCQE), CQESize: uint32(tt.o.CQESize), Compression: uint8(tt.o.Compression), Channel: !tt.o.PollOnly}
		p := d.prov.(*fakeProvider)
		if got := p.cqs[len(p.cqs)-1].init; got != want || entries != want.CQE || vector != uint32(tt.o.Vector) || cq.MaxCQE() != tt.o.MaxCQE+1 {
			t.Errorf("%+v: the provider got %+v, the kernel %d entries, vector %d; the CQ has %d", tt.o, got, entries, vector, cq.MaxCQE())
		}
	}
	cq := must(d.CreateCQ(CQOptions{MaxCQE: 4}))(t)
	k.answerTo("resize_cq", func(f *fakeCall) error {
		r := in[uapi.IbUverbsResizeCq](f, uapi.UVERBS_ATTR_CORE_IN)
		if r.CqHandle != cq.handle {
			t.Errorf("%+v", r)
		}
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsResizeCqResp{Cqe: r.Cqe + 7})
	})
	for n, ok := range map[int]bool{0: false, 1: true, 1 << 10: true, 1<<10 + 1: false, math.MaxInt: false} {
		before := cq.MaxCQE()
		switch err := cq.Resize(n); {
		case ok && (err != nil || cq.MaxCQE() != n+7):
			t.Errorf("Resize(%d): %v, has %d", n, err, cq.MaxCQE())
		case !ok && (!errors.Is(err, ErrInvalid) || cq.MaxCQE() != before):
			t.Errorf("Resize(%d): %v", n, err)
		}
	}
}

// TestPollWait: a wait arms the CQ, and Close and the end of the context end it.
func TestPollWait(t *testing.T) {
	d, _ := fakeContext(t)
	x := makeFakes(t, d)
	q := d.prov.(*fakeProvider).cqs[0]
	done := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	wait := func(ctx context.Context) {
		n, err := x.cq.PollWait(ctx, make([]WC, 1))
		if n != 0 && err != nil {
			t.Errorf("%d completions, %v", n, err)
		}
		done <- err
	}
	go wait(ctx)
	go wait(t.Context())
	yield(func() bool {
		x.cq.mu.Lock()
		defer x.cq.mu.Unlock()
		return q.armed == 2
	})
	cancel()
	if err := soon(t, done); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	// The other one polls again: the only event may have been the first one's.
	yield(func() bool {
		x.cq.mu.Lock()
		defer x.cq.mu.Unlock()
		return q.armed == 3
	})
	if err := x.qp.Close(); err != nil {
		t.Fatal(err)
	}
	if err := x.cq.Close(); err != nil {
		t.Fatal(err)
	}
	if err := soon(t, done); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestSRQ: the options are checked at their limits, and are in the command.
func TestSRQ(t *testing.T) {
	d, k := fakeContext(t)
	pd := must(d.AllocPD())(t)
	cq := must(d.CreateCQ(CQOptions{MaxCQE: 1}))(t)
	domain := must(d.OpenXRCD())(t)
	p := d.prov.(*fakeProvider)
	const most = 1 << 10
	for _, tt := range []struct {
		o  SRQOptions
		ok bool
	}{
		{SRQOptions{MaxWR: 1, MaxSGE: 1}, true},
		{SRQOptions{MaxWR: most, MaxSGE: 16}, true},
		{SRQOptions{MaxWR: 0, MaxSGE: 1}, false},
		{SRQOptions{MaxWR: most + 1, MaxSGE: 1}, false},
		{SRQOptions{MaxWR: 5}, true},
		{SRQOptions{MaxWR: 5, MaxSGE: -1}, false},
		{SRQOptions{MaxWR: 5, MaxSGE: 17}, false},
		{SRQOptions{MaxWR: 5, MaxSGE: 2}, true},
		{SRQOptions{MaxWR: 5, MaxSGE: 2, XRCD: domain, CQ: cq}, true},
		{SRQOptions{MaxWR: 5, MaxSGE: 2, XRCD: domain}, false},
		{SRQOptions{MaxWR: 5, MaxSGE: 2, CQ: cq}, false},
	} {
		var wr, sge, limit uint32
		var typ uint64
		k.answerTo("create_srq", func(f *fakeCall) error {
			wr, sge = in[uint32](f, uapi.UVERBS_ATTR_CREATE_SRQ_MAX_WR), in[uint32](f, uapi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE)
			limit, typ = in[uint32](f, uapi.UVERBS_ATTR_CREATE_SRQ_LIMIT), in[uint64](f, uapi.UVERBS_ATTR_CREATE_SRQ_TYPE)
			number := uint32(77)
			f.out(uapi.UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, &number)
			return errPassOn
		})
		srq, err := pd.CreateSRQ(tt.o)
		if !tt.ok {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%+v: %v", tt.o, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", tt.o, err)
			continue
		}
		wantType, number := uapi.IB_UVERBS_SRQT_BASIC, uint32(0)
		if tt.o.XRCD != nil {
			wantType, number = uapi.IB_UVERBS_SRQT_XRC, 77
		}
		if wr != uint32(tt.o.MaxWR) || sge != uint32(max(tt.o.MaxSGE, 1)) || limit != 0 || typ != uint64(wantType) ||
			srq.MaxWR() != tt.o.MaxWR || srq.MaxSGE() != max(tt.o.MaxSGE, 1) || srq.Num() != number {
			t.Errorf("%+v: %d, %d, %d, type %d; it has %d, %d, %d", tt.o, wr, sge, limit, typ, srq.MaxWR(), srq.MaxSGE(), srq.Num())
		}
		p.cqs[0].forgottenSRQs = 0
		if err := srq.Close(); err != nil {
			t.Error(err)
		}
		if forgotten := p.cqs[0].forgottenSRQs == 1; forgotten != (tt.o.CQ != nil) {
			t.Errorf("%+v: the CQ forgets the SRQ: %t", tt.o, forgotten)
		}
	}

	srq := must(pd.CreateSRQ(SRQOptions{MaxWR: 5, MaxSGE: 2}))(t)
	q := p.srqs[len(p.srqs)-1]
	var req uapi.IbUverbsModifySrq
	k.answerTo("modify_srq", func(f *fakeCall) error {
		req = in[uapi.IbUverbsModifySrq](f, uapi.UVERBS_ATTR_CORE_IN)
		return errPassOn
	})
	for n, ok := range map[int]bool{-1: false, 0: false, 1: true, most: true, most + 1: false} {
		before, remapped := srq.MaxWR(), q.remapped
		err := srq.Resize(n)
		switch want := (uapi.IbUverbsModifySrq{SrqHandle: srq.handle, AttrMask: uint32(uapi.IB_SRQ_MAX_WR), MaxWr: uint32(n)}); {
		case ok && (err != nil || srq.MaxWR() != n || req != want || q.remapped != remapped+1):
			t.Errorf("Resize(%d): %v, has %d, asked for %+v", n, err, srq.MaxWR(), req)
		case !ok && (!errors.Is(err, ErrInvalid) || srq.MaxWR() != before || q.remapped != remapped):
			t.Errorf("Resize(%d): %v", n, err)
		}
	}
	for n, ok := range map[int]bool{-1: false, 0: true, 3: true, most: true, most + 1: false} {
		before, remapped := srq.MaxWR(), q.remapped
		err := srq.SetLimit(n)
		switch want := (uapi.IbUverbsModifySrq{SrqHandle: srq.handle, AttrMask: uint32(uapi.IB_SRQ_LIMIT), SrqLimit: uint32(n)}); {
		case ok && (err != nil || req != want), !ok && !errors.Is(err, ErrInvalid):
			t.Errorf("SetLimit(%d): %v, asked for %+v", n, err, req)
		}
		if srq.MaxWR() != before || q.remapped != remapped {
			t.Errorf("SetLimit(%d) resizes", n)
		}
	}
	k.answerTo("query_srq", func(f *fakeCall) error {
		if h := in[uapi.IbUverbsQuerySrq](f, uapi.UVERBS_ATTR_CORE_IN).SrqHandle; h != srq.handle {
			t.Errorf("handle %d", h)
		}
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsQuerySrqResp{MaxWr: 1, MaxSge: 2, SrqLimit: 3})
	})
	if a, err := srq.Query(); err != nil || a != (SRQAttr{MaxWR: 1, MaxSGE: 2, Limit: 3}) {
		t.Errorf("%+v, %v", a, err)
	}
	d.limits.Load().DeviceCapFlags = 0
	asked := k.count("modify_srq")
	if err := srq.Resize(4); !errors.Is(err, ErrNotSupported) || k.count("modify_srq") != asked {
		t.Errorf("on a device that can't: %v", err)
	}
}

// TestDmabuf: the arguments are checked at their limits, and are in the command.
func TestDmabuf(t *testing.T) {
	d, k := fakeContext(t)
	pd := must(d.AllocPD())(t)
	var seen [5]uint64
	k.answerTo("reg_dmabuf_mr", func(f *fakeCall) error {
		seen = [...]uint64{
			in[uint64](f, uapi.UVERBS_ATTR_REG_DMABUF_MR_OFFSET), in[uint64](f, uapi.UVERBS_ATTR_REG_DMABUF_MR_LENGTH),
			in[uint64](f, uapi.UVERBS_ATTR_REG_DMABUF_MR_IOVA), uint64(in[uint32](f, uapi.UVERBS_ATTR_REG_DMABUF_MR_FD)),
			uint64(in[uint32](f, uapi.UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS)),
		}
		lkey, rkey := uint32(8), uint32(9)
		f.out(uapi.UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, &lkey)
		f.out(uapi.UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, &rkey)
		return errPassOn
	})
	const top = math.MaxUint64
	for _, tt := range []struct {
		fd                   int
		offset, length, iova uint64
		ok                   bool
	}{
		{5, 0x1010, 0x2000, 0x7010, true},
		{0, 0, 1, 0, true},
		{-1, 0, 1, 0, false},
		{math.MaxInt32, 0, 1, 0, true},
		{math.MaxInt32 + 1, 0, 1, 0, false},
		{5, 0, 0, 0, false},
		{5, 0x1011, 1, 0x7010, false},
		{5, top - 0xfff, 0xfff, 0, true},
		{5, top - 0xfff, 0x1000, 0, false},
		{5, 0, 0xfff, top - 0xfff, true},
		{5, 0, 0x1000, top - 0xfff, false},
	} {
		mr, err := pd.RegDmabufMR(DmabufOptions{FD: tt.fd, Offset: tt.offset, Length: tt.length, IOVA: tt.iova, Access: AccessLocalWrite})
		if !tt.ok {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%+v: %v", tt, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", tt, err)
			continue
		}
		if want := [...]uint64{tt.offset, tt.length, tt.iova, uint64(tt.fd), uint64(AccessLocalWrite)}; seen != want {
			t.Errorf("%+v: %v", tt, seen)
		}
		if mr.Addr() != tt.iova || uint64(mr.Len()) != tt.length || mr.LKey() != 8 || mr.RKey() != 9 || mr.Bytes() != nil || mr.Access() != AccessLocalWrite {
			t.Errorf("%+v: %+v", tt, mr)
		}
	}
}

// TestMcast: before it is closed, a QP is detached once from each group.
func TestMcast(t *testing.T) {
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	x.qp.typ = UD
	one, two := gidOf("ff0e::1"), gidOf("ff0e::2")
	var groups []GID
	note := func(f *fakeCall) error {
		r := in[uapi.IbUverbsAttachMcast](f, uapi.UVERBS_ATTR_CORE_IN)
		if r.QpHandle != x.qp.handle || r.Mlid != 7 {
			t.Errorf("%+v", r)
		}
		groups = append(groups, r.Gid)
		return errPassOn
	}
	k.answerTo("attach_mcast", note)
	k.answerTo("detach_mcast", note)
	for i, g := range []GID{one, two, one} {
		if err := x.qp.AttachMcast(g, 7); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := x.qp.DetachMcast(two, 7); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"detached again": x.qp.DetachMcast(two, 7),
		"another LID":    x.qp.DetachMcast(one, 8),
		"no group":       x.qp.AttachMcast(gidOf("fe80::1"), 7),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	x.qp.typ = RC
	if err := x.qp.AttachMcast(one, 7); !errors.Is(err, ErrInvalid) {
		t.Errorf("RC: %v", err)
	}
	if err := x.qp.Close(); err != nil {
		t.Fatal(err)
	}
	if want := []GID{one, two, one, two, one}; len(groups) != len(want) || groups[3] != two || groups[4] != one || k.count("detach_mcast") != 2 {
		t.Errorf("%v, want %v", groups, want)
	}
}

// TestABI: a driver with an unsupported version of the ABI is refused.
func TestABI(t *testing.T) {
	for version, ok := range map[int]bool{1: false, 2: true, 3: true, 4: false} {
		d, _, err := tryFake(t, version, 2, 3)
		if (err == nil) != ok || err != nil && !errors.Is(err, ErrNotSupported) {
			t.Errorf("version %d: %v", version, err)
		}
		if d != nil {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestPostAfterClose: a closed QP that was in RTS refuses posts, even on the short path,
// and so do a closed SRQ and a closed CQ.
func TestPostAfterClose(t *testing.T) {
	d, _ := fakeContext(t)
	x := makeFakes(t, d)
	x.qp.setState(QPRTS)
	for _, o := range []interface{ Close() error }{x.qp, x.srq, x.cq} {
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, f := range map[string]func() error{
		"send":       func() error { _, err := x.qp.PostSend(SendWR{Opcode: OpRDMAWrite}); return err },
		"other send": func() error { _, err := x.qp.PostSend(SendWR{Opcode: OpLocalInv}); return err },
		"receive":    func() error { _, err := x.qp.PostRecv(RecvWR{}); return err },
		"batch": func() error {
			_, err := x.qp.Sends(func(b *SendBuilder) error { b.RDMAWrite(1, 0, Remote{}, SGE{Length: 3}); return nil })
			return err
		},
		"SRQ":    func() error { _, err := x.srq.PostRecv(RecvWR{}); return err },
		"poll":   func() error { _, err := x.cq.Poll(make([]WC, 1)); return err },
		"PollEx": func() error { _, err := x.cq.PollEx(make([]WCEx, 1)); return err },
		"arm":    func() error { return x.cq.Arm(false) },
	} {
		if err := f(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", name, err)
		}
	}
}

// TestFlow: the options are in the command; port 0 stands for 1.
func TestFlow(t *testing.T) {
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	x.qp.typ = RawPacket
	var got uapi.IbUverbsCreateFlow
	k.answerTo("create_flow", func(f *fakeCall) error {
		got = in[uapi.IbUverbsCreateFlow](f, uapi.UVERBS_ATTR_CORE_IN)
		return errPassOn
	})
	for port, want := range map[int]uint8{0: 1, 1: 1, 2: 2, 255: 255} {
		f, err := x.qp.CreateFlow(FlowOptions{
			Type: FlowSniffer, Priority: 0x1234, Port: port, Flags: FlowDontTrap | FlowEgress, Specs: []FlowSpec{FlowTag(1), FlowDrop{}},
		})
		if err != nil {
			t.Fatal(err)
		}
		want := uapi.IbUverbsCreateFlow{QpHandle: x.qp.handle, FlowAttr: uapi.IbUverbsFlowAttr{
			Type: uint32(FlowSniffer), Size: 16 + 8, Priority: 0x1234, NumOfSpecs: 2, Port: want, Flags: uint32(FlowDontTrap | FlowEgress),
		}}
		if got != want {
			t.Errorf("port %d: asked for %+v, want %+v", port, got, want)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
