package verbs

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// openingProvider opens QPs.
type openingProvider struct {
	*fakeProvider
	opened []*fakeQP
}

func (p *openingProvider) OpenQP(qpn uint32) provider.QP {
	q := &fakeQP{num: qpn, of: p.fakeProvider}
	p.opened = append(p.opened, q)
	return q
}

func TestOpenQP(t *testing.T) {
	d, k := fakeContext(t)
	x := must(d.OpenXRCD())(t)
	if _, err := x.OpenQP(5); !errors.Is(err, ErrNotSupported) || x.holds.Load() != 0 {
		t.Errorf("a provider without XRC: %v, held %d times", err, x.holds.Load())
	}
	p := &openingProvider{fakeProvider: d.prov.(*fakeProvider)}
	d.prov = p
	if _, err := x.OpenQP(1 << 24); !errors.Is(err, ErrInvalid) || x.holds.Load() != 0 || k.count("open_qp") != 0 {
		t.Errorf("a number of 25 bits: %v, held %d times", err, x.holds.Load())
	}
	k.answerTo("open_qp", refuse(unix.EINVAL))
	if _, err := x.OpenQP(5); !errors.Is(err, unix.EINVAL) || x.holds.Load() != 0 {
		t.Errorf("refused: %v, held %d times", err, x.holds.Load())
	}
	var id uint64
	k.answerTo("open_qp", func(f *fakeCall) error {
		req := in[uapi.IbUverbsOpenQp](f, uapi.UVERBS_ATTR_CORE_IN)
		id = req.UserHandle
		if req.PdHandle != x.handle || req.Qpn != 0xabcdef || req.QpType != uint8(uapi.IB_UVERBS_QPT_XRC_TGT) {
			t.Errorf("%+v", req)
		}
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsCreateQpResp{QpHandle: 77, Qpn: 0xabcdef})
	})
	k.answerTo("query_qp", refuse(unix.EIO))
	if _, err := x.OpenQP(0xabcdef); !errors.Is(err, unix.EIO) || x.holds.Load() != 0 || k.count("destroy_qp") != 1 || p.opened[0].released != 1 {
		t.Errorf("without an answer to a query: %v, held %d times", err, x.holds.Load())
	}
	k.answerTo("query_qp", func(f *fakeCall) error {
		if req := in[uapi.IbUverbsQueryQp](f, uapi.UVERBS_ATTR_CORE_IN); req.QpHandle != 77 {
			t.Errorf("%+v", req)
		}
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsQueryQpResp{QpState: uint8(uapi.IB_QPS_RTR)})
	})
	qp := must(x.OpenQP(0xabcdef))(t)
	if qp.Num() != 0xabcdef || qp.Type() != XRCRecv || qp.State() != QPRTR || qp.id != id || qp.handle != 77 {
		t.Errorf("%#x %v in %v", qp.Num(), qp.Type(), qp.State())
	}
	if err := x.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("the domain of a QP: %v", err)
	}
	if _, err := qp.PostSend(SendWR{Opcode: OpSend}); err == nil {
		t.Error("it sent")
	}
	if err := qp.Close(); err != nil || p.opened[1].released != 1 || x.holds.Load() != 0 {
		t.Errorf("%v, the domain is held %d times", err, x.holds.Load())
	}
}
