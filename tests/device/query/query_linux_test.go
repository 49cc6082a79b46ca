// Package query tests the queries of devices, ports, P_Keys and GIDs on a real device,
// against the kernel's values in /sys.
package query

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmanl"
	"github.com/goverbs/goverbs/verbs"
)

var (
	device = rdmatest.Device
	class  = "/sys/class/infiniband/" + device
)

// An expectation has a driver's values for its device in the rig.
type expectation struct {
	vendor    uint32
	firmware  string // "": the value in /sys
	flags     verbs.DeviceCapFlags
	portSpeed bool // QueryPortSpeed, on kernels that support it
}

var expect = map[rdmatest.Kind]expectation{
	rdmatest.RXE: {
		vendor: 0xffffff, firmware: "0.0.0", // RXE_VENDOR_ID; rxe has no fw_ver in /sys
		flags: verbs.DeviceMemWindow | verbs.DeviceSRQResize,
	},
	rdmatest.MLX5: {
		vendor: 0x2c9, flags: verbs.DeviceMemWindow, portSpeed: true,
	},
}[rdmatest.KindOf()]

// A linkOf has a device's values for its port, by the kind of link.
type linkOf struct {
	layer    verbs.LinkLayer
	gidIndex int    // of the GID to find
	gid      string // its prefix
	gidType  verbs.GIDType
}

