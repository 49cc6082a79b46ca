package rdmatest

import (
	"errors"
	"os"
	"strings"
	"testing"

	_ "github.com/goverbs/goverbs/provider/siw" // not part of every program
	"github.com/goverbs/goverbs/verbs"
)

// A Kind is the kind of the devices.
type Kind string

const (
	RXE  Kind = "rxe"  // Soft-RoCE: an Ethernet port, addressed by GID
	SIW  Kind = "siw"  // soft-iWARP: an Ethernet port, addressed through the connection manager
	EFA  Kind = "efa"  // Amazon's EFA, or its model in rig/efa: a port of its own kind, addressed by GID
	MLX5 Kind = "mlx5" // ConnectX, or its model in rig/connectx: an InfiniBand port, addressed by LID, or an Ethernet port

	Verbstest Kind = "verbstest" // package verbstest's: an Ethernet port, addressed by GID
)

// Devices are the names of the rig's two devices, whether they exist or not. Tests send only on
// the first: with rxe, not every kernel delivers packets between two devices of one host.
var Devices = func() [2]string {
	if _, err := os.Stat("/sys/class/infiniband/mlx5_0"); err == nil {
		return [2]string{"mlx5_0", "mlx5_1"}
	}
	if _, err := os.Stat("/sys/class/infiniband/siw0"); err == nil {
		return [2]string{"siw0", "siw1"}
	}
	if _, err := os.Stat("/sys/class/infiniband/efa_0"); err == nil {
		return [2]string{"efa_0", "efa_1"}
	}
	return [2]string{"rxe0", "rxe1"}
}()

// Device is the first of Devices.
var Device = Devices[0]

// RoCE reports whether the devices have Ethernet ports, addressed by GID.
var RoCE = func() bool {
	if KindOf() == SIW {
		return false
	}
	link, err := os.ReadFile("/sys/class/infiniband/" + Device + "/ports/1/link_layer")
	return err == nil && strings.TrimSpace(string(link)) == "Ethernet"
}()

// KindOf returns the kind of the devices.
func KindOf() Kind {
	if strings.HasPrefix(Device, "mlx5") {
		return MLX5
	}
	if strings.HasPrefix(Device, "siw") {
		return SIW
	}
	if strings.HasPrefix(Device, "efa") {
		return EFA
	}
	if strings.HasPrefix(Device, "vt") {
		return Verbstest
	}
	return RXE
}

// overInfiniBand returns the port's LID, and whether it is an InfiniBand port.
func overInfiniBand(t testing.TB, c *verbs.Device) (lid uint16, yes bool) {
	t.Helper()
	port := Must(c.QueryPort(Port))(t)
	return port.LID, port.LinkLayer == verbs.LinkLayerInfiniBand
}

// GID returns the GID that the tests use: the IPv4 RoCEv2 entry, or over InfiniBand the first
// entry.
func GID(t testing.TB, c *verbs.Device) verbs.GIDEntry {
	t.Helper()
	_, ib := overInfiniBand(t, c)
	table := Must(c.GIDTable())(t)
	for _, e := range table {
		if e.Port == Port && (ib && e.Index == 0 || e.Type == verbs.GIDTypeRoCEv2 && e.GID.IsIPv4Mapped()) {
			return e
		}
	}
	t.Fatalf("no GID to use in %v", table)
	panic("unreachable")
}

// Address returns the address of the device itself. Over InfiniBand it is a LID, unless the
// port requires a GRH.
func Address(t testing.TB, c *verbs.Device) verbs.AHAttr {
	t.Helper()
	port := Must(c.QueryPort(Port))(t)
	if port.LinkLayer == verbs.LinkLayerInfiniBand && !port.GRHRequired {
		return verbs.AHAttr{DLID: port.LID, Port: Port}
	}
	return GlobalAddress(t, c)
}

// GlobalAddress is like Address, but with a GID, so that received datagrams have a GRH.
func GlobalAddress(t testing.TB, c *verbs.Device) verbs.AHAttr {
	t.Helper()
	gid := GID(t, c)
	lid, _ := overInfiniBand(t, c)
	return verbs.AHAttr{IsGlobal: true, DGID: gid.GID, SGIDIndex: gid.Index, HopLimit: 64, Port: Port, DLID: lid}
}

// ClockShown reports whether mlx5_ib lets programs map a device's clock. The mapped page must contain nothing
// else. So the clock can't be mapped if pages have more than 4 KiB.
func ClockShown() bool { return os.Getpagesize() == 4096 }

// RawClock returns the clock of an mlx5 device. If ClockShown is false, RawClock checks that reading the clock
// is refused, and returns 0.
func RawClock(t testing.TB, c *verbs.Device) uint64 {
	t.Helper()
	clock, err := c.RawClock()
	if !ClockShown() {
		if !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("a clock in a page of %d bytes: %v", os.Getpagesize(), err)
		}
		return 0
	}
	Check(t, err)
	return clock
}
