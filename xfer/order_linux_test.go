package xfer_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
	if len(used) < 2 || sends != 1 || early > 0 {
		t.Errorf("%d queue pairs were used, %d of which had bytes on their way when %d notifications were sent", len(used), early, sends)
	}
	if rdmatest.Must(m.b.Notified(ctx))(t).Tag != 1 {
		t.Error("another notification")
	}
}

// All atomic operations on an engine's memory go to one device of its, whatever rails are up, because
// devices are atomic only against themselves.
func TestOneDeviceForAtomics(t *testing.T) {
	m := twoEngines(t, 2, quick)
	theirs := rdmatest.Must(m.b.Alloc(1000))(t)
	remote := grant(t, theirs.All(), xfer.Atomic).Remote()
	ctx := patient(t)
	m.allUp(t)
	on := make(map[string]int)
	m.net.SetFault(func(r verbstest.Request) verbstest.Fault {
		if r.Opcode == verbs.OpFetchAdd {
			on[r.Device]++
		}
		return verbstest.Fault{}
	})
	const many = 1000 // more than a lane takes at a time
	var b xfer.Batch
	for range many {
		b.FetchAdd(nil, remote.Slice(0, 8), 1)
	}
	rdmatest.Check(t, m.peer.Do(ctx, &b))
	m.net.SetFault(nil)
	if n := binary.NativeEndian.Uint64(theirs.Bytes()); n != many || len(on) != 1 || on["vt0"] != many {
		t.Errorf("the sum is %d, by the devices %v", n, on)
	}
	rdmatest.Check(t, errors.Join(m.a.Close(), m.b.Close(), m.net.Close()))

	// Without that device they fail, and nothing else does.
	o := quick
	o.Patience = 50 * time.Millisecond
	m = twoEngines(t, 2, o)
	mine, theirs := memory(t, m.a, 1000, 1), rdmatest.Must(m.b.Alloc(1000))(t)
	remote = grant(t, theirs.All(), xfer.Write|xfer.Atomic).Remote()
	m.allUp(t)
	m.net.Device(2).SetPort(false)
	rdmatest.Until(t, func() string { // the first may be on its way
		b.Reset()
		b.FetchAdd(nil, remote.Slice(0, 8), 1)
		if err := m.peer.Do(ctx, &b); !errors.Is(err, xfer.ErrNoRail) || !strings.Contains(err.Error(), "vt2/1") {
			return fmt.Sprintf("the device for atomic operations is down: %v", err)
		}
		return ""
	})
	rdmatest.Check(t, m.peer.Write(ctx, remote.Slice(8, 900), mine.Slice(0, 900)))
}
