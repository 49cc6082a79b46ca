package rdmatest

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Needs is what a test must be given in order to run. The zero value is one guest
// with devices of any kind.
type Needs struct {
	Devices []string `json:",omitempty"` // any of these, as the rig's option -d has them; none means all
	Guests  int      `json:",omitempty"` // 2: it runs in two guests at the same time
	Peers   bool     `json:",omitempty"` // it plays with rdma-core's programs
	Log     bool     `json:",omitempty"` // it reads the log of the adapter
	Long    bool     `json:",omitempty"` // it takes too long for a quick run (-test.short)
}

// A Need is one of the things that a test needs.
type Need func(*Needs)

// These say which devices a test runs on: any of those that are named.
func OnRXE(n *Needs)     { n.Devices = append(n.Devices, "rxe") }
func OnMLX5(n *Needs)    { n.Devices = append(n.Devices, "mlx5") }     // with InfiniBand ports
func OnMLX5Eth(n *Needs) { n.Devices = append(n.Devices, "mlx5-eth") } // with Ethernet ports

// OnHost: the test needs no device, and runs where there is none.
func OnHost(n *Needs) { n.Devices = append(n.Devices, "host") }

// TwoGuests: the test runs in two guests at the same time.
func TwoGuests(n *Needs) { n.Guests = 2 }

// Peers: the test plays with rdma-core's programs, and is worth a run with those of
// another release.
func Peers(n *Needs) { n.Peers = true }

// Log: the test reads what the adapter logs.
func Log(n *Needs) { n.Log = true }

// Long: the test takes too long for a quick run.
func Long(n *Needs) { n.Long = true }

// declared has what the tests of the package need, where it isn't what Main says.
var declared = make(map[string][]Need)

// Test declares what a test needs, on top of what Main says for all of the package:
//
//	var _ = rdmatest.Test(TestXRC, rdmatest.OnMLX5)
//
// Outside the rig, and where the needs are not met, the test doesn't run.
func Test(test func(*testing.T), needs ...Need) struct{} {
	name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
	declared[name[strings.LastIndexByte(name, '.')+1:]] = needs
	return struct{}{}
}

// ListVariable is the environment variable that has Main print what the tests need,
// as a Listing in JSON, and end.
const ListVariable = "GOVERBS_LIST"

// PeersVariable is the one that has Main run only what plays with rdma-core's programs.
const PeersVariable = "GOVERBS_PEERS"

// A Listing is what the tests of a package need.
type Listing struct {
	Package Needs            // of tests that say nothing
	Tests   map[string]Needs // of those that do
}

func listing(of []Need) Listing {
	l := Listing{Package: all(of), Tests: make(map[string]Needs)}
	for name, own := range declared {
		n := all(own)
		if len(n.Devices) == 0 {
			n.Devices = l.Package.Devices
		}
		n.Guests = max(n.Guests, l.Package.Guests)
		n.Peers = n.Peers || l.Package.Peers
		n.Log = n.Log || l.Package.Log
		n.Long = n.Long || l.Package.Long
		l.Tests[name] = n
	}
	return l
}

func all(needs []Need) Needs {
	var n Needs
	for _, need := range needs {
		need(&n)
	}
	return n
}

// Of returns what a test needs.
func (l Listing) Of(test string) Needs {
	if n, ok := l.Tests[test]; ok {
		return n
	}
	return l.Package
}

// A Setting is where tests run.
type Setting struct {
	Device string // as the rig's option -d has it, or "host", which has none
	Guests int    // 1 or 2
	Peers  bool   // only what plays with rdma-core's programs
	Log    bool   // the adapter logs
	Short  bool
}

// Meets tells whether a test with these needs runs in the setting.
func (s Setting) Meets(n Needs) bool {
	return (len(n.Devices) == 0 && s.Device != "host" || slices.Contains(n.Devices, s.Device)) &&
		max(n.Guests, 1) == s.Guests && n.Log == s.Log &&
		(n.Peers || !s.Peers) && !(n.Long && s.Short)
}

// here is the setting that this process runs in.
func here() Setting {
	s := Setting{
		Device: string(KindOf()), Guests: 1, Short: testing.Short(),
		Log: os.Getenv("VM_LOG") != "", Peers: os.Getenv(PeersVariable) != "",
	}
	if KindOf() == MLX5 && RoCE {
		s.Device += "-eth"
	}
	if _, err := os.Stat("/sys/class/infiniband/" + Device); err != nil {
		s.Device = "host"
	}
	if os.Getenv("VM_PEER") != "" {
		s.Guests = 2
	}
	return s
}

// Main runs the tests of a package that this setting has what they need for, and
// exits. Needs are those of tests that don't declare their own. Call it from TestMain.
//
// On a machine without a device it runs those that need none, and succeeds.
func Main(m *testing.M, needs ...Need) { os.Exit(Run(m, needs...)) }

// Run is Main without the exit.
func Run(m *testing.M, needs ...Need) int {
	flag.Parse()
	l := listing(needs)
	if os.Getenv(ListVariable) != "" {
		if err := json.NewEncoder(os.Stdout).Encode(l); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	run, skip := flag.Lookup("test.run").Value, flag.Lookup("test.skip").Value
	s := here()
	if s.Device == "host" && os.Getenv("VM_INDEX") != "" {
		fmt.Fprintf(os.Stderr, "the rig has no device %s\n", Device)
		return 1
	}
	var met, unmet []string
	for name, n := range l.Tests {
		if s.Meets(n) {
			met = append(met, name)
		} else {
			unmet = append(unmet, name)
		}
	}
	if !s.Meets(l.Package) {
		if len(met) == 0 {
			fmt.Fprintln(os.Stderr, "These tests need more than there is here: tests/README.md says how to run them in the rig.")
		}
		if run.String() == "" || len(met) == 0 {
			_ = run.Set(anyOf(met))
		}
	}
	if len(unmet) > 0 && skip.String() == "" {
		_ = skip.Set(anyOf(unmet))
	}
	defer func() { os.RemoveAll(made) }()
	return m.Run()
}

// anyOf is a pattern of -test.run that matches these tests and no other.
func anyOf(tests []string) string {
	slices.Sort(tests)
	for i := range tests {
		tests[i] = regexp.QuoteMeta(tests[i])
	}
	return "^(" + strings.Join(tests, "|") + ")$"
}

// A Version is a kernel's.
type Version struct{ Major, Minor int }

// Kernel returns the running kernel's version.
func Kernel(t testing.TB) Version {
	t.Helper()
	var u unix.Utsname
	Check(t, unix.Uname(&u))
	var v Version
	Must(fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &v.Major, &v.Minor))(t)
	return v
}

// AtLeast tells whether v is not older than major.minor.
func (v Version) AtLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}
