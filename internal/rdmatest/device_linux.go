package rdmatest

import (
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/verbs"
)

// A Kind is what the devices are that the tests run on.
type Kind string

const (
	RXE  Kind = "rxe"  // Soft-RoCE: an Ethernet port, addressed by GID
	MLX5 Kind = "mlx5" // ConnectX, or the model of it in tests/hca: an InfiniBand port, addressed by LID, or an Ethernet port
)

// Devices are the rig's two devices, whether they are there or not. Traffic
// stays on the first: on one host, rxe's doesn't reach the second on every
// kernel.
var Devices = func() [2]string {
	if _, err := os.Stat("/sys/class/infiniband/mlx5_0"); err == nil {
		return [2]string{"mlx5_0", "mlx5_1"}
	}
	return [2]string{"rxe0", "rxe1"}
}()

// Device is the first of them.
var Device = Devices[0]

// RoCE tells whether the devices' ports are of Ethernet, addressed by GID.
var RoCE = func() bool {
	link, err := os.ReadFile("/sys/class/infiniband/" + Device + "/ports/1/link_layer")
	return err == nil && strings.TrimSpace(string(link)) == "Ethernet"
}()

// KindOf says what the devices are.
func KindOf() Kind {
	if strings.HasPrefix(Device, "mlx5") {
		return MLX5
	}
	return RXE
}

// overInfiniBand tells whether the device's port is one.
func overInfiniBand(t testing.TB, c *verbs.Context) (lid uint16, yes bool) {
	t.Helper()
	port := Must(c.QueryPort(Port))(t)
	return port.LID, port.LinkLayer == verbs.LinkLayerInfiniBand
}

// GID returns the GID that the tests use: the IPv4 RoCEv2 entry, over InfiniBand
// the first.
func GID(t testing.TB, c *verbs.Context) verbs.GIDEntry {
	t.Helper()
	_, ib := overInfiniBand(t, c)
	table := Must(c.GIDTable())(t)
	for _, e := range table {
		if e.Port == Port && (ib && e.Index == 0 || e.Type == verbs.RoCEv2 && e.GID.IsIPv4Mapped()) {
			return e
		}
	}
	t.Fatalf("no GID to use in %v", table)
	panic("unreachable")
}

// Address returns the way back to the device itself: over InfiniBand by LID, unless the
// port wants a GRH.
func Address(t testing.TB, c *verbs.Context) verbs.AHAttr {
	t.Helper()
	port := Must(c.QueryPort(Port))(t)
	if port.LinkLayer == verbs.LinkLayerInfiniBand && !port.GRHRequired {
		return verbs.AHAttr{DLID: port.LID, Port: Port}
	}
	return GlobalAddress(t, c)
}

// GlobalAddress is Address by GID, which leaves a GRH before datagrams.
func GlobalAddress(t testing.TB, c *verbs.Context) verbs.AHAttr {
	t.Helper()
	gid := GID(t, c)
	lid, _ := overInfiniBand(t, c)
	return verbs.AHAttr{IsGlobal: true, DGID: gid.GID, SGIDIndex: gid.Index, HopLimit: 64, Port: Port, DLID: lid}
}
