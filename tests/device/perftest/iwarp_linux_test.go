package perftest

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var _ = rdmatest.Test(TestMeasureIWARP, rdmatest.OnSIW, rdmatest.LongOn("siw"))

// TestMeasureIWARP measures writes and sends with perftest as the peer, and between two ibv.
// Sends take turns with credits, in each direction, even with few receives.
func TestMeasureIWARP(t *testing.T) {
	rdmatest.CheckLeaks(t)
	// siw applies the limit of locked memory to root, too, and -a needs more.
	var before unix.Rlimit
	rdmatest.Check(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before))
	rdmatest.Check(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}))
	defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before)
	for _, r := range []run{
		{tool: "write_bw", args: "-R -n 100 -s 1024"},
		{tool: "send_bw", args: "-R -n 2000 -s 1024 -r 12"},
		{tool: "send_bw", args: "-R -n 2001 -s 64 -b -q 2 -l 3 -r 30"},
		{tool: "send_bw", args: "-R -n 6 -a"},
		{tool: "send_bw", args: "-R -n 2000 -s 64 -e -r 12"},
		{tool: "send_lat", args: "-R -n 100 -s 64"},
	} {
		for _, who := range pairings {
			if who == goC && strings.Contains(r.args, "-e") {
				continue // perftest sleeps until a send completes, while it waits for credits
			}
			if testing.Short() && who != cGo && strings.Contains(r.args, "-a") {
				continue
			}
			t.Run(r.tool+","+r.args+","+who.String(), func(t *testing.T) {
				lastPort++
				server := start(t, who.server, r, false)
				listens(t, server, r)
				client := start(t, who.client, r, true)
				client.Succeeds(t)
				server.Succeeds(t)
				if n := len(rows(t, client)); n != 1 && !strings.Contains(r.args, "-a") || n == 0 {
					t.Error(client)
				}
			})
		}
	}
}
