package rdmacm

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
)

// rping starts ibv rping or rdma-core's rping.
func rping(t testing.TB, maker string, args ...string) *rdmatest.Process {
	t.Helper()
	if maker == "c" {
		return rdmatest.Start(t, append([]string{"rping"}, args...)...)
	}
	return rdmatest.Start(t, append([]string{rdmatest.Program(t, "ibv"), "rping"}, args...)...)
}

// listens waits until a server listens on the port of the TCP or UDP port space. Then binding
// to the port fails.
func listens(t testing.TB, server *rdmatest.Process, ps rdmacm.PortSpace, port uint16) {
	t.Helper()
	server.Until(t, func() bool { return rdmatest.ListeningCM(t, ps.String(), port) })
}

var pairings = []struct{ server, client string }{{"go", "go"}, {"go", "c"}, {"c", "go"}}

var lastPort uint16 = 20000

var _ = rdmatest.Test(TestRping, rdmatest.OnRXE, rdmatest.OnMLX5Eth, rdmatest.LongOn("mlx5-eth"))

func TestRping(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for _, who := range pairings {
		for _, test := range []struct {
			size, count int
			args        string // of both sides
		}{
			{size: 1, count: 3},
			{size: 25, count: 3},
			{size: 26, count: 10},
			{size: 64, count: long(50, 1000)},
			{size: 1000, count: 10, args: "-q"},
			{size: 1024, count: long(20, 1000)},
			{size: 4096, count: long(20, 1000)},
			{size: 65535, count: long(10, 1000)},
			{size: 65536, count: long(10, 1000)},
		} {
			// The sizes that rdma-core's rping accepts with -S.
			fits := test.size <= 65535 && (test.size >= 26 || who.client == "go")
			if !fits && who.server+who.client != "gogo" {
				continue
			}
			t.Run(fmt.Sprintf("%s-%s/%d%s", who.server, who.client, test.size, test.args), func(t *testing.T) {
				playRping(t, who.server, who.client, test.size, test.count, test.args)
			})
		}
	}
}

// playRping plays rping with this many pings, whose data both sides print.
func playRping(t *testing.T, serverMaker, clientMaker string, size, count int, both string) {
	t.Helper()
	lastPort++
	args := append(strings.Fields(both), "-a", host, "-p", fmt.Sprint(lastPort), "-v", "-C", fmt.Sprint(count))
	server := rping(t, serverMaker, append(args, "-s", "-S", fmt.Sprint(max(size, 64)))...)
	listens(t, server, rdmacm.PortSpaceTCP, lastPort)
	client := rping(t, clientMaker, append(args, "-c", "-V", "-S", fmt.Sprint(size))...)
	got := pings(client.Succeeds(t), "ping data: ")
	seen := pings(server.Succeeds(t), "server ping data: ")
	if len(got) != count || len(seen) != count {
		t.Fatalf("%d pings, %d at the server, want %d", len(got), len(seen), count)
	}
	for i := range got {
		want := fmt.Sprintf("rdma-ping-%d: ", i)
		want = want[:min(len(want), size-1)]
		if got[i] != seen[i] || !strings.HasPrefix(got[i], want) || len(got[i]) != size-1 {
			t.Fatalf("ping %d is %.40q…, at the server %.40q…", i, got[i], seen[i])
		}
	}
}

// pings returns the rest of the lines that begin with the words.
func pings(output, words string) []string {
	var found []string
	for line := range strings.Lines(output) {
		if ping, ok := strings.CutPrefix(line, words); ok {
			found = append(found, strings.TrimSuffix(ping, "\n"))
		}
	}
	return found
}

// A persistent server serves many clients of both makers at the same time.
func TestRpingPersistent(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for _, maker := range []string{"go", "c"} {
		lastPort++
		port := fmt.Sprint(lastPort)
		server := rping(t, maker, "-s", "-P", "-a", host, "-p", port, "-S", "1000")
		listens(t, server, rdmacm.PortSpaceTCP, lastPort)
		var clients sync.WaitGroup
		for i := range long(6, 50) {
			client := []string{"go", "c"}[i%2]
			if maker == "c" {
				client = "go"
			}
			clients.Go(func() {
				p := rping(t, client, "-c", "-a", host, "-p", port, "-v", "-V", "-C", "20", "-S", "1000")
				if !p.OK() {
					t.Error(p)
				}
			})
			// rdma-core's server loses a request if another one follows at once.
			if i%25 == 24 || maker == "c" {
				clients.Wait()
			}
		}
		clients.Wait()
		server.Kill()
	}
}

func TestRpingErrors(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for args, says := range map[string]string{
		"-c -a " + host + " -p 9":    "nothing listens",
		"-c -a 10.9.8.7":             "ENETUNREACH",
		"-s -a 10.9.8.7":             "no RDMA device of this host has the address",
		"-c -a no-such-host.invalid": "no-such-host",
	} {
		p := rping(t, "go", strings.Fields(args)...)
		if p.Wait().ExitCode() != 1 || !strings.Contains(p.Stderr(), says) {
			t.Errorf("want status 1 and %q: %v", says, p)
		}
	}
}
