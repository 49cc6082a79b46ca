package rdmatest

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/verbstest"
)

// Needs are the requirements of a test. The zero value requires one guest with devices of any
// kind.
type Needs struct {
	Devices []string `json:",omitempty"` // one of these, as in the rig's option -d; empty means any but siw and efa
	SIW     bool     `json:",omitempty"` // the test also runs on siw, which lacks features that most tests use
	Network bool     `json:",omitempty"` // the test also runs on a machine without devices, on a Network of package verbstest
	Guests  int      `json:",omitempty"` // 2: the test runs in two guests at the same time
	Peers   bool     `json:",omitempty"` // the test communicates with rdma-core's programs
	Profile bool     `json:",omitempty"` // the test also runs on adapters that are not the rig's usual ones
	Mixed   bool     `json:",omitempty"` // the test runs in a guest with more than two adapters, of several profiles
	Lacking bool     `json:",omitempty"` // as Mixed, but each adapter lacks a feature
	Log     bool     `json:",omitempty"` // the test reads the adapter's log
	Long    bool     `json:",omitempty"` // the test takes too long for a quick run (-test.short)
	LongOn  []string `json:",omitempty"` // as Long, on these devices

	noNetwork bool // not on a Network, even if the package declares AlsoVerbstest
}

// A Need adds a requirement.
type Need func(*Needs)

// OnRXE runs the test on rxe. With several of the functions On..., it runs on any of the devices.
func OnRXE(n *Needs) { n.Devices = append(n.Devices, "rxe") }

// OnSIW runs the test on siw.
func OnSIW(n *Needs) { n.Devices = append(n.Devices, "siw") }

// AlsoSIW runs the test on siw in addition to its other devices.
func AlsoSIW(n *Needs) { n.SIW = true }

// AlsoVerbstest also runs the test on a machine without devices, on the devices of package verbstest.
func AlsoVerbstest(n *Needs) { n.Network = true }

// NotVerbstest is for tests of a package with AlsoVerbstest that need features which package verbstest
// lacks. Tests that declare their own Devices or Peers don't run there anyway.
func NotVerbstest(n *Needs) { n.noNetwork = true }

// OnEFA runs the test on efa.
func OnEFA(n *Needs) { n.Devices = append(n.Devices, "efa") }

// OnMLX5 runs the test on mlx5 with InfiniBand ports.
func OnMLX5(n *Needs) { n.Devices = append(n.Devices, "mlx5") }

// OnMLX5Eth runs the test on mlx5 with Ethernet ports.
func OnMLX5Eth(n *Needs) { n.Devices = append(n.Devices, "mlx5-eth") }

// OnHost runs the test on a machine without devices.
func OnHost(n *Needs) { n.Devices = append(n.Devices, "host") }

// TwoGuests runs the test in two guests at the same time.
func TwoGuests(n *Needs) { n.Guests = 2 }

// Peers declares that the test communicates with rdma-core's programs, so that the rig can
// repeat it with another release of rdma-core.
func Peers(n *Needs) { n.Peers = true }

// Profiles declares that the rig can repeat the test on adapters of any profile of rig/connectx.
func Profiles(n *Needs) { n.Profile = true }

// Mixed runs the test in a guest with more than two adapters, of several profiles. ProfileVariable has their
// profiles, separated by commas, in the adapters' order.
func Mixed(n *Needs) { n.Mixed = true }

// Lacking runs the test in a guest with several adapters, each of which lacks a feature. ProfileVariable has their
// profiles, as for Mixed.
func Lacking(n *Needs) { n.Lacking = true }

// Log declares that the test reads the adapter's log.
func Log(n *Needs) { n.Log = true }

// Long declares that the test takes too long for a quick run.
func Long(n *Needs) { n.Long = true }

// LongOn declares that the test takes too long for a quick run on one device, as in the rig's
// option -d. It is for tests that a quick run runs on another device.
func LongOn(device string) Need {
	return func(n *Needs) { n.LongOn = append(n.LongOn, device) }
}

// declared has the needs of tests that declare their own.
var declared = make(map[string][]Need)

// Test declares the needs of a test, in addition to the package's needs, given to Main:
//
//	var _ = rdmatest.Test(TestXRC, rdmatest.OnMLX5)
//
// The test doesn't run where its needs are not met, as outside the rig. A second call adds to the first.
func Test(test func(*testing.T), needs ...Need) struct{} {
	name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
	name = name[strings.LastIndexByte(name, '.')+1:]
	declared[name] = append(declared[name], needs...)
	return struct{}{}
}

// ListVariable is the environment variable that makes Main print a Listing in JSON, and exit.
const ListVariable = "GOVERBS_LIST"

// PeersVariable is the environment variable that makes Main run only tests with Peers.
const PeersVariable = "GOVERBS_PEERS"

// ProfileVariable is the environment variable that makes Main run only tests with Profiles. It
// has the adapters' profile.
const ProfileVariable = "GOVERBS_PROFILE"

