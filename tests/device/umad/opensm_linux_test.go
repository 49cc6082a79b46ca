package umad

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/tests/internal/control"
)

// portFile returns an attribute of a device's port.
func portFile(t *testing.T, device, name string) string {
	t.Helper()
	return strings.TrimSpace(string(rdmatest.Must(os.ReadFile(filepath.Join("/sys/class/infiniband", device, "ports/1", name)))(t)))
}

// guid returns the GUID of a device's port.
func guid(t *testing.T, device string) string {
	t.Helper()
	return "0x" + strings.ReplaceAll(portFile(t, device, "gids/0"), ":", "")[16:]
}

// openSM starts Debian's OpenSM on a port, with further options.
func openSM(t *testing.T, device string, priority int, options ...string) *rdmatest.Process {
	t.Helper()
	// Configure OpenSM to poll for changes, and to poll a master, more often than each ten
	// seconds.
	dir := t.TempDir()
	conf := filepath.Join(dir, "conf")
	text := strings.Join(append([]string{"sminfo_polling_timeout 500", "polling_retry_number 2", "sweep_interval 1", "dump_files_dir " + dir}, options...), "\n")
	rdmatest.Check(t, os.WriteFile(conf, []byte(text+"\n"), 0o644))
	return rdmatest.Start(t, "opensm", "-F", conf, "-g", guid(t, device), "-p", fmt.Sprint(priority), "-f", filepath.Join(dir, "log"))
}

// manage leaves the configuration of all adapters to a subnet manager. The fabric gets a
// switch for each list of adapters, which are linked to it.
func manage(t *testing.T, switches ...[]int) {
	t.Helper()
	load(t)
	adapters := len(rdmatest.Must(filepath.Glob("/sys/class/infiniband/*"))(t))
	t.Cleanup(func() {
		rdmatest.Check(t, control.Request{Do: "switches"}.Ask())
		for hca := range adapters {
			rdmatest.Check(t, control.Request{Do: "unmanage", HCA: hca}.Ask())
		}
	})
	rdmatest.Check(t, control.Request{Do: "switches", Switches: switches}.Ask())
	for hca := range adapters {
		rdmatest.Check(t, control.Request{Do: "manage", HCA: hca}.Ask())
	}
}

// active waits until a subnet manager on the first adapter has brought up all of these
// devices' ports, and returns their LIDs.
func active(t *testing.T, manager *rdmatest.Process, devices ...string) []uint16 {
	t.Helper()
	number := func(device, name string) (n uint16) {
		fmt.Sscan(portFile(t, device, name), &n)
		return n
	}
	lids := make([]uint16, len(devices))
	manager.Until(t, func() bool {
		for i, device := range devices {
			if lids[i] = number(device, "lid"); portFile(t, device, "state") != "4: ACTIVE" || lids[i] == 0 {
				return false
			}
		}
		return true
	})
	for i, device := range devices {
		if slices.Index(lids, lids[i]) != i || number(device, "sm_lid") != lids[0] {
			t.Fatalf("LIDs %d, the subnet manager's is %d at %s", lids, number(device, "sm_lid"), device)
		}
	}
	return lids
}

// play exchanges messages between two ping-pong programs, by LIDs.
func play(t *testing.T, server, client []string) {
	t.Helper()
	args := []string{"-n", "10", "-c"}
	s := rdmatest.Start(t, slices.Concat(server, args)...)
	s.Until(t, func() bool { return rdmatest.Listening(18515) })
	c := rdmatest.Start(t, slices.Concat(client, args, []string{"localhost"})...)
	for _, p := range []*rdmatest.Process{c, s} {
		// rdma-core's programs exit with 0 even so.
		if out := p.Succeeds(t); !strings.Contains(out, "10 iters in ") || strings.Contains(out, "invalid data") {
			t.Error(p)
		}
	}
}

// playBoth is like play, between the rig's two adapters.
func playBoth(t *testing.T) {
	t.Helper()
	play(t, pingpong(t, rdmatest.Devices[1]), pingpong(t, rdmatest.Devices[0]))
}

// pingpong returns ibv's command on a device.
func pingpong(t *testing.T, device string) []string {
	return []string{rdmatest.Program(t, "ibv"), "pingpong", "rc", "-d", device}
}

