// Package ibv compares ibv with rdma-core's programs on a real device, and runs it in
// environments like those of containers.
package ibv

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var (
	device, second = rdmatest.Devices[0], rdmatest.Devices[1]
	// The network interfaces of the first and the second device. InfiniBand devices have
	// none.
	netDev, secondNetDev = rdmatest.NetDev(device), rdmatest.NetDev(second)
)

func TestMain(m *testing.M) { rdmatest.Main(m, rdmatest.OnRXE, rdmatest.OnMLX5) }

// output runs a program that must succeed and print nothing on stderr.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	stdout, stderr, status := result(t, exec.Command(name, args...))
	if status != 0 || stderr != "" {
		t.Fatalf("%s %q: status %d, %s", name, args, status, stderr)
	}
	return stdout
}

// result runs a program and returns its output and status.
func result(t *testing.T, c *exec.Cmd) (stdout, stderr string, status int) {
	t.Helper()
	p := rdmatest.StartCmd(t, c)
	status = p.Wait().ExitCode()
	return p.Stdout(), p.Stderr(), status
}

// ibv's output equals that of rdma-core's programs.
func TestSameAsRdmaCore(t *testing.T) {
	if netDev != "" {
		addGlobalAddress(t)
	}
	for _, test := range []struct{ theirs, ours []string }{
		{[]string{"ibv_devices"}, []string{"devices"}},
		{[]string{"ibv_devinfo"}, []string{"info"}},
		{[]string{"ibv_devinfo", "-v"}, []string{"info", "-v"}},
		{[]string{"ibv_devinfo", "-l"}, []string{"info", "-l"}},
		{[]string{"ibv_devinfo", "-d", second}, []string{"info", "-d", second}},
		{[]string{"ibv_devinfo", "-d", second}, []string{"info", "-d", cmp.Or(secondNetDev, second)}},
		{[]string{"ibv_devinfo", "-v", "-d", device, "-i", "1"}, []string{"info", "-v", "-d", device, "-i", "1"}},
	} {
		t.Run(strings.Join(test.ours, " "), func(t *testing.T) {
			want := output(t, test.theirs[0], test.theirs[1:]...)
			if !strings.Contains(want, second) && !strings.Contains(want, device) {
				t.Fatalf("%q printed no device: %s", test.theirs, want)
			}
			if diff := gocmp.Diff(devinfo44(want), effectiveSpeed.ReplaceAllString(output(t, rdmatest.Program(t, "ibv"), test.ours...), "")); diff != "" {
				t.Errorf("(-rdma-core +ibv):\n%s", diff)
			}
		})
	}
}

