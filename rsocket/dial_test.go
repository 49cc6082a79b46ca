package rsocket

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
)

// TestResolver: a Dialer asks its Resolver.
func TestResolver(t *testing.T) {
	refused := errors.New("no name server")
	var asked atomic.Bool // by two lookups at once
	d := Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		asked.Store(true)
		return nil, refused
	}}}
	if _, err := d.Dial("tcp", "host.example:1"); err == nil || !asked.Load() {
		t.Errorf("dial: %v; the resolver was asked: %v", err, asked.Load())
	}
}
