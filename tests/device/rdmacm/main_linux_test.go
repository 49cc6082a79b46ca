// Package rdmacm tests connection management in the rig: package rdmacm against itself
// and librdmacm's programs, and ibv rping and cmtime.
//
// Over InfiniBand, which has no IP addresses here, only TestInfiniBand and the like run.
//
// With GOVERBS_LONG=1, the tests of many connections and many pings use their full
// numbers.
package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
)

func TestMain(m *testing.M) {
	if task := os.Getenv(victimVariable); task != "" {
		fmt.Fprintln(os.Stderr, victim(task))
		os.Exit(1)
	}
	rdmatest.Main(m, rdmatest.OnRXE, rdmatest.Peers, rdmatest.AlsoVerbstest)
}

const (
	host    = "192.168.77.1" // rxe0
	resolve = 5 * time.Second
)

// long returns full in a long run, else short.
func long(short, full int) int {
	if os.Getenv("GOVERBS_LONG") != "" {
		return full
	}
	return short
}

// patient returns a context that only ends a test that hangs.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Patience)
	t.Cleanup(cancel)
	return ctx
}

// wantError fails the test unless err matches all of the errors.
func wantError(t testing.TB, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("got error %v, want one that matches %v", err, w)
		}
	}
}

// listen listens on a free port of rxe0, and returns the address.
func listen(t testing.TB, o *rdmacm.Options) (*rdmacm.Listener, string) {
	t.Helper()
	l, err := rdmacm.Listen(patient(t), "tcp", host+":0", o)
	rdmatest.Check(t, err)
	t.Cleanup(func() { rdmatest.Close(t, l) })
	return l, l.Addr().String()
}

// dial connects to an address, and returns both ends.
func dial(t testing.TB, l *rdmacm.Listener, o *rdmacm.Options) (client, server *rdmacm.Conn) {
	t.Helper()
	client, err := rdmacm.Dial(patient(t), "tcp", l.Addr().String(), o)
	rdmatest.Check(t, err)
	t.Cleanup(func() { rdmatest.Close(t, client) })
	server, err = l.Accept(patient(t))
	rdmatest.Check(t, err)
	t.Cleanup(func() { rdmatest.Close(t, server) })
	return client, server
}
