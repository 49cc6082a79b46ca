package rdmacm

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// A program's own events arrive in order with the kernel's, if the kernel supports them.
func TestWriteEvent(t *testing.T) {
	rdmatest.CheckLeaks(t)
	ch := channel(t)
	id := create(t, ch, rdmacm.PortSpaceTCP)
	err := id.WriteEvent(-7, 0x1122334455667788)
	if !rdmatest.Kernel(t).AtLeast(7, 2) {
		wantError(t, err, rdmacm.ErrNotSupported)
		return
	}
	rdmatest.Check(t, err)
	if e := expect(t, ch, rdmacm.EventUser); e.ID != id || e.Status != -7 || e.Arg != 0x1122334455667788 {
		t.Errorf("got %+v", e)
	}
}

func TestNotify(t *testing.T) {
	rdmatest.CheckLeaks(t)
	active, _, _, _ := connected(t, rdmacm.PortSpaceTCP)
	// The connection is established already.
	if err := active.id.Notify(verbs.EventCommEst); err == nil {
		t.Error("an established connection accepted EventCommEst")
	}
	wantError(t, createSync(t, rdmacm.PortSpaceTCP).Notify(verbs.EventCommEst), syscall.EINVAL)
}

// IDs move with their events between channels, and between a channel and none.
func TestMigrate(t *testing.T) {
	rdmatest.CheckLeaks(t)
	other := channel(t)
	active, passive, _, passiveCh := connected(t, rdmacm.PortSpaceTCP)
	rdmatest.Check(t, passive.id.Migrate(other))
	off := rdmatest.Must(active.id.MigrateSync())(t)
	wantError(t, active.id.Disconnect(), rdmacm.ErrInvalid)
	go func() {
		if e, err := other.Event(patient(t)); err == nil && e.ID == passive.id && e.Type == rdmacm.EventDisconnected {
			passive.id.Disconnect()
		}
	}()
	rdmatest.Check(t, off.Disconnect(patient(t))) // its event is pending now
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if e, err := passiveCh.Event(ctx); err == nil {
		t.Errorf("the old channel has %v", e.Type)
	}
	_, err := off.Migrate(other)
	wantError(t, err, rdmacm.ErrBusy) // Disconnected is pending
	e := rdmatest.Must(off.Event(patient(t)))(t)
	if e.Type != rdmacm.EventDisconnected {
		t.Errorf("got %v", e.Type)
	}
	if on := rdmatest.Must(off.Migrate(other))(t); on != active.id {
		t.Error("the ID is another one than before")
	}
	_, err = off.Event(patient(t))
	wantError(t, err, rdmacm.ErrInvalid)
	wantError(t, passive.id.Migrate(other), rdmacm.ErrBusy)
}

func TestChannel(t *testing.T) {
	rdmatest.CheckLeaks(t)
	ch := rdmatest.Must(rdmacm.NewEventChannel())(t)
	id := rdmatest.Must(ch.CreateID(rdmacm.PortSpaceTCP))(t)
	wantError(t, ch.Close(), rdmacm.ErrBusy)
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan error, 3)
	for range cap(results) {
		go func() {
			_, err := ch.Event(ctx)
			results <- err
		}()
	}
	cancel()
	for range cap(results) {
		wantError(t, <-results, context.Canceled)
	}
	go func() {
		_, err := ch.Event(context.Background())
		results <- err
	}()
	rdmatest.Check(t, id.Close())
	rdmatest.Check(t, id.Close())
	rdmatest.Check(t, ch.Close())
	rdmatest.Check(t, ch.Close())
	wantError(t, <-results, rdmacm.ErrClosed)
	_, err := ch.Event(t.Context())
	wantError(t, err, rdmacm.ErrClosed)
	_, err = ch.CreateID(rdmacm.PortSpaceTCP)
	wantError(t, err, rdmacm.ErrClosed)
	wantError(t, id.Bind(anyPort), rdmacm.ErrClosed)
	wantError(t, id.Listen(1), rdmacm.ErrClosed)
}
