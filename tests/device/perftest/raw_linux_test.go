package perftest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var _ = rdmatest.Test(TestRawEthernet, rdmatest.OnMLX5Eth)

// TestRawEthernet sends frames from one adapter to the other. The server is always ibv,
// because only ibv reports when it is ready.
func TestRawEthernet(t *testing.T) {
	rdmatest.CheckLeaks(t)
	var macs [2]string
	for i := range macs {
		files := rdmatest.Must(filepath.Glob("/sys/class/infiniband/" + rdmatest.Devices[i] + "/device/net/*/address"))(t)
		b, err := os.ReadFile(files[0])
		rdmatest.Check(t, err)
		macs[i] = strings.TrimSpace(string(b))
	}
	// perftest's versions differ in which side an address belongs to.
	const ip, udp = "-j 10.0.0.1 -J 10.0.0.1 ", "-k 1000 -K 1000 "
	for _, r := range []run{
		{tool: "raw_ethernet_bw", args: "-n 100 -s 1400", sizes: []int{1400}, iters: 100},
		{tool: "raw_ethernet_bw", args: "-n 100 -s 512 " + ip + udp, sizes: []int{512}, iters: 100},
		{tool: "raw_ethernet_bw", args: "-n 100 -s 512 --tcp " + ip + udp, sizes: []int{512}, iters: 100},
		{tool: "raw_ethernet_lat", args: "-n 100 -s 64", sizes: []int{64}, iters: 100},
		{tool: "raw_ethernet_lat", args: "-n 100 -s 256 " + ip + udp, sizes: []int{256}, iters: 100},
		{tool: "raw_ethernet_burst_lat", args: "-n 320 -s 64 -t 32 --burst_size=8 --reply_every=4", sizes: []int{64}, iters: 80},
	} {
		for _, client := range []maker{ours, theirs} {
			if client == theirs && r.tool == "raw_ethernet_burst_lat" {
				continue // the client ends before the answers arrive, and its table doesn't count them
			}
			t.Run(string(client)+"/"+r.String(), func(t *testing.T) {
				program := func(m maker, side int, role string) *rdmatest.Process {
					line := []string{r.tool}
					if m == ours {
						line = []string{rdmatest.Program(t, "ibv"), r.tool}
					}
					line = append(line, role, "-F", "-d", rdmatest.Devices[side], "-B", macs[side], "-E", macs[1-side])
					return rdmatest.Start(t, append(line, strings.Fields(r.args)...)...)
				}
				server := program(ours, 1, "--server")
				server.Until(t, func() bool { return strings.Contains(server.Stdout(), "#bytes") })
				second := program(client, 0, "--client")
				for _, p := range []*rdmatest.Process{second, server} {
					if !p.Wait().Success() {
						t.Fatalf("%v\n%v", server, second)
					}
				}
				checkRows(t, r, second, r.sizes)
				if r.tool != "raw_ethernet_burst_lat" {
					checkRows(t, r, server, r.sizes)
				}
			})
		}
	}
	t.Run("the device limits the rate", func(t *testing.T) {
		program := func(side int, args ...string) *rdmatest.Process {
			line := []string{rdmatest.Program(t, "ibv"), "raw_ethernet_bw", "-d", rdmatest.Devices[side], "-B", macs[side], "-E", macs[1-side], "-n", "60", "-s", "1400"}
			return rdmatest.Start(t, append(line, args...)...)
		}
		server := program(1, "--server")
		server.Until(t, func() bool { return strings.Contains(server.Stdout(), "#bytes") })
		// 2048 kb/s are 183 frames a second.
		client := program(0, "--client", "--rate_limit=0.25", "--rate_units=M", "--rate_limit_type=PP")
		if !client.Wait().Success() || !server.Wait().Success() {
			t.Fatalf("%v\n%v", server, client)
		}
		// The clocks of the device and of the guest may differ.
		if rate := rows(t, client)[0][4] * 1e6; rate > 2*183 {
			t.Errorf("%v frames a second: %v", rate, client)
		}
	})
	t.Run("nobody answers", func(t *testing.T) {
		p := rdmatest.Start(t, rdmatest.Program(t, "ibv"), "raw_ethernet_lat", "--client", "-d", rdmatest.Devices[0], "-B", macs[0], "-E", macs[1])
		if p.Wait().ExitCode() != 1 || !strings.Contains(p.Stderr(), "nothing more arrives") {
			t.Error(p)
		}
	})
}
