package perftest

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var _ = rdmatest.Test(TestMeasureIWARP, rdmatest.OnSIW)

// TestMeasureIWARP: writes are measured with perftest at the other end, sends between two of ours. With
// perftest's, they are refused.
func TestMeasureIWARP(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for _, r := range []run{{tool: "write_bw", args: "-R -n 100 -s 1024"}, {tool: "send_bw", args: "-R -n 100 -s 1024"}} {
		for _, who := range pairings {
			t.Run(r.tool+","+who.String(), func(t *testing.T) {
				lastPort++
				server := start(t, who.server, r, false)
				listens(t, server, r)
				client := start(t, who.client, r, true)
				if r.tool == "write_bw" || who == goGo {
					client.Succeeds(t)
					server.Succeeds(t)
					if len(rows(t, client)) != 1 {
						t.Error(client)
					}
					return
				}
				refuses, other := client, server
				if who.server == ours {
					refuses, other = server, client
				}
				fails(t, refuses, "need credits")
				other.Kill()
			})
		}
	}
}
