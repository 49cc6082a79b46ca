package ibvtrace

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

// grown waits until a trace has this many bytes.
func grown(t *testing.T, file string, tracer *rdmatest.Process, bytes int64) {
	t.Helper()
	tracer.Until(t, func() bool {
		st, err := os.Stat(file)
		return err == nil && st.Size() >= bytes
	})
}

var _ = rdmatest.Test(TestAttach, rdmatest.LongOn("mlx5"))

// TestAttach attaches to a running ping-pong, detaches, attaches again and is killed. The
// ping-pong must succeed.
func TestAttach(t *testing.T) {
	for name, args := range map[string][]string{"polling": nil, "with the builder": {"-N"}, "with events": {"-e"}} {
		if testing.Short() && name != "with events" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			p := pingpong("rc", append(args, "-n", "2000")...)
			server := rdmatest.Start(t, p.server...)
			server.Until(t, p.ready)
			client := rdmatest.Start(t, p.client...)
			for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGKILL, unix.SIGTERM} {
				file := filepath.Join(t.TempDir(), "trace")
				tracer := rdmatest.Start(t, rdmatest.Program(t, "ibvtrace"), "--json", "--data", "-o", file, "-p", strconv.Itoa(server.PID()))
				grown(t, file, tracer, 20000)
				tracer.Signal(sig)
				if tracer.Wait().Success() != (sig != unix.SIGKILL) {
					t.Errorf("after %v: %v", sig, tracer)
				}
				if status, err := os.ReadFile("/proc/" + strconv.Itoa(server.PID()) + "/status"); err == nil && !strings.Contains(string(status), "TracerPid:\t0\n") {
					t.Errorf("after %v it is still traced", sig)
				}
				if sig == unix.SIGKILL {
					continue // its last line may be incomplete
				}
				trace := rdmatest.ReadTrace(t, file)
				before := make(map[string]int)
				for _, e := range trace {
					for _, o := range e.Created {
						if o.Before {
							before[o.Type]++
						}
					}
				}
				for _, kind := range []string{"pd", "mr", "cq", "qp"} {
					if before[kind] != 1 {
						t.Errorf("%d existing %s, want 1", before[kind], kind)
					}
				}
				if n := count(t, trace); n.sent == 0 || n.sentOK == 0 || n.receivedOK == 0 {
					t.Errorf("nothing was posted or polled: %+v", n)
				}
			}
			client.Succeeds(t)
			server.Succeeds(t)
		})
	}
}

var (
	_ = rdmatest.Test(TestAttachSIW, rdmatest.OnSIW)
	_ = rdmatest.Test(TestAttachEFA, rdmatest.OnEFA)
)

// The objects that a program has when ibvtrace attaches are listed, whatever the driver.
func TestAttachSIW(t *testing.T) {
	attachListed(t, "SIW", "ibv_rc_pingpong", "-d", device, "-g", "0")
}

func TestAttachEFA(t *testing.T) {
	attachListed(t, "EFA", "ibv_ud_pingpong", "-d", "efa_0", "-g", "0")
}

func attachListed(t *testing.T, driver string, command ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trace")
	server := rdmatest.Start(t, command...)
	server.Until(t, listening(18515))
	tracer := rdmatest.Start(t, rdmatest.Program(t, "ibvtrace"), "--how=ptrace", "--json", "-o", file, "-p", strconv.Itoa(server.PID()))
	grown(t, file, tracer, 1)
	tracer.Signal(unix.SIGINT)
	tracer.Succeeds(t)
	server.Signal(unix.SIGKILL)
	server.Wait()
	before := make(map[string]int)
	for _, e := range rdmatest.ReadTrace(t, file) {
		for _, o := range e.Created {
			before[o.Type]++
		}
		if e.Device != "" && e.Driver != driver {
			t.Errorf("the driver is %q, want %q: %+v", e.Driver, driver, e)
		}
	}
	for _, kind := range []string{"pd", "mr", "cq", "qp"} {
		if before[kind] != 1 {
			t.Errorf("%d existing %s, want 1", before[kind], kind)
		}
	}
}

// rping needs an IP address.
var _ = rdmatest.Test(TestAttachThreads, rdmatest.OnRXE)

// TestAttachThreads attaches to rping's server, whose threads wait for events, before
// its client starts.
func TestAttachThreads(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "trace")
	server := rdmatest.Start(t, "rping", "-s", "-v", "-a", address, "-C", "3")
	server.Until(t, rpingListens(t))
	tracer := rdmatest.Start(t, rdmatest.Program(t, "ibvtrace"), "--how=ptrace", "--json", "-o", file, "-p", strconv.Itoa(server.PID()))
	grown(t, file, tracer, 100)
	rdmatest.Start(t, "rping", "-c", "-v", "-a", address, "-C", "3").Succeeds(t)
	server.Succeeds(t)
	tracer.Succeeds(t)
	seen := make(map[string]int)
	for _, e := range rdmatest.ReadTrace(t, file) {
		seen[e.Verb]++
		if e.Verb == "rdma_get_cm_event" && e.Returned && e.Errno == "" && event.Find(e.Out, "event") == nil {
			t.Errorf("an event without a type: %+v", e)
		}
	}
	for _, verb := range []string{"rdma_get_cm_event", "rdma_accept", "ibv_create_qp", "ibv_reg_mr", "ibv_get_cq_event", "ibv_destroy_qp", "exited"} {
		if seen[verb] == 0 {
			t.Errorf("no %s in the trace: %v", verb, seen)
		}
	}
}