var (
	link = map[bool]linkOf{
		true:  {layer: verbs.LinkLayerEthernet, gidIndex: 1, gid: "::ffff:192.168.77.1", gidType: verbs.GIDTypeRoCEv2},
		false: {layer: verbs.LinkLayerInfiniBand, gid: "fe80::", gidType: verbs.GIDTypeIB},
	}[rdmatest.RoCE]
	netDev = rdmatest.NetDev(device) // "" over InfiniBand
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

// sys reads a file of the device in /sys.
func sys(t *testing.T, name string) string {
	t.Helper()
	b := rdmatest.Must(os.ReadFile(filepath.Join(class, name)))(t)
	return strings.TrimSpace(string(b))
}

// open opens the device for the duration of the test.
func open(t *testing.T) *verbs.Device {
	t.Helper()
	c := rdmatest.Must(verbs.Open(device))(t)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestList(t *testing.T) {
	devs := rdmatest.Must(verbs.Devices())(t)
	var names []string
	for _, d := range devs {
		names = append(names, d.Name())
		if d.Err() != nil || d.NodeType() != verbs.NodeCA || d.Transport() != verbs.TransportIB {
			t.Errorf("%v: %v, %v, %v", d, d.NodeType(), d.Transport(), d.Err())
		}
	}
	if diff := cmp.Diff(rdmatest.Devices[:], names); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	if got := devs[0].NodeGUID().String(); got != sys(t, "node_guid") {
		t.Errorf("node GUID %s, in /sys %s", got, sys(t, "node_guid"))
	}
}

func TestOpen(t *testing.T) {
	for _, selector := range []string{"", device, netDev, sys(t, "node_guid")} {
		c, err := verbs.Open(selector)
		if err != nil {
			t.Errorf("Open(%q): %v", selector, err)
			continue
		}
		if got := c.Info().Name(); got != device {
			t.Errorf("Open(%q) opened %s", selector, got)
		}
		if c.NumCompVectors() < 1 {
			t.Errorf("NumCompVectors() = %d", c.NumCompVectors())
		}
		for range 2 {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.QueryDevice(); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("QueryDevice after Close: %v", err)
		}
	}
	if _, err := verbs.Open("nonsense7"); !errors.Is(err, verbs.ErrNoDevice) || !strings.Contains(err.Error(), rdmatest.Devices[1]) {
		t.Errorf("Open(nonsense7): %v, want ErrNoDevice and a list of the devices", err)
	}
}

func TestQueryDevice(t *testing.T) {
	a := rdmatest.Must(open(t).QueryDevice())(t)
	ports := rdmatest.Must(os.ReadDir(filepath.Join(class, "ports")))(t)
	if a.PhysPortCnt != len(ports) {
		t.Errorf("PhysPortCnt = %d, /sys has %d", a.PhysPortCnt, len(ports))
	}
	if got := a.NodeGUID.String(); got != sys(t, "node_guid") {
		t.Errorf("NodeGUID = %s, in /sys %s", got, sys(t, "node_guid"))
	}
	if got := a.SysImageGUID.String(); got != sys(t, "sys_image_guid") {
		t.Errorf("SysImageGUID = %s, in /sys %s", got, sys(t, "sys_image_guid"))
	}
	firmware := expect.firmware
	if firmware == "" {
		firmware = sys(t, "fw_ver")
	}
	if a.VendorID != expect.vendor || a.AtomicCap != verbs.AtomicHCA || a.FWVer != firmware {
		t.Errorf("vendor %#x, atomics %v, firmware %q", a.VendorID, a.AtomicCap, a.FWVer)
	}
	if want := expect.flags; a.DeviceCapFlags&want != want {
		t.Errorf("DeviceCapFlags = %v, want %v in it", a.DeviceCapFlags, want)
	}
	// The extended response repeats the flags, which proves that the kernel returned it.
	if a.DeviceCapFlagsEx&(1<<32-1) != a.DeviceCapFlags {
		t.Errorf("DeviceCapFlagsEx = %v, DeviceCapFlags = %v", a.DeviceCapFlagsEx, a.DeviceCapFlags)
	}
	for name, n := range map[string]int{
		"MaxQP": a.MaxQP, "MaxQPWR": a.MaxQPWR, "MaxSGE": a.MaxSGE, "MaxCQ": a.MaxCQ, "MaxCQE": a.MaxCQE,
		"MaxMR": a.MaxMR, "MaxPD": a.MaxPD, "MaxSRQ": a.MaxSRQ, "MaxAH": a.MaxAH, "MaxPKeys": a.MaxPKeys,
	} {
		if n <= 0 {
			t.Errorf("%s = %d", name, n)
		}
	}
}

func TestQueryPort(t *testing.T) {
	c := open(t)
	a := rdmatest.Must(c.QueryPort(1))(t)
	// IP-based GIDs aren't one of the port's capability flags in /sys.
	flags := a.PortCapFlags &^ verbs.PortIPBasedGIDs
	for file, got := range map[string]string{
		"ports/1/state":      fmt.Sprintf("%d: %v", a.State, a.State),
		"ports/1/link_layer": a.LinkLayer.String(),
		"ports/1/lid":        fmt.Sprintf("%#x", a.LID),
		"ports/1/sm_lid":     fmt.Sprintf("%#x", a.SMLID),
		"ports/1/cap_mask":   fmt.Sprintf("0x%08x", uint32(flags)),
	} {
		if want := sys(t, file); got != want {
			t.Errorf("%s is %q, QueryPort says %q", file, want, got)
		}
	}
	if a.State != verbs.PortActive || a.LinkLayer != link.layer || a.PhysState != verbs.PhysLinkUp {
		t.Errorf("state %v, %v, link layer %v", a.State, a.PhysState, a.LinkLayer)
	}
	// The rate is the number of lanes times their speed, printed without ".0".
	rate, _, _ := strings.Cut(sys(t, "ports/1/rate"), " ")
	gbps := rdmatest.Must(strconv.ParseFloat(rate, 64))(t)
	lane := rdmatest.Must(strconv.ParseFloat(strings.TrimSuffix(a.ActiveSpeed.String(), " Gbps"), 64))(t)
	if float64(a.ActiveWidth.Lanes())*lane != gbps {
		t.Errorf("%v times %v, in /sys %s", a.ActiveWidth, a.ActiveSpeed, sys(t, "ports/1/rate"))
	}
	gids, err := filepath.Glob(filepath.Join(class, "ports/1/gids/*"))
	if err != nil || len(gids) != a.GIDTableLen {
		t.Errorf("GIDTableLen = %d, /sys has %d", a.GIDTableLen, len(gids))
	}
	pkeys, err := filepath.Glob(filepath.Join(class, "ports/1/pkeys/*"))
	if err != nil || len(pkeys) != a.PKeyTableLen {
		t.Errorf("PKeyTableLen = %d, /sys has %d", a.PKeyTableLen, len(pkeys))
	}
	if a.MaxMTU != verbs.MTU4096 || a.ActiveMTU < verbs.MTU1024 || a.ActiveMTU > a.MaxMTU {
		t.Errorf("MTU %v of %v", a.ActiveMTU, a.MaxMTU)
	}
	// rxe and old kernels don't support it.
	speed, err := c.QueryPortSpeed(1)
	if expect.portSpeed && rdmatest.Kernel(t).AtLeast(7, 0) {
		if err != nil || float64(speed) != gbps*10 {
			t.Errorf("QueryPortSpeed: %d, %v, in /sys %s", speed, err, sys(t, "ports/1/rate"))
		}
	} else if !errors.Is(err, verbs.ErrNotSupported) {
		t.Errorf("QueryPortSpeed: %v, want ErrNotSupported", err)
	}
}

func TestPKeyIndex(t *testing.T) {
	c := open(t)
	key := rdmatest.Must(c.QueryPKey(1, 0))(t)
	if i, err := c.PKeyIndex(1, key); i != 0 || err != nil {
		t.Errorf("P_Key %#x is at %d: %v", key, i, err)
	}
	if i, err := c.PKeyIndex(1, key^0x123); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("another P_Key is at %d: %v", i, err)
	}
	if _, err := c.PKeyIndex(9, key); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("port 9: %v", err)
	}
}

