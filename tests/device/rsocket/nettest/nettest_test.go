// Package nettest runs golang.org/x/net/nettest on package rsocket. It is a module of its own, so that
// the library's doesn't depend on x/net. TestNettest of the folder above runs it in the rig.
package nettest

import (
	"errors"
	"net"
	"os"
	"testing"

	"golang.org/x/net/nettest"

	"github.com/goverbs/goverbs/rsocket"
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
			lc := rsocket.ListenConfig{Options: o}
			l, err := lc.Listen(t.Context(), "tcp", host+":0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			nettest.TestConn(t, func() (client, server net.Conn, stop func(), err error) {
				d := rsocket.Dialer{Options: o}
				client, err = d.Dial("tcp", l.Addr().String())
				if err == nil {
					server, err = l.Accept()
				}
				if err != nil {
					return nil, nil, nil, err
				}
				return client, server, func() { errors.Join(client.Close(), server.Close()) }, nil
			})
		})
	}
}
