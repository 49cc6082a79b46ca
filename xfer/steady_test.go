//go:build linux && !race

package xfer_test

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/xfer"
)

// In the steady state no operation allocates anything, on either side.
func TestNoAllocations(t *testing.T) {
	m := twoEngines(t, 2, xfer.Options{SliceBytes: 4096, SmallBytes: 256})
	mine, theirs := memory(t, m.a, 100_000, 1), memory(t, m.b, 100_000, 2)
	remote := grant(t, theirs.All(), xfer.Read|xfer.Write|xfer.Atomic).Remote()
	ctx := t.Context()
	m.allUp(t)
	var was uint64
	var b xfer.Batch
	b.Write(remote, mine.All())
	b.Read(mine.Slice(0, 64), remote.Slice(64, 64))
	b.FetchAdd(&was, remote.Slice(8, 8), 1)
	b.Notify(1)
	for name, do := range map[string]func(){
		"Write": func() { rdmatest.Check(t, m.peer.Write(ctx, remote.Slice(0, 64), mine.Slice(0, 64))) },
		"Read":  func() { rdmatest.Check(t, m.peer.Read(ctx, mine.All(), remote)) },
		"Do":    func() { rdmatest.Check(t, m.peer.Do(ctx, &b)); rdmatest.Must(m.b.Notified(ctx))(t) },
	} {
		for range 300 { // the first ones make room
			do()
		}
		// A credit, of which there is one for 256 notifications, and a rare sign of life do allocate.
		if n := testing.AllocsPerRun(200, do); n >= 1 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
