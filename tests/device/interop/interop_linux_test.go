package interop

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// games are played by every pairing, both polling and sleeping. A quick run plays the games
// marked quick: Go against C in each role, once polling and once sleeping. Go plays only the
// first of them with itself. Up to 16 bytes go inline on rxe. TestDefaults goes around queues
// of the default length.
var games = []game{
	{transport: "rc", size: 1, iters: 1},
	{transport: "rc", size: 16, iters: 200},
	{transport: "rc", size: 17, iters: 200, quick: true},
	{transport: "rc", size: 4 * kib, iters: 250, args: []string{"-r", "100"}}, // twice around the receive queue
	{transport: "rc", size: 4 * kib, iters: 100, args: []string{"-m", "256"}},
	{transport: "rc", size: 4 * kib, iters: 50, args: []string{"-r", "1"}},
	{transport: "rc", size: 64 * kib, iters: 50},
	{transport: "rc", size: mib, iters: 5, quick: true},

	{transport: "uc", size: 1, iters: 1},
	{transport: "uc", size: 16, iters: 200},
	{transport: "uc", size: 4 * kib, iters: 250, args: []string{"-r", "100"}},
	{transport: "uc", size: 4 * kib, iters: 50, args: []string{"-r", "1"}, quick: true},
	{transport: "uc", size: mib, iters: 5},

	{transport: "ud", size: 1, iters: 1},
	{transport: "ud", size: 16, iters: 200},
	{transport: "ud", size: 17, iters: 200, args: []string{"-r", "3"}, quick: true},
	{transport: "ud", size: 1024, iters: 250, args: []string{"-r", "100"}},

	{transport: "srq", size: 1, iters: 1, qps: 1},
	{transport: "srq", size: 16, iters: 200},
	{transport: "srq", size: 4 * kib, iters: 250, args: []string{"-r", "100"}},
	{transport: "srq", size: 4 * kib, iters: 300, qps: 255},
	{transport: "srq", size: 4 * kib, iters: 200, qps: 4, args: []string{"-r", "4"}, quick: true},
	{transport: "srq", size: mib, iters: 10, qps: 2},
}

func TestPingpong(t *testing.T) {
	rdmatest.CheckLeaks(t)
	modes := []string{"polling", "sleeping"}
	for p, who := range pairings {
		for m, mode := range modes {
			quick := 0
			for _, g := range games {
				if g.quick {
					quick++
				}
				if testing.Short() && (!g.quick || who == pairings[0] && quick > 1 || (p+m+quick)%len(modes) != 0) {
					continue
				}
				if mode == "sleeping" {
					g.args = append([]string{"-e"}, g.args...)
				}
				t.Run(strings.Join([]string{g.transport, who.String(), mode, g.String()}, "/"), func(t *testing.T) {
					play(t, g, who)
				})
			}
		}
	}
}

var _ = rdmatest.Test(TestLong, rdmatest.Long)

// TestLong goes around the queues many times, but fewer times where the emulator handles
// each doorbell.
func TestLong(t *testing.T) {
	rdmatest.CheckLeaks(t)
	iters := map[rdmatest.Kind]int{rdmatest.RXE: 3000, rdmatest.MLX5: 1000}[rdmatest.KindOf()]
	transports, players := []string{"rc", "uc", "ud", "srq"}, pairings
	if testing.Short() {
		transports, players = []string{"rc", "srq"}, pairings[1:]
	}
	for _, transport := range transports {
		for _, who := range players {
			t.Run(transport+"/"+who.String(), func(t *testing.T) {
				play(t, game{transport: transport, size: 64, iters: iters, args: []string{"-r", "33"}}, who)
			})
		}
	}
}

var _ = rdmatest.Test(TestDefaults, rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.OnMLX5Eth, rdmatest.LongOn("mlx5"))

// TestDefaults: both makers' programs have the same defaults.
func TestDefaults(t *testing.T) {
	for transport, size := range map[string]int{"rc": 4096, "uc": 4096, "ud": 1024, "srq": 4096} {
		for _, who := range pairings[1:] {
			t.Run(transport+"/"+who.String(), func(t *testing.T) {
				const port = 18515
				server := start(t, who.server, transport, port, "")
				listens(t, server, port)
				client := start(t, who.client, transport, port, rig.address)
				checkBoth(t, game{transport: transport, size: size, iters: 1000}, server, client)
			})
		}
	}
}

