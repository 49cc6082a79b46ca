package provider

import (
	"fmt"
	"slices"
	"sync"
)

var registry struct {
	mu  sync.Mutex
	all []*Provider
}

// Register registers a provider, with which package verbs then opens the devices of its
// driver. Register is for init functions. It panics if the provider's fields are incomplete,
// or if its driver already has a provider. It is safe for concurrent use.
func Register(p *Provider) {
	if p == nil || p.Name == "" || p.NewContext == nil || p.MinABI > p.MaxABI {
		panic(fmt.Sprintf("provider: %+v lacks a Name or a NewContext, or its MinABI is larger than its MaxABI", p))
	}
	registry.mu.Lock()
	defer registry.mu.Unlock()
	for _, other := range registry.all {
		if other.Driver == p.Driver {
			panic(fmt.Sprintf("provider: %s is for driver %v, and so is %s", p.Name, p.Driver, other.Name))
		}
	}
	registry.all = append(registry.all, p)
}

// Registered returns the registered providers, in the order of their registration.
func Registered() []*Provider {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	return slices.Clone(registry.all)
}
