package provider

import (
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

func TestRegister(t *testing.T) {
	before := Registered()
	defer func() { registry.all = before }()
	newContext := func(*ioctl.File, ioctl.GetContext) (Context, error) { return nil, nil }
	first := &Provider{Name: "first", Driver: uapi.RDMA_DRIVER_SIW, MinABI: 1, MaxABI: 1, NewContext: newContext}
	second := &Provider{Name: "second", Driver: uapi.RDMA_DRIVER_EFA, MinABI: 1, MaxABI: 2, NewContext: newContext}
	Register(first)
	Register(second)
	if got := Registered(); !slices.Equal(got, append(before, first, second)) {
		t.Errorf("registered are %v", got)
	}
	for _, tt := range []struct {
		p    *Provider
		want string
	}{
		{nil, "lacks"},
		{&Provider{Driver: uapi.RDMA_DRIVER_HNS, NewContext: newContext}, "lacks"},
		{&Provider{Name: "third", Driver: uapi.RDMA_DRIVER_HNS}, "lacks"},
		{&Provider{Name: "third", Driver: uapi.RDMA_DRIVER_HNS, MinABI: 2, MaxABI: 1, NewContext: newContext}, "lacks"},
		{&Provider{Name: "third", Driver: uapi.RDMA_DRIVER_SIW, NewContext: newContext}, "third is for driver RDMA_DRIVER_SIW, and so is first"},
	} {
		func() {
			defer func() {
				if why, _ := recover().(string); !strings.Contains(why, tt.want) {
					t.Errorf("%+v: panic %q, want %q in it", tt.p, why, tt.want)
				}
			}()
			Register(tt.p)
		}()
	}
	if got := len(Registered()); got != len(before)+2 {
		t.Errorf("%d are registered, want %d", got, len(before)+2)
	}
}
