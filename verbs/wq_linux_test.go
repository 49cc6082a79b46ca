package verbs

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A wqProvider is a fakeProvider with work queues and counters of flows.
type wqProvider struct {
	*fakeProvider
	init     provider.WQInit
	rss      provider.RSSInit
	made     int // parts of the provider
	released int
}

func (p *wqProvider) NewWQ(_ ioctl.WqCreate, init provider.WQInit) (provider.WQ, error) {
	p.init = init
	p.made++
	return &fakeWQ{p}, nil
}

func (p *wqProvider) NewTable(ioctl.WriteExCreateRwqIndTbl) {}

func (p *wqProvider) NewRSSQP(_ ioctl.QpCreate, init provider.RSSInit) (provider.QP, error) {
	p.rss = init
	p.made++
	return &fakeRSSQP{fakeQP{of: p.fakeProvider}, p}, nil
}

func (p *wqProvider) CountFlow(ioctl.WriteExCreateFlow, []uint32) (func(), error) {
	return func() {}, nil
}

type fakeWQ struct{ of *wqProvider }

func (q *fakeWQ) Adopt(_, _ uint32, granted *provider.WQInit) error {
	*granted = q.of.init
	return q.of.adopt
}
func (q *fakeWQ) PostRecv(wrs []provider.RecvWR) (int, error) { return len(wrs), nil }
func (q *fakeWQ) Modify(ioctl.WriteExModifyWq)                {}
func (q *fakeWQ) Reset()                                      {}
func (q *fakeWQ) Release()                                    { q.of.released++ }

type fakeRSSQP struct {
	fakeQP
	wq *wqProvider
}

func (q *fakeRSSQP) Release() { q.wq.released++ }

// TestSpreading: the kernel and the provider get the options of a work queue, a table of them and a QP
// on the table. A refusal of either leaves nothing behind.
func TestSpreading(t *testing.T) {
	d, k := fakeContext(t)
	k.answerTo("query_device_ex", func(f *fakeCall) error {
		resp := fakeDevice()
		resp.MaxWqTypeRq, resp.RssCaps.MaxRwqIndirectionTableSize = 1<<10, 16
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &resp)
	})
	p := &wqProvider{fakeProvider: d.prov.(*fakeProvider)}
	d.prov = p
	pd := must(d.AllocPD())(t)
	cq := must(d.CreateCQ(CQOptions{MaxCQE: 16}))(t)

	var given map[string]uint32
	k.answerTo("create_wq", func(f *fakeCall) error {
		given = map[string]uint32{
			"pd": f.handleOf(uapi.UVERBS_ATTR_CREATE_WQ_PD_HANDLE), "cq": f.handleOf(uapi.UVERBS_ATTR_CREATE_WQ_CQ_HANDLE),
			"receives": in[uint32](f, uapi.UVERBS_ATTR_CREATE_WQ_MAX_WR), "SGEs": in[uint32](f, uapi.UVERBS_ATTR_CREATE_WQ_MAX_SGE),
			"flags": in[uint32](f, uapi.UVERBS_ATTR_CREATE_WQ_FLAGS), "type": in[uint32](f, uapi.UVERBS_ATTR_CREATE_WQ_TYPE),
		}
		f.out(uapi.UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, uint32(77))
		return errPassOn
	})
	wq := must(pd.CreateWQ(WQOptions{CQ: cq, MaxWR: 100, MaxSGE: 3, Flags: WQScatterFCS}))(t)
	for name, want := range map[string]uint32{
		"pd": pd.handle, "cq": cq.handle, "receives": 100, "SGEs": 3, "flags": uint32(WQScatterFCS), "type": uint32(uapi.IB_UVERBS_WQT_RQ),
	} {
		if given[name] != want {
			t.Errorf("the kernel got %s %d, want %d", name, given[name], want)
		}
	}
	if p.init.MaxWR != 100 || p.init.MaxSGE != 3 || p.init.CQ != cq.prov || wq.Num() != 77 {
		t.Errorf("the provider got %+v; the number is %d", p.init, wq.Num())
	}

	k.answerTo("create_rwq_ind_table", func(f *fakeCall) error {
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsExCreateRwqIndTableResp{IndTblHandle: 555, IndTblNum: 66})
	})
	table := must(d.CreateIndirectionTable(wq, wq))(t)
	key := make([]byte, 40)
	k.answerTo("create_qp", func(f *fakeCall) error {
		given = map[string]uint32{
			"pd": f.handleOf(uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE), "table": f.handleOf(uapi.UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE),
			"type": in[uint32](f, uapi.UVERBS_ATTR_CREATE_QP_TYPE),
		}
		return errPassOn
	})
	qp := must(pd.CreateRSSQP(RSSOptions{Table: table, Key: key, Fields: RSSSrcIPv4}))(t)
	if given["pd"] != pd.handle || given["table"] != 555 || given["type"] != uint32(uapi.IB_UVERBS_QPT_RAW_PACKET) {
		t.Errorf("the kernel got %v", given)
	}
	if p.rss.Function != uint8(RSSToeplitz) || p.rss.Fields != uint64(RSSSrcIPv4) || len(p.rss.Key) != 40 {
		t.Errorf("the provider got %+v", p.rss)
	}
	asked := len(k.calls)
	all := RequiredMask(RawPacket, QPReset, QPInit)
	if err := qp.Modify(QPAttr{State: QPInit, Port: 1}, all); !errors.Is(err, ErrInvalid) || len(k.calls) != asked {
		t.Errorf("a move of a QP without a state: %v; the kernel was asked for %q", err, k.calls[asked:])
	}
	for _, n := range []int{0, 39, 41} {
		if _, err := pd.CreateRSSQP(RSSOptions{Table: table, Key: make([]byte, n)}); !errors.Is(err, ErrInvalid) {
			t.Errorf("a key of %d bytes: %v", n, err)
		}
	}
	if err := wq.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("closing a WQ that a table lists: %v", err)
	}
	if err := table.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("closing a table with a QP: %v", err)
	}

	bad := errors.New("the provider refuses")
	for _, tt := range []struct {
		create, destroy string
		make            func() error
	}{
		{"create_wq", "destroy_wq", func() error { _, err := pd.CreateWQ(WQOptions{CQ: cq, MaxWR: 1}); return err }},
		{"create_qp", "destroy_qp", func() error { _, err := pd.CreateRSSQP(RSSOptions{Table: table, Key: key}); return err }},
	} {
		members, destroyed := countOf(d), k.count(tt.destroy)
		k.answerTo(tt.create, refuse(unix.ENOMEM))
		p.made, p.released = 0, 0
		if err := tt.make(); !errors.Is(err, unix.ENOMEM) || p.made != 1 || p.released != 1 {
			t.Errorf("%s: %v; %d made, %d released", tt.create, err, p.made, p.released)
		}
		k.answerTo(tt.create, nil)
		p.adopt = bad
		if err := tt.make(); !errors.Is(err, bad) || p.made != 2 || p.released != 2 || k.count(tt.destroy) != destroyed+1 {
			t.Errorf("%s: %v; %d made, %d released", tt.create, err, p.made, p.released)
		}
		p.adopt = nil
		if now := countOf(d); now != members {
			t.Errorf("%s: %d members, before %d", tt.create, now, members)
		}
	}
	if err := errors.Join(qp.Close(), table.Close(), wq.Close(), cq.Close(), pd.Close()); err != nil {
		t.Error(err)
	}
}
