package verbs

import (
	"errors"
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uapi"
)

// TestModerate: values within the device's limits are in the command.
func TestModerate(t *testing.T) {
	d, k := fakeContext(t)
	cq := must(d.CreateCQ(CQOptions{MaxCQE: 1}))(t)
	limits := must(d.deviceLimits())(t)
	for _, tt := range []struct {
		most           CQModerationCaps
		count          int
		period         time.Duration
		ok             bool
		cycles, micros uint16
	}{
		{CQModerationCaps{100, 200}, 100, 200 * time.Microsecond, true, 100, 200},
		{CQModerationCaps{100, 200}, 1, 1, true, 1, 1},
		{CQModerationCaps{100, 200}, 1, 1001, true, 1, 2},
		{CQModerationCaps{100, 200}, 0, 0, true, 0, 0},
		{CQModerationCaps{100, 200}, 101, 1, false, 0, 0},
		{CQModerationCaps{100, 200}, -1, 1, false, 0, 0},
		{CQModerationCaps{100, 200}, 1, 200*time.Microsecond + 1, false, 0, 0},
		{CQModerationCaps{100, 200}, 1, -1, false, 0, 0},
		{CQModerationCaps{100, 200}, 1, 0, false, 0, 0},
		{CQModerationCaps{100, 200}, 0, 1, false, 0, 0},
		{CQModerationCaps{}, math.MaxUint16, math.MaxUint16 * time.Microsecond, true, math.MaxUint16, math.MaxUint16},
		{CQModerationCaps{}, math.MaxUint16 + 1, 1, false, 0, 0},
		{CQModerationCaps{}, 1, math.MaxUint16*time.Microsecond + 1, false, 0, 0},
	} {
		limits.CQModeration = tt.most
		var got []uapi.IbUverbsExModifyCq
		k.answerTo("modify_cq", func(f *fakeCall) error {
			got = append(got, in[uapi.IbUverbsExModifyCq](f, uapi.UVERBS_ATTR_CORE_IN))
			return nil
		})
		err := cq.Moderate(tt.count, tt.period)
		if !tt.ok {
			if !errors.Is(err, ErrInvalid) || len(got) != 0 {
				t.Errorf("%+v: %v, the kernel got %+v", tt, err, got)
			}
			continue
		}
		want := uapi.IbUverbsExModifyCq{
			CqHandle: cq.handle, AttrMask: uint32(uapi.IB_CQ_MODERATE),
			Attr: uapi.IbUverbsCqModeration{CqCount: tt.cycles, CqPeriod: tt.micros},
		}
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%+v: %v, the kernel got %+v, want %+v", tt, err, got, want)
		}
	}
	k.answerTo("modify_cq", refuse(unix.EOPNOTSUPP))
	if err := cq.Moderate(1, 1); !errors.Is(err, ErrNotSupported) {
		t.Error(err)
	}
}

// TestCreateFlags: flags that the QP's type and the device support are in the command.
func TestCreateFlags(t *testing.T) {
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	limits := must(d.deviceLimits())(t)
	const fcs, strip, pad = QPScatterFCS, QPStripCVLAN, QPPadWrites
	for _, tt := range []struct {
		typ    QPType
		flags  QPCreateFlags
		raw    RawPacketCaps
		device DeviceCapFlags
		want   error
	}{
		{RC, 0, 0, 0, nil},
		{UD, QPBlockSelfMcast, 0, 0, nil},
		{RC, QPBlockSelfMcast, 0, 0, ErrInvalid},
		{RawPacket, QPBlockSelfMcast, 0, 0, ErrInvalid},
		{RawPacket, fcs, RawPacketScatterFCS, 0, nil},
		{RawPacket, strip, RawPacketCVLANStripping, 0, nil},
		{RawPacket, fcs, RawPacketCVLANStripping, 0, ErrNotSupported},
		{RawPacket, strip, RawPacketScatterFCS, 0, ErrNotSupported},
		{UD, fcs, RawPacketScatterFCS, 0, ErrInvalid},
		{UD, strip, RawPacketCVLANStripping, 0, ErrInvalid},
		{RC, pad, 0, DevicePCIWriteEndPadding, nil},
		{RC, pad, 0, 0, ErrNotSupported},
		{RawPacket, fcs | strip | pad, RawPacketScatterFCS | RawPacketCVLANStripping, DevicePCIWriteEndPadding, nil},
		{RC, QPCreateFlags(uapi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL), 0, 0, ErrInvalid}, // SignalAll
		{RC, 1 << 31, 0, 0, ErrInvalid},
	} {
		for _, signal := range []bool{false, true} {
			limits.RawPacketCaps, limits.DeviceCapFlagsEx = tt.raw, tt.device
			var got uint64
			k.answerTo("create_qp", func(f *fakeCall) error {
				got = in[uint64](f, uapi.UVERBS_ATTR_CREATE_QP_FLAGS)
				return errPassOn
			})
			before := k.count("create_qp")
			qp, err := x.pd.CreateQP(QPOptions{Type: tt.typ, SendCQ: x.cq, RecvCQ: x.cq, CreateFlags: tt.flags, SignalAll: signal})
			if tt.want != nil {
				if !errors.Is(err, tt.want) || k.count("create_qp") != before {
					t.Errorf("%v with %v: %v, want %v", tt.typ, tt.flags, err, tt.want)
				}
				continue
			}
			want := uint64(tt.flags)
			if signal {
				want |= uint64(uapi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL)
			}
			if err != nil || got != want {
				t.Errorf("%v with %v: %v, the kernel got %#x, want %#x", tt.typ, tt.flags, err, got, want)
				continue
			}
			if err := qp.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
