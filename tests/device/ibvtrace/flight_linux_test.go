package ibvtrace

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// rping needs an IP address.
var (
	_ = rdmatest.Test(TestFlightRecorder, rdmatest.OnRXE)
	_ = rdmatest.Test(TestFlightLong, rdmatest.OnRXE, rdmatest.Long)
)

// TestFlightRecorder: a recorder of all processes writes a file when a client is rejected. After
// SIGKILL, nothing of it is left in the kernel.
func TestFlightRecorder(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "socket")
	recorder := rdmatest.Start(t, rdmatest.Program(t, "ibvtrace"), "record", "--all", "--keep", "1h", "-d", dir, "--socket", socket)
	recorder.Until(t, attached)
	pingpong("rc").run(t, nil, nil)
	written := func() []string { return rdmatest.Must(filepath.Glob(filepath.Join(dir, "ibvtrace-*.json")))(t) }
	if files := written(); len(files) > 0 {
		t.Errorf("a file was written, though nothing failed: %v", recorder)
	}
	client := rdmatest.Start(t, "rping", "-c", "-a", address, "-C", "3") // nobody listens
	if client.Wait().Success() {
		t.Error("the client was not rejected")
	}
	recorder.Until(t, func() bool { return len(written()) == 1 })
	dump := filepath.Join(dir, "dump")
	rdmatest.Start(t, rdmatest.Program(t, "ibvtrace"), "dump", "--socket", socket, "-o", dump).Succeeds(t)
	for _, file := range []string{written()[0], dump} {
		verbs := make(map[string]int)
		for _, e := range rdmatest.ReadTrace(t, file) {
			verbs[e.Verb]++
		}
		if verbs["ibv_create_qp"] < 2 || verbs["rdma_get_cm_event"] < 2 {
			t.Errorf("%s: %v", file, verbs)
		}
	}
	recorder.Signal(unix.SIGKILL)
	recorder.Wait()
	rdmatest.UntilNot(t, "attached", attached)
}

// TestFlightLong: beside a program that creates and destroys queue pairs as fast as it can, a recorder
// loses nothing, and its memory does not grow: for seconds, or with GOVERBS_LONG for an hour.
func TestFlightLong(t *testing.T) {
	qps, least := 4000, time.Duration(0)
	if os.Getenv("GOVERBS_LONG") != "" {
		qps, least = 50000, time.Hour
	}
	dir := t.TempDir()
	socket, dump := filepath.Join(dir, "socket"), filepath.Join(dir, "dump")
	recorder := rdmatest.Start(t, rdmatest.Program(t, "ibvtrace"), "record", "--all", "--keep", "1h", "--size", "2", "--on", "none", "-d", dir, "--socket", socket)
	recorder.Until(t, attached)
	defer recorder.Kill()
	program := rdmatest.CProgram(t, "c/qps.c")
	resident := regexp.MustCompile(`VmRSS:\s+(\d+) kB`)
	first, rounds := 0, 0
	for begin := time.Now(); rounds < 4 || time.Since(begin) < least; rounds++ {
		said := rdmatest.Start(t, program, device, strconv.Itoa(qps)).Succeeds(t)
		rdmatest.Start(t, rdmatest.Program(t, "ibvtrace"), "dump", "--socket", socket, "-o", dump).Succeeds(t)
		for _, e := range rdmatest.ReadTrace(t, dump) {
			if strings.Contains(e.Why, "lost") {
				t.Fatal(e.Why)
			}
		}
		status := rdmatest.Must(os.ReadFile(fmt.Sprintf("/proc/%d/status", recorder.PID())))(t)
		m := resident.FindSubmatch(status)
		now := rdmatest.Must(strconv.Atoi(string(m[1])))(t)
		t.Logf("%d KiB resident; a queue pair took %s", now, strings.TrimSpace(said))
		switch { // the first rounds fill what is kept, and Go's heap
		case rounds == 1:
			first = now
		case rounds > 1 && now > first+first/4:
			t.Fatalf("the recorder's memory grows: %d KiB, then %d", first, now)
		}
	}
}