// generated is the only line of ibnetdiscover's that differs from run to run.
var generated = regexp.MustCompile(`(?m)^# Topology file: generated on .*$`)

// discovered compares the output of infiniband-diags and of ibv about the subnet, and returns
// that of ibnetdiscover.
func discovered(t *testing.T) (found string) {
	t.Helper()
	for _, line := range []string{"ibnetdiscover", "ibnetdiscover -f", "ibnetdiscover -l", "ibnetdiscover -S", "ibnetdiscover -H", "ibnetdiscover -p", "iblinkinfo", "iblinkinfo -l", "iblinkinfo -d"} {
		words := append(strings.Fields(line), "-C", rdmatest.Device)
		// With one request at a time, ibnetdiscover finds nodes in a fixed order.
		theirs, ok := outcome(t, append(words, "-o", "1")...)
		ours, ok2 := outcome(t, append([]string{rdmatest.Program(t, "ibv")}, words...)...)
		if !ok || !ok2 {
			t.Errorf("%s fails: %s %s", line, theirs, ours)
		}
		if diff := cmp.Diff(strings.Split(generated.ReplaceAllString(theirs, ""), "\n"), strings.Split(generated.ReplaceAllString(ours, ""), "\n")); diff != "" {
			t.Errorf("%s (-infiniband-diags +ibv):\n%s", line, diff)
		}
		if line == "ibnetdiscover" {
			found = ours
		}
	}
	return found
}

var _ = rdmatest.Test(TestSwitchedSubnet, rdmatest.OnMLX5, rdmatest.Long)

// TestSwitchedSubnet: Debian's OpenSM sets up a switch between two adapters. Programs reach
// each other through its tables, which ibv smpquery prints as infiniband-diags' smpquery
// does.
func TestSwitchedSubnet(t *testing.T) {
	manage(t, []int{0, 1})
	manager := openSM(t, rdmatest.Devices[0], 9)
	lids := active(t, manager, rdmatest.Devices[:]...)
	info := same(t, "smpquery -D portinfo 0,1 0")
	m := regexp.MustCompile(`(?m)^Lid:\.+(\d+)$`).FindStringSubmatch(info)
	if m == nil || m[1] == "0" {
		t.Fatalf("the switch has no LID: %s", info)
	}
	if got := same(t, "smpquery switchinfo "+m[1]); !strings.Contains(got, "LinearFdbCap:....................49151\n") {
		t.Errorf("the switch: %s", got)
	}
	if got := same(t, "smpquery -D nodeinfo 0,1,2"); !strings.Contains(got, strings.TrimPrefix(guid(t, rdmatest.Devices[1]), "0x")+"\n") {
		t.Errorf("behind the switch's port 2: %s", got)
	}
	for _, line := range []string{"nodeinfo %s", "nodedesc %s", "portinfo %s 1", "portinfo %s 2", "portinfo %s 3", "pkeys %s 1", "sl2vl %s 1", "vlarb %s", "gi %s"} {
		same(t, "smpquery "+fmt.Sprintf(line, m[1]))
	}
	if got := same(t, "smpquery portinfo "+m[1]+" 2"); !strings.Contains(got, "LinkState:.......................Active\n") {
		t.Errorf("the switch's port 2: %s", got)
	}
	if got := discovered(t); strings.Count(got, "\nSwitch\t2 ") != 1 || !strings.Contains(got, "\nCa\t1 ") {
		t.Errorf("ibnetdiscover finds %s", got)
	}
	if got := same(t, fmt.Sprintf("ibtracert %d %d", lids[0], lids[1])); !strings.Contains(got, "\n[1] -> switch port {") || !strings.Contains(got, "\n[2] -> ca port {") {
		t.Errorf("ibtracert: %s", got)
	}
	same(t, fmt.Sprintf("ibtracert -n %d %d", lids[0], lids[1]))
	same(t, fmt.Sprintf("ibtracert %d %s", lids[0], m[1]))
	same(t, fmt.Sprintf("ibtracert %d %d", lids[0], lids[0]))
	same(t, fmt.Sprintf("ibaddr %d", lids[1]))
	playBoth(t)

	// The switch detects a pulled cable, and reports it by a trap. When it is plugged in
	// again, the subnet manager brings the port up.
	rdmatest.Check(t, control.Request{Do: "port", HCA: 1}.Ask())
	t.Cleanup(func() { rdmatest.Check(t, control.Request{Do: "port", HCA: 1, Up: true}.Ask()) })
	if got := same(t, "smpquery portinfo "+m[1]+" 2"); !strings.Contains(got, "LinkState:.......................Down\n") {
		t.Errorf("the switch's port 2, without a cable: %s", got)
	}
	discovered(t)
	rdmatest.Check(t, control.Request{Do: "port", HCA: 1, Up: true}.Ask())
	manager.Until(t, func() bool { return portFile(t, rdmatest.Devices[1], "state") == "4: ACTIVE" })
	playBoth(t)
}

