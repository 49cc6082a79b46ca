package main

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// start serves a blob of 16 pieces, and returns the server's address.
func start(t *testing.T) (addr string, blob []byte) {
	l, err := rdmacm.Listen(t.Context(), "tcp", "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	blob = bytes.Repeat([]byte("01234567"), 2*piece)
	done := make(chan bool)
	go func() { serve(context.Background(), l, blob); close(done) }()
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return l.Addr().String(), blob
}

func wantFetched(t *testing.T, addr string, blob []byte, connections int) {
	t.Helper()
	got, n, err := fetch(t.Context(), addr)
	if err != nil || !bytes.Equal(got, blob) || n != connections {
		t.Errorf("fetched %d bytes over %d connections, %v; want %d over %d", len(got), n, err, len(blob), connections)
	}
}

func TestFetch(t *testing.T) {
	verbstest.New(t)
	addr, blob := start(t)
	wantFetched(t, addr, blob, 1)
}

// A network that loses a tenth of the packets causes no failure: RC retransmits them.
func TestLossyNetwork(t *testing.T) {
	n := verbstest.New(t)
	n.SetFault(verbstest.Random(1, 0.1, verbstest.Lose()))
	addr, blob := start(t)
	wantFetched(t, addr, blob, 1)
}

// The connection breaks in the middle, and the client continues over another
// one.
func TestBrokenConnection(t *testing.T) {
	n := verbstest.New(t)
	addr, blob := start(t)
	n.SetFault(verbstest.Nth(8, verbstest.Fail(verbs.WCRetryExcErr)))
	wantFetched(t, addr, blob, 2)
}

// The client reports a server that is no longer reachable, instead of retrying for ever.
func TestGone(t *testing.T) {
	n := verbstest.New(t)
	addr, _ := start(t)
	n.SetFault(func(r verbstest.Request) verbstest.Fault {
		if r.Opcode == verbs.OpRDMARead {
			return verbstest.Lose()
		}
		return verbstest.Fault{}
	})
	_, _, err := fetch(t.Context(), addr)
	if wc := new(verbs.WCError); !errors.As(err, &wc) || wc.Status != verbs.WCRetryExcErr {
		t.Errorf("%v", err)
	}
}
