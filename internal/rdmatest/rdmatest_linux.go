// Package rdmatest helps tests that need an RDMA device. Tests declare their needs, open the
// rig's device, create connected queue pairs, poll with a deadline, run programs, and check for
// leaks.
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

	// Patience is the timeout of a test that hangs. On an idle emulated machine, the
	// awaited events take less than a second. A loaded machine may be fifty times slower.
	Patience = 2 * time.Minute
)

// Open opens the device. At the end of the test it closes the device with all its objects, and
// fails the test if anything leaks.
func Open(t testing.TB) *verbs.Device {
	t.Helper()
	CheckLeaks(t)
	c := Must(verbs.Open(Device))(t)
	t.Cleanup(func() { Close(t, c) })
	return c
}

// Close closes x, and fails the test on an error.
func Close(t testing.TB, x interface{ Close() error }) {
	t.Helper()
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}

// CheckLeaks fails the test if the number of file descriptors or of objects in the kernel
// differs between now and the end of the test.
func CheckLeaks(t testing.TB) {
	t.Helper()
	warmUp.Do(func() { useOnce(t) })
	resources := Resources(t)
	fds := FDs(t) // after Resources, whose command makes Go's runtime open its poller
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		for end := time.Now().Add(Patience); FDs(t) > fds && time.Now().Before(end); { // package rsocket closes files in the background
			time.Sleep(time.Millisecond)
		}
		if n := FDs(t); n != fds {
			t.Errorf("%d file descriptors were open before the test, %d after it", fds, n)
		}
		if r := Resources(t); r != resources {
			t.Errorf("objects before the test:\n%s\nafter it:\n%s", resources, r)
		}
	})
}

// warmUp makes drivers create their own objects, which happens at a device's first use: mlx5_ib
// creates a CQ and a QP since Linux 6.12.
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
	Must(pd.AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)
	cq := Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 1}))(t)
	// A device that supports only raw packets rejects this, and creates nothing.
	_, _ = pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
}

// FDs returns the number of open file descriptors.
func FDs(t testing.TB) int {
	t.Helper()
	// The count includes the descriptor that ReadDir opens.
	entries := Must(os.ReadDir("/proc/self/fd"))(t)
	return len(entries)
}

// Resources returns the number of objects on all devices, one line per device. A Network of package verbstest
// checks its own objects.
func Resources(t testing.TB) string {
	t.Helper()
	if KindOf() == Verbstest {
		return ""
	}
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

// Poll returns n completions. It fails the test if they don't arrive in time.
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
				t.Fatalf("%d of %d completions arrived: %+v", have, n, wcs[:have])
			}
			time.Sleep(20 * time.Microsecond)
		}
	}
	return wcs
}

// PollOK is like Poll, for completions that must be successful.
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

// Idle fails the test if the CQ has a completion.
func Idle(t testing.TB, cq *verbs.CQ) {
	t.Helper()
	var wc [1]verbs.WC
	if n, err := cq.Poll(wc[:]); n != 0 || err != nil {
		t.Fatalf("the CQ should be empty, has %+v, %v", wc[0], err)
	}
}