func TestQueryPKey(t *testing.T) {
	got := rdmatest.Must(open(t).QueryPKey(1, 0))(t)
	if want := sys(t, "ports/1/pkeys/0"); fmt.Sprintf("0x%04x", got) != want || got != 0xffff {
		t.Errorf("P_Key %#x, in /sys %s", got, want)
	}
}

func portAttr(t *testing.T, c *verbs.Device) *verbs.PortAttr {
	t.Helper()
	a := rdmatest.Must(c.QueryPort(1))(t)
	return a
}

func TestGIDs(t *testing.T) {
	c := open(t)
	table := rdmatest.Must(c.GIDTable())(t)
	inTable := make(map[int]bool)
	for _, e := range table {
		inTable[e.Index] = true
		var groups []string
		for i := 0; i < len(e.GID); i += 2 {
			groups = append(groups, fmt.Sprintf("%x", e.GID[i:i+2]))
		}
		files := map[string]string{
			"gids":            strings.Join(groups, ":"),
			"gid_attrs/types": e.Type.String(),
		}
		if e.Type == verbs.GIDTypeIB {
			files["gid_attrs/types"] = "IB/RoCE v1" // the kernel's name for both
		}
		if netDev != "" {
			files["gid_attrs/ndevs"] = e.NetDev
		}
		for file, got := range files {
			if want := sys(t, fmt.Sprintf("ports/%d/%s/%d", e.Port, file, e.Index)); got != want {
				t.Errorf("%v: %s is %q", e, file, want)
			}
		}
		if netDev == "" {
			if e.NetDev != "" || e.IfIndex != 0 {
				t.Errorf("%v: an InfiniBand port with a network interface", e)
			}
		} else if ifindex, err := os.ReadFile("/sys/class/net/" + e.NetDev + "/ifindex"); err != nil || strings.TrimSpace(string(ifindex)) != strconv.Itoa(e.IfIndex) {
			t.Errorf("%v: interface index %d, in /sys %s", e, e.IfIndex, ifindex)
		}
		single, err := c.QueryGID(e.Port, e.Index)
		if err != nil || single != e {
			t.Errorf("QueryGID(%d, %d) = %v, %v, in the table %v", e.Port, e.Index, single, err, e)
		}
	}
	if len(table) < link.gidIndex+1 {
		t.Errorf("GID table: %v", table)
	}
	for index := range min(8, portAttr(t, c).GIDTableLen) {
		gid := sys(t, fmt.Sprintf("ports/1/gids/%d", index))
		if empty := gid == "0000:0000:0000:0000:0000:0000:0000:0000"; empty == inTable[index] {
			t.Errorf("GID %d is %s in /sys; in the table: %v", index, gid, inTable[index])
		}
		if _, err := c.QueryGID(1, index); !inTable[index] && !errors.Is(err, syscall.ENODATA) {
			t.Errorf("QueryGID(1, %d): %v, want ENODATA", index, err)
		}
	}

	entry, err := c.QueryGID(1, link.gidIndex)
	if err != nil || !strings.HasPrefix(entry.GID.String(), link.gid) || entry.Type != link.gidType {
		t.Errorf("GID %d is %v, %v", link.gidIndex, entry, err)
	}
	for _, s := range []verbs.GIDSelector{
		{},
		{Addr: entry.GID.Addr(), Type: link.gidType},
		{NetDev: netDev, Type: link.gidType},
	} {
		if e, err := table.Find(s); err != nil || e != entry {
			t.Errorf("Find(%v) = %v, %v, want %v", s, e, err, entry)
		}
		if e, err := c.FindGID(s); err != nil || e != entry {
			t.Errorf("FindGID(%v) = %v, %v, want %v", s, e, err, entry)
		}
	}
	if _, err := table.Find(verbs.GIDSelector{Addr: netip.MustParseAddr("192.0.2.1")}); err == nil || !strings.Contains(err.Error(), entry.GID.Addr().String()) {
		t.Errorf("Find(192.0.2.1): %v, want a list of the GIDs", err)
	}
}

// Impossible input is refused before it reaches the kernel.
func TestBadInput(t *testing.T) {
	c := open(t)
	a := rdmatest.Must(c.QueryPort(1))(t)
	query := map[string]func(port, index int) error{
		"QueryPort":      func(port, _ int) error { _, err := c.QueryPort(port); return err },
		"QueryPortSpeed": func(port, _ int) error { _, err := c.QueryPortSpeed(port); return err },
		"QueryPKey":      func(port, index int) error { _, err := c.QueryPKey(port, index); return err },
		"QueryGID":       func(port, index int) error { _, err := c.QueryGID(port, index); return err },
	}
	for name, f := range query {
		for _, port := range []int{0, -1, 2, 256, 1<<32 + 1} {
			err := f(port, 0)
			if !errors.Is(err, verbs.ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprintf("port %d of %s", port, device)) {
				t.Errorf("%s of port %d: %v", name, port, err)
			}
		}
	}
	for name, length := range map[string]int{"QueryPKey": a.PKeyTableLen, "QueryGID": a.GIDTableLen} {
		for _, index := range []int{-1, length, 1 << 32} {
			err := query[name](1, index)
			if !errors.Is(err, verbs.ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprintf("index %d", index)) {
				t.Errorf("%s of index %d: %v", name, index, err)
			}
		}
	}
}

