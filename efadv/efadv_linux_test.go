package efadv_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/efadv"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// Importing the package links the provider.
func TestRegistered(t *testing.T) {
	if !slices.ContainsFunc(provider.Registered(), func(p *provider.Provider) bool { return p.Driver == uapi.RDMA_DRIVER_EFA }) {
		t.Error("no provider for efa is registered")
	}
}

// Nil objects are refused, as package verbs does.
func TestNil(t *testing.T) {
	if efadv.Supported(nil) {
		t.Error("no device is of efa")
	}
	for name, err := range map[string]error{
		"QueryDevice": second(efadv.QueryDevice(nil)),
		"CreateQP":    second(efadv.CreateQP(nil, efadv.QPOptions{})),
		"AHNumber":    second(efadv.AHNumber(nil)),
		"QueryMR":     second(efadv.QueryMR(nil)),
		"QPQueues":    second(efadv.QPQueues(nil)),
		"CQQueue":     second(efadv.CQQueue(nil)),
	} {
		var e *verbs.OpError
		if !errors.As(err, &e) || e.Op == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := efadv.QPOptions{QPOptions: verbs.QPOptions{Type: verbs.UD}}
	if _, err := efadv.CreateQP(nil, o); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a UD QP: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }
