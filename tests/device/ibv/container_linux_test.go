package ibv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var (
	_ = rdmatest.Test(TestContainer, rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.OnMLX5Eth)
	_ = rdmatest.Test(TestContainerNodes, rdmatest.OnRXE, rdmatest.OnMLX5Eth)
	_ = rdmatest.Test(TestContainerNetwork, rdmatest.OnRXE)
)

// A container is a root directory with only ibv, device nodes and a read-only /sys.
type container struct{ root string }

func newContainer(t *testing.T) container {
	t.Helper()
	root := jail(t, "/sys")
	rdmatest.Check(t, syscall.Mount("", filepath.Join(root, "sys"), "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""))
	rdmatest.Check(t, os.MkdirAll(filepath.Join(root, "dev/infiniband"), 0o755))
	return container{root}
}

// node adds a device node.
func (c container) node(t *testing.T, name string) {
	t.Helper()
	var stat syscall.Stat_t
	rdmatest.Check(t, syscall.Stat("/dev/infiniband/"+name, &stat))
	path := filepath.Join(c.root, "dev/infiniband", name)
	rdmatest.Check(t, syscall.Mknod(path, stat.Mode, int(stat.Rdev)))
	rdmatest.Check(t, os.Chmod(path, 0o666))
}

// start starts ibv as root with these capabilities, and a limit of locked memory. Chroot
// itself needs one more capability, which container engines usually grant, too.
func (c container) start(t *testing.T, limit, caps string, args ...string) *rdmatest.Process {
	t.Helper()
	line := []string{"prlimit", "--memlock=" + limit, "setpriv", "--bounding-set=-all,+sys_chroot" + caps, "--inh-caps=-all",
		"chroot", c.root, "/ibv"}
	cmd := exec.Command(line[0], append(line[1:], args...)...)
	return rdmatest.StartCmd(t, cmd)
}

// measured runs a server and a client of write_bw.
func (c container) measured(t *testing.T, limit, caps string) (server, client *rdmatest.Process) {
	t.Helper()
	containerPort++
	args := []string{"write_bw", "-n", "50", "-s", "65536", "-p", strconv.Itoa(containerPort), "-d"}
	server = c.start(t, limit, caps, append(args, device)...)
	server.Until(t, func() bool { return server.Ended() || rdmatest.Listening(containerPort) })
	other := second
	if rdmatest.KindOf() == rdmatest.RXE {
		other = device // the only device that it reaches
	}
	client = c.start(t, limit, caps, append(args, other, "127.0.0.1")...)
	client.Wait()
	server.Wait()
	return server, client
}

var containerPort = 21000

// TestContainer: a container with the things that docs/containers.md lists can measure, and
// the page's statement about locked memory is true.
func TestContainer(t *testing.T) {
	rdmatest.CheckLeaks(t)
	c := newContainer(t)
	for i := range rdmatest.Devices {
		c.node(t, fmt.Sprintf("uverbs%d", i))
	}
	for _, command := range []string{"devices", "info"} {
		if got, want := c.start(t, "65536", "", command).Succeeds(t), output(t, rdmatest.Program(t, "ibv"), command); got != want {
			t.Errorf("ibv %s: %s", command, gocmp.Diff(want, got))
		}
	}
	for _, enough := range [][2]string{{"unlimited", ""}, {"65536", ",+ipc_lock"}} {
		if server, client := c.measured(t, enough[0], enough[1]); !server.OK() || !client.OK() {
			t.Errorf("%v\n%v", server, client)
		}
	}
	if _, client := c.measured(t, "65536", ""); client.OK() || !strings.Contains(client.Stderr(), "ulimit -l") {
		t.Errorf("65536 bytes can't be enough: %v", client)
	}
}

// TestContainerNodes: a command that connects by address, or sends raw frames, reports the
// missing node or capability. With it, the command works.
func TestContainerNodes(t *testing.T) {
	rdmatest.CheckLeaks(t)
	c := newContainer(t)
	for i := range rdmatest.Devices {
		c.node(t, fmt.Sprintf("uverbs%d", i))
	}
	if p := c.start(t, "unlimited", "", "rping", "-s", "-a", "192.168.77.1"); p.OK() || !strings.Contains(p.Stderr(), "/dev/infiniband/rdma_cm") {
		t.Errorf("without the connection manager's node: %v", p)
	}
	c.node(t, "rdma_cm")
	server := c.start(t, "unlimited", "", "rping", "-s", "-a", "192.168.77.1", "-C", "10")
	server.Until(t, func() bool { return rdmatest.ListeningCM(t, "TCP", 7174) })
	c.start(t, "unlimited", "", "rping", "-c", "-a", "192.168.77.1", "-C", "10").Succeeds(t)
	server.Succeeds(t)
	if rdmatest.KindOf() == rdmatest.RXE {
		return // the device has no raw frames
	}
	raw := []string{"raw_ethernet_bw", "--client", "-d", device, "-B", "02:00:00:00:00:0a", "-E", "02:00:00:00:00:0b", "-n", "20", "-s", "64"}
	if p := c.start(t, "unlimited", "", raw...); p.OK() || !strings.Contains(p.Stderr(), "CAP_NET_RAW") {
		t.Errorf("without the capability: %v", p)
	}
	c.start(t, "unlimited", ",+net_raw", raw...).Succeeds(t)
}

// TestContainerNetwork: a network namespace of its own, as a pod has. Shared devices are
// visible there, and two sides that meet over its loopback measure with the host's GIDs.
func TestContainerNetwork(t *testing.T) {
	ibv := rdmatest.Program(t, "ibv")
	inside := []string{"ip", "netns", "exec", "pod"}
	rdmatest.Command(t, "ip netns add pod")
	defer rdmatest.Command(t, "ip netns delete pod")
	rdmatest.Command(t, strings.Join(inside, " ")+" ip link set lo up")
	containerPort++
	args := append(inside, ibv, "write_bw", "-n", "50", "-s", "65536", "-p", strconv.Itoa(containerPort), "-d", device)
	server := rdmatest.Start(t, args...)
	server.Until(t, func() bool { return strings.Contains(server.Stdout(), "Waiting for client") })
	client := func() *rdmatest.Process {
		for {
			p := rdmatest.Start(t, append(args[:len(args):len(args)], "127.0.0.1")...)
			if p.Wait(); !strings.Contains(p.Stderr(), "refused") {
				return p
			}
		}
	}()
	if !server.OK() || !client.OK() {
		t.Errorf("%v\n%v", server, client)
	}
}
