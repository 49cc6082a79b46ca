// Package doctor breaks the guest in many ways. Each time, `ibv doctor` must find the cause
// and nothing else, and the proposed commands must repair the guest.
package doctor

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/tests/internal/control"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) {
	rdmatest.Main(m, rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.OnMLX5Eth, rdmatest.Long)
}

var device, netDev = rdmatest.Device, rdmatest.NetDev(rdmatest.Device)

// A report has the fields of doctor's JSON that the tests need.
type report struct {
	Devices  []struct{ Name string }
	Findings []finding
	Unseen   []string
}

type finding struct {
	ID       string
	Note     bool
	Host     string
	Device   string
	What     string
	Evidence []struct{ Source, Value string }
	Mend     []string
	Advice   string
}

// wrong returns the findings that are not notes.
func (r *report) wrong() []string {
	list := []string{}
	for _, f := range r.Findings {
		if !f.Note {
			list = append(list, f.ID)
		}
	}
	return list
}

// examine runs doctor, behind the command by if it isn't empty, and checks doctor's status.
func examine(t *testing.T, by []string, args ...string) *report {
	t.Helper()
	command := append(slices.Clone(by), rdmatest.Program(t, "ibv"), "doctor", "--json")
	return run(t, exec.Command("env", append(command, args...)...))
}

func run(t *testing.T, c *exec.Cmd) *report {
	t.Helper()
	p := rdmatest.StartCmd(t, c)
	status := p.Wait().ExitCode()
	r := new(report)
	if err := json.Unmarshal([]byte(p.Stdout()), r); err != nil || p.Stderr() != "" {
		t.Fatalf("%v: %v", err, p)
	}
	if want := min(len(r.wrong()), 1); status != want {
		t.Fatalf("status %d, want %d: %v", status, want, p)
	}
	return r
}

