package ibv

import (
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var (
	_ = rdmatest.Test(TestUdpong, rdmatest.OnRXE, rdmatest.OnMLX5Eth)
	_ = rdmatest.Test(TestUdpongPlain, rdmatest.OnRXE)
)

// TestUdpong: datagrams over sockets on RDMA. librdmacm's udpong doesn't work over RoCE: its rconnect
// fails there, because it makes addresses without GIDs. So it is a peer only over UDP, below.
func TestUdpong(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for _, args := range []string{"-S 64 -C 100 -T e", "-S 1000 -C 50", "-S 64 -C 20 -T e -T b"} {
		udpongs(t, []string{rdmatest.Program(t, "ibv"), "udpong"}, []string{rdmatest.Program(t, "ibv"), "udpong"}, args)
	}
}

// TestUdpongPlain: over UDP, C can be the peer.
func TestUdpongPlain(t *testing.T) {
	ours, theirs := []string{rdmatest.Program(t, "ibv"), "udpong"}, []string{"udpong"}
	for _, who := range [][2][]string{{ours, theirs}, {theirs, ours}} {
		udpongs(t, who[0], who[1], "-S 64 -C 20 -T s")
	}
}

// udpongs runs a server and a client.
func udpongs(t *testing.T, server, client []string, args string) {
	t.Helper()
	mode := []string{"-b", "192.168.77.1"}
	for _, m := range []string{"-T b", "-T s"} {
		if strings.Contains(args, m) {
			mode = append(mode, strings.Fields(m)...)
		}
	}
	s := rdmatest.Start(t, append(server[:len(server):len(server)], mode...)...)
	s.Until(t, func() bool {
		table, err := os.ReadFile("/proc/net/udp")
		return err == nil && strings.Contains(string(table), ":1C06 ")
	})
	said := rdmatest.Start(t, append(append(client[:len(client):len(client)], "-s", "192.168.77.1"), strings.Fields(args)...)...).Succeeds(t)
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if row := strings.Fields(lines[len(lines)-1]); len(lines) != 2 || len(row) != 7 || row[0] != "custom" || row[2] == "0" {
		t.Errorf("%s: %s", args, said)
	}
	s.Kill()
}
