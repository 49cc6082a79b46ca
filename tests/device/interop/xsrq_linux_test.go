package interop

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// xsrqLine matches an address, which both makers print in the same format.
var xsrqLine = regexp.MustCompile(`(?m)^ +(local|remote): (LID \w{4}, QPN RECV \w{6} SEND \w{6}, PSN \w{6}, SRQN \w{6}, GID \S+)$`)

// xsrqAddresses returns a side's own addresses, or the peers' addresses that it received,
// in order.
func xsrqAddresses(p *rdmatest.Process, whose string) (found []string) {
	for _, match := range xsrqLine.FindAllStringSubmatch(p.Said(), -1) {
		if match[1] == whose {
			found = append(found, match[2])
		}
	}
	slices.Sort(found)
	return found
}

var _ = rdmatest.Test(TestXSRQ, rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.OnMLX5Eth)

// TestXSRQ: a server with several clients sends to each of them over all clients' QPs, so
// that messages arrive through a domain that processes share.
func TestXSRQ(t *testing.T) {
	rdmatest.CheckLeaks(t)
	if rdmatest.KindOf() == rdmatest.RXE {
		for _, m := range []maker{ours, theirs} {
			lastPort++
			if p := start(t, m, "xsrq", lastPort, ""); p.Wait().ExitCode() != 1 {
				t.Errorf("XRC on rxe: %v", p)
			}
		}
		return
	}
	for _, who := range append(slices.Clone(pairings), pairing{theirs, theirs}) {
		for _, g := range []struct {
			clients, size, tests int
			args                 []string
		}{
			{clients: 1, size: 1, tests: 1},
			{clients: 1, size: 4 * kib, tests: 5},
			{clients: 1, size: 4 * kib, tests: 1000},
			{clients: 1, size: mib, tests: 5},
			{clients: 1, size: 64, tests: 200, args: []string{"-e"}},
			{clients: 2, size: 64, tests: 200},
			{clients: 5, size: 4 * kib, tests: 30, args: []string{"-e"}},
		} {
			if testing.Short() && (g.clients != 2 || who.server == who.client) {
				continue
			}
			t.Run(fmt.Sprintf("%v/%dx%dx%d%v", who, g.clients, g.size, g.tests, g.args), func(t *testing.T) {
				lastPort++
				port := lastPort
				args := append([]string{"-s", strconv.Itoa(g.size), "-n", strconv.Itoa(g.tests)}, g.args...)
				server := start(t, who.server, "xsrq", port, "", append(args, "-c", strconv.Itoa(g.clients))...)
				listens(t, server, port)
				var local, remote []string
				var clients []*rdmatest.Process
				for range g.clients {
					clients = append(clients, start(t, who.client, "xsrq", port, rig.address, args...))
				}
				for _, p := range append(clients, server) {
					if p.Wait().ExitCode() != 0 {
						t.Fatal(p)
					}
				}
				for _, p := range clients {
					local, remote = append(local, xsrqAddresses(p, "local")...), append(remote, xsrqAddresses(p, "remote")...)
				}
				slices.Sort(local)
				slices.Sort(remote)
				if theirs := xsrqAddresses(server, "remote"); len(local) != g.clients || !slices.Equal(local, theirs) {
					t.Errorf("clients' own addresses %v, the server received %v", local, theirs)
				}
				if theirs := xsrqAddresses(server, "local"); !slices.Equal(remote, theirs) {
					t.Errorf("the server's own addresses %v, the clients received %v", theirs, remote)
				}
			})
		}
	}
}
