package rsocket

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/rsocket"
)

// TestDialErrors: a Dial that ran out of time says so, and Control can refuse.
func TestDialErrors(t *testing.T) {
	checkLeaks(t)
	// Nobody has this address.
	d := rsocket.Dialer{Timeout: 50 * time.Millisecond}
	_, err := d.Dial("tcp", "192.168.77.99:1")
	wantError(t, err, context.DeadlineExceeded)
	var e net.Error
	if !errors.As(err, &e) || !e.Timeout() || !os.IsTimeout(err) {
		t.Errorf("Dial: %v, want a timeout", err)
	}
	d = rsocket.Dialer{Deadline: time.Unix(1, 0)}
	if _, err = d.Dial("tcp", host+":1"); !os.IsTimeout(err) {
		t.Errorf("Dial after the deadline: %v, want a timeout", err)
	}
	refused := errors.New("refused")
	control := func(id *rdmacm.SyncID) error {
		rdmatest.Check(t, id.SetTOS(8))
		return refused
	}
	d = rsocket.Dialer{Control: control}
	_, err = d.Dial("tcp", host+":1")
	wantError(t, err, refused)
	lc := rsocket.ListenConfig{Control: control}
	_, err = lc.Listen(t.Context(), "tcp", host+":0")
	wantError(t, err, refused)
}
