package perftest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var _ = rdmatest.Test(TestMatrix, rdmatest.OnRXE, rdmatest.OnMLX5Eth, rdmatest.Long)

// cC is perftest with itself, whose result is what other pairings must achieve.
var cC = pairing{theirs, theirs}

// matrixTransports has the transports of each of perftest's tests.
var matrixTransports = map[string][]string{
	"send":   {"RC", "UC", "UD", "XRC", "DC"},
	"write":  {"RC", "UC", "XRC", "DC"},
	"read":   {"RC", "XRC", "DC"},
	"atomic": {"RC", "XRC", "DC"},
}

// A cell is an entry of the matrix: the options of both sides.
type cell struct {
	tool, transport string
	wait, meet      string
}

func cells() (all []cell) {
	for _, verb := range []string{"send", "write", "read", "atomic"} {
		for _, kind := range []string{"_bw", "_lat"} {
			for _, transport := range matrixTransports[verb] {
				for _, wait := range []string{"poll", "-e"} {
					for _, meet := range []string{"TCP", "-R"} {
						all = append(all, cell{verb + kind, transport, wait, meet})
					}
				}
			}
		}
	}
	return all
}

// run returns the cell's run.
func (c cell) run() run {
	r := run{tool: c.tool, args: "-n 20 -c " + c.transport}
	for _, option := range []string{c.wait, c.meet} {
		if strings.HasPrefix(option, "-") {
			r.args += " " + option
		}
	}
	return r
}

// TestMatrix runs each test with each transport, each way to wait and each way to meet. Where
// perftest passes with itself, Go passes in either role, and with itself. A line of the log
// has the result of each cell. The program in table makes docs/perftest-matrix.md of these
// lines. Without GOVERBS_LONG, TestMatrix runs one tool, over RC only and without the
// connection manager: with it, perftest of Debian 12 sometimes dies of a segmentation fault.
func TestMatrix(t *testing.T) {
	all := cells()
	if os.Getenv("GOVERBS_LONG") == "" {
		all = slices.DeleteFunc(all, func(c cell) bool { return c.tool != "read_lat" || c.transport != "RC" || c.meet == "-R" })
	}
	// perftest prints the version that it announces: "Version: 6.06".
	asked := rdmatest.Start(t, "ib_send_bw", "--version")
	asked.Wait() // and then it exits with 1
	version := strings.TrimSpace(strings.TrimPrefix(asked.Stdout(), "Version:"))
	for _, c := range all {
		t.Run(c.tool+"/"+c.transport+"/"+c.wait+"/"+c.meet, func(t *testing.T) {
			var passed []string
			can := false
			all := []pairing{cC, goC, cGo, goGo}
			if c.corrupts() {
				all = []pairing{goGo}
			}
			for _, who := range all {
				limit := hopeless
				if can {
					limit = rdmatest.Patience
				}
				said, ok := tries(t, c.run(), who, limit)
				switch {
				case ok:
					passed = append(passed, who.String())
				case can && failsByItself(said): // so perftest has passed with itself by chance
					passed = slices.DeleteFunc(passed, func(who string) bool { return who == cC.String() })
				case can:
					t.Errorf("%v: %s", who, said)
				default:
					t.Logf("%v: %s", who, said)
				}
				can = can || ok && who == cC
			}
			t.Logf("matrix: %s %s %s %s %s %s = %s", rdmatest.KindOf(), version, c.tool, c.transport, c.wait, c.meet, strings.Join(passed, " "))
		})
	}
}

// corrupts reports whether C writes to a request that the adapter is executing, which ends the guest. With -e,
// perftest's latency tests post to a full queue (see failsByItself). Over DC, libmlx5 then
// writes the number of the stream into the previous request, which is still in the queue.
func (c cell) corrupts() bool {
	return c.transport == "DC" && c.wait == "-e" && strings.HasSuffix(c.tool, "_lat")
}

// hopeless is the timeout of a pairing that needn't pass. Some runs of perftest hang.
const hopeless = 30 * time.Second

// tries runs both sides, and reports whether they pass in time, or else their output. As in
// clocked, they run once more where perftest fails by itself.
func tries(t *testing.T, r run, who pairing, limit time.Duration) (said string, ok bool) {
	t.Helper()
	for range 8 {
		lastPort++
		server := start(t, who.server, r, false)
		over := time.Now().Add(limit)
		waits := func(so func() bool) {
			for !so() && time.Now().Before(over) {
				time.Sleep(10 * time.Millisecond)
			}
		}
		waits(func() bool {
			return server.Ended() || r.byCM() && rdmatest.ListeningCM(t, "TCP", uint16(lastPort)) || !r.byCM() && rdmatest.Listening(lastPort)
		})
		client := start(t, who.client, r, true)
		waits(func() bool { return server.Ended() && client.Ended() })
		said = fmt.Sprintf("%v\n%v", server, client)
		ok = server.Ended() && client.Ended()
		server.Kill()
		client.Kill()
		ok = ok && server.Wait().Success() && client.Wait().Success()
		if !failsByItself(said) {
			break
		}
	}
	return said, ok
}
