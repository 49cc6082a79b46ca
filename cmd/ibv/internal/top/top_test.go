package top

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/ib"
)

var update = flag.Bool("update", false, "write the screens in testdata")

// TestMain runs ibv top on readings that are made up, if a test has started this program for it.
func TestMain(m *testing.M) {
	if os.Getenv("GOVERBS_TEST_TOP") == "" {
		os.Exit(m.Run())
	}
	n := 0
	os.Exit(command(func(context.Context, string) (*reading, error) {
		n++
		r := after(steps)
		if u := r.Devices[0].Users[1]; os.Getenv("GOVERBS_TEST_TOP") == "picture" {
			u.Command = "/usr/bin/server --port 7471" // nothing hostile
		}
		if n == 1 {
			return r, nil
		}
		return at(steps + n), nil
	}).Main("ibv top", os.Args[1:]))
}

// steps are enough for some history.
const steps = 12

// at returns the reading after n steps of two seconds.
func at(n int) *reading {
	sum := uint64(0)
	for i := range n {
		sum += uint64(1 + i%6)
	}
	count := uint64(n)
	return &reading{
		Time: time.Date(2026, 1, 2, 12, 0, 2*n, 0, time.UTC), Host: "node1",
		Devices: []*device{
			{Name: "rxe0", index: 1,
				Ports: []*port{{Number: 1, State: "ACTIVE", Netdev: "eth0", counters: map[string]uint64{"sent_pkts": 1000 * sum, "rcvd_pkts": 7, "retry_exceeded_err": 3 * count}}},
				Users: []*user{
					{Comm: "ib_core", QPs: []qp{{Number: 1, Type: "GSI", State: "RTS", state: ib.QPRTS}}, CQs: 1},
					{PID: 332, Comm: "server\x1b[2J", Command: "/usr/bin/server\x1b[2J --port 7471", CQs: 1, MRs: 2, CMIDs: 3, Pinned: 3 << 29,
						QPs: []qp{
							{Number: 17, Type: "RC", State: "RTS", Remote: 18, Source: "192.168.77.1:7471", Dest: "192.168.77.2:33000", state: ib.QPRTS},
							{Number: 19, Type: "RC", State: "ERR", state: ib.QPErr},
						},
						counts: map[string]uint64{"rx_read_requests": 200 * count, "out_of_buffer": 5 * count}},
				}},
			{Name: "mlx5_0", index: 2,
				Ports: []*port{{Number: 1, State: "DOWN", counters: map[string]uint64{
					"port_xmit_data": 250_000_000 * sum, "port_rcv_data": 4000 * sum, "port_xmit_packets": 250_000 * sum, "port_rcv_packets": 4 * sum}}},
				Users: []*user{{PID: 400, Comm: "ibv", Command: "ibv write_bw -d mlx5_0 -s 65536 192.168.77.2", QPs: []qp{{Number: 5, Type: "UD", State: "INIT", state: ib.QPInit}}, Pinned: 12}}},
		},
	}
}

// after returns a reading with what it has in addition after n others.
func after(n int) *reading {
	r := at(0)
	for i := range n {
		next := at(i + 1)
		next.since(r)
		r = next
	}
	return r
}

// sizes are those of the screens in testdata.
var sizes = [][2]int{{60, 20}, {200, 60}}

