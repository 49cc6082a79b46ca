// Package trace tests ibvtrace on a real device, with rdma-core's programs and
// with two witnesses: strace and the kernel's function tracer.
//
// It runs in the rig only:
//
//	tests/vm/run -d rxe -- go test ./tests/trace
package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	device  = "rxe0"
	address = "192.168.77.1"
)

var ibvtrace string // the program

func TestMain(m *testing.M) {
	if _, err := os.Stat("/sys/class/infiniband/" + device); err != nil {
		fmt.Fprintf(os.Stderr, "no %s here; run this in the rig: tests/vm/run -d rxe -- go test ./tests/trace\n", device)
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "trace")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ibvtrace = filepath.Join(dir, "ibvtrace")
	status := 1
	if out, err := exec.Command("go", "build", "-o", ibvtrace, "../../cmd/ibvtrace").CombinedOutput(); err == nil {
		status = m.Run()
	} else {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
	}
	os.RemoveAll(dir)
	os.Exit(status)
}

// A verb is a line of ibvtrace --json.
type verb struct {
	PID    int
	Dev    string
	Driver string
	Verb   string
	Object string
	Method string
	Args   map[string]any
	Out    map[string]any
	Ret    *int
	Errno  string
}

func readTrace(t *testing.T, file string) []verb {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []verb
	for dec := json.NewDecoder(f); dec.More(); {
		var v verb
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// pingpong is ibv_rc_pingpong's command line.
func pingpong(args ...string) []string {
	return append([]string{"ibv_rc_pingpong", "-d", device, "-g", "1", "-n", "50"}, args...)
}

// A program is one that has been started.
type program struct {
	*exec.Cmd
	out bytes.Buffer
}

func start(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.CommandContext(t.Context(), args[0], args[1:]...)}
	p.Stdout, p.Stderr = &p.out, &p.out
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *program) wait(t *testing.T) {
	t.Helper()
	if err := p.Wait(); err != nil {
		t.Fatalf("%q: %v\n%s", p.Args, err, p.out.String())
	}
}

// waitForServer returns when ibv_rc_pingpong listens on its port, 18515.
func waitForServer(t *testing.T, server *program) {
	t.Helper()
	listens := regexp.MustCompile(`(?m)^ *\d+: [0-9A-F]+:4853 [0-9A-F]+:0000 0A `)
	for {
		for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			if table, err := os.ReadFile(file); err == nil && listens.Match(table) {
				return
			}
		}
		if exited(server.Process.Pid) {
			server.Wait()
			t.Fatalf("the server ended: %s", server.out.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func exited(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

// both runs a server and a client, each with a prefix before its command.
func both(t *testing.T, server, client []string) (serverOut, clientOut string) {
	t.Helper()
	s := start(t, append(server, pingpong()...)...)
	waitForServer(t, s)
	c := start(t, append(client, pingpong(address)...)...)
	c.wait(t)
	s.wait(t)
	return s.out.String(), c.out.String()
}

// A functionTracer is the kernel's, tracing ib_uverbs.
type functionTracer struct{ t *testing.T }

func traceFunctions(t *testing.T) functionTracer {
	t.Helper()
	if _, err := os.Stat(tracefs + "current_tracer"); err != nil {
		if out, err := exec.Command("mount", "-t", "tracefs", "tracefs", tracefs).CombinedOutput(); err != nil {
			t.Fatalf("mount tracefs: %v\n%s", err, out)
		}
	}
	f := functionTracer{t}
	f.write("tracing_on", "0")
	f.write("current_tracer", "nop")
	f.write("set_ftrace_filter", "*:mod:ib_uverbs")
	f.write("set_ftrace_notrace", "ib_uverbs_write") // rxe's doorbell
	f.write("current_tracer", "function")
	f.write("trace", "")
	f.write("tracing_on", "1")
	return f
}

const tracefs = "/sys/kernel/tracing/"

func (f functionTracer) write(file, s string) {
	f.t.Helper()
	if err := os.WriteFile(tracefs+file, []byte(s), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// stop ends the tracing and returns, by pid, the functions that each
// ib_uverbs_ioctl led to.
func (f functionTracer) stop() map[int][][]string {
	f.t.Helper()
	f.write("tracing_on", "0")
	file, err := os.Open(tracefs + "trace")
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	line := regexp.MustCompile(`^ *.*-(\d+) +\[\d+\] \S+ +[\d.]+: (\w\S*) <-`)
	calls := make(map[int][][]string)
	for s := bufio.NewScanner(file); s.Scan(); {
		m := line.FindStringSubmatch(s.Text())
		if m == nil {
			if strings.Contains(s.Text(), "LOST") {
				f.t.Fatalf("the kernel's buffer was too small: %s", s.Text())
			}
			continue
		}
		pid, err := strconv.Atoi(m[1])
		if err != nil {
			f.t.Fatal(err)
		}
		switch n := len(calls[pid]); {
		case m[2] == "ib_uverbs_ioctl":
			calls[pid] = append(calls[pid], nil)
		case n > 0:
			calls[pid][n-1] = append(calls[pid][n-1], m[2])
		}
	}
	f.write("current_tracer", "nop")
	f.write("set_ftrace_filter", "")
	f.write("set_ftrace_notrace", "")
	return calls
}

// handlers are the kernel's functions of which one runs a verb. For a write
// command it comes after that of the method that invokes it.
func (v *verb) handlers() []string {
	switch {
	case v.Method == "UVERBS_METHOD_INVOKE_WRITE":
		name := strings.TrimSuffix(v.Verb, "_ex")
		return []string{"ib_uverbs_" + name, "ib_uverbs_ex_" + name}
	case strings.HasSuffix(v.Method, "_DESTROY"):
		// Most have no handler of their own.
		return []string{"uverbs_free_" + strings.ToLower(v.Object)}
	}
	return []string{"ib_uverbs_handler_" + v.Method}
}

// compare compares the trace with what the kernel ran.
func compare(t *testing.T, trace []verb, kernel map[int][][]string) {
	t.Helper()
	if len(trace) == 0 {
		t.Error("nothing was traced")
	}
	for i := range trace {
		v := &trace[i]
		if v.Dev != device || v.Driver != "RXE" || v.Ret == nil {
			t.Errorf("%s: device %q, driver %q, ret %v", v.Verb, v.Dev, v.Driver, v.Ret)
		}
		calls := kernel[v.PID]
		if len(calls) == 0 {
			t.Errorf("%d: %s is in the trace only", v.PID, v.Verb)
			continue
		}
		ran := func(f string) bool { return slices.Contains(calls[0], f) }
		if v.Errno == "" && !slices.ContainsFunc(v.handlers(), ran) {
			t.Errorf("%d: %s is in the trace; the kernel ran %q", v.PID, v.Verb, calls[0])
		}
		if v.Errno == "ENOSPC" && (!ran("ib_uverbs_handler_"+v.Method) || slices.ContainsFunc(v.handlers(), ran)) {
			t.Errorf("%d: %s failed for its size; the kernel ran %q", v.PID, v.Verb, calls[0])
		}
		kernel[v.PID] = calls[1:]
	}
	for pid, calls := range kernel {
		for _, c := range calls {
			t.Errorf("%d: not in the trace: %q", pid, c)
		}
	}
}

// TestPingpong traces both sides of ibv_rc_pingpong.
func TestPingpong(t *testing.T) {
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "server"), filepath.Join(dir, "client")}
	witness := traceFunctions(t)
	serverOut, clientOut := both(t, []string{ibvtrace, "--json", "-o", files[0], "--"}, []string{ibvtrace, "--json", "-o", files[1], "--"})
	kernel := witness.stop()
	server, client := readTrace(t, files[0]), readTrace(t, files[1])
	compare(t, append(slices.Clone(server), client...), kernel)

	var verbs []string
	for _, v := range client {
		verbs = append(verbs, v.Verb+" "+v.Errno)
	}
	t.Logf("%q", verbs)

	// What the verbs say must be what the program says.
	qpn := func(out, side string) float64 {
		m := regexp.MustCompile(side + ` address:.*QPN 0x([0-9a-f]+)`).FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("no %s QPN in %q", side, out)
		}
		n, err := strconv.ParseUint(m[1], 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		return float64(n)
	}
	for _, side := range []struct {
		out   string
		trace []verb
	}{{serverOut, server}, {clientOut, client}} {
		if first := side.trace[0]; first.Errno != "ENOSPC" || *first.Ret != -1 || len(first.Out) != 0 {
			t.Errorf("the first verb, rdma-core's probe, is %+v", first)
		}
		var states []any
		for _, v := range side.trace[1:] {
			if v.Errno != "" || *v.Ret != 0 {
				t.Errorf("%s failed: %d %s", v.Verb, *v.Ret, v.Errno)
			}
			switch v.Verb {
			case "create_qp":
				if v.Out["qp_num"] != qpn(side.out, "local") || v.Args["type"] != "RC" {
					t.Errorf("create_qp: %v %v", v.Args, v.Out)
				}
			case "reg_mr":
				if v.Args["length"] != 4096.0 || !slices.Equal(v.Args["access_flags"].([]any), []any{"LOCAL_WRITE"}) || v.Out["lkey"] == nil {
					t.Errorf("reg_mr: %v %v", v.Args, v.Out)
				}
			case "modify_qp":
				states = append(states, v.Args["qp_state"])
				if v.Args["qp_state"] == "RTR" {
					dest, _ := v.Args["dest"].(map[string]any)
					if v.Args["dest_qp_num"] != qpn(side.out, "remote") || dest["dgid"] != "::ffff:"+address {
						t.Errorf("modify_qp: %v", v.Args)
					}
				}
			}
		}
		if diff := cmp.Diff([]any{"INIT", "RTR", "RTS"}, states); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
	}
}

// TestChildren traces a shell that runs both programs.
func TestChildren(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace")
	script := strings.Join(pingpong(), " ") + " & until " + strings.Join(pingpong(address), " ") + " 2>/dev/null; do sleep 0.2; done; wait"
	witness := traceFunctions(t)
	start(t, ibvtrace, "--json", "-o", file, "sh", "-c", script).wait(t)
	kernel := witness.stop()
	if len(kernel) < 2 {
		t.Errorf("the kernel saw only %d processes", len(kernel))
	}
	compare(t, readTrace(t, file), kernel)
}

// TestAsStrace compares with what strace sees in another run of the same
// programs: the number and the results of the ioctls, on both sides.
func TestAsStrace(t *testing.T) {
	dir := t.TempDir()
	file := func(s string) string { return filepath.Join(dir, s) }
	both(t, []string{ibvtrace, "--json", "-o", file("server"), "--"}, []string{ibvtrace, "--json", "-o", file("client"), "--"})
	both(t, []string{"strace", "-f", "-e", "trace=ioctl", "-o", file("server.strace")}, []string{"strace", "-f", "-e", "trace=ioctl", "-o", file("client.strace")})
	for _, side := range []string{"server", "client"} {
		var got, want []string
		for _, v := range readTrace(t, file(side)) {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%d %s", *v.Ret, v.Errno)))
		}
		text, err := os.ReadFile(file(side + ".strace"))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`RDMA_VERBS_IOCTL, .* = (\S+(?: E\w+)?)`).FindAllStringSubmatch(string(text), -1) {
			want = append(want, m[1])
		}
		if len(want) == 0 {
			t.Fatalf("strace saw no verb:\n%s", text)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: results (-strace +ibvtrace):\n%s", side, diff)
		}
	}
}
