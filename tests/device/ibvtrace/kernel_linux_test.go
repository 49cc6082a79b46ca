package ibvtrace

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

// rping needs an IP address.
var (
	_ = rdmatest.Test(TestSeenInKernel, rdmatest.OnRXE)
	_ = rdmatest.Test(TestKernelAttach, rdmatest.OnRXE)
	_ = rdmatest.Test(TestKernelHostile, rdmatest.OnRXE)
	_ = rdmatest.Test(TestSeenOfMany, rdmatest.OnRXE, rdmatest.Long)
	_ = rdmatest.Test(TestSeenOfFabric, rdmatest.OnRXE, rdmatest.LongOn("rxe"))
	_ = rdmatest.Test(TestSeenOfMPI, rdmatest.OnMLX5, rdmatest.LongOn("mlx5")) // UCX's wireup gets no answer over rxe
	_ = rdmatest.Test(TestAttachOften, rdmatest.OnRXE, rdmatest.Long)
)

// TestSeenInKernel traces programs by BPF, and compares with what the kernel ran: commands, a
// shell with its children, and all processes of the machine.
func TestSeenInKernel(t *testing.T) {
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "server"), filepath.Join(dir, "client")}
	pairs := map[string]pair{"rc_pingpong with events": pingpong("rc", "-e"), "rping": rping(t)}
	for name, p := range pairs {
		t.Run(name, func(t *testing.T) {
			os.Remove(files[0])
			w := watchKernel(t)
			p.run(t, traced(t, files[0]), traced(t, files[1]))
			kernel := w.saw()
			compareSeen(t, append(rdmatest.ReadTrace(t, files[0]), rdmatest.ReadTrace(t, files[1])...), kernel, 2)
		})
	}
	p := pingpong("rc")
	script := strings.Join(p.server, " ") + " & until " + strings.Join(p.client, " ") + " 2>/dev/null; do sleep 0.2; done; wait"
	t.Run("children", func(t *testing.T) {
		w := watchKernel(t)
		rdmatest.Start(t, append(traced(t, files[0]), "sh", "-c", script)...).Succeeds(t)
		kernel := w.saw()
		if len(kernel) < 2 {
			t.Errorf("the kernel saw only %d processes", len(kernel))
		}
		compareSeen(t, rdmatest.ReadTrace(t, files[0]), kernel, 2)
	})
	t.Run("all", func(t *testing.T) {
		os.Remove(files[0])
		tracer := rdmatest.Start(t, rdmatest.Program(t, "ibvtrace"), "--json", "--all", "-o", files[0])
		grown(t, files[0], tracer, 1) // it is attached
		w := watchKernel(t)
		rdmatest.Start(t, "sh", "-c", script).Succeeds(t)
		tracer.Signal(unix.SIGINT)
		tracer.Succeeds(t)
		compareSeen(t, rdmatest.ReadTrace(t, files[0]), w.saw(), 2)
	})
}

// TestSeenOfMany traces by BPF a thousand queue pairs that threads create at once, and a server that
// forks.
func TestSeenOfMany(t *testing.T) {
	program, file := rdmatest.CProgram(t, "c/crowd.c"), filepath.Join(t.TempDir(), "trace")
	for _, test := range []struct {
		name                   string
		children, threads, qps int
	}{{"queue pairs", 0, 8, 125}, {"forking server", 20, 2, 2}} {
		t.Run(test.name, func(t *testing.T) {
			w := watchKernel(t)
			args := []string{program, device, strconv.Itoa(test.children), strconv.Itoa(test.threads), strconv.Itoa(test.qps)}
			rdmatest.Start(t, append(traced(t, file), args...)...).Succeeds(t)
			kernel, trace := w.saw(), rdmatest.ReadTrace(t, file)
			compareSeen(t, trace, kernel, 1+test.children)
			made := make(map[event.Object]bool)
			for _, e := range trace {
				for _, o := range e.Created {
					if o.Type == "qp" {
						made[o] = true
					}
				}
			}
			if want := max(1, test.children) * test.threads * test.qps; len(made) != want {
				t.Errorf("%d queue pairs, want %d", len(made), want)
			}
		})
	}
}

// TestSeenOfFabric traces libfabric by BPF.
func TestSeenOfFabric(t *testing.T) {
	p := fabric()
	seenOf(t, "sh", "-c", strings.Join(p.server, " ")+" & until "+strings.Join(p.client, " ")+"; do sleep 0.2; done; wait")
}

