package top

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/rdmanl"
)

// TestTopText: the screen has the rates since the previous screen, and names growing error counters.
func TestTopText(t *testing.T) {
	start := time.Unix(1000, 0)
	make := func(at time.Time, sent, retries, bytes, ops uint64) *usage {
		return &usage{at: at,
			ports: []portUsage{
				{rdmanl.Link{Device: "rxe0", Index: 1, Port: 1, State: rdmanl.Some(ib.PortActive), Netdev: rdmanl.Some("eth0")},
					map[string]uint64{"sent_pkts": sent, "rcvd_pkts": 7, "retry_exceeded_err": retries}},
				{rdmanl.Link{Device: "mlx5_0", Index: 2, Port: 1, State: rdmanl.Some(ib.PortDown)}, map[string]uint64{"port_xmit_data": bytes}},
				{rdmanl.Link{Device: "efa_0", Index: 3, Port: 1, State: rdmanl.Some(ib.PortActive)}, map[string]uint64{"tx_bytes": bytes, "rx_bytes": 9}},
			},
			users: []*user{
				{device: "mlx5_0", pid: 332, comm: "server\x1b[2J", qps: 4, states: map[ib.QPState]int{ib.QPRTS: 3, ib.QPErr: 1}, cqs: 1, mrs: 2, pinned: 3 << 29,
					counts: map[string]uint64{"rx_read_requests": ops, "out_of_buffer": 5 * ops}},
				{device: "rxe0", comm: "ib_core", qps: 1, states: map[ib.QPState]int{}, pinned: 12},
			}}
	}
	first := make(start, 100, 1, 1<<20, 50)
	want := `rxe0/1 ACTIVE eth0
mlx5_0/1 DOWN
efa_0/1 ACTIVE

PID  COMMAND       DEVICE  QP  STATES        CQ  SRQ  MR  PINNED   CM_ID  OPS/S
332  server [2J    mlx5_0  4   RTS 3, ERR 1  1   0    2   1.5 GiB  0      -
-    [ib_core]     rxe0    1   -             0   0    0   12 B     0      -
`
	trim := func(s string) string {
		lines := strings.Split(s, "\n")
		for i := range lines {
			lines[i] = strings.Join(strings.Fields(lines[i]), " ")
		}
		return strings.Join(lines, "\n")
	}
	if diff := cmp.Diff(trim(want), trim(first.text(nil))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	second := make(start.Add(2*time.Second), 300, 4, 5<<20, 250).text(first)
	for _, want := range []string{
		"rxe0/1 ACTIVE eth0 out 100 packets/s in 0 packets/s ! ",
		"mlx5_0/1 DOWN out 2.0 MiB/s\n",
		"efa_0/1 ACTIVE out 2.0 MiB/s in 0 B/s\n",
		"1.5 GiB 0 100\n", // error counters don't count as operations
	} {
		if !strings.Contains(trim(second), want) {
			t.Errorf("%q is not in\n%s", want, second)
		}
	}
	// A device that was created again counts from 0.
	if text := make(start.Add(time.Hour), 1, 0, 0, 0).text(first); strings.Contains(text, "! ") || strings.Contains(text, "out 1844") {
		t.Errorf("counters that start again:\n%s", text)
	}
}
