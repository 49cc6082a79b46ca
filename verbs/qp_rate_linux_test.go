package verbs

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// pacedProvider reports limits of rates.
type pacedProvider struct {
	*fakeProvider
	extra provider.DeviceExtra
}

func (p *pacedProvider) QueryDevice(ioctl.WriteExQueryDevice) func() provider.DeviceExtra {
	return func() provider.DeviceExtra { return p.extra }
}

// pacedQP takes bursts.
type pacedQP struct {
	*fakeQP
	burst  uint32
	packet uint16
}

func (q *pacedQP) LimitBurst(_ ioctl.WriteExModifyQp, burst uint32, packet uint16) {
	q.burst, q.packet = burst, packet
}

func TestLimitRate(t *testing.T) {
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	p := &pacedProvider{fakeProvider: d.prov.(*fakeProvider)}
	d.prov = p
	qp := must(x.pd.CreateQP(QPOptions{Type: RawPacket, SendCQ: x.cq, RecvCQ: x.cq}))(t)
	qp.setState(QPRTS)
	if err := qp.LimitRate(RateLimit{Rate: 1000}); !errors.Is(err, ErrNotSupported) || k.count("modify_qp") != 0 {
		t.Errorf("a device without limits: %v", err)
	}
	p.extra = provider.DeviceExtra{MinPacing: 100, MaxPacing: 2000, PacingQPTs: 1 << RawPacket}
	for _, tt := range []struct {
		r     RateLimit
		burst bool // the device's
		paced bool // the provider's
		want  error
	}{
		{RateLimit{Rate: 100}, false, false, nil},
		{RateLimit{Rate: 2000}, false, false, nil},
		{RateLimit{}, false, false, nil},
		{RateLimit{Rate: 99}, false, false, ErrInvalid},
		{RateLimit{Rate: 2001}, false, false, ErrInvalid},
		{RateLimit{Rate: 100, MaxBurst: 9}, false, true, ErrNotSupported},
		{RateLimit{Rate: 100, TypicalPacket: 9}, false, true, ErrNotSupported},
		{RateLimit{Rate: 100, MaxBurst: 9}, true, false, ErrNotSupported},
		{RateLimit{MaxBurst: 9}, true, true, ErrInvalid},
		{RateLimit{TypicalPacket: 9}, true, true, ErrInvalid},
		{RateLimit{Rate: 100, MaxBurst: 9, TypicalPacket: 8}, true, true, nil},
	} {
		p.extra.PacingBurst = tt.burst
		fake := p.qps[len(p.qps)-1]
		paced := &pacedQP{fakeQP: fake}
		qp.prov = provider.QP(fake)
		if tt.paced {
			qp.prov = paced
		}
		var got []uapi.IbUverbsExModifyQp
		k.answerTo("modify_qp", func(f *fakeCall) error {
			got = append(got, in[uapi.IbUverbsExModifyQp](f, uapi.UVERBS_ATTR_CORE_IN))
			return nil
		})
		err := qp.LimitRate(tt.r)
		if tt.want != nil {
			if !errors.Is(err, tt.want) || len(got) != 0 {
				t.Errorf("%+v: %v, want %v; the kernel got %+v", tt.r, err, tt.want, got)
			}
			continue
		}
		want := uapi.IbUverbsExModifyQp{
			Base:      uapi.IbUverbsModifyQp{QpHandle: qp.handle, AttrMask: uint32(uapi.IB_QP_RATE_LIMIT)},
			RateLimit: tt.r.Rate,
		}
		if err != nil || len(got) != 1 || got[0] != want || paced.burst != tt.r.MaxBurst || paced.packet != tt.r.TypicalPacket {
			t.Errorf("%+v: %v; the kernel got %+v, the provider %d, %d", tt.r, err, got, paced.burst, paced.packet)
		}
	}
	qp.prov = p.qps[len(p.qps)-1]
	calls := k.count("modify_qp")
	qp.setState(QPRTR)
	if err := qp.LimitRate(RateLimit{Rate: 100}); !errors.Is(err, ErrInvalid) {
		t.Errorf("in RTR: %v", err)
	}
	x.qp.setState(QPRTS)
	if err := x.qp.LimitRate(RateLimit{Rate: 100}); !errors.Is(err, ErrInvalid) {
		t.Errorf("RC: %v", err)
	}
	if k.count("modify_qp") != calls {
		t.Error("the kernel saw what is invalid")
	}
	qp.setState(QPRTS)
	k.answerTo("modify_qp", refuse(unix.EIO))
	if err := qp.LimitRate(RateLimit{Rate: 100}); !errors.Is(err, unix.EIO) {
		t.Error(err)
	}
}