// TestSeenOfMPI traces Open MPI with UCX by BPF.
func TestSeenOfMPI(t *testing.T) {
	seenOf(t, "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "--mca", "pml", "ucx", "-x", "UCX_TLS=rc_verbs,ud_verbs,self",
		"-x", "UCX_NET_DEVICES="+device+":1", "/usr/bin/python3", "-m", "mpi4py.bench", "ringtest", "-n", "100", "-l", "10")
}

// seenOf traces a command whose two children use a device, and compares with what the kernel ran.
func seenOf(t *testing.T, command ...string) {
	t.Helper()
	file, w := filepath.Join(t.TempDir(), "trace"), watchKernel(t)
	rdmatest.Start(t, append(traced(t, file), command...)...).Succeeds(t)
	kernel := w.saw()
	if len(kernel) < 2 {
		t.Errorf("the kernel saw only %d threads", len(kernel))
	}
	compareSeen(t, rdmatest.ReadTrace(t, file), kernel, 2)
}

// compareSeen compares a trace with what the kernel ran. Nothing may be lost. At least some processes
// have ended.
func compareSeen(t *testing.T, trace []*event.Event, kernel map[int][]ran, ended int) {
	t.Helper()
	exits, heads := 0, 0
	for _, e := range trace {
		switch {
		case strings.Contains(e.Why, "lost"):
			t.Errorf("%s", e.Why)
		case e.Problem != "":
			t.Errorf("%s: %s", e.Verb, e.Problem)
		case e.Kind == event.Control && e.FD < 0:
			t.Errorf("%s has no descriptor", e.Verb)
		case e.Verb == "ibv_get_cq_event" && e.Returned && !e.Failed() && event.Find(e.Out, "cq") == nil:
			t.Errorf("an event without a CQ: %+v", e.Out)
		case e.Kind == event.Exit:
			exits++
		case e.Kind == event.Note && strings.HasPrefix(e.Why, "seen in the kernel"):
			heads++
		case e.Kind == event.Control && e.Returned && !e.Failed():
			event.Walk(e.Out, func(v *event.Value) {
				if v.Form == event.Lost {
					t.Errorf("%s: an output can't be read: %+v", e.Verb, e.Out)
				}
			})
		}
	}
	t.Logf("%d events, %d exits", len(trace), exits)
	if heads == 0 {
		t.Error("nothing says how the calls were seen")
	}
	if exits < ended {
		t.Errorf("%d processes exited, want %d", exits, ended)
	}
	compare(t, trace, kernel)
}

// attached reports whether the kernel has a tracer's programs: in trampolines or, where it has none, in
// kprobes.
func attached() bool { return inTrampoline() || inKprobe() }

func inTrampoline() bool {
	list, err := os.ReadFile("/sys/kernel/debug/tracing/enabled_functions")
	return err == nil && regexp.MustCompile(`(?m)^ib_uverbs_mmap\b.*(\n\s.*)*?direct(\(jmp\))?-->bpf_trampoline`).Match(list)
}

func inKprobe() bool {
	list, err := os.ReadFile("/sys/kernel/debug/kprobes/list")
	return err == nil && strings.Contains(string(list), "ib_uverbs_mmap+")
}

// TestKernelAttach attaches to a server by BPF, and is killed, detaches, and stays to the end. The
// server is never ptraced, and nothing of ibvtrace stays in the kernel.
func TestKernelAttach(t *testing.T) {
	p := pingpong("rc", "-e")
	server := rdmatest.Start(t, p.server...)
	server.Until(t, p.ready)
	status := fmt.Sprintf("/proc/%d/status", server.PID())
	for _, sig := range []unix.Signal{unix.SIGKILL, unix.SIGINT, 0} {
		file := filepath.Join(t.TempDir(), "trace")
		tracer := rdmatest.Start(t, rdmatest.Program(t, "ibvtrace"), "--json", "-o", file, "-p", strconv.Itoa(server.PID()))
		grown(t, file, tracer, 1)
		if text := rdmatest.Must(os.ReadFile(status))(t); !strings.Contains(string(text), "TracerPid:\t0\n") {
			t.Errorf("the server is traced:\n%s", text)
		}
		if !attached() || runtime.GOARCH == "amd64" && !inTrampoline() {
			list, err := os.ReadFile("/sys/kernel/debug/tracing/enabled_functions")
			t.Fatalf("ibvtrace's programs are not attached as they should be: in a kprobe: %t; %v\n%s", inKprobe(), err, list)
		}
		if sig != 0 {
			tracer.Signal(sig)
			if tracer.Wait().Success() != (sig == unix.SIGINT) {
				t.Errorf("after %v: %v", sig, tracer)
			}
			rdmatest.UntilNot(t, "attached", attached)
			continue
		}
		w := watchKernel(t)
		rdmatest.Start(t, p.client...).Succeeds(t)
		server.Succeeds(t)
		tracer.Succeeds(t) // the process that it was to trace has ended
		kernel := w.saw()
		trace := rdmatest.ReadTrace(t, file)
		compare(t, trace, map[int][]ran{server.PID(): kernel[server.PID()]})
		before := make(map[string]int)
		for _, e := range trace {
			for _, o := range e.Created {
				before[o.Type]++
			}
		}
		for _, kind := range []string{"pd", "mr", "cq", "qp"} {
			if before[kind] != 1 {
				t.Errorf("%d existing %s, want 1", before[kind], kind)
			}
		}
	}
}

