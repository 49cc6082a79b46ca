package rdmanl

import (
	"context"
	"errors"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmanl"
	"github.com/goverbs/goverbs/tests/internal/control"
)

// Network interfaces may come and go between the two events.
var cameAndWent = regexp.MustCompile(`(?m)^\[REGISTER\]\tdev \d+ rxe7\n([^\n]*\n)*\[UNREGISTER\]\tdev \d+ rxe7$`)

// TestWatchDevices: a Watcher reports a link that comes and goes, where the kernel reports
// it.
func TestWatchDevices(t *testing.T) {
	if !rdmatest.Kernel(t).AtLeast(6, 12) {
		return // TestWatchPorts tests the events of such kernels
	}
	ibv := rdmatest.Program(t, "ibv")
	w := rdmatest.Must(rdmanl.Watch(t.Context(), rdmanl.WatchOptions{}))(t)
	defer w.Close()
	veth(t, "nl2")
	monitor := rdmatest.Start(t, ibv, "monitor")
	defer monitor.Kill()
	for _, kind := range []rdmanl.EventKind{rdmanl.EventRegistered, rdmanl.EventUnregistered} {
		if kind == rdmanl.EventRegistered {
			rdmatest.Check(t, rdmanl.AddLink(t.Context(), rdmanl.LinkOptions{Name: "rxe7", Type: "rxe", Netdev: "nl2"}))
		} else {
			d := rdmatest.Must(rdmanl.FindDevice(t.Context(), "rxe7"))(t)
			rdmatest.Check(t, rdmanl.DeleteLink(t.Context(), d.Index))
		}
		for {
			e := rdmatest.Must(w.Next(t.Context()))(t)
			if e.Kind == kind && e.Device.Or("") == "rxe7" {
				break
			}
		}
	}
	// A cancelled wait has no effect on the next wait.
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	for {
		if _, err := w.Next(ctx); err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a wait that is given up: %v", err)
			}
			break
		}
	}
	monitor.Until(t, func() bool {
		run(t, ibv, "link", "add", "rxe7", "type", "rxe", "netdev", "nl2")
		run(t, ibv, "link", "delete", "rxe7")
		return cameAndWent.MatchString(monitor.Stdout())
	})
	if e := rdmatest.Must(w.Next(t.Context()))(t); e.Device.Or("") != "rxe7" {
		t.Errorf("the next event is %+v", e)
	}
	rdmatest.Check(t, w.Close())
	if _, err := w.Next(t.Context()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed watch: %v", err)
	}
}

var _ = rdmatest.Test(TestWatchDevices, rdmatest.OnRXE)

// port waits for an event of a port's state.
func port(t *testing.T, w *rdmanl.Watcher, device string, is func(ib.PortState) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Patience)
	defer cancel()
	for {
		e := rdmatest.Must(w.Next(ctx))(t)
		if state, ok := e.State.Get(); ok && e.Kind == rdmanl.EventPortState && e.Device.Or("") == device && e.Port.Or(0) == 1 && is(state) {
			return
		}
	}
}

func isActive(s ib.PortState) bool { return s == ib.PortActive }
func isDown(s ib.PortState) bool   { return s == ib.PortDown }

// TestWatchPorts: a Watcher reports a link that goes down and up, on every kernel. Over
// Ethernet, the network interface's change causes the report. The port of a removed device is
// down.
func TestWatchPorts(t *testing.T) {
	rdmatest.ExtraRXE(t, "rxewatch", "watch1", "192.168.80.1")
	w := rdmatest.Must(rdmanl.Watch(t.Context(), rdmanl.WatchOptions{}))(t)
	monitor := rdmatest.Start(t, rdmatest.Program(t, "ibv"), "monitor")
	defer monitor.Kill()
	rdmatest.Command(t, "ip link set watch1 down")
	port(t, w, "rxewatch", isDown)
	rdmatest.Command(t, "ip link set watch1 up")
	port(t, w, "rxewatch", isActive)
	monitor.Until(t, func() bool {
		rdmatest.Command(t, "ip link set watch1 down")
		port(t, w, "rxewatch", isDown)
		rdmatest.Command(t, "ip link set watch1 up")
		port(t, w, "rxewatch", isActive)
		return wentAndCame.MatchString(monitor.Stdout())
	})
	rdmatest.Check(t, rdmanl.DeleteLink(t.Context(), rdmatest.Must(rdmanl.FindDevice(t.Context(), "rxewatch"))(t).Index))
	port(t, w, "rxewatch", isDown)
	rdmatest.Check(t, w.Close())
}

var wentAndCame = regexp.MustCompile(`(?m)^\[PORT_STATE\]\tdev \d+ rxewatch port 1 state DOWN netdev \d+ watch1\n([^\n]*\n)*\[PORT_STATE\]\tdev \d+ rxewatch port 1 state ACTIVE netdev \d+ watch1$`)

var _ = rdmatest.Test(TestWatchPorts, rdmatest.OnRXE)

// TestWatchInterval: with an interval that is too long, the network interface's change causes
// the report.
func TestWatchInterval(t *testing.T) {
	rdmatest.ExtraRXE(t, "rxewatch", "watch2", "192.168.81.1")
	w := rdmatest.Must(rdmanl.Watch(t.Context(), rdmanl.WatchOptions{Interval: 24 * time.Hour}))(t)
	defer w.Close()
	told := make(chan struct{})
	go func() {
		defer close(told)
		port(t, w, "rxewatch", isDown)
		port(t, w, "rxewatch", isActive)
	}()
	for up := false; ; up = !up { // a slow driver's change may come after the last comparison
		rdmatest.Command(t, "ip link set watch2 "+map[bool]string{false: "down", true: "up"}[up])
		select {
		case <-told:
			return
		case <-time.After(time.Second):
		}
	}
}

var _ = rdmatest.Test(TestWatchInterval, rdmatest.OnRXE)

// TestWatchCable: over InfiniBand, a Watcher reports a cable that is pulled and plugged in
// again.
func TestWatchCable(t *testing.T) {
	w := rdmatest.Must(rdmanl.Watch(t.Context(), rdmanl.WatchOptions{Interval: 100 * time.Millisecond}))(t)
	defer w.Close()
	plug := func(up bool) {
		t.Helper()
		rdmatest.Check(t, control.Request{Do: "port", HCA: 1, Up: up}.Ask())
	}
	plug(false)
	port(t, w, rdmatest.Devices[1], isDown)
	plug(true)
	port(t, w, rdmatest.Devices[1], isActive)
}

var _ = rdmatest.Test(TestWatchCable, rdmatest.OnMLX5)
