package ibv

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/tests/internal/control"
)

var (
	_ = rdmatest.Test(TestSelftest, rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.OnMLX5Eth, rdmatest.Profiles, rdmatest.LongOn("mlx5-eth"))
	_ = rdmatest.Test(TestSelftestTwoDevices, rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.OnMLX5Eth, rdmatest.LongOn("mlx5-eth"))
	_ = rdmatest.Test(TestSelftestPeers, rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.Long)
	_ = rdmatest.Test(TestSelftestInterrupted, rdmatest.OnRXE, rdmatest.OnMLX5)
)

// A selftestReport has the fields of the report that the tests need.
type selftestReport struct {
	Format  int
	Status  string
	Kernel  string
	Devices []string
	Groups  []struct {
		Name, Status string
		Passed       int `json:"checks_passed"`
		Done         int
		Planned      int
		NotThere     []string `json:"not_there"`
		Failures     []struct{ Group, Check, Object, Expected, Seen string }
	}
}

// selftest runs ibv selftest, and returns its report and exit status.
func selftest(t *testing.T, args ...string) (r selftestReport, text string, status int) {
	t.Helper()
	text, stderr, status := result(t, exec.Command(rdmatest.Program(t, "ibv"), append([]string{"selftest", "--json"}, args...)...))
	if stderr != "" {
		t.Errorf("stderr: %s", stderr)
	}
	rdmatest.Check(t, json.Unmarshal([]byte(text), &r))
	return r, text, status
}

// The device passes a short run. Only the expected groups are empty, and the report lists
// missing features. It shows no address.
func TestSelftest(t *testing.T) {
	seconds := "15s"
	if testing.Short() {
		seconds = "3s"
	}
	r, text, status := selftest(t, "-t", seconds, "-p", rdmatest.Patience.String(), device)
	if status != 0 || r.Status != "shortened" && r.Status != "passed" || r.Format != 1 || len(r.Devices) != 1 || r.Devices[0] != device {
		t.Errorf("status %d, %s, format %d, devices %v", status, r.Status, r.Format, r.Devices)
	}
	seen := make(map[string]bool)
	for _, g := range r.Groups {
		for _, f := range g.Failures {
			t.Errorf("%s, %s: %s: expected %s, seen %s", f.Group, f.Check, f.Object, f.Expected, f.Seen)
		}
		seen[g.Name] = true
		if g.Passed == 0 && len(g.NotThere) == 0 {
			t.Errorf("%s: nothing was checked, and nothing is missing", g.Name)
		}
		mlx5 := rdmatest.KindOf() == rdmatest.MLX5
		profile := os.Getenv(rdmatest.ProfileVariable)
		absent := g.Name == "combining" && (!mlx5 || profile == "vf" || profile == "nobf") || g.Name == "peers" || g.Name == "speed" || g.Name == "clocks" && !mlx5 || g.Name == "raw" && !(mlx5 && rdmatest.RoCE)
		if (g.Status == "not there") != absent {
			t.Errorf("%s: %s, missing %q", g.Name, g.Status, g.NotThere)
		}
		if whole := mlx5 && profile == "" && slices.Contains([]string{"data", "doorbells", "wraps", "syndromes"}, g.Name); whole && len(g.NotThere) > 0 {
			t.Errorf("%s: this adapter has %q", g.Name, g.NotThere)
		}
	}
	for _, name := range []string{"identity", "data", "doorbells", "wraps", "counters", "cqs", "syndromes", "memory", "clocks", "addresses", "raw", "combining", "peers", "speed", "host"} {
		if !seen[name] {
			t.Errorf("no group %s", name)
		}
	}
	for _, secret := range secrets(t) {
		if strings.Contains(text, secret) {
			t.Errorf("the report has %q", secret)
		}
	}
}

// secrets returns the device's addresses, as /sys writes them.
func secrets(t *testing.T) (list []string) {
	t.Helper()
	for _, f := range []string{"node_guid", "sys_image_guid", "ports/1/gids/0"} {
		text := strings.TrimSpace(string(rdmatest.Must(os.ReadFile("/sys/class/infiniband/" + device + "/" + f))(t)))
		if strings.Trim(text, "0:") == "" {
			continue // EFA has no GUID
		}
		list = append(list, text)
		if f != "ports/1/gids/0" {
			list = append(list, strings.ReplaceAll(text, ":", ""))
		}
	}
	if netDev != "" {
		list = append(list, "192.168.77.1")
	}
	return list
}