// WholeVariable is the environment variable that makes Main run all tests, even Long ones,
// although testing.Short reports true. So tests with many parameters use fewer.
const WholeVariable = "GOVERBS_WHOLE"

// A Listing has the needs of the tests of a package.
type Listing struct {
	Package Needs            // needs of tests that declare none
	Tests   map[string]Needs // needs of tests that declare their own
}

func listing(of []Need) Listing {
	l := Listing{Package: all(of), Tests: make(map[string]Needs)}
	for name, own := range declared {
		n := all(own)
		if len(n.Devices) == 0 {
			n.Devices = l.Package.Devices
			n.Network = n.Network || l.Package.Network && !n.noNetwork && !n.Peers
		}
		n.SIW = n.SIW || l.Package.SIW
		n.Guests = max(n.Guests, l.Package.Guests)
		n.Peers = n.Peers || l.Package.Peers
		n.Profile = n.Profile || l.Package.Profile
		n.Mixed = n.Mixed || l.Package.Mixed
		n.Lacking = n.Lacking || l.Package.Lacking
		n.Log = n.Log || l.Package.Log
		n.Long = n.Long || l.Package.Long
		n.LongOn = append(n.LongOn, l.Package.LongOn...)
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

// Of returns the needs of a test.
func (l Listing) Of(test string) Needs {
	if n, ok := l.Tests[test]; ok {
		return n
	}
	return l.Package
}

// A Setting is an environment in which tests run.
type Setting struct {
	Device  string // as in the rig's option -d, or "host" without a device
	Guests  int    // 1 or 2
	Peers   bool   // run only tests with Peers
	Profile string // the adapters' profile: run only tests with Profiles; or several, separated by commas: run only tests with Mixed, or with Lacking
	Log     bool   // the adapter writes a log
	Arch    string // the guest's architecture; "" is that of the host, amd64
	Short   bool   // run no Long tests
}

// Meets reports whether a test with these needs runs in the setting.
func (s Setting) Meets(n Needs) bool {
	// siw and efa lack features that most tests use.
	common := s.Device != "host" && s.Device != "siw" && s.Device != "efa"
	return (len(n.Devices) == 0 && common || slices.Contains(n.Devices, s.Device) || n.SIW && s.Device == "siw" || n.Network && s.Device == "host") &&
		max(n.Guests, 1) == s.Guests && n.Log == s.Log &&
		n.Mixed == s.mixed() && n.Lacking == s.lacking() && (n.Peers || !s.Peers) && (n.Profile || n.Mixed || n.Lacking || s.Profile == "") && !(s.Short && (n.Long || slices.Contains(n.LongOn, s.Device)))
}

func (s Setting) mixed() bool { return strings.Contains(s.Profile, ",") && !s.lacking() }

// lacking reports whether the adapters are those of Lacking: the first is noatomics.
func (s Setting) lacking() bool { return strings.HasPrefix(s.Profile, "noatomics,") }

// here returns the setting of this process.
func here() Setting {
	s := Setting{
		Device: string(KindOf()), Guests: 1, Short: testing.Short() && os.Getenv(WholeVariable) == "",
		Log: os.Getenv("VM_LOG") != "", Arch: os.Getenv("VM_ARCH"), Peers: os.Getenv(PeersVariable) != "",
		Profile: os.Getenv(ProfileVariable),
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

// Main runs the tests of a package whose needs this setting meets, and exits. needs are the needs of
// tests that don't declare their own. Call Main from TestMain.
//
// On a machine without a device, Main runs the tests that need no device, and succeeds.
func Main(m *testing.M, needs ...Need) { os.Exit(Run(m, needs...)) }

// Run is like Main, but returns the exit status.
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
	if s.Device == "host" {
		// The Network has the addresses of the rig's devices.
		n, err := verbstest.Open(netip.MustParseAddr("192.168.77.1"), netip.MustParseAddr("192.168.77.2"))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer n.Close() // each test reports the objects that it leaves open
		Devices = [2]string{n.Device(0).Name(), n.Device(1).Name()}
		Device, RoCE = Devices[0], true
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
			fmt.Fprintln(os.Stderr, "These tests need the rig. See tests/README.md.")
		}
		if run.String() == "" || len(met) == 0 {
			_ = run.Set(anyOf(met))
		}
	}
	if len(unmet) > 0 {
		pattern := anyOf(unmet)
		if given := skip.String(); given != "" {
			pattern = given + "|" + pattern
		}
		_ = skip.Set(pattern)
	}
	defer func() { os.RemoveAll(made) }()
	return m.Run()
}

// anyOf returns a pattern for -test.run that matches exactly these tests.
func anyOf(tests []string) string {
	slices.Sort(tests)
	for i := range tests {
		tests[i] = regexp.QuoteMeta(tests[i])
	}
	return "^(" + strings.Join(tests, "|") + ")$"
}

// A Version is a kernel version.
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

// AtLeast reports whether v is major.minor or newer.
func (v Version) AtLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}