// golden returns the screen in testdata.
func golden(t *testing.T, width, height int) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("%dx%d", width, height)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// trimmed joins lines without the spaces at their ends.
func trimmed(lines []string) string {
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

// TestScreens: the screens are those in testdata.
func TestScreens(t *testing.T) {
	for _, size := range sizes {
		lines := (&view{now: after(steps)}).screen(size[0], size[1])
		for i, line := range lines {
			if r := []rune(line); len(r) > size[0] {
				lines[i] = string(r[:size[0]])
			}
		}
		if len(lines) != size[1] {
			t.Errorf("%d lines for a screen of %d", len(lines), size[1])
		}
		got := trimmed(lines)
		if *update {
			if err := os.WriteFile(filepath.Join("testdata", fmt.Sprintf("%dx%d", size[0], size[1])), []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(golden(t, size[0], size[1]), got); diff != "" {
			t.Errorf("go test -update writes this (-want +got):\n%s", diff)
		}
	}
	v := &view{now: after(2)}
	for width := 0; width < 200; width += 7 {
		for height := range 60 {
			if n := len(v.screen(width, height)); n != max(height, 3) {
				t.Fatalf("%d lines for a screen of %d×%d", n, width, height)
			}
		}
	}
}

// TestSince: a reading has the rates since the one before, and the troubles with their numbers.
func TestSince(t *testing.T) {
	r := after(1)
	if p := r.Devices[0].Ports[0]; len(p.Rates) != 2 || p.Rates[0].PerSecond != 500 || p.Rates[1].PerSecond != 0 || len(p.Troubles) != 1 ||
		p.Troubles[0].Value != 3 || p.Troubles[0].PerSecond != 1.5 || p.Troubles[0].Finding != "retransmissions" {
		t.Errorf("rxe0: %+v %+v", p.Rates, p.Troubles)
	}
	if ops := r.Devices[0].Users[1].Ops; ops == nil || *ops != 100 { // without those that mean trouble
		t.Errorf("operations: %v", ops)
	}
	// A counter that begins again has no rate. A device of the same name is another one.
	again, other := at(0), at(2)
	again.since(r)
	other.Devices[0].index = 9
	other.since(r)
	for _, p := range []*port{again.Devices[0].Ports[0], other.Devices[0].Ports[0]} {
		if slices.ContainsFunc(p.Rates, func(r *rate) bool { return r.PerSecond != 0 }) || len(p.Troubles) > 0 {
			t.Errorf("%+v %+v", p.Rates, p.Troubles)
		}
	}
	if r := after(2 * history); len(r.Devices[0].Ports[0].Rates[0].past) != history {
		t.Errorf("%d rates are kept", len(r.Devices[0].Ports[0].Rates[0].past))
	}
}

// TestJSON: the object has all that the screen has.
func TestJSON(t *testing.T) {
	b, err := json.Marshal(after(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"ifname":"rxe0"`, `"netdev":"eth0"`, `{"way":"out","unit":"packets","per_second":500}`, `"finding":"retransmissions","counter":"retry_exceeded_err","value":3,"per_second":1.5}`,
		`"pid":332,`, `--port 7471"`, `{"lqpn":17,"type":"RC","state":"RTS","rqpn":18,"src-addr":"192.168.77.1:7471","dst-addr":"192.168.77.2:33000"}`,
		`"pinned":1610612736`, `"operations_per_second":100`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s", want, b)
		}
	}
}

// TestKeys: keys change what is seen.
func TestKeys(t *testing.T) {
	v := &view{now: after(1)}
	for _, step := range []struct {
		keys      string // each a key, or a word in <>
		height    int
		has, none string
	}{
		{"", 20, "QP 17 RC RTS to QP 18 at 192.168.77.2:33000", "PAUSED"},
		{"t", 20, "server [2J --port", "QP 17"},
		{"t", 20, "QP 17", "sort: QPs"},
		{"s", 20, "sort: QPs", "\x1b"},
		{"ssss", 20, "sort: pinned", "\x1b"},
		{"/WRI", 20, "filter: WRI_", "server"},
		{"<up>\x7f\n", 20, "/ WR ", "rxe0"},
		{"\x1b", 20, "server", "/ WR"},
		{"fnothing", 20, "filter: nothing_", "rxe0"},
		{"\x1b", 20, "/ filter", "nothing"},
		{"p", 20, "PAUSED", "\x1b"},
		{" ", 20, "pause", "PAUSED"},
		{"h", 20, "ibv doctor finds out why", "rxe0"},
		{"h", 20, "rxe0", "ibv doctor"},
		{"", 8, "↓ q quit", "↑"},
		{"<down>", 8, "↑ ↓ q quit", "rxe0/1"},
		{"<end>", 8, "write_bw", "rxe0/1"},
		{"", 8, "↑ q quit", "↓"},
		{"<up><down><page up><home>", 8, "rxe0/1", "write_bw"},
		{"x<unknown>", 8, "rxe0/1", "write_bw"},
	} {
		var keys []string
		for rest := step.keys; rest != ""; {
			key, n := rest[:1], 1
			if key == "<" {
				n = strings.Index(rest, ">") + 1
				key = rest[1 : n-1]
			}
			keys, rest = append(keys, key), rest[n:]
		}
		for _, k := range keys {
			if v.key(k) {
				t.Errorf("%q ends it", k)
			}
		}
		text := strings.Join(v.screen(100, step.height), "\n")
		if !strings.Contains(text, step.has) || strings.Contains(text, step.none) {
			t.Errorf("after %q, %q is not in this, or %q is:\n%s", step.keys, step.has, step.none, text)
		}
	}
	if !v.key("q") {
		t.Error("q doesn't end it")
	}
}
