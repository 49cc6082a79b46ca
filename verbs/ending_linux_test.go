package verbs

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/kernel"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// TestCloseReleases: the provider's part of each queue is released once, after the kernel's object
// is destroyed, and not if the kernel keeps the object. Nobody posts or polls meanwhile.
func TestCloseReleases(t *testing.T) {
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	p := d.prov.(*fakeProvider)
	for _, tt := range []struct {
		destroy  string
		close    func() error
		released *int
		locks    []*queueLock
	}{
		{"destroy_qp", x.qp.Close, &p.qps[0].released, []*queueLock{&x.qp.sendMu, &x.qp.recvMu}},
		{"destroy_srq", x.srq.Close, &p.srqs[0].released, []*queueLock{&x.srq.mu}},
		{"destroy_cq", x.cq.Close, &p.cqs[0].released, []*queueLock{&x.cq.mu}},
	} {
		k.answerTo(tt.destroy, refuse(syscall.EBUSY))
		if err := tt.close(); !errors.Is(err, ErrBusy) || *tt.released != 0 {
			t.Errorf("%s is refused: %v, released %d times", tt.destroy, err, *tt.released)
		}
		k.answerTo(tt.destroy, func(*fakeCall) error {
			if *tt.released != 0 {
				t.Errorf("%s: released before", tt.destroy)
			}
			for i, l := range tt.locks {
				if l.try() {
					t.Errorf("%s: lock %d is free", tt.destroy, i)
				}
			}
			return errPassOn
		})
		for range 2 {
			if err := tt.close(); err != nil || *tt.released != 1 {
				t.Errorf("%s: %v, released %d times", tt.destroy, err, *tt.released)
			}
		}
	}
}

// TestNoProvider: a device without a provider is not opened.
func TestNoProvider(t *testing.T) {
	old := providers
	defer func() { providers = old }()
	for _, tt := range []struct {
		providers func() []*provider.Provider
		probe     syscall.Errno
		want      error
		says      string
	}{
		{func() []*provider.Provider { return nil }, syscall.EPROTONOSUPPORT, ErrNotSupported, `import _ "github.com/goverbs/goverbs/provider/efa"`},
		{old, syscall.EINVAL, ErrNotSupported, "no provider"}, // another driver's
		{old, syscall.ENOTTY, ErrNotSupported, "no ioctls"},
		{old, syscall.EIO, syscall.EIO, ""},
	} {
		providers = tt.providers
		opened, err := (&DeviceInfo{name: "fake0"}).open(ioctl.NewFile(kernel.Answering(-1, func(uint64) syscall.Errno { return tt.probe })))
		if opened != nil || !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%d providers, %v: %v", len(tt.providers()), tt.probe, err)
		}
	}
}

// TestUserHandles: each object has a unique number in the kernel, by which events name it.
func TestUserHandles(t *testing.T) {
	d, k := fakeContext(t)
	var given []uint64
	for verb, attr := range map[string]uint16{
		"create_cq": uapi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, "create_srq": uapi.UVERBS_ATTR_CREATE_SRQ_USER_HANDLE,
		"create_qp": uapi.UVERBS_ATTR_CREATE_QP_USER_HANDLE,
	} {
		k.answerTo(verb, func(f *fakeCall) error {
			given = append(given, f.Attrs[f.attr(attr)].Raw.Data)
			return errPassOn
		})
	}
	a, b := makeFakes(t, d), makeFakes(t, d)
	want := []uint64{a.cq.id, a.srq.id, a.qp.id, b.cq.id, b.srq.id, b.qp.id}
	if !slices.Equal(given, want) {
		t.Errorf("given %v, want %v", given, want)
	}
	slices.Sort(want)
	if want[0] == 0 || len(slices.Compact(want)) != 6 {
		t.Errorf("not of their own: %v", want)
	}
	events := d.Events(t.Context())
	k.event(EventSRQLimitReached, b.srq.id)
	if e, err := firstEvent(events); err != nil || e.SRQ != b.srq {
		t.Errorf("%+v, %v, want SRQ %p", e, err, b.srq)
	}
}

// TestLinkOfPort: a port's properties for addresses are queried once, and a failed query is
// an error.
func TestLinkOfPort(t *testing.T) {
	d, k := fakeContext(t)
	k.answerTo("query_port", refuse(syscall.ENXIO))
	if _, err := d.link(1, 0, false); !errors.Is(err, syscall.ENXIO) {
		t.Errorf("a port that doesn't answer: %v", err)
	}
	k.answerTo("query_port", nil)
	asked := k.count("query_port")
	for range 2 {
		if link, err := d.link(1, 0, false); link != (provider.Link{}) || err != nil {
			t.Errorf("%+v, %v", link, err)
		}
	}
	if n := k.count("query_port") - asked; n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// TestLostAsks: lost runs a valid QUERY_DEVICE.
func TestLostAsks(t *testing.T) {
	d, k := fakeContext(t)
	for _, tt := range []struct {
		errno syscall.Errno
		want  bool
	}{{0, false}, {syscall.EINVAL, false}, {syscall.EIO, true}} {
		asked := 0
		k.answerTo("query_device", func(f *fakeCall) error {
			asked++
			if i := f.attr(uapi.UVERBS_ATTR_CORE_IN); i < 0 || f.Attrs[i].Raw.Len != 8 {
				t.Error("without struct ib_uverbs_query_device")
			}
			if i := f.attr(uapi.UVERBS_ATTR_CORE_OUT); i < 0 || int(f.Attrs[i].Raw.Len) < 176 {
				t.Error("without room for struct ib_uverbs_query_device_resp")
			}
			if tt.errno == 0 {
				return errPassOn
			}
			return tt.errno
		})
		if got := d.isGone(); got != tt.want || asked != 1 {
			t.Errorf("%v: lost %t, asked %d times", tt.errno, got, asked)
		}
	}
}
