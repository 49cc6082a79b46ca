// Package rdmatest helps tests that need an RDMA device: they say what they need, open
// the rig's device, make connected queue pairs on it, poll with a deadline, run programs
// beside it, and count what must not leak.
package rdmatest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

const (
	Port = 1

	// Patience is how long a test waits for what must come. It only ends a test
	// that hangs: what it waits for comes within a second on an emulated machine
	// that has nothing else to do, and other work may slow it fifty times.
	Patience = 2 * time.Minute
)

// Open opens the device. At the end of the test it closes it, with all that is
// left on it, and fails the test if anything stays behind.
func Open(t testing.TB) *verbs.Context {
	t.Helper()
	CheckLeaks(t)
	c := Must(verbs.Open(Device))(t)
	t.Cleanup(func() { Close(t, c) })
	return c
}

// Close closes x and fails the test if it doesn't close.
func Close(t testing.TB, x interface{ Close() error }) {
	t.Helper()
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}

// CheckLeaks fails the test if at its end there are more file descriptors or
// objects in the kernel than there are now.
func CheckLeaks(t testing.TB) {
	t.Helper()
	warmUp.Do(func() { useOnce(t) })
	resources := Resources(t)
	fds := FDs(t) // second: the runtime's poller appears with the first program that is run
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		if n := FDs(t); n != fds {
			t.Errorf("%d file descriptors were open before the test, %d after it", fds, n)
		}
		if r := Resources(t); r != resources {
			t.Errorf("objects before the test:\n%s\nafter it:\n%s", resources, r)
		}
	})
}

// warmUp has drivers make what they make for themselves at a device's first use:
// mlx5_ib since Linux 6.12 a CQ and a QP.
var warmUp sync.Once

func useOnce(t testing.TB) {
	t.Helper()
	for _, device := range Devices {
		if _, err := os.Stat("/sys/class/infiniband/" + device); err == nil {
			use(t, device)
		}
	}
}

func use(t testing.TB, device string) {
	t.Helper()
	c := Must(verbs.Open(device))(t)
	defer Close(t, c)
	pd := Must(c.AllocPD())(t)
	Must(pd.AllocMR(4096, verbs.AccessLocalWrite))(t)
	cq := Must(c.CreateCQ(verbs.CQOptions{CQE: 1}))(t)
	// A device that has raw packets only refuses, and makes nothing then.
	_, _ = pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
}

// FDs returns the number of open file descriptors.
func FDs(t testing.TB) int {
	t.Helper()
	// Listing the folder opens it, which counts the same each time.
	entries := Must(os.ReadDir("/proc/self/fd"))(t)
	return len(entries)
}

// Resources returns what the kernel counts on all devices, a line for each.
func Resources(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("rdma", "resource", "show").CombinedOutput()
	if err != nil {
		t.Fatalf("rdma resource show: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// RSS returns the resident memory of this process in bytes.
func RSS(t testing.TB) int64 {
	t.Helper()
	b := Must(os.ReadFile("/proc/self/statm"))(t)
	var size, resident int64
	Must(fmt.Sscan(string(b), &size, &resident))(t)
	return resident * int64(os.Getpagesize())
}

// Poll returns n completions; it fails the test if they don't come.
func Poll(t testing.TB, cq *verbs.CQ, n int) []verbs.WC {
	t.Helper()
	wcs := make([]verbs.WC, n)
	have := 0
	for deadline := time.Now().Add(Patience); have < n; {
		m, err := cq.Poll(wcs[have:])
		if err != nil {
			t.Fatalf("after %d of %d completions: %v", have, n, err)
		}
		have += m
		if m == 0 {
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d completions came: %+v", have, n, wcs[:have])
			}
			time.Sleep(20 * time.Microsecond)
		}
	}
	return wcs
}

// PollOK is Poll for completions that must be successes.
func PollOK(t testing.TB, cq *verbs.CQ, n int) []verbs.WC {
	t.Helper()
	wcs := Poll(t, cq, n)
	for i := range wcs {
		if err := wcs[i].Err(); err != nil {
			t.Fatalf("completion %d of %d: %v", i+1, n, err)
		}
	}
	return wcs
}

// Idle fails the test if there is a completion.
func Idle(t testing.TB, cq *verbs.CQ) {
	t.Helper()
	var wc [1]verbs.WC
	if n, err := cq.Poll(wc[:]); n != 0 || err != nil {
		t.Fatalf("the CQ should be empty, has %+v, %v", wc[0], err)
	}
}
