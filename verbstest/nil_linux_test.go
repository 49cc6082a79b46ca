package verbstest_test

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/goverbs/goverbs/monitor"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/rdmanl"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/sa"
	"github.com/goverbs/goverbs/umad"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestNilClose: a program closes what it hasn't made, as after an error.
func TestNilClose(t *testing.T) {
	for _, c := range []io.Closer{
		(*verbs.Device)(nil), (*verbs.PD)(nil), (*verbs.MR)(nil), (*verbs.CQ)(nil), (*verbs.QP)(nil), (*verbs.SRQ)(nil), (*verbs.AH)(nil),
		(*verbs.CompChannel)(nil), (*verbs.BufferPool)(nil), (*rdmacm.EventChannel)(nil), (*rdmacm.ID)(nil), (*rdmacm.SyncID)(nil), (*rdmacm.Conn)(nil), (*rdmacm.Listener)(nil),
		(*rdmanl.Watcher)(nil), (*umad.Port)(nil), (*umad.Agent)(nil), (*umad.Manager)(nil), (*sa.Client)(nil), (*monitor.PMA)(nil), (*verbstest.Network)(nil),
	} {
		if err := c.Close(); err != nil {
			t.Errorf("%T: %v", c, err)
		}
	}
	// These are closed like package net's.
	for _, c := range []io.Closer{(*rsocket.Conn)(nil), (*rsocket.Listener)(nil)} {
		if err := c.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%T: %v", c, err)
		}
	}
}