// Two devices are tested if they reach each other. If not, a sentence says so, in place of
// failures: on a network that loses everything, and on rxe, because a host drops packets from
// its own address. The command in that sentence makes the devices reach each other.
func TestSelftestTwoDevices(t *testing.T) {
	passes := func() {
		t.Helper()
		r, _, status := selftest(t, "--only", "identity,syndromes,host", "-t", "1s", "-p", rdmatest.Patience.String(), device, second)
		if status != 0 || len(r.Devices) != 2 {
			t.Errorf("status %d, %+v", status, r)
		}
	}
	apart := func(why string) (advice string) {
		t.Helper()
		stdout, stderr, status := result(t, exec.Command(rdmatest.Program(t, "ibv"), "selftest", device, second))
		before, advice, _ := strings.Cut(strings.TrimSuffix(stderr, ", or test each one by itself\n"), "; ")
		if status != 1 || stdout != "" || !strings.HasPrefix(before, "ibv selftest: "+device+" (") || !strings.HasSuffix(before, "): "+why) ||
			!strings.Contains(before, " doesn't reach "+second+" (") || strings.Contains(advice, "\n") {
			t.Fatalf("status %d, %q, %q", status, stdout, stderr)
		}
		if n := objects(t); n != 0 {
			t.Errorf("%d queue pairs are left", n)
		}
		return advice
	}
	if rdmatest.KindOf() == rdmatest.RXE {
		command, is := strings.CutPrefix(apart("Linux drops what comes from an address of its own"), "run ")
		if !is {
			t.Fatal(command)
		}
		settings := strings.Fields(command)
		output(t, settings[0], settings[1:]...)
		defer output(t, "sysctl", strings.Fields(strings.ReplaceAll(strings.TrimPrefix(command, "sysctl "), "=1", "=0"))...)
		passes()
		return
	}
	passes()
	rdmatest.Check(t, control.Request{Do: "faults", Drop: 1}.Ask())
	defer func() { rdmatest.Check(t, control.Request{Do: "faults"}.Ask()) }()
	apart("nothing answers")
}

// The device exchanges messages with rdma-core's ping-pongs, and mlx5 devices write the same
// completions for libmlx5. Wrong data that the ping-pongs report is a failure, though they
// exit with success.
func TestSelftestPeers(t *testing.T) {
	args := []string{"--only", "peers", "-t", "10s", "-p", rdmatest.Patience.String(), device}
	r, _, status := selftest(t, args...)
	want, compared := 15, 1
	var absent []string
	if rdmatest.KindOf() == rdmatest.RXE {
		want, compared, absent = 10, 0, []string{"XRC"}
	}
	if g := r.Groups[0]; status != 0 || g.Passed != want || !slices.Equal(g.NotThere, absent) {
		t.Errorf("status %d, %+v", status, g)
	}
	dir := t.TempDir()
	const wrong = `#!/bin/sh
case "$*" in
*1073741824*) exec /usr/bin/ibv_uc_pingpong "$@" ;; # until it is killed
esac
/usr/bin/ibv_uc_pingpong "$@" && echo invalid data in page 0
`
	rdmatest.Check(t, os.WriteFile(dir+"/ibv_uc_pingpong", []byte(wrong), 0o700))
	t.Setenv("PATH", dir)
	r, _, status = selftest(t, args...)
	g := r.Groups[0]
	for _, kind := range []string{"rc", "ud", "srq", "xsrq"} {
		if !slices.Contains(g.NotThere, "ibverbs-utils: there is no ibv_"+kind+"_pingpong") {
			t.Errorf("that there is no %s ping-pong is not said: %q", kind, g.NotThere)
		}
	}
	if status != 1 || g.Passed != compared || len(g.Failures) != 2 || g.Failures[1].Seen != "invalid data in page 0" {
		t.Errorf("status %d, %+v", status, g)
	}
}

// An interrupted test reports its results so far, and leaves nothing on the device. A killed
// test leaves nothing, either.
func TestSelftestInterrupted(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		p := rdmatest.StartCmd(t, exec.Command(rdmatest.Program(t, "ibv"), "selftest", "--json", "-t", "10m", device))
		waitForObjects(t)
		p.Signal(signal)
		state := p.Wait()
		if signal == syscall.SIGINT {
			var r selftestReport
			rdmatest.Check(t, json.Unmarshal([]byte(p.Stdout()), &r))
			if state.ExitCode() != 1 || r.Status != "stopped" {
				t.Errorf("after %v: status %d, %s", signal, state.ExitCode(), r.Status)
			}
		}
		if n := objects(t); n != 0 {
			t.Errorf("after %v, %d queue pairs are left", signal, n)
		}
	}
}

// objects counts the queue pairs of processes on the device, as `rdma resource` does.
func objects(t *testing.T) int {
	t.Helper()
	n := 0
	for line := range strings.Lines(output(t, "rdma", "resource", "show", "qp", "link", device+"/1")) {
		if strings.Contains(line, " pid ") {
			n++
		}
	}
	return n
}

// waitForObjects waits until the test has queue pairs.
func waitForObjects(t *testing.T) {
	t.Helper()
	for begin := time.Now(); objects(t) == 0; time.Sleep(50 * time.Millisecond) {
		if time.Since(begin) > rdmatest.Patience {
			t.Fatal("no queue pair in a long time")
		}
	}
}
