package rdmatest

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdmanl"
	"github.com/goverbs/goverbs/verbs"
)

// NetDev returns the name of a device's network interface, or "" over InfiniBand.
func NetDev(device string) string {
	name, err := os.ReadFile("/sys/class/infiniband/" + device + "/ports/1/gid_attrs/ndevs/0")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}

// EnableIPv6 enables IPv6 addresses on a network interface, without duplicate address
// detection. The rig disables them for mlx5.
func EnableIPv6(t testing.TB, netDev string) {
	t.Helper()
	for _, set := range [][2]string{{"accept_dad", "0"}, {"disable_ipv6", "0"}} {
		Check(t, os.WriteFile("/proc/sys/net/ipv6/conf/"+netDev+"/"+set[0], []byte(set[1]), 0))
	}
}

// ExtraRXE creates an rxe device for the test, on a new network interface with an IPv4
// address. The test may delete it. link has further arguments for `ip link add`.
func ExtraRXE(t testing.TB, device, netDev, addr string, link ...string) {
	t.Helper()
	peer := netDev + "peer"
	Command(t, "ip link add "+netDev+" "+strings.Join(link, " ")+" type veth peer name "+peer)
	t.Cleanup(func() { Command(t, "ip link delete "+netDev) })
	Command(t, "ip link set "+netDev+" up")
	Command(t, "ip link set "+peer+" up")
	Command(t, "ip address add "+addr+"/24 dev "+netDev)
	Check(t, rdmanl.AddLink(t.Context(), rdmanl.LinkOptions{Name: device, Type: "rxe", Netdev: netDev}))
	// The device node and the GID appear a moment later.
	for deadline := time.Now().Add(Patience); ; time.Sleep(10 * time.Millisecond) {
		c, err := verbs.Open(device)
		if err == nil {
			table, tableErr := c.GIDTable()
			Close(t, c)
			for _, e := range table {
				if e.GID.IsIPv4Mapped() && e.Type == verbs.GIDTypeRoCEv2 {
					return
				}
			}
			err = tableErr
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has no IPv4 GID: %v", device, err)
		}
	}
}
