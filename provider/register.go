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

// Register makes a provider known to package verbs, which opens the devices of its
// driver with it from then on. It is for init functions. It panics if the provider
// says too little of itself, or if its driver has a provider already. It is safe for
// concurrent use.
func Register(p *Provider) {
	if p == nil || p.Name == "" || p.NewContext == nil || p.MinABI > p.MaxABI {
		panic(fmt.Sprintf("provider: %+v lacks a name, a NewContext or a version of the ABI", p))
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

// Registered returns the providers that were registered, in that order.
func Registered() []*Provider {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	return slices.Clone(registry.all)
}
