package xfer_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
	"github.com/goverbs/goverbs/xfer"
)

// Each step of a batch is traced, in its order: also what fails on a rail and is sent again.
func TestTrace(t *testing.T) {
	var steps []xfer.Trace // each peer has a lock, and there is one
	o := quick
	o.Trace = func(s xfer.Trace) { steps = append(steps, s) }
	m := twoEngines(t, 1, o)
	mine, theirs := memory(t, m.a, 10_000, 1), memory(t, m.b, 10_000, 2)
	remote := grant(t, theirs.All(), xfer.Write).Remote()
	ctx := patient(t)
	m.allUp(t)
	rdmatest.Check(t, m.peer.Write(ctx, remote, mine.All()))
	var b xfer.Batch
	b.Write(remote, mine.All())
	b.Write(remote.Slice(5, 50), mine.Slice(5, 50))
	b.Notify(1)
	rdmatest.Check(t, m.peer.Do(ctx, new(xfer.Batch))) // nothing is running, so nobody appends
	steps = nil
	m.net.SetFault(verbstest.Nth(1, verbstest.Fail(verbs.WCGeneralErr)))
	rdmatest.Check(t, m.peer.Do(ctx, &b))
	m.net.SetFault(nil)
	rdmatest.Check(t, m.peer.Close())
	bytes, slicesOf, again := make(map[int]int), make(map[int]int), 0
	for i, s := range steps {
		if s.Peer != m.peer || s.Batch != &b || s.Err != nil && s.Kind != xfer.TraceAgain {
			t.Errorf("%v: %+v", s.Kind, s)
		}
		if (s.Rail == "vt0/1") != (s.Kind != xfer.TraceStart && s.Kind != xfer.TraceEnd) {
			t.Errorf("%v on the rail %q", s.Kind, s.Rail)
		}
		switch s.Kind {
		case xfer.TraceStart:
			if want := map[int]int{0: 10_000, 1: 50, -1: 0}[s.Part]; s.Len != want || slicesOf[s.Part] != 0 {
				t.Errorf("part %d starts with %d bytes, after %d slices", s.Part, s.Len, slicesOf[s.Part])
			}
		case xfer.TraceSlice:
			slicesOf[s.Part]++
			if s.Part >= 0 && (s.Op != "write" || s.Off+s.Len > 10_000) || s.Part < 0 && s.Op != "notify" {
				t.Errorf("%+v", s)
			}
		case xfer.TraceDone:
			bytes[s.Part] += s.Len
		case xfer.TraceAgain:
			again++
			if s.Err == nil {
				t.Error("no reason")
			}
		case xfer.TraceEnd:
			if i != len(steps)-1 || s.Part != -1 || s.Len != 10_050 {
				t.Errorf("step %d of %d: %+v", i, len(steps), s)
			}
		}
	}
	if bytes[0] != 10_000 || bytes[1] != 50 || again == 0 || slicesOf[-1] != 1 || slicesOf[0]+slicesOf[1] != 4+again {
		t.Errorf("%v bytes in %v slices, %d of them again", bytes, slicesOf, again)
	}
	steps = nil
	b.Reset()
	b.Write(remote, mine.All())
	rdmatest.Check(t, m.peer.Start(&b))
	if err := b.Wait(ctx); !errors.Is(err, xfer.ErrPeerLost) {
		t.Errorf("the peer is closed: %v", err)
	}
	if i := slices.IndexFunc(steps, func(s xfer.Trace) bool { return s.Kind == xfer.TraceEnd }); i < 0 || !errors.Is(steps[i].Err, xfer.ErrPeerLost) {
		t.Errorf("steps %+v", steps)
	}
}
