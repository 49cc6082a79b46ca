package rsocket_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestKeepAlive: an idle connection probes its peer repeatedly. When a probe gets no answer,
// the connection ends.
func TestKeepAlive(t *testing.T) {
	n := verbstest.New(t)
	asked := make(chan bool, 100)
	gone := make(chan bool)
	n.SetFault(func(r verbstest.Request) verbstest.Fault {
		if r.Opcode != verbs.OpRDMAWrite {
			return verbstest.Fault{}
		}
		select {
		case asked <- true:
		default:
		}
		select {
		case <-gone:
			return verbstest.Lose()
		default:
			return verbstest.Fault{}
		}
	})
	l, err := rsocket.Listen("tcp", "127.0.0.1:0")
	rdmatest.Check(t, err)
	defer l.Close()
	d := rsocket.Dialer{Options: rsocket.Options{KeepAlive: time.Millisecond}}
	c := rdmatest.Must(d.DialConn(t.Context(), "tcp", l.Addr().String()))(t)
	defer c.Close()
	peer := rdmatest.Must(l.Accept())(t)
	defer peer.Close()
	for range 3 {
		<-asked
	}
	rdmatest.Must(peer.Write([]byte("x")))(t)
	b := make([]byte, 1)
	rdmatest.Check(t, c.SetReadDeadline(time.Now().Add(rdmatest.Patience)))
	if _, err := c.Read(b); err != nil || b[0] != 'x' {
		t.Errorf("after the questions: %q, %v", b, err)
	}
	close(gone)
	if _, err := c.Read(b); err == nil || errors.Is(err, net.ErrClosed) || errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("without an answer: %v", err)
	}
}
