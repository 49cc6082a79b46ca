// Package nettest runs golang.org/x/net/nettest on packages rsocket and valkeyrdma. It is a module of its own, so that
// the library's doesn't depend on x/net. TestNettest of the folder above runs it in the rig.
package nettest

import (
	"errors"
	"net"
	"os"
	"testing"

	"golang.org/x/net/nettest"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/valkeyrdma"
)

// TestConn: NETTEST_HOST is the address of a device.
func TestConn(t *testing.T) {
	host := os.Getenv("NETTEST_HOST")
	if host == "" {
		t.Fatal("NETTEST_HOST is not set")
	}
	for name, o := range map[string]rsocket.Options{
		"default":  {},
		"smallest": {SendBuffer: 1, RecvBuffer: 1, SendQueue: 1, RecvQueue: 1, Spin: -1},
	} {
		t.Run(name, func(t *testing.T) {
			lc, d := rsocket.ListenConfig{Options: o}, rsocket.Dialer{Options: o}
			l, err := lc.Listen(t.Context(), "tcp", host+":0")
			if err != nil {
				t.Fatal(err)
			}
			test(t, l, d.Dial, l.Addr().String())
		})
	}
	for name, o := range map[string]valkeyrdma.Options{
		"Valkey's":           {},
		"Valkey's, smallest": {SendBuffer: 4 << 10, RecvBuffer: 8 << 10, Spin: -1},
	} {
		t.Run(name, func(t *testing.T) {
			lc, d := valkeyrdma.ListenConfig{Options: o}, valkeyrdma.Dialer{Options: o}
			l, err := lc.Listen(t.Context(), "tcp", host+":0")
			if err != nil {
				t.Fatal(err)
			}
			test(t, l, d.Dial, l.Addr().String())
		})
	}
}

// TestRelayed: NETTEST_RELAY is the address of a relay, which leads to NETTEST_BACK on this host.
func TestRelayed(t *testing.T) {
	l, err := valkeyrdma.Listen("tcp", os.Getenv("NETTEST_BACK"))
	if err != nil {
		t.Fatal(err)
	}
	test(t, l, valkeyrdma.Dial, os.Getenv("NETTEST_RELAY"))
}

// test runs nettest on connections to an address, which leads to a listener.
func test(t *testing.T, l net.Listener, dial func(network, address string) (net.Conn, error), address string) {
	defer l.Close()
	nettest.TestConn(t, func() (client, server net.Conn, stop func(), err error) {
		client, err = dial("tcp", address)
		if err == nil {
			server, err = l.Accept()
		}
		if err != nil {
			return nil, nil, nil, err
		}
		return client, server, func() { errors.Join(client.Close(), server.Close()) }, nil
	})
}
