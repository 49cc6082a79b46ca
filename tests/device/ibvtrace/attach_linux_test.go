package ibvtrace

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/event"
	"github.com/goverbs/goverbs/cmd/ibvtrace/objects"
	"github.com/goverbs/goverbs/internal/rdmatest"
)

// grown waits until a trace has so many bytes.
func grown(t *testing.T, file string, tracer *program, bytes int64) {
	t.Helper()
	for {
		if st, err := os.Stat(file); err == nil && st.Size() >= bytes {
			return
		}
		if exited(tracer.Process.Pid) {
			tracer.Wait()
			t.Fatalf("ibvtrace ended: %s", tracer.out.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestAttach attaches to a ping-pong that runs, lets go of it, attaches again and is
// killed: the ping-pong must end well.
func TestAttach(t *testing.T) {
	for name, args := range map[string][]string{"polling": nil, "with the builder": {"-N"}, "with events": {"-e"}} {
		if testing.Short() && name != "with events" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			p := pingpong("rc", append(args, "-n", "2000")...)
			server := start(t, p.server...)
			p.waitFor(t, server)
			client := start(t, p.client...)
			for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGKILL, unix.SIGTERM} {
				file := filepath.Join(t.TempDir(), "trace")
				tracer := start(t, rdmatest.Program(t, "ibvtrace"), "--json", "--data", "-o", file, "-p", strconv.Itoa(server.Process.Pid))
				grown(t, file, tracer, 20000)
				tracer.Process.Signal(sig)
				err := tracer.Wait()
				if (err != nil) != (sig == unix.SIGKILL) {
					t.Errorf("after %v: %v %s", sig, err, tracer.out.String())
				}
				if status, err := os.ReadFile("/proc/" + strconv.Itoa(server.Process.Pid) + "/status"); err == nil && !strings.Contains(string(status), "TracerPid:\t0\n") {
					t.Errorf("after %v it is still traced", sig)
				}
				if sig == unix.SIGKILL {
					continue // its last line may be half of one
				}
				trace := readTrace(t, file)
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
						t.Errorf("%d %s from before, want 1", before[kind], kind)
					}
				}
				if n := count(t, trace); n.sent == 0 || n.sentOK == 0 || n.receivedOK == 0 {
					t.Errorf("nothing was posted or polled: %+v", n)
				}
			}
			client.wait(t)
			server.wait(t)
		})
	}
}

// awaitListening waits until the kernel says that a server listens.
func awaitListening(t *testing.T, server *program) {
	t.Helper()
	for {
		all, err := objects.List()
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(all, func(o objects.Object) bool {
			return o.PID == server.Process.Pid && o.Type == "cm_id" && slices.Contains(o.Attrs, objects.Attr{Name: "state", Value: "LISTEN"})
		}) {
			return
		}
		if exited(server.Process.Pid) {
			server.Wait()
			t.Fatalf("the server ended: %s", server.out.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// rping needs an IP address.
var _ = rdmatest.Test(TestAttachThreads, rdmatest.OnRXE)

// TestAttachThreads attaches to rping's server, which has threads that wait for
// events, before its client comes.
func TestAttachThreads(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "trace")
	server := start(t, "rping", "-s", "-a", address, "-C", "3")
	awaitListening(t, server)
	tracer := start(t, rdmatest.Program(t, "ibvtrace"), "--json", "-o", file, "-p", strconv.Itoa(server.Process.Pid))
	grown(t, file, tracer, 100)
	start(t, "rping", "-c", "-v", "-a", address, "-C", "3").wait(t)
	server.wait(t)
	tracer.wait(t)
	seen := make(map[string]int)
	for _, e := range readTrace(t, file) {
		seen[e.Verb]++
		if e.Verb == "rdma_get_cm_event" && e.Returned && e.Errno == "" && event.Find(e.Out, "event") == nil {
			t.Errorf("an event without its kind: %+v", e)
		}
	}
	for _, verb := range []string{"rdma_get_cm_event", "rdma_accept", "ibv_create_qp", "ibv_reg_mr", "ibv_get_cq_event", "ibv_destroy_qp", "exited"} {
		if seen[verb] == 0 {
			t.Errorf("no %s in the trace: %v", verb, seen)
		}
	}
}
