package valkey

import (
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/valkeyrdma"
)

var _ = rdmatest.Test(TestNoIWARP, rdmatest.OnSIW)

// TestNoIWARP: on devices for iWARP, which has no immediate data, Dial and Accept say that they are unsupported.
func TestNoIWARP(t *testing.T) {
	l := rdmatest.Must(valkeyrdma.Listen("tcp", host+":0"))(t)
	if _, err := valkeyrdma.Dial("tcp", l.Addr().String()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Dial: %v", err)
	}
	// The other wire's Dial asks the listener.
	asked := make(chan error, 1)
	go func() {
		_, err := rsocket.Dial("tcp", l.Addr().String())
		asked <- err
	}()
	rdmatest.Check(t, l.SetDeadline(time.Now().Add(rdmatest.Patience)))
	if _, err := l.Accept(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Accept: %v", err)
	}
	if err := <-asked; err == nil {
		t.Error("the client isn't rejected")
	}
	rdmatest.Close(t, l)
}