// TestDeviceIndex: the indices are those that iproute2 prints, as "0: rxe0: node_type ca ...".
func TestDeviceIndex(t *testing.T) {
	out, err := exec.Command("rdma", "dev", "show").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		if parts := strings.SplitN(line, ": ", 3); len(parts) == 3 {
			want[parts[1]] = strings.TrimSpace(parts[0])
		}
	}
	devices := rdmatest.Must(verbs.Devices())(t)
	if len(devices) == 0 || len(devices) != len(want) {
		t.Fatalf("%d devices, but rdma dev prints\n%s", len(devices), out)
	}
	for _, d := range devices {
		if index := rdmatest.Must(d.Index())(t); fmt.Sprint(index) != want[d.Name()] {
			t.Errorf("%v has index %d, but rdma dev prints\n%s", d, index, out)
		}
	}
}

// listed returns the device of a name.
func listed(t *testing.T, name string) *verbs.DeviceInfo {
	t.Helper()
	devices := rdmatest.Must(verbs.Devices())(t)
	return devices[slices.IndexFunc(devices, func(d *verbs.DeviceInfo) bool { return d.Name() == name })]
}

// TestDeviceReplaced: another device that has taken the node and the name of a listed device
// is not mistaken for it.
func TestDeviceReplaced(t *testing.T) {
	rdmatest.ExtraRXE(t, "rxe8", "ix0", "192.168.88.1")
	d := listed(t, "rxe8")
	index := rdmatest.Must(d.Index())(t)
	rdmatest.Check(t, rdmanl.DeleteLink(t.Context(), index))
	rdmatest.ExtraRXE(t, "rxe8", "ix1", "192.168.89.1")
	if other := listed(t, "rxe8"); other.Node() != d.Node() || rdmatest.Must(other.Index())(t) == index {
		t.Fatalf("%s, once %s, is not the case", other.Node(), d.Node())
	}
	if c, err := d.Open(); !errors.Is(err, verbs.ErrDeviceRemoved) {
		t.Errorf("opened %v, %v", c.Info(), err)
	}
	if names := d.NetDevs(); len(names) != 0 {
		t.Errorf("it has the interfaces %v", names)
	}
}

var _ = rdmatest.Test(TestDeviceReplaced, rdmatest.OnRXE)

// TestDeviceRenamed: an open device keeps its identity under another name, even when another
// device takes its name.
func TestDeviceRenamed(t *testing.T) {
	rdmatest.ExtraRXE(t, "rxe8", "ix0", "192.168.88.1")
	rdmatest.ExtraRXE(t, "rxe9", "ix1", "192.168.89.1")
	d, other := listed(t, "rxe8"), listed(t, "rxe9")
	c := rdmatest.Must(d.Open())(t)
	t.Cleanup(func() { rdmatest.Close(t, c) })
	index := rdmatest.Must(d.Index())(t)
	check := func(when string) {
		t.Helper()
		if got, err := d.Index(); got != index || err != nil {
			t.Errorf("%s: index %d, %v, want %d", when, got, err, index)
		}
		if got := d.NetDevs(); !slices.Equal(got, []string{"ix0"}) {
			t.Errorf("%s: the interfaces %v, want ix0", when, got)
		}
		for _, e := range rdmatest.Must(c.GIDTable())(t) {
			if e.NetDev != "ix0" {
				t.Errorf("%s: GID %v, want ix0", when, e)
			}
		}
		if _, err := c.FindGID(verbs.GIDSelector{NetDev: "ix0"}); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if e, err := c.QueryGID(1, 0); err != nil || e.NetDev != "ix0" {
			t.Errorf("%s: GID %v, %v, want ix0", when, e, err)
		}
		if i, err := c.PKeyIndex(1, 0xffff); i != 0 || err != nil {
			t.Errorf("%s: the P_Key is at %d, %v", when, i, err)
		}
	}
	check("at first")
	rdmatest.Check(t, rdmanl.SetName(t.Context(), index, "was8"))
	check("renamed")
	rdmatest.Check(t, rdmanl.SetName(t.Context(), rdmatest.Must(other.Index())(t), "rxe8"))
	check("its name taken")
}

var _ = rdmatest.Test(TestDeviceRenamed, rdmatest.OnRXE)