// TestKernelHostile traces a program that passes invalid data by BPF.
func TestKernelHostile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace")
	p := rdmatest.Start(t, append(traced(t, file, "--raw"), rdmatest.Program(t, "hostile"), "1", "300", uverbs, rdmaCM)...)
	p.Succeeds(t)
	kinds := make(map[event.Kind]int)
	for _, e := range rdmatest.ReadTrace(t, file) {
		kinds[e.Kind]++
	}
	if !strings.Contains(p.Said(), "survived") || kinds[event.Control] < 20 || kinds[event.CM] < 20 {
		t.Errorf("%q, %v", p.Said(), kinds)
	}
}

// TestAttachOften attaches to busy programs and detaches, again and again. They go on, and say nothing else.
func TestAttachOften(t *testing.T) {
	events := pingpong("rc", "-e", "-n", "1000000000")
	ofGo := events
	ofGo.server = append([]string{rdmatest.Program(t, "ibv"), "pingpong", "rc"}, events.server[1:]...)
	writes := perftest("ib_write_bw")
	for _, list := range []*[]string{&writes.server, &writes.client} {
		*list = append(append([]string{"stdbuf", "-oL"}, *list...), "--run_infinitely", "-D", "1")
	}
	for _, test := range []struct {
		name string
		pair
		busy  bool // with verbs: it arms its CQ and reads events
		lines bool // the client prints lines
	}{{"C with events", events, true, false}, {"Go with events", ofGo, true, false}, {"ib_write_bw", writes, false, true}} {
		t.Run(test.name, func(t *testing.T) {
			server := rdmatest.Start(t, test.server...)
			server.Until(t, test.ready)
			client := rdmatest.Start(t, test.client...)
			process, least := server, int64(20000)
			if !test.busy {
				process, least = client, 1
			}
			attachOften(t, process, least)
			if n := strings.Count(client.Stdout(), "\n"); test.lines {
				client.Until(t, func() bool { return strings.Count(client.Stdout(), "\n") > n })
			}
			for _, p := range []*rdmatest.Process{server, client} {
				if err := unix.Kill(p.PID(), 0); err != nil || p.Stderr() != "" {
					t.Errorf("%v: %v", err, p)
				}
				p.Signal(unix.SIGKILL)
				p.Wait()
			}
		})
	}
}

// attachOften attaches to a process and detaches when the trace has grown, many times.
func attachOften(t *testing.T, p *rdmatest.Process, least int64) {
	t.Helper()
	times := 100
	if testing.Short() {
		times = 3
	}
	file := filepath.Join(t.TempDir(), "trace")
	for i := range times {
		if i%10 == 0 {
			t.Logf("attached %d times", i)
		}
		os.Remove(file)
		tracer := rdmatest.Start(t, rdmatest.Program(t, "ibvtrace"), "--json", "-o", file, "-p", strconv.Itoa(p.PID()))
		grown(t, file, tracer, least)
		status := rdmatest.Must(os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID())))(t)
		if !strings.Contains(string(status), "TracerPid:\t0\n") {
			t.Fatalf("it is traced:\n%s", status)
		}
		tracer.Signal(unix.SIGINT)
		tracer.Succeeds(t)
		for _, e := range rdmatest.ReadTrace(t, file) {
			if e.Problem != "" || strings.Contains(e.Why, "lost") {
				t.Fatalf("%s: %s %s", e.Verb, e.Problem, e.Why)
			}
		}
	}
	rdmatest.UntilNot(t, "attached", attached)
}
