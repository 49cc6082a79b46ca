// Package ibvtrace tests ibvtrace on a device with rdma-core's programs. It compares the
// traces with independent witnesses: the kernel's function tracer, strace, and the
// programs' output.
//
// Tests of a single driver are in the file with the driver's name.
package ibvtrace

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

var (
	device = rdmatest.Device
	mlx5   = rdmatest.KindOf() == rdmatest.MLX5

	// The servers' address, and the options that select the port's GID. An InfiniBand port
	// needs none, as it has a LID.
	address               = "192.168.77.1"
	pingpongGID, perftGID = []string{"-g", "1"}, []string{"-x", "1"}
)

func init() {
	if mlx5 {
		address, pingpongGID, perftGID = "127.0.0.1", nil, nil
	}
}

func TestMain(m *testing.M) {
	status := rdmatest.Run(m, rdmatest.OnRXE, rdmatest.OnMLX5)
	if err := unwatch(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// A pair is two programs, a server and its client.
type pair struct {
	server, client []string
	ready          func() bool // reports whether the server is ready
}

// listening reports whether a process listens on a TCP port.
func listening(port int) func() bool {
	return func() bool { return rdmatest.Listening(port) }
}

// pingpong returns a pair of one of the ibv_*_pingpong programs.
func pingpong(kind string, args ...string) pair {
	c := slices.Concat([]string{"ibv_" + kind + "_pingpong", "-d", device}, pingpongGID, []string{"-n", "50"}, args)
	return pair{c, append(slices.Clone(c), address), listening(18515)}
}

// perftest returns a pair of one of perftest's programs.
func perftest(name string) pair {
	c := slices.Concat([]string{name, "-d", device}, perftGID, []string{"-n", "100", "-F"})
	return pair{c, append(slices.Clone(c), address), listening(18515)}
}

// fabric returns a pair of libfabric's fi_pingpong.
func fabric() pair {
	c := []string{"fi_pingpong", "-p", "verbs", "-e", "msg", "-d", device, "-I", "100", "-S", "64"}
	return pair{c, append(slices.Clone(c), address), listening(47592)}
}

// rping returns a pair of rdma-core's rping.
func rping(t *testing.T) pair {
	c := []string{"rping", "-v", "-a", address, "-C", "3"} // -v shows that all pings were answered
	return pair{append(slices.Clone(c), "-s"), append(slices.Clone(c), "-c"), rpingListens(t)}
}

// rpingListens reports whether rping's server listens.
func rpingListens(t *testing.T) func() bool {
	const port = 7174
	return func() bool { return rdmatest.ListeningCM(t, "TCP", port) }
}

// run runs a server and a client, each with a prefix before its command.
func (p pair) run(t *testing.T, server, client []string) (serverOut, clientOut string) {
	t.Helper()
	s := rdmatest.Start(t, append(server, p.server...)...)
	s.Until(t, p.ready)
	c := rdmatest.Start(t, append(client, p.client...)...)
	c.Succeeds(t)
	s.Succeeds(t)
	return s.Said(), c.Said()
}

// stopped returns the prefix of a command that is traced to a file by ptrace.
func stopped(t *testing.T, file string, args ...string) []string {
	return traced(t, file, append(args, "--how=ptrace")...)
}

// traced returns the prefix of a command that is traced to a file, in the default way: as root,
// by BPF.
func traced(t *testing.T, file string, args ...string) []string {
	return append(append([]string{rdmatest.Program(t, "ibvtrace"), "--json", "-o", file}, args...), "--")
}

var (
	_ = rdmatest.Test(TestAsKernel, rdmatest.LongOn("mlx5"))
	_ = rdmatest.Test(TestChildren, rdmatest.LongOn("mlx5"))
	_ = rdmatest.Test(TestAsStrace, rdmatest.LongOn("mlx5"))
)

// TestAsKernel traces both sides of common programs, and compares the traces with the
// functions that the kernel ran.
func TestAsKernel(t *testing.T) {
	inTree := rdmatest.Must(filepath.Abs("../../../rig/in-tree"))(t)
	for _, age := range []struct {
		name   string
		prefix []string
	}{{"v44", nil}, {"newer", []string{inTree}}} {
		dir := t.TempDir()
		files := []string{filepath.Join(dir, "server"), filepath.Join(dir, "client")}
		pairs := map[string]pair{
			"rc_pingpong": pingpong("rc"), "ud_pingpong": pingpong("ud"), "srq_pingpong": pingpong("srq"),
			"rc_pingpong with events": pingpong("rc", "-e"),
			"ib_send_bw":              perftest("ib_send_bw"), "ib_write_lat": perftest("ib_write_lat"),
		}
		if !mlx5 { // mlx5's port has no IP address
			pairs["rping"] = rping(t)
		}
		for name, p := range pairs {
			quick := name == "rc_pingpong"
			if age.prefix == nil { // TestChildren has this ping-pong
				quick = name == "rping" || name == "ib_write_lat"
			}
			if testing.Short() && !quick {
				continue
			}
			t.Run(age.name+" "+name, func(t *testing.T) {
				os.Remove(files[0])
				w := watchKernel(t)
				p.run(t, append(slices.Clone(age.prefix), stopped(t, files[0])...), append(slices.Clone(age.prefix), stopped(t, files[1])...))
				kernel := w.saw()
				server, client := rdmatest.ReadTrace(t, files[0]), rdmatest.ReadTrace(t, files[1])
				t.Logf("%d and %d events", len(server), len(client))
				compare(t, append(server, client...), kernel)
			})
		}
	}
}

// TestChildren traces a shell that runs both programs.
func TestChildren(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace")
	p := pingpong("rc")
	script := strings.Join(p.server, " ") + " & until " + strings.Join(p.client, " ") + " 2>/dev/null; do sleep 0.2; done; wait"
	w := watchKernel(t)
	rdmatest.Start(t, append(stopped(t, file), "sh", "-c", script)...).Succeeds(t)
	kernel := w.saw()
	if len(kernel) < 2 {
		t.Errorf("the kernel saw only %d processes", len(kernel))
	}
	compare(t, rdmatest.ReadTrace(t, file), kernel)
}

// TestAsStrace compares the number and the results of the ioctls, on both sides, with
// those that strace sees in another run of the same programs.
func TestAsStrace(t *testing.T) {
	dir := t.TempDir()
	file := func(s string) string { return filepath.Join(dir, s) }
	p := pingpong("rc")
	p.run(t, stopped(t, file("server")), stopped(t, file("client")))
	p.run(t, []string{"strace", "-f", "-e", "trace=ioctl", "-o", file("server.strace")}, []string{"strace", "-f", "-e", "trace=ioctl", "-o", file("client.strace")})
	for _, side := range []string{"server", "client"} {
		var got, want []string
		for _, e := range rdmatest.ReadTrace(t, file(side)) {
			if e.Kind == event.Control {
				got = append(got, strings.TrimSpace(fmt.Sprintf("%d %s", e.Ret, e.Errno)))
			}
		}
		text := rdmatest.Must(os.ReadFile(file(side + ".strace")))(t)
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