// healthy waits until doctor has no findings: a link or an address takes effect a moment
// after the command that sets it.
func healthy(t *testing.T, by []string, args ...string) {
	t.Helper()
	for deadline := time.Now().Add(rdmatest.Patience); ; time.Sleep(50 * time.Millisecond) {
		r := examine(t, by, append([]string{"-w", "0"}, args...)...)
		if len(r.wrong()) == 0 {
			if len(r.Devices) == 0 {
				t.Fatal("no devices were examined")
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still wrong: %+v", r.Findings)
		}
	}
}

// nobody runs a command as a user without rights, but with the memory limit of a login
// that is set up for RDMA.
var nobody = []string{"prlimit", "--memlock=unlimited", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}

// shell runs shell commands, which may call ibv.
func shell(t *testing.T, line string) {
	t.Helper()
	c := exec.Command("sh", "-c", line)
	c.Env = append(os.Environ(), "PATH="+filepath.Dir(rdmatest.Program(t, "ibv"))+":"+os.Getenv("PATH"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

var _ = rdmatest.Test(TestHealthy, rdmatest.OnRXE, rdmatest.OnSIW, rdmatest.OnEFA, rdmatest.OnMLX5, rdmatest.OnMLX5Eth, rdmatest.Long)

// Doctor finds nothing wrong with the guest, for root and for users, on each device.
func TestHealthy(t *testing.T) {
	healthy(t, nil)
	healthy(t, nil, device)
	healthy(t, nobody)
	if netDev != "" {
		healthy(t, nil, netDev)
	}
	r := examine(t, nobody)
	for _, f := range r.Findings {
		if f.ID != "rxe-two-devices" && f.ID != "rxe-odp" {
			t.Errorf("note %+v", f)
		}
	}
	if kind := rdmatest.KindOf(); (kind == rdmatest.MLX5 || kind == rdmatest.EFA) != (len(r.Unseen) > 0) {
		t.Errorf("a user doesn't see %q", r.Unseen)
	}
	if r := examine(t, nil, "-w", "0"); len(r.Unseen) > 0 {
		t.Errorf("root doesn't see %q", r.Unseen)
	}
}

// A trouble is a fault of the guest.
type trouble struct {
	name string
	slow bool     // not with testing.Short: the driver's end takes long under emulation
	on   string   // kinds of devices; "" for all. What is alike on all is tried on rxe
	make string   // shell commands
	by   []string // the command that runs doctor
	args []string
	want string
	undo string // shell commands, after the trouble was mended
}

func troubles() []trouble {
	const down = "ip link set dev NETDEV down"
	list := []trouble{
		{name: "no node", make: "rm /dev/infiniband/uverbs0", want: "node-missing"},
		{name: "no nodes at all", on: "rxe", make: "rm -r /dev/infiniband", args: []string{device}, want: "node-missing node-missing",
			undo: "test -e /dev/infiniband/uverbs1 || mknod -m 666 /dev/infiniband/uverbs1 c 231 193"},
		{name: "the node of another device", on: "rxe", make: "rm /dev/infiniband/uverbs0 && mknod /dev/infiniband/uverbs0 c 231 200", want: "node-stale"},
		{name: "a file in place of the node", on: "rxe", make: "rm /dev/infiniband/uverbs0 && touch /dev/infiniband/uverbs0", want: "node-stale"},
		{name: "no permission", make: "chmod 600 /dev/infiniband/uverbs0", by: nobody, want: "node-permission"},
		{name: "no permission for the folder", on: "rxe", make: "chmod 700 /dev/infiniband", by: nobody, args: []string{device}, want: "node-permission"},
		{name: "no rdma_cm", on: "rxe", make: "rm /dev/infiniband/rdma_cm", want: "node-missing"},
		{name: "rdma_cm for root only", on: "rxe", make: "chmod 600 /dev/infiniband/rdma_cm", by: nobody, want: "node-permission"},
		{name: "no rdma_ucm", on: "rxe", make: "rmmod rdma_ucm", want: "rdma-cm-missing"},
		{name: "the wrong name", on: "rxe", args: []string{"mlx4_0"}, want: "device-unknown"},
		{name: "a cgroup", on: "rxe", make: "mkdir -p /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && echo +rdma > /sys/fs/cgroup/cgroup.subtree_control &&" +
			" mkdir /sys/fs/cgroup/x && echo 'DEVICE hca_handle=0' > /sys/fs/cgroup/x/rdma.max",
			by: []string{"sh", "-c", `echo $$ > /sys/fs/cgroup/x/cgroup.procs && exec "$@"`, "sh"}, want: "rdma-cgroup", undo: "umount -l /sys/fs/cgroup"},

		{name: "no devices", on: "rxe", make: "ibv link delete rxe0 && ibv link delete rxe1 && modprobe -r rdma_rxe", want: "no-device",
			undo: "ibv link add rxe1 type rxe netdev veth1"},
		{name: "the interface is down", on: "rxe mlx5-eth", make: down, args: []string{device}, want: "netdev-down"},
		{name: "the interface is down, all devices", on: "rxe mlx5-eth", make: down, want: "netdev-down"},
		{name: "no carrier", on: "rxe", make: "ip link set dev veth1 down", args: []string{"rxe0"}, want: "no-carrier", undo: ""},
		{name: "no address", on: "rxe mlx5-eth", make: "ip address flush dev NETDEV scope global", args: []string{device}, want: "address-missing"},
		{name: "a small MTU", on: "rxe mlx5-eth", make: "ip link set dev NETDEV mtu 1000", want: "mtu-low"},
		{name: "a bridge", on: "rxe", make: "ip link add br0 type bridge && ip link set dev br0 up && ip link set dev veth0 master br0 &&" +
			" ip address flush dev veth0 scope global && ip address add 192.168.77.1/24 dev br0", args: []string{device}, want: "rxe-below",
			undo: "ip link delete br0 && ip address add 192.168.77.1/24 dev veth0 && " +
				// Create the devices in the order that other tests expect.
				"ibv link delete rxe1 && ibv link add rxe0 type rxe netdev veth0 && ibv link add rxe1 type rxe netdev veth1"},

		{name: "no mlx5_ib", slow: true, on: "mlx5", make: "rmmod mlx5_ib", want: "rdma-driver-missing"},
		{name: "no mlx5_core", slow: true, on: "mlx5", make: "rmmod mlx5_ib && rmmod mlx5_core", want: "driver-missing driver-missing"},
		{name: "mlx5_core lets the card go", on: "mlx5", make: "echo 0000:01:00.0 > /sys/bus/pci/drivers/mlx5_core/unbind", want: "card-unbound"},
	}
	return list
}

// Doctor finds each trouble, with its cause and no other, and the proposed commands repair
// it.
func TestTroubles(t *testing.T) {
	kind := string(rdmatest.KindOf())
	if rdmatest.KindOf() == rdmatest.MLX5 && rdmatest.RoCE {
		kind = "mlx5-eth"
	}
	here := strings.NewReplacer("NETDEV", netDev, "DEVICE", device, "ADDRESS/PREFIX", os.Getenv("VM_ADDR")+"/24").Replace
	for _, tr := range troubles() {
		if tr.on != "" && !slices.Contains(strings.Fields(tr.on), kind) || tr.slow && testing.Short() {
			continue
		}
		ok := t.Run(tr.name, func(t *testing.T) {
			if tr.make != "" {
				shell(t, here(tr.make))
			}
			r := examine(t, tr.by, append([]string{"-w", "0"}, tr.args...)...)
			if got := strings.Join(r.wrong(), " "); got != tr.want {
				t.Fatalf("found %s, want %s: %+v", got, tr.want, r.Findings)
			}
			args := tr.args
			switch tr.want {
			case "no-carrier":
				shell(t, "ip link set dev veth1 up") // the cable
			case "device-unknown":
				if want := "ibv doctor " + device; r.Findings[0].Mend[0] != want {
					t.Errorf("mended by %q, want %q", r.Findings[0].Mend, want)
				}
				args = nil
			default:
				mend(t, r, here)
			}
			healthy(t, tr.by, args...)
			if tr.undo != "" {
				shell(t, here(tr.undo))
			}
			if tr.undo != "" || tr.by != nil || args != nil {
				healthy(t, nil)
			}
		})
		if !ok {
			return // the next troubles would include this one
		}
	}
}

// mend runs the commands of the findings.
func mend(t *testing.T, r *report, edit func(string) string) {
	t.Helper()
	for _, f := range r.Findings {
		if f.Note {
			continue
		}
		if len(f.Mend) == 0 {
			t.Fatalf("%s has no command: %+v", f.ID, f)
		}
		for _, command := range f.Mend {
			shell(t, edit(command))
		}
	}
}

// A sh is a running shell.
type sh struct {
	*rdmatest.Process
	in *os.File
}

// startShell starts a shell, behind the command by.
func startShell(t *testing.T, by ...string) *sh {
	t.Helper()
	r, w, err := os.Pipe()
	rdmatest.Check(t, err)
	c := exec.Command(by[0], append(by[1:], "sh")...)
	c.Stdin = r
	s := &sh{rdmatest.StartCmd(t, c), w}
	r.Close()
	t.Cleanup(func() { w.Close() })
	return s
}

// examine runs doctor in the shell.
func (s *sh) examine(t *testing.T) *report {
	t.Helper()
	s.say(t, rdmatest.Program(t, "ibv")+" doctor -w 0 --json | tr -d '\\n'; echo")
	r := new(report)
	rdmatest.Check(t, json.Unmarshal([]byte(s.Line(t)), r))
	return r
}

func (s *sh) say(t *testing.T, line string) {
	t.Helper()
	_, err := s.in.WriteString(line + "\n")
	rdmatest.Check(t, err)
}

var _ = rdmatest.Test(TestMemlock, rdmatest.OnRXE, rdmatest.OnMLX5)

// The limit of locked memory: each time, the proposed command raises the limit of the shell
// that doctor ran in. Root runs prlimit with the shell's process ID.
func TestMemlock(t *testing.T) {
	user := []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}
	noLock := []string{"setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"}
	for _, test := range []struct {
		name  string
		limit string // soft and hard
		by    []string
		want  string
		root  bool // root runs the command
	}{
		{"a user with 64 KiB", "65536:65536", user, "memlock-low", true},
		{"a user with systemd's limit", "8388608:8388608", user, "memlock-low", true},
		{"a user who may have more", "8388608:unlimited", user, "memlock-low", false},
		{"root without the capability", "65536:65536", noLock, "ipc-lock", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := startShell(t, append([]string{"prlimit", "--memlock=" + test.limit}, test.by...)...)
			r := s.examine(t)
			if got := r.wrong(); !slices.Equal(got, []string{test.want}) {
				t.Fatalf("found %v, want %s: %+v", got, test.want, r.Findings)
			}
			i := slices.IndexFunc(r.Findings, func(f finding) bool { return !f.Note })
			for _, command := range r.Findings[i].Mend {
				if test.root {
					shell(t, strings.ReplaceAll(command, "$$", strconv.Itoa(s.PID())))
				} else {
					s.say(t, command)
				}
			}
			if r := s.examine(t); len(r.wrong()) > 0 {
				t.Errorf("still wrong: %+v", r.Findings)
			}
		})
	}
}

var _ = rdmatest.Test(TestPortDown, rdmatest.OnMLX5)

// An InfiniBand port without a link is a note on a host whose other port is active. It is a
// finding if all ports are down, or if doctor examines only this port.
func TestPortDown(t *testing.T) {
	ask := func(hca int, up bool) {
		t.Helper()
		rdmatest.Check(t, control.Request{Do: "port", HCA: hca, Up: up}.Ask())
	}
	state := func(hca int, want string) {
		t.Helper()
		file := "/sys/class/infiniband/" + rdmatest.Devices[hca] + "/ports/1/state"
		for deadline := time.Now().Add(rdmatest.Patience); !strings.Contains(string(rdmatest.Must(os.ReadFile(file))(t)), want); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s isn't %s", file, want)
			}
		}
	}
	ask(0, false)
	state(0, "DOWN")
	if r := examine(t, nil, "-w", "0"); len(r.wrong()) > 0 || !slices.ContainsFunc(r.Findings, func(f finding) bool { return f.ID == "port-spare" && f.Device == device }) {
		t.Errorf("one of two ports down: %+v", r.Findings)
	}
	if r := examine(t, nil, "-w", "0", device); !slices.Equal(r.wrong(), []string{"no-link"}) {
		t.Errorf("the port that was asked for is down: %+v", r.Findings)
	}
	ask(1, false)
	state(1, "DOWN")
	if r := examine(t, nil, "-w", "0"); !slices.Equal(r.wrong(), []string{"no-link", "no-link"}) {
		t.Errorf("all ports down: %+v", r.Findings)
	}
	for hca := range 2 {
		ask(hca, true)
		state(hca, "ACTIVE")
	}
	healthy(t, nil)
}