// addGlobalAddress gives the device the GID of an IPv6 address that isn't link-local. It
// isn't removed, because the machine is discarded.
func addGlobalAddress(t *testing.T) {
	t.Helper()
	rdmatest.EnableIPv6(t, netDev)
	output(t, "ip", "address", "replace", "2001:db8::1/64", "dev", netDev)
	// The kernel adds the GID asynchronously.
	for {
		files, err := filepath.Glob("/sys/class/infiniband/" + device + "/ports/1/gids/?")
		if err != nil || len(files) == 0 {
			t.Fatal("no GIDs in /sys: ", err)
		}
		for _, file := range files {
			if gid, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(gid), "2001:0db8:") {
				return
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// effectiveSpeed matches a line that version 44 of ibv_devinfo doesn't print.
var effectiveSpeed = regexp.MustCompile(`(?m)^\s*effective_speed:.*\n`)

// devinfo44 changes the output of a later ibv_devinfo to that of version 44, which
// doesn't know some values yet.
func devinfo44(s string) string {
	return strings.ReplaceAll(s,
		"Unknown flags: 0xC0\n",
		"SUPPORT_FLUSH\n\t\t\t\t\tSUPPORT_ATOMIC_WRITE\n")
}

// A device can be selected by each of its names.
func TestSelectors(t *testing.T) {
	want := output(t, rdmatest.Program(t, "ibv"), "info", "-d", device)
	guid := rdmatest.Must(os.ReadFile("/sys/class/infiniband/" + device + "/node_guid"))(t)
	text := strings.TrimSpace(string(guid))
	for _, selector := range []string{text, strings.ReplaceAll(text, ":", ""), cmp.Or(netDev, device)} {
		if got := output(t, rdmatest.Program(t, "ibv"), "info", "-d", selector); got != want {
			t.Errorf("-d %s: %s", selector, got)
		}
	}
}

// The JSON output has the same values as the text.
func TestJSON(t *testing.T) {
	var devices []struct {
		HCA       string `json:"hca_id"`
		Node      string
		NetDevs   []string
		NodeGUID  string   `json:"node_guid"`
		MaxQPWR   int      `json:"max_qp_wr"`
		CapFlags  []string `json:"device_cap_flags"`
		AtomicCap string   `json:"atomic_cap"`
		Ports     []struct {
			Port      int
			State     string
			ActiveMTU int    `json:"active_mtu"`
			LinkLayer string `json:"link_layer"`
			GIDs      []struct {
				Index             int
				GID, Type, NetDev string
			}
		}
	}
	rdmatest.Check(t, json.Unmarshal([]byte(output(t, rdmatest.Program(t, "ibv"), "info", "--json")), &devices))
	if len(devices) != 2 {
		t.Fatalf("%d devices, want 2", len(devices))
	}
	text := output(t, "ibv_devinfo", "-v")
	for i, d := range devices {
		if want := []string{netDev, secondNetDev}[i]; d.HCA != rdmatest.Devices[i] || want != "" && !slices.Contains(d.NetDevs, want) {
			t.Errorf("device %d is %s on %v, want %s on %s", i, d.HCA, d.NetDevs, rdmatest.Devices[i], want)
		}
		if _, err := os.Stat(d.Node); err != nil {
			t.Error(err)
		}
		words := []string{d.NodeGUID, fmt.Sprintf("max_qp_wr:\t\t\t%d\n", d.MaxQPWR), d.AtomicCap, d.Ports[0].State,
			fmt.Sprintf("active_mtu:\t\t%d ", d.Ports[0].ActiveMTU), d.Ports[0].LinkLayer}
		for _, g := range d.Ports[0].GIDs {
			line := fmt.Sprintf("GID[%3d]:\t\t%s, %s\n", g.Index, g.GID, g.Type)
			if g.Type == "IB" {
				line = fmt.Sprintf("GID[%3d]:\t\t%s\n", g.Index, netip.MustParseAddr(g.GID).StringExpanded())
			}
			words = append(words, line)
		}
		for _, word := range append(words, d.CapFlags...) {
			if word == "" || !strings.Contains(text, word) {
				t.Errorf("%s: ibv_devinfo doesn't print %q", d.HCA, word)
			}
		}
		if len(d.CapFlags) == 0 || len(d.Ports[0].GIDs) < 1 {
			t.Errorf("%s: flags %v, GIDs %v", d.HCA, d.CapFlags, d.Ports[0].GIDs)
		}
	}
}

// jail creates a root directory with only ibv and the mounts.
func jail(t *testing.T, mounts ...string) string {
	t.Helper()
	root := t.TempDir()
	program := rdmatest.Must(os.ReadFile(rdmatest.Program(t, "ibv")))(t)
	rdmatest.Check(t, os.WriteFile(filepath.Join(root, "ibv"), program, 0o755))
	for _, m := range mounts {
		to := filepath.Join(root, m)
		rdmatest.Check(t, os.Mkdir(to, 0o755))
		rdmatest.Check(t, syscall.Mount(m, to, "", syscall.MS_BIND|syscall.MS_REC, ""))
		t.Cleanup(func() { syscall.Unmount(to, syscall.MNT_DETACH) })
	}
	return root
}

// inJail returns the command that runs ibv with the root and an empty environment.
func inJail(root string, args ...string) *exec.Cmd {
	c := exec.Command("/ibv", args...)
	c.Env = []string{}
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	return c
}

// ibv needs no other file.
func TestChroot(t *testing.T) {
	root := jail(t, "/dev", "/sys")
	for _, args := range [][]string{{"devices"}, {"info", "-v"}} {
		stdout, stderr, status := result(t, inJail(root, args...))
		if status != 0 || stderr != "" {
			t.Errorf("ibv %q: status %d, %s", args, status, stderr)
		}
		if want := output(t, rdmatest.Program(t, "ibv"), args...); stdout != want {
			t.Errorf("ibv %q in the jail (-outside +inside):\n%s", args, gocmp.Diff(want, stdout))
		}
	}
}

// Without the device nodes, as in a container, the error names what is missing.
func TestMissingNodes(t *testing.T) {
	root := jail(t, "/sys")
	stdout, stderr, status := result(t, inJail(root, "devices"))
	if want := output(t, rdmatest.Program(t, "ibv"), "devices"); status != 0 || stdout != want {
		t.Errorf("ibv devices: status %d, %s", status, stdout)
	}
	for _, word := range []string{device, "/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1", "--device"} {
		if !strings.Contains(stderr, word) {
			t.Errorf("ibv devices does not mention %q: %s", word, stderr)
		}
	}
	_, stderr, status = result(t, inJail(root, "info", "-d", second))
	if status != 1 || !strings.Contains(stderr, "/dev/infiniband/uverbs1") || !strings.Contains(stderr, "--device") {
		t.Errorf("ibv info: status %d, %s", status, stderr)
	}
}

// The same without any device.
func TestNoDevices(t *testing.T) {
	root := jail(t)
	stdout, stderr, status := result(t, inJail(root, "devices"))
	if status != 0 || strings.Contains(stdout, device) || !strings.Contains(stderr, "rdma_rxe") || !strings.Contains(stderr, "container") {
		t.Errorf("ibv devices: status %d, %s%s", status, stdout, stderr)
	}
	_, stderr, status = result(t, inJail(root, "info"))
	if status != 1 || !strings.Contains(stderr, "rdma_rxe") || !strings.Contains(stderr, "container") {
		t.Errorf("ibv info: status %d, %s", status, stderr)
	}
}

// Without permission for a node, the error names it, and the other devices work.
func TestNoPermission(t *testing.T) {
	const node = "/dev/infiniband/uverbs0"
	stat := rdmatest.Must(os.Stat(node))(t)
	rdmatest.Check(t, os.Chmod(node, 0o600))
	defer os.Chmod(node, stat.Mode().Perm())
	c := exec.Command(rdmatest.Program(t, "ibv"), "info")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	stdout, stderr, status := result(t, c)
	if status != 1 || !strings.Contains(stderr, node) || !strings.Contains(stderr, "permission") {
		t.Errorf("status %d, %s", status, stderr)
	}
	if want := output(t, rdmatest.Program(t, "ibv"), "info", "-d", second); stdout != want {
		t.Errorf("the second device (-want +got):\n%s", gocmp.Diff(want, stdout))
	}
}
