package rdmanl

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmanl"
)

// Network interfaces may come and go between the two.
var cameAndWent = regexp.MustCompile(`(?m)^\[REGISTER\]\tdev \d+ rxe7\n([^\n]*\n)*\[UNREGISTER\]\tdev \d+ rxe7$`)

// TestWatchDevices: a link that comes and goes is told, where the kernel tells.
func TestWatchDevices(t *testing.T) {
	ibv := rdmatest.Program(t, "ibv")
	w, err := rdmanl.Watch(t.Context())
	if !rdmatest.Kernel(t).AtLeast(6, 12) {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("watching: %v", err)
		}
		if out := fails(t, "monitor"); !strings.Contains(out, "this needs Linux 6.12") {
			t.Errorf("ibv monitor: %s", out)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
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
	// A wait that is given up doesn't spoil the next one.
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
}

var _ = rdmatest.Test(TestWatchDevices, rdmatest.OnRXE)
