package rsocket_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestWriteMRLost: WriteMR reports that its bytes have not arrived, also if it learns of it before it waits.
func TestWriteMRLost(t *testing.T) {
	n := verbstest.New(t)
	l := rdmatest.Must(rsocket.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	c := rdmatest.Must(new(rsocket.Dialer).DialConn(t.Context(), "tcp", l.Addr().String()))(t)
	defer c.Close()
	peer := rdmatest.Must(l.Accept())(t)
	defer peer.Close()
	const size = 8192
	mr := rdmatest.Must(c.PD().AllocMR(size, verbs.MROptions{}))(t)
	defer mr.Close()
	n.SetFault(func(r verbstest.Request) verbstest.Fault {
		if r.Length >= size/2 {
			return verbstest.Fail(verbs.WCRemOpErr)
		}
		return verbstest.Fault{}
	})
	var wc *verbs.WCError
	if _, err := c.WriteMR(mr, 0, size); !errors.As(err, &wc) || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("WriteMR whose write has failed: %v", err)
	}
}

func TestMapNil(t *testing.T) {
	verbstest.New(t)
	l := rdmatest.Must(rsocket.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	d := rsocket.Dialer{Options: rsocket.Options{Mappings: 1}}
	c := rdmatest.Must(d.DialConn(t.Context(), "tcp", l.Addr().String()))(t)
	defer c.Close()
	lc := rdmatest.Must(l.AcceptConn())(t)
	defer lc.Close()
	if err := lc.Map(nil, 0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Map of no memory: %v", err)
	}
}
