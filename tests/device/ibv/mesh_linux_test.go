package ibv

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var (
	_ = rdmatest.Test(TestMeshOpenMPI, rdmatest.OnRXE)
	_ = rdmatest.Test(TestMeshLaunchers, rdmatest.OnRXE, rdmatest.Long)
	_ = rdmatest.Test(TestMeshLost, rdmatest.OnRXE, rdmatest.Long)
)

// A meshResult has the tested fields of the output of ibv mesh --json.
type meshResult struct {
	Hosts []struct{ Host, Lost string }
	Links []struct {
		A, B    int
		Latency *struct{ Median float64 } `json:"latency_us"`
		AB      float64                   `json:"gbits_ab"`
		BA      float64                   `json:"gbits_ba"`
		Both    float64                   `json:"gbits_both"`
		Error   string
	}
}

// check checks that all links have all figures, except the links of a lost rank.
func (r *meshResult) check(t *testing.T, ranks, lost int) {
	t.Helper()
	if len(r.Hosts) != ranks || len(r.Links) != ranks*(ranks-1)/2 {
		t.Fatalf("%+v", r)
	}
	for _, l := range r.Links {
		whole := l.Latency != nil && l.Latency.Median > 0 && l.AB > 0 && l.BA > 0 && l.Both > 0 && l.Error == ""
		if !whole && l.A != lost && l.B != lost {
			t.Errorf("%+v", l)
		}
	}
	for i, h := range r.Hosts {
		if (h.Lost != "") != (i == lost) {
			t.Errorf("rank %d: %+v", i, h)
		}
	}
}

var meshPort = 20519

// startMesh starts ranks by hand.
func startMesh(t *testing.T, ranks int, args ...string) (all []*rdmatest.Process) {
	t.Helper()
	meshPort++
	for i := range ranks {
		line := []string{rdmatest.Program(t, "ibv"), "mesh", "--rank", fmt.Sprint(i), "--size", fmt.Sprint(ranks), "--root", "localhost",
			"--port", fmt.Sprint(meshPort), "-d", rdmatest.Devices[0], "-s", "4096", "-t", "20ms", "--json"}
		all = append(all, rdmatest.Start(t, append(line, args...)...))
	}
	return all
}

// TestMesh: all pairs of three ranks, a picture, and a comparison with the run itself.
func TestMesh(t *testing.T) {
	rdmatest.CheckLeaks(t)
	dir := t.TempDir()
	picture := filepath.Join(dir, "mesh.svg")
	all := startMesh(t, 3, "--plot", picture)
	for _, p := range all {
		if !p.Wait().Success() {
			t.Fatal(p)
		}
	}
	var r meshResult
	rdmatest.Check(t, json.Unmarshal([]byte(all[0].Stdout()), &r))
	r.check(t, 3, -1)
	if b, err := os.ReadFile(picture); err != nil || !strings.Contains(string(b), "Bandwidth both ways") {
		t.Errorf("%s, %v", b, err)
	}
	before := filepath.Join(dir, "before.json")
	rdmatest.Check(t, os.WriteFile(before, []byte(all[0].Stdout()), 0o600))
	all = startMesh(t, 3, "--compare", before)
	for _, p := range all {
		if !p.Wait().Success() {
			t.Fatal(p)
		}
	}
	if !strings.Contains(all[0].Stderr(), "3 of 3 links were there") {
		t.Error(all[0])
	}
}

