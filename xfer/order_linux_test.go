package xfer_test

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
	"github.com/goverbs/goverbs/xfer"
)

// Before a notification, each queue pair that has changed the peer's memory for the batch reads from
// the peer: only the answer to that says that the bytes are in memory.
func TestFence(t *testing.T) {
	m := twoEngines(t, 2, quick)
	mine, theirs := memory(t, m.a, 100_000, 1), memory(t, m.b, 100_000, 2)
	remote := grant(t, theirs.All(), xfer.Write|xfer.Atomic).Remote()
	ctx := patient(t)
	m.allUp(t)
	rdmatest.Check(t, m.peer.Write(ctx, remote, mine.All())) // so that there are keys
	used, behind := make(map[uint32]bool), make(map[uint32]bool)
	sends, early := 0, 0
	m.net.SetFault(func(r verbstest.Request) verbstest.Fault {
		switch r.Opcode {
		case verbs.OpRDMAWrite, verbs.OpFetchAdd:
			used[r.QPN], behind[r.QPN] = true, true
		case verbs.OpRDMARead:
			delete(behind, r.QPN)
		case verbs.OpSend:
			sends++
			early += len(behind)
		}
		return verbstest.Fault{}
	})
	var was uint64
	var b xfer.Batch
	b.Write(remote, mine.All())
	b.Write(remote.Slice(0, 50), mine.Slice(0, 50))
	b.FetchAdd(&was, remote.Slice(0, 8), 1)
	b.Notify(1)
	rdmatest.Check(t, m.peer.Do(ctx, &b))
	m.net.SetFault(nil)
	if len(used) < 3 || sends != 1 || early > 0 {
		t.Errorf("%d queue pairs were used, %d of which had bytes on their way when %d notifications were sent", len(used), early, sends)
	}
	if rdmatest.Must(m.b.Notified(ctx))(t).Tag != 1 {
		t.Error("another notification")
	}
}