var _ = rdmatest.Test(TestNamespaces, rdmatest.OnRXE)

// A network namespace without the device's interface, with shared and with exclusive
// devices.
func TestNamespaces(t *testing.T) {
	in := []string{"ip", "netns", "exec", "doctor"}
	shell(t, "ip netns add doctor")
	r := examine(t, in, "-w", "0", device)
	if !slices.Equal(r.wrong(), []string{"netdev-elsewhere"}) || !strings.Contains(r.Findings[0].Advice, "nsenter") {
		t.Errorf("shared: %+v", r.Findings)
	}
	shell(t, "ip netns delete doctor && rdma system set netns exclusive && ip netns add doctor")
	r = examine(t, in, "-w", "0")
	if !slices.Equal(r.wrong(), []string{"netns-exclusive"}) {
		t.Errorf("exclusive: %+v", r.Findings)
	}
	healthy(t, nil)
	shell(t, "ip netns delete doctor")
	mend(t, r, func(command string) string { return command })
	healthy(t, nil)
}

var _ = rdmatest.Test(TestSysMissing, rdmatest.OnRXE)

// Another root directory has the programs and the nodes, but no /sys until it is mounted
// there.
func TestSysMissing(t *testing.T) {
	root := t.TempDir()
	shell(t, strings.ReplaceAll("mount --bind / ROOT && mount -t proc proc ROOT/proc && mount --bind /dev ROOT/dev && mount -t tmpfs none ROOT/sys", "ROOT", root))
	defer shell(t, "umount -R "+root)
	in := []string{"chroot", root}
	r := examine(t, in, "-w", "0")
	if !slices.Equal(r.wrong(), []string{"sys-missing"}) {
		t.Fatalf("without /sys: %+v", r.Findings)
	}
	mend(t, r, func(command string) string { return "chroot " + root + " " + command })
	healthy(t, in)
}

var _ = rdmatest.Test(TestCountersGrow, rdmatest.OnRXE)

// While doctor watches, a message is retransmitted repeatedly, because no receive is posted.
// Once a receive is posted, nothing is wrong.
func TestCountersGrow(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	p.A.Send(t, verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, SGL: []verbs.SGE{p.A.MR.SGE(0, 16)}})
	r := examine(t, nil, "-w", "2s", device)
	if !slices.Equal(r.wrong(), []string{"receiver-not-ready"}) {
		t.Errorf("no receive posted: %+v", r.Findings)
	}
	p.B.Recv(t, 2, 0, 16)
	healthy(t, nil, "-w", "2s", device)
}
