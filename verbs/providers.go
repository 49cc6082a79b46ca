package verbs

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5"
	"github.com/goverbs/goverbs/provider/rxe"
	"github.com/goverbs/goverbs/uapi"
)

// init registers the providers that every program has.
func init() {
	provider.Register(&rxe.Provider)
	provider.Register(&mlx5.Provider)
}

// providers returns the available providers.
var providers = provider.Registered

// imported lists the drivers whose providers a program must import.
var imported = []struct {
	driver uapi.RdmaDriverId
	name   string
}{{uapi.RDMA_DRIVER_EFA, "efa"}, {uapi.RDMA_DRIVER_SIW, "siw"}}

var errNoProvider = fmt.Errorf("%w: this program has no provider for the device's driver", ErrNotSupported)

// findProvider returns the provider for the device's driver.
func (d *Device) findProvider() (*provider.Provider, error) {
	for _, p := range providers() {
		if ok, err := d.hasDriver(p.Driver); ok || err != nil {
			return p, err
		}
	}
	for _, p := range imported {
		if ok, _ := d.hasDriver(p.driver); ok {
			return nil, fmt.Errorf("%w: import _ \"github.com/goverbs/goverbs/provider/%s\"", errNoProvider, p.name)
		}
	}
	return nil, errNoProvider
}

func (d *Device) hasDriver(driver uapi.RdmaDriverId) (bool, error) {
	ok, err := d.file.Probe(driver)
	if errors.Is(err, syscall.ENOTTY) {
		err = errOldKernel
	}
	return ok, err
}