// TestMeshLaunchers: Slurm, an indexed Job and a list of hosts determine a process's rank.
// Each rank is on a host of its own name.
func TestMeshLaunchers(t *testing.T) {
	const ranks = 3
	var names []string
	for i := range ranks {
		names = append(names, fmt.Sprintf("node-%d", i))
	}
	// Slurm's daemons also look up the host's name, which takes long.
	own := rdmatest.Must(os.Hostname())(t)
	hosts := rdmatest.Must(os.OpenFile("/etc/hosts", os.O_APPEND|os.O_WRONLY, 0))(t) // the guest's, which is discarded
	rdmatest.Must(fmt.Fprintf(hosts, "\n127.0.0.1 %s %s\n", own, strings.Join(names, " ")))(t)
	rdmatest.Check(t, hosts.Close())
	// rank returns a command that runs a rank on a host of this name.
	rank := func(host string, args ...string) []string {
		return append([]string{"unshare", "--uts", "sh", "-c", `hostname "` + host + `" && exec "$0" "$@"`, rdmatest.Program(t, "ibv"), "mesh",
			"--port", fmt.Sprint(meshPort), "-d", rdmatest.Devices[0], "-s", "1024", "-t", "20ms", "--json"}, args...)
	}
	check := func(t *testing.T, said string) {
		t.Helper()
		var r meshResult
		rdmatest.Check(t, json.Unmarshal([]byte(said), &r))
		r.check(t, ranks, -1)
		for i, h := range r.Hosts {
			if h.Host != names[i] {
				t.Errorf("rank %d is on %s, not on %s", i, h.Host, names[i])
			}
		}
	}
	t.Run("Slurm", func(t *testing.T) {
		startSlurm(t, ranks)
		meshPort++
		srun := []string{"srun", "--nodes", fmt.Sprint(ranks), "--ntasks-per-node=1"}
		check(t, rdmatest.Start(t, append(srun, rank("$SLURMD_NODENAME")...)...).Succeeds(t))
	})
	for name, launch := range map[string]struct {
		variable string // has the rank, or ""
		args     []string
	}{
		"an indexed Job": {"JOB_COMPLETION_INDEX", []string{"--size", fmt.Sprint(ranks)}},
		"a list":         {"", []string{"--hosts", strings.Join(names, ",")}},
	} {
		t.Run(name, func(t *testing.T) {
			meshPort++
			var all []*rdmatest.Process
			for i := range ranks {
				line := rank(names[i], launch.args...)
				if launch.variable != "" {
					line = append([]string{"env", fmt.Sprintf("%s=%d", launch.variable, i)}, line...)
				}
				all = append(all, rdmatest.Start(t, line...))
			}
			for _, p := range all {
				if !p.Wait().Success() {
					t.Fatal(p)
				}
			}
			check(t, all[0].Stdout())
		})
	}
}

// queuePairs counts the queue pairs of all devices.
func queuePairs(t *testing.T) (n int) {
	t.Helper()
	words := strings.Fields(rdmatest.Resources(t))
	for i, word := range words[1:] {
		if words[i] == "qp" {
			n += rdmatest.Must(strconv.Atoi(word))(t)
		}
	}
	return n
}

// TestMeshLost: one rank is stopped, and one is killed. The other ranks are measured.
func TestMeshLost(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for name, says := range map[string]string{"stopped": "hangs", "killed": "has died"} {
		t.Run(name, func(t *testing.T) {
			// The measurements take long, so that the rank is in the middle of one.
			before := queuePairs(t)
			all := startMesh(t, 3, "-t", "1s")
			all[0].Until(t, func() bool { return queuePairs(t) > before })
			if name == "stopped" {
				all[2].Signal(syscall.SIGSTOP)
			} else {
				all[2].Kill()
			}
			if all[0].Wait().ExitCode() != 1 || !all[1].Wait().Success() {
				t.Fatalf("%v\n%v", all[0], all[1])
			}
			if name == "stopped" {
				all[2].Kill()
			}
			var r meshResult
			rdmatest.Check(t, json.Unmarshal([]byte(all[0].Stdout()), &r))
			r.check(t, 3, 2)
			if !strings.Contains(r.Hosts[2].Lost, says) || !strings.Contains(all[0].Stderr(), "1 of 3 ranks are lost") {
				t.Errorf("%+v, %v", r, all[0])
			}
		})
	}
}

// TestMeshOpenMPI: Open MPI numbers 4 ranks, or 16 with GOVERBS_LONG.
func TestMeshOpenMPI(t *testing.T) {
	ranks := 4
	if os.Getenv("GOVERBS_LONG") != "" {
		ranks = 16
	}
	meshOpenMPI(t, ranks, "--oversubscribe").check(t, ranks, -1)
}

// meshOpenMPI makes Open MPI start ranks on the first device. Open MPI gives rank 0's
// location only if all ranks are on one host. A message is one packet: rxe of Linux 6.1
// sometimes refuses the rest of a longer message that is sent again.
func meshOpenMPI(t *testing.T, ranks int, args ...string) (r *meshResult) {
	t.Helper()
	meshPort++
	line := append([]string{"mpirun", "--allow-run-as-root", "-n", fmt.Sprint(ranks)}, args...)
	line = append(line, rdmatest.Program(t, "ibv"), "mesh", "--port", fmt.Sprint(meshPort),
		"--wait", rdmatest.Patience.String(), "-d", rdmatest.Devices[0], "-s", "1024", "-t", "20ms", "--json")
	if os.Getenv("VM_PEER") != "" {
		line = append(line, "--root", os.Getenv("VM_ADDR"))
	}
	p := rdmatest.Start(t, line...)
	if !p.Wait().Success() {
		t.Fatal(p)
	}
	rdmatest.Check(t, json.Unmarshal([]byte(p.Stdout()), &r))
	return r
}
