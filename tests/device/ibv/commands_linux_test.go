package ibv

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// without are command lines of commands that need no node of a device, and those that need a right of another kind.
// Those of the others name a device, an address or a subnet.
var without = map[string]string{
	"devices": "", "ibstat": "", "ibstatus": "", "top": "-n 1", "dev": "", "link": "", "resource": "", "stat": "", "monitor": "-h", "system": "",
	"rdma": "link", "plot": "-h", "links": "", "completion": "bash", "man": "", "why": "-i 1ms",
	"export": "--once -i 1ms",
}

var with = map[string]string{
	"info": "-d DEVICE", "doctor": "-w 0 DEVICE", "asyncwatch": "-d DEVICE", "mesh": "--rank 1 --size 2 --root 127.0.0.1 --port 9 --wait 1ms -d DEVICE",
	"xfer": "serve -d DEVICE", "cmtime": "-b HOST", "pingpong": "rc -d DEVICE", "rping": "-s", "ucmatose": "-b HOST", "udaddy": "-b HOST",
	"mckey": "-m 239.1.2.3 -b HOST", "rstream": "-b HOST", "riostream": "-b HOST", "udpong": "-s HOST", "rcopy": "-b HOST",
	"proxy": "-l rdma:HOST:7 -c tcp:localhost:7", "ibaddr": "-C DEVICE", "ibping": "-C DEVICE 1", "sminfo": "-C DEVICE", "smpquery": "-C DEVICE ni 1",
	"perfquery": "-C DEVICE", "ibnetdiscover": "-C DEVICE", "iblinkinfo": "-C DEVICE", "ibtracert": "-C DEVICE 1 2", "saquery": "-C DEVICE",
	"selftest": "DEVICE",
}

var _ = rdmatest.Test(TestNoRights, rdmatest.OnRXE, rdmatest.OnMLX5Eth)

// TestNoRights: a user who may open no node is told so by each command that needs one, in a sentence. The others work.
func TestNoRights(t *testing.T) {
	rdmatest.Command(t, "modprobe ib_umad")
	nodes := rdmatest.Must(filepath.Glob("/dev/infiniband/*"))(t)
	for _, node := range nodes {
		if stat := rdmatest.Must(os.Stat(node))(t); !stat.IsDir() {
			rdmatest.Check(t, os.Chmod(node, 0o600))
			t.Cleanup(func() { os.Chmod(node, stat.Mode().Perm()) })
		}
	}
	said := regexp.MustCompile(`(?i)permission|not permitted|may not|EPERM|EACCES`)
	if rdmatest.KindOf() == rdmatest.RXE {
		said = regexp.MustCompile(said.String() + `|MADs`) // it has none
	}
	ibv, place := rdmatest.Program(t, "ibv"), strings.NewReplacer("DEVICE", device, "HOST", "192.168.77.1")
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z]\w*)  +\S`).FindAllStringSubmatch(output(t, ibv, "help"), -1) {
		name := m[1]
		line, free := without[name]
		if !free {
			line = with[name]
		}
		switch {
		case name == "links":
			line = t.TempDir()
		case strings.HasPrefix(name, "raw_ethernet"):
			line = "-d DEVICE --server -B 02:00:00:00:00:01 -E 02:00:00:00:00:02"
		case !free && line == "" && strings.HasSuffix(name, "_bw"), !free && line == "" && strings.HasSuffix(name, "_lat"):
			line = "-d DEVICE"
		case !free && line == "":
			t.Errorf("%s: no arguments for this test", name)
			continue
		}
		t.Logf("ibv %s %s", name, line)
		c := exec.Command(ibv, append([]string{name}, strings.Fields(place.Replace(line))...)...)
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		stdout, stderr, status := result(t, c)
		switch {
		case name == "links":
			if status != 1 || !said.MatchString(stderr) {
				t.Errorf("%s %s: status %d, %s", name, line, status, stderr)
			}
		case free && (status != 0 || stdout == "" && name != "resource"):
			t.Errorf("%s %s: status %d, %s%s", name, line, status, stdout, stderr)
		case !free && (status != 1 || !said.MatchString(stderr+stdout)):
			t.Errorf("%s %s: status %d, %s%s", name, line, status, stdout, stderr)
		}
	}
}

var _ = rdmatest.Test(TestJSONParses, rdmatest.OnRXE)

// TestJSONParses: what is printed with --json is JSON, with something in it.
func TestJSONParses(t *testing.T) {
	ibv, place := rdmatest.Program(t, "ibv"), strings.NewReplacer("DEVICE", device, "HOST", "192.168.77.1")
	start := func(t *testing.T, line string) *rdmatest.Process {
		return rdmatest.Start(t, append([]string{ibv}, strings.Fields(place.Replace(line)+" --json")...)...)
	}
	full := rdmatest.Must(os.OpenFile("/dev/full", os.O_WRONLY, 0))(t)
	defer full.Close()
	for _, test := range []struct {
		server, client string
		at             int // port where the server listens
	}{
		{client: "devices"}, {client: "info"}, {client: "ibstat"}, {client: "ibstat -p"}, {client: "ibstat -l"}, {client: "ibstat -s"}, {client: "ibstat DEVICE 1"},
		{client: "ibstatus"}, {client: "dev"}, {client: "link"}, {client: "resource"}, {client: "stat"}, {client: "system"}, {client: "rdma link"},
		{client: "doctor -w 0"}, {client: "selftest --only identity DEVICE"},
		{"pingpong rc -d DEVICE -g 1", "pingpong rc -d DEVICE -g 1 HOST", 18515},
		{"pingpong ud -d DEVICE -g 1", "pingpong ud -d DEVICE -g 1 HOST", 18515},
		{"rping -s", "rping -c -a HOST -C 5 -v", 7174},
		{"cmtime", "cmtime -s HOST -c 10", 7471},
		{"rstream -S 64 -C 10", "rstream -s HOST -S 64 -C 10", 7471},
		{"riostream -S 64 -C 10", "riostream -s HOST -S 64 -C 10", 7471},
		{"write_bw -n 50 -x 1", "write_bw -n 50 -x 1 HOST", 18515},
		{"write_lat -n 50 -x 1", "write_lat -n 50 -x 1 HOST", 18515},
	} {
		t.Run(test.client, func(t *testing.T) {
			if test.server != "" {
				server := start(t, test.server)
				server.Until(t, func() bool {
					return rdmatest.Listening(test.at) || rdmatest.ListeningCM(t, "TCP", uint16(test.at))
				})
			}
			p := start(t, test.client)
			state := p.Wait()
			var v any
			if err := json.Unmarshal([]byte(p.Stdout()), &v); err != nil || !state.Success() && !strings.HasPrefix(test.client, "doctor") {
				t.Fatalf("%v: %v", err, p)
			}
			if list, ok := v.([]any); ok && len(list) == 0 {
				t.Errorf("nothing: %v", p)
			}
			if test.server != "" {
				return
			}
			c := exec.Command(ibv, strings.Fields(place.Replace(test.client)+" --json")...)
			c.Stdout = full
			if p := rdmatest.StartCmd(t, c); p.Wait().ExitCode() != 1 || !strings.Contains(p.Stderr(), "no space left on device") {
				t.Errorf("on a full disk: %v", p)
			}
		})
	}
}
