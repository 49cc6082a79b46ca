package perftest

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/efadv"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

var _ = rdmatest.Test(TestMeasureSRD, rdmatest.OnEFA)

// srdRuns are like runs, over SRD. Debian 12's perftest has only sends there.
var srdRuns = map[efadv.Caps][]run{
	0: {
		{tool: "send_bw", args: "-n 100 -s 4096 -c SRD", sizes: []int{4096}, iters: 100},
		{tool: "send_bw", args: "-n 50 -s 8192 -c SRD -b", who: goC, sizes: []int{8192}, iters: 50},
		{tool: "send_bw", args: "-n 50 -s 64 -c SRD -q 4", who: cGo, sizes: []int{64}, iters: 200},
		{tool: "send_bw", args: "-n 60 -s 64 -c SRD -e", who: goGo, sizes: []int{64}, iters: 60},
		{tool: "send_bw", args: "-n 20 -a -c SRD", who: goGo, sizes: powers(2, 8192), iters: 20},
		{tool: "send_lat", args: "-n 50 -c SRD", sizes: []int{2}, iters: 50},
		{tool: "send_lat", args: "-n 50 -c UD", who: goC, sizes: []int{2}, iters: 50},
	},
	efadv.CapRDMARead: {
		{tool: "read_bw", args: "-n 50 -s 65536 -c SRD", newer: true, sizes: []int{65536}, iters: 50},
		{tool: "read_bw", args: "-n 50 -s 100 -c SRD -q 2 -b", who: goC, newer: true, sizes: []int{100}, iters: 100},
		{tool: "read_lat", args: "-n 50 -c SRD", newer: true, sizes: []int{2}, iters: 50},
	},
	efadv.CapRDMAWrite: {
		{tool: "write_bw", args: "-n 50 -s 65536 -c SRD", newer: true, sizes: []int{65536}, iters: 50},
		{tool: "write_bw", args: "-n 50 -s 64 -c SRD --write_with_imm", who: goGo, sizes: []int{64}, iters: 50},
		// perftest would send shorter writes inline, which RDMA writes don't support.
		{tool: "write_lat", args: "-n 50 -s 64 -c SRD", newer: true, sizes: []int{64}, iters: 50},
	},
}

// TestMeasureSRD measures over EFA's transport. Operations that the device lacks are refused.
func TestMeasureSRD(t *testing.T) {
	rdmatest.CheckLeaks(t)
	d := rdmatest.Must(verbs.Open(rdmatest.Device))(t)
	caps := rdmatest.Must(efadv.QueryDevice(d))(t).Caps
	rdmatest.Close(t, d)
	for need, list := range srdRuns {
		for _, r := range list {
			if caps&need != need {
				t.Run("refused/"+r.String(), func(t *testing.T) { refused(t, r, "has no RDMA_") })
				continue
			}
			for _, who := range pairings {
				if (r.who == pairing{} || r.who == who) {
					t.Run(who.String()+"/"+r.String(), func(t *testing.T) { play(t, r, who) })
				}
			}
		}
	}
	t.Run("too large", func(t *testing.T) {
		r := run{tool: "send_bw", args: "-c SRD -s 65536"}
		lastPort++
		server := start(t, ours, r, false)
		listens(t, server, r)
		client := start(t, ours, r, true)
		if client.Wait().ExitCode() != 1 || !strings.Contains(client.Stderr(), "largest Send over SRD is ") {
			t.Error(client)
		}
		server.Wait()
	})
}

// TestMeasureWithoutSRD: other devices refuse SRD.
func TestMeasureWithoutSRD(t *testing.T) {
	refused(t, run{tool: "send_bw", args: "-c SRD"}, rdmatest.Device+" has no SRD, which only EFA adapters have")
}

// refused runs a measurement that the device must refuse.
func refused(t *testing.T, r run, says string) {
	t.Helper()
	lastPort++
	if p := start(t, ours, r, false); p.Wait().ExitCode() != 1 || !strings.Contains(p.Stderr(), says) {
		t.Errorf("want %q: %v", says, p)
	}
}
