package ibv

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var _ = rdmatest.Test(TestAsyncwatch, rdmatest.OnRXE)

// TestAsyncwatch: a port that goes down and up again is reported as ibv_asyncwatch reports it.
func TestAsyncwatch(t *testing.T) {
	rdmatest.ExtraRXE(t, "rxewatch", "watch0", "192.168.79.1")
	watchers := []*rdmatest.Process{
		rdmatest.Start(t, rdmatest.Program(t, "ibv"), "asyncwatch", "-d", "rxewatch"),
		rdmatest.Start(t, "ibv_asyncwatch", "-d", "rxewatch"),
	}
	for _, w := range watchers {
		w.Until(t, func() bool { return strings.HasPrefix(w.Stdout(), "rxewatch: ") })
	}
	for _, step := range []struct{ link, event string }{
		{"down", "  event_type IBV_EVENT_PORT_ERR (10), port 1\n"},
		{"up", "  event_type IBV_EVENT_PORT_ACTIVE (9), port 1\n"},
	} {
		rdmatest.Command(t, "ip link set watch0 "+step.link)
		for _, w := range watchers {
			w.Until(t, func() bool { return strings.Contains(w.Stdout(), step.event) })
		}
	}
}
