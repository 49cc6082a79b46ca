// Package device tests the queries of devices, ports, P_Keys and GIDs on a real
// device, against what the kernel says of them in /sys.
//
// It runs in the rig only:
//
//	tests/vm/run -d rxe -- go test ./tests/device
package device

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/verbs"
)

const (
	device  = "rxe0"
	address = "192.168.77.1"
	netdev  = "veth0"
	class   = "/sys/class/infiniband/" + device
)

func TestMain(m *testing.M) {
	if _, err := os.Stat(class); err != nil {
		fmt.Fprintf(os.Stderr, "no %s here; run this in the rig: tests/vm/run -d rxe -- go test ./tests/device\n", device)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// sys reads a file of the device in /sys.
func sys(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(class, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// open opens the device for the duration of the test.
func open(t *testing.T) *verbs.Context {
	t.Helper()
	c, err := verbs.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestList(t *testing.T) {
	devs, err := verbs.Devices()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range devs {
		names = append(names, d.Name())
		if d.Err() != nil || d.NodeType() != verbs.NodeCA || d.Transport() != verbs.TransportIB {
			t.Errorf("%v: %v, %v, %v", d, d.NodeType(), d.Transport(), d.Err())
		}
	}
	if diff := cmp.Diff([]string{"rxe0", "rxe1"}, names); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	if got := devs[0].NodeGUID().String(); got != sys(t, "node_guid") {
		t.Errorf("node GUID %s, in /sys %s", got, sys(t, "node_guid"))
	}
}

func TestOpen(t *testing.T) {
	for _, selector := range []string{"", device, netdev, sys(t, "node_guid")} {
		c, err := verbs.Open(selector)
		if err != nil {
			t.Errorf("Open(%q): %v", selector, err)
			continue
		}
		if got := c.Device().Name(); got != device {
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
	if _, err := verbs.Open("rxe7"); !errors.Is(err, verbs.ErrNoDevice) || !strings.Contains(err.Error(), "rxe1") {
		t.Errorf("Open(rxe7): %v, want ErrNoDevice and what there is", err)
	}
}

func TestQueryDevice(t *testing.T) {
	a, err := open(t).QueryDevice()
	if err != nil {
		t.Fatal(err)
	}
	ports, err := os.ReadDir(filepath.Join(class, "ports"))
	if err != nil {
		t.Fatal(err)
	}
	if a.PhysPortCnt != len(ports) {
		t.Errorf("PhysPortCnt = %d, /sys has %d", a.PhysPortCnt, len(ports))
	}
	if got := a.NodeGUID.String(); got != sys(t, "node_guid") {
		t.Errorf("NodeGUID = %s, in /sys %s", got, sys(t, "node_guid"))
	}
	if got := a.SysImageGUID.String(); got != sys(t, "sys_image_guid") {
		t.Errorf("SysImageGUID = %s, in /sys %s", got, sys(t, "sys_image_guid"))
	}
	// RXE_VENDOR_ID, and what rxe has on every kernel.
	if a.VendorID != 0xffffff || a.AtomicCap != verbs.AtomicHCA || a.FWVer != "0.0.0" {
		t.Errorf("vendor %#x, atomics %v, firmware %q", a.VendorID, a.AtomicCap, a.FWVer)
	}
	if want := verbs.DeviceMemWindow | verbs.DeviceSRQResize; a.DeviceCapFlags&want != want {
		t.Errorf("DeviceCapFlags = %v, want %v in it", a.DeviceCapFlags, want)
	}
	// The extended answer repeats the flags: it was given.
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
	a, err := c.QueryPort(1)
	if err != nil {
		t.Fatal(err)
	}
	for file, got := range map[string]string{
		"ports/1/state":      fmt.Sprintf("%d: %s", a.State, strings.TrimPrefix(a.State.String(), "PORT_")),
		"ports/1/link_layer": a.LinkLayer.String(),
		"ports/1/lid":        fmt.Sprintf("%#x", a.LID),
		"ports/1/sm_lid":     fmt.Sprintf("%#x", a.SMLID),
		"ports/1/cap_mask":   fmt.Sprintf("0x%08x", uint32(a.PortCapFlags)),
	} {
		if want := sys(t, file); got != want {
			t.Errorf("%s is %q, QueryPort says %q", file, want, got)
		}
	}
	if a.State != verbs.PortActive || a.LinkLayer != verbs.LinkLayerEthernet || a.PhysState != verbs.PhysLinkUp {
		t.Errorf("state %v, %v, link layer %v", a.State, a.PhysState, a.LinkLayer)
	}
	// The rate is the lanes' number times their speed, printed without ".0".
	rate, _, _ := strings.Cut(sys(t, "ports/1/rate"), " ")
	gbps, err := strconv.ParseFloat(rate, 64)
	if err != nil {
		t.Fatal(err)
	}
	lane, err := strconv.ParseFloat(strings.TrimSuffix(a.ActiveSpeed.String(), " Gbps"), 64)
	if err != nil {
		t.Fatal(err)
	}
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
	// rxe doesn't have it, and old kernels don't either.
	if _, err := c.QueryPortSpeed(1); !errors.Is(err, verbs.ErrNotSupported) {
		t.Errorf("QueryPortSpeed: %v, want ErrNotSupported", err)
	}
}

func TestQueryPKey(t *testing.T) {
	got, err := open(t).QueryPKey(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if want := sys(t, "ports/1/pkeys/0"); fmt.Sprintf("0x%04x", got) != want || got != 0xffff {
		t.Errorf("P_Key %#x, in /sys %s", got, want)
	}
}

func TestGIDs(t *testing.T) {
	c := open(t)
	table, err := c.GIDTable()
	if err != nil {
		t.Fatal(err)
	}
	inTable := make(map[int]bool)
	for _, e := range table {
		inTable[e.Index] = true
		var groups []string
		for i := 0; i < len(e.GID); i += 2 {
			groups = append(groups, fmt.Sprintf("%x", e.GID[i:i+2]))
		}
		for file, got := range map[string]string{
			"gids":            strings.Join(groups, ":"),
			"gid_attrs/types": e.Type.String(),
			"gid_attrs/ndevs": e.NetDev,
		} {
			if want := sys(t, fmt.Sprintf("ports/%d/%s/%d", e.Port, file, e.Index)); got != want {
				t.Errorf("%v: %s is %q", e, file, want)
			}
		}
		ifindex, err := os.ReadFile("/sys/class/net/" + e.NetDev + "/ifindex")
		if err != nil || strings.TrimSpace(string(ifindex)) != strconv.Itoa(e.IfIndex) {
			t.Errorf("%v: interface index %d, in /sys %s", e, e.IfIndex, ifindex)
		}
		single, err := c.QueryGID(e.Port, e.Index)
		if err != nil || single != e {
			t.Errorf("QueryGID(%d, %d) = %v, %v, in the table %v", e.Port, e.Index, single, err, e)
		}
	}
	if len(table) < 2 {
		t.Errorf("GID table: %v", table)
	}
	for index := range 8 {
		gid := sys(t, fmt.Sprintf("ports/1/gids/%d", index))
		if empty := gid == "0000:0000:0000:0000:0000:0000:0000:0000"; empty == inTable[index] {
			t.Errorf("GID %d is %s in /sys; in the table: %v", index, gid, inTable[index])
		}
		if _, err := c.QueryGID(1, index); !inTable[index] && !errors.Is(err, syscall.ENODATA) {
			t.Errorf("QueryGID(1, %d): %v, want ENODATA", index, err)
		}
	}

	for _, s := range []verbs.GIDSelector{
		{},
		{Addr: netip.MustParseAddr(address), Type: verbs.RoCEv2},
		{NetDev: netdev, Type: verbs.RoCEv2},
	} {
		e, err := table.Find(s)
		if err != nil || e.Port != 1 || e.Index != 1 || e.GID.String() != "::ffff:"+address {
			t.Errorf("Find(%v) = %v, %v, want the IPv4 GID at index 1", s, e, err)
		}
	}
	if _, err := table.Find(verbs.GIDSelector{Addr: netip.MustParseAddr("192.0.2.1")}); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("Find(192.0.2.1): %v, want what there is", err)
	}
}

// What can't be is refused before it gets to the kernel.
func TestBadInput(t *testing.T) {
	c := open(t)
	a, err := c.QueryPort(1)
	if err != nil {
		t.Fatal(err)
	}
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
