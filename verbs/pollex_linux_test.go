package verbs

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// TestFields: the provider gets the selected fields, and the kernel the flag for
// timestamps. Fields that the device lacks are refused before a CQ is created.
func TestFields(t *testing.T) {
	d, k := fakeContext(t)
	p := d.prov.(*fakeProvider)
	flags := uint32(0)
	k.answerTo("create_cq", func(f *fakeCall) error {
		flags = in[uint32](f, uapi.UVERBS_ATTR_CREATE_CQ_FLAGS)
		return errPassOn
	})
	for _, fields := range []WCFields{0, WCFieldTimestamp, WCFieldWallClock, WCFieldFlowTag | WCFieldVLAN, wcFieldsKnown} {
		cq := must(d.CreateCQ(CQOptions{MaxCQE: 1, Fields: fields}))(t)
		if got := p.cqs[len(p.cqs)-1].init.Fields; got != provider.Fields(fields) {
			t.Errorf("the provider got %v, want %v", WCFields(got), fields)
		}
		if timed := flags == uint32(uapi.IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION); timed != (fields&wcFieldsTime != 0) {
			t.Errorf("%v: the kernel got flags %#x", fields, flags)
		}
		flags = 0
		var want error
		if fields == 0 {
			want = ErrInvalid
		}
		if n, err := cq.PollEx(make([]WCEx, 1)); n != 0 || !errors.Is(err, want) {
			t.Errorf("%v: %d, %v", fields, n, err)
		}
		if n, err := cq.Poll(make([]WC, 1)); n != 0 || err != nil {
			t.Errorf("%v: %d, %v", fields, n, err)
		}
	}
	made := k.count("create_cq")
	p.lacks = provider.FieldVLAN
	limits := *must(d.deviceLimits())(t)
	timeless := limits
	timeless.CompletionTimestampMask = 0
	for _, tt := range []struct {
		fields WCFields
		limits *DeviceAttr
		want   error
	}{
		{WCFieldVLAN, &limits, ErrNotSupported},
		{WCFieldTimestamp, &timeless, ErrNotSupported},
		{WCFieldWallClock | WCFieldFlowTag, &timeless, ErrNotSupported},
		{1 << 10, &limits, ErrInvalid},
	} {
		d.limits.Store(tt.limits)
		if cq, err := d.CreateCQ(CQOptions{MaxCQE: 1, Fields: tt.fields}); cq != nil || !errors.Is(err, tt.want) {
			t.Errorf("%v: %v, %v", tt.fields, cq, err)
		}
	}
	d.limits.Store(&limits)
	plain := &plainProvider{fakeProvider: p}
	d.prov = plain
	if cq, err := d.CreateCQ(CQOptions{MaxCQE: 1, Fields: WCFieldTimestamp}); cq != nil || !errors.Is(err, ErrNotSupported) || plain.made.released != 1 {
		t.Errorf("a provider that doesn't know fields: %v, %v", cq, err)
	}
	d.prov = p
	if n := k.count("create_cq"); n != made {
		t.Errorf("the kernel was asked for %d CQs with fields that there aren't", n-made)
	}
	if got := (WCFieldTimestamp | WCFieldVLAN | 1<<9).String(); got != "TIMESTAMP|VLAN|0x200" {
		t.Errorf("the fields are printed as %s", got)
	}
}

// A plainProvider makes CQs without fields.
type plainProvider struct {
	*fakeProvider
	made *plainCQ
}

type plainCQ struct {
	provider.CQ
	released int
}

func (q *plainCQ) Release() { q.released++ }

func (p *plainProvider) NewCQ(_ ioctl.CqCreate, _ *provider.CQInit) (provider.CQ, error) {
	p.made = new(plainCQ)
	return p.made, nil
}

// TestPollExAllocates: neither polling nor the slice of completions allocates.
func TestPollExAllocates(t *testing.T) {
	d, _ := fakeContext(t)
	cq := must(d.CreateCQ(CQOptions{MaxCQE: 4, Fields: WCFieldTimestamp}))(t)
	q := cq.prov.(*fakeCQ)
	for name, poll := range map[string]func() (int, error){
		"PollEx":     func() (int, error) { var wc [2]WCEx; return cq.PollEx(wc[:]) },
		"PollWaitEx": func() (int, error) { var wc [2]WCEx; return cq.PollWaitEx(t.Context(), wc[:]) },
		"PollWait":   func() (int, error) { var wc [2]WC; return cq.PollWait(t.Context(), wc[:]) },
	} {
		if n := testing.AllocsPerRun(100, func() {
			q.ready = 1
			if n, err := poll(); n != 1 || err != nil {
				t.Error(n, err)
			}
		}); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
