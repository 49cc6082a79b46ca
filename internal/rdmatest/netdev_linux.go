package rdmatest

import (
	"os"
	"strings"
	"testing"
)

// NetDev is the name of the network interface that a device is on, "" over
// InfiniBand.
func NetDev(device string) string {
	name, err := os.ReadFile("/sys/class/infiniband/" + device + "/ports/1/gid_attrs/ndevs/0")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}

// EnableIPv6 lets a network interface have IPv6 addresses, at once: the rig leaves
// those of mlx5 without.
func EnableIPv6(t testing.TB, netDev string) {
	t.Helper()
	for _, set := range [][2]string{{"accept_dad", "0"}, {"disable_ipv6", "0"}} {
		Check(t, os.WriteFile("/proc/sys/net/ipv6/conf/"+netDev+"/"+set[0], []byte(set[1]), 0))
	}
}