// TestODP: mlx5 always pages memory on demand, rxe since Linux 6.15. Before that, both
// makers' programs notice and exit. A message is one packet, because rxe up to Linux 7.2
// copies all packets of a page to its start (__rxe_odp_mr_copy ignores the offset).
func TestODP(t *testing.T) {
	rdmatest.CheckLeaks(t)
	pages := rdmatest.KindOf() == rdmatest.MLX5 || rdmatest.Kernel(t).AtLeast(6, 15)
	for _, transport := range []string{"rc", "srq"} {
		for _, who := range pairings {
			if testing.Short() && who == pairings[0] {
				continue
			}
			t.Run(transport+"/"+who.String(), func(t *testing.T) {
				if pages {
					play(t, game{transport: transport, size: 1024, iters: 100, args: []string{"-o"}}, who)
					return
				}
				lastPort++
				p := start(t, who.server, transport, lastPort, "", "-o")
				if p.Wait().ExitCode() != 1 || !strings.Contains(p.Said(), "demand") && !strings.Contains(p.Said(), "ODP") {
					t.Error(p)
				}
			})
		}
	}
}

// TestWrongData: a client without the data check sends other data than a server with the
// check expects.
func TestWrongData(t *testing.T) {
	for transport, size := range map[string]int{"rc": 10000, "uc": 10000, "ud": 1000} {
		for _, maker := range []maker{ours, theirs} {
			t.Run(transport+"/"+string(maker), func(t *testing.T) {
				lastPort++
				args := []string{"-n", "10", "-s", strconv.Itoa(size)}
				server := start(t, ours, transport, lastPort, "", append(args, "-c")...)
				listens(t, server, lastPort)
				client := start(t, maker, transport, lastPort, rig.address, args...)
				if client.Wait().ExitCode() != 0 {
					t.Error(client)
				}
				if server.Wait().ExitCode() != 1 {
					t.Error(server)
				}
				pages := (size + os.Getpagesize() - 1) / os.Getpagesize()
				if n := strings.Count(server.Said(), "invalid data in page "); n != pages {
					t.Errorf("%d pages of %d are reported: %v", n, pages, server)
				}
			})
		}
	}
}

// noSuchGID is the error for a GID index. On mlx5, the index exceeds the table.
var noSuchGID = map[rdmatest.Kind]string{rdmatest.RXE: "ENODATA", rdmatest.MLX5: "99"}[rdmatest.KindOf()]

var _ = rdmatest.Test(TestFailures, rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.OnMLX5Eth)

// TestFailures: ibv exits with status 1 where rdma-core's programs do, and also for mistakes
// that rdma-core's programs notice later or never.
func TestFailures(t *testing.T) {
	rdmatest.CheckLeaks(t)
	both := []maker{ours, theirs}
	for _, test := range []struct {
		name, transport, args, host string
		makers                      []maker
		says                        string // ours
	}{
		{"device", "rc", "-d nonsense7", "", both, "nonsense7"},
		{"port", "rc", "-i 3", "", both, "port 3"},
		{"MTU", "ud", "-s " + strconv.Itoa(rig.mtu+1), "", both, strconv.Itoa(rig.mtu + 1)},
		{"nobody", "rc", "", rig.address, both, "refused"},
		{"no GID", "rc", "-g -1", "", both[:1], "GID"},
		{"GID index", "rc", "-g 99", "", both[:1], noSuchGID},
	} {
		if test.name == "no GID" && !rdmatest.RoCE {
			continue // it needs none, or the kernel refuses without
		}
		for _, maker := range test.makers {
			t.Run(test.name+"/"+string(maker), func(t *testing.T) {
				lastPort++
				p := start(t, maker, test.transport, lastPort, test.host, strings.Fields(test.args)...)
				if p.Wait().ExitCode() != 1 {
					t.Error(p)
				}
				if maker == ours && !strings.Contains(p.Said(), test.says) {
					t.Errorf("the output doesn't mention %q: %v", test.says, p)
				}
			})
		}
	}
}