var _ = rdmatest.Test(TestOpenSM, rdmatest.OnMLX5, rdmatest.Long)

// TestOpenSM: Debian's OpenSM brings up a subnet of two ports. OpenSM assigns LIDs, by which
// programs in C and Go reach the ports, and sminfo finds OpenSM. When it is killed, another
// OpenSM takes over.
func TestOpenSM(t *testing.T) {
	manage(t)
	ibv := rdmatest.Program(t, "ibv")
	for _, device := range rdmatest.Devices {
		if state, lid := portFile(t, device, "state"), portFile(t, device, "lid"); state != "2: INIT" || lid != "0x0" {
			t.Fatalf("%s is %s with LID %s before there is a subnet manager", device, state, lid)
		}
	}
	began := time.Now()
	since := func(what string) { t.Logf("%s after %v", what, time.Since(began).Round(time.Second/10)) }
	master := openSM(t, rdmatest.Devices[0], 9)
	lids := active(t, master, rdmatest.Devices[:]...)
	since("active")

	manager := regexp.MustCompile(`^sminfo: sm lid (\d+) sm guid (0x[0-9a-f]+), activity count \d+ priority (\d+) state (\d) (\w+)\n$`)
	sm := func(program ...string) []string {
		t.Helper()
		out, ok := outcome(t, append(program, "-C", rdmatest.Devices[1])...)
		m := manager.FindStringSubmatch(out)
		if !ok || m == nil {
			return make([]string, 6)
		}
		return m
	}
	want := fmt.Sprintf("[%d 9 SMINFO_MASTER]", lids[0])
	for _, program := range [][]string{{"sminfo"}, {ibv, "sminfo"}} {
		if m := sm(program...); fmt.Sprint([]string{m[1], m[3], m[5]}) != want {
			t.Errorf("%q: %q, want %s", program, m, want)
		}
	}
	for _, line := range []string{"ibaddr %d", "smpquery nodeinfo %d", "smpquery portinfo %d 1"} {
		if line = fmt.Sprintf(line, lids[1]); same(t, line) == "" {
			t.Errorf("%s prints nothing", line)
		}
	}
	// Its administration knows the LID of a GUID.
	for _, line := range []string{"ibaddr -G GUID", "smpquery -G portinfo GUID 1", "ibaddr -s SM -G GUID", "ibaddr -G 0x1234"} {
		line = strings.NewReplacer("GUID", guid(t, rdmatest.Devices[1]), "SM", fmt.Sprint(lids[0])).Replace(line)
		if same(t, line) == "" && !strings.HasSuffix(line, "0x1234") {
			t.Errorf("%s prints nothing", line)
		}
	}
	playBoth(t)
	since("used")
	// A standby subnet manager takes over.
	standby := openSM(t, rdmatest.Devices[1], 3)
	standby.Until(t, func() bool {
		m := sm(ibv, "sminfo", fmt.Sprint(lids[1]))
		return m[5] == "SMINFO_STANDBY"
	})
	since("another waits")
	master.Kill()
	standby.Until(t, func() bool {
		m := sm(ibv, "sminfo")
		return m[1] == fmt.Sprint(lids[1]) && m[5] == "SMINFO_MASTER"
	})
	since("it has taken over")
	if m := sm("sminfo"); m[1] != fmt.Sprint(lids[1]) || m[3] != "3" {
		t.Errorf("sminfo: %q", m)
	}
}
