package perftest

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// A maker is the origin of a program: perftest or ibv.
type maker string

const (
	ours   maker = "go"
	theirs maker = "c"
)

// A pairing has the makers of the server and the client.
type pairing struct{ server, client maker }

func (p pairing) String() string { return fmt.Sprintf("%s-%s", p.server, p.client) }

var (
	goGo = pairing{ours, ours}
	goC  = pairing{ours, theirs}
	cGo  = pairing{theirs, ours}

	pairings = []pairing{goGo, goC, cGo}
)

// A run has the settings of both sides.
type run struct {
	tool  string
	args  string
	who   pairing // none: every pairing, even in a quick run
	quick bool    // run in a quick run, too
	rxe   bool    // only on rxe
	long  bool    // only with GOVERBS_LONG
	roce  bool    // not over InfiniBand
	mlx5  bool    // not on rxe
	newer bool    // perftest's program is the newer Debian's

	sizes []int // of the rows
	iters int   // of each row; 0: any number
	quiet bool  // one number for a row
}

func (r run) String() string {
	return strings.Join(append([]string{r.tool}, strings.Fields(r.args)...), "")
}

// with reports whether the pairing makes the run, on this device. perftest 4.5 can't make
// the runs for goGo.
func (r run) with(who pairing) bool {
	long := os.Getenv("GOVERBS_LONG") != ""
	every := r.who == pairing{}
	rxe := rdmatest.KindOf() == rdmatest.RXE
	switch {
	case r.rxe && !rxe, r.mlx5 && rxe, r.roce && !rdmatest.RoCE:
		return false
	case testing.Short() && !every && !r.quick, r.long && !long:
		return false
	}
	return every || r.who == who || long && r.who != goGo
}

func (r run) latency() bool { return strings.HasSuffix(r.tool, "_lat") }

// byCM reports whether the sides meet by the connection manager.
func (r run) byCM() bool { return strings.Contains(r.args, "-R") || strings.Contains(r.args, "-z") }

// The server and the client use the two devices. In the rig, rxe reaches only itself. The
// connection manager, too, reaches only the device itself by an address of this machine.
func device(client bool) string {
	if client && rdmatest.KindOf() != rdmatest.RXE {
		return rdmatest.Devices[1]
	}
	return rdmatest.Devices[0]
}

// address is where the server listens. gid has the arguments that RoCE and EFA need.
func address() (host string, gid []string) {
	switch {
	case rdmatest.RoCE:
		return "192.168.77.1", []string{"-x", "1"}
	case rdmatest.KindOf() == rdmatest.EFA:
		return "127.0.0.1", []string{"-x", "0"}
	case rdmatest.KindOf() == rdmatest.SIW:
		return "192.168.77.1", nil
	}
	return "127.0.0.1", nil
}

// lastPort is the previous run's port.
var lastPort = 19515

func start(t *testing.T, m maker, r run, client bool) *rdmatest.Process {
	t.Helper()
	return rdmatest.Start(t, command(t, m, r, client)...)
}

// command returns the command line of a side.
func command(t *testing.T, m maker, r run, client bool) []string {
	t.Helper()
	line := []string{"ib_" + r.tool}
	if r.newer {
		line = []string{rdmatest.Must(filepath.Abs("../../../rig/in-tree"))(t), "ib_" + r.tool}
	}
	if m == ours {
		line = []string{rdmatest.Program(t, "ibv"), r.tool}
	}
	host, gid := address()
	line = append(append(line, "-F", "-d", device(client && !r.byCM()), "-p", strconv.Itoa(lastPort)), gid...)
	if m == ours {
		line = append(line, "--patience", strconv.Itoa(int(rdmatest.Patience.Seconds()))) // on a busy machine
	}
	line = append(line, strings.Fields(r.args)...)
	if client {
		line = append(line, host)
	}
	return line
}

// listens waits until the server of a run listens.
func listens(t *testing.T, server *rdmatest.Process, r run) {
	t.Helper()
	server.Until(t, func() bool {
		if r.byCM() {
			return rdmatest.ListeningCM(t, "TCP", uint16(lastPort))
		}
		return rdmatest.Listening(lastPort)
	})
}

// failsByItself reports whether perftest's output shows a failure of its own. perftest
// measures the processor's clock before it prints a row: if another process occupies the
// processor meanwhile, it gets no clock and prints no numbers. And a latency test with -e
// mistakes an event without a completion for one: it posts before the previous request has
// completed, until its queue is full.
func failsByItself(said string) bool {
	return strings.Contains(said, "Correlation coefficient") || strings.Contains(said, "Couldn't post send: scnt=")
}

// clocked runs both sides until their ends, and once more where perftest fails by itself.
func clocked(t *testing.T, r run, who pairing) (server, client *rdmatest.Process) {
	t.Helper()
	for range 5 {
		lastPort++
		server = start(t, who.server, r, false)
		listens(t, server, r)
		client = start(t, who.client, r, true)
		client.Wait()
		server.Wait()
		if !failsByItself(server.Stderr() + client.Stderr()) {
			break
		}
		t.Logf("once more, after:\n%v\n%v", server, client)
	}
	return server, client
}

// play runs both sides and checks what they print.
func play(t *testing.T, r run, who pairing) {
	t.Helper()
	server, client := clocked(t, r, who)
	for _, p := range []*rdmatest.Process{client, server} {
		if !p.Wait().Success() {
			t.Fatalf("%v\n%v", server, client)
		}
	}
	checkRows(t, r, client, r.sizes)
	switch {
	case strings.HasPrefix(r.tool, "read_lat"), strings.HasPrefix(r.tool, "atomic_lat"):
		checkRows(t, r, server, nil) // the client has all rows
	case !strings.HasPrefix(r.tool, "send") && !r.latency() && !strings.Contains(r.args, "-b"):
		checkRows(t, r, server, r.sizes[len(r.sizes)-1:]) // the client sends the last row
	default:
		checkRows(t, r, server, r.sizes)
	}
	if r.quiet {
		return
	}
	for _, ends := range [][2]*rdmatest.Process{{server, client}, {client, server}} {
		here, there := addresses("local", ends[0]), addresses("remote", ends[1])
		if len(here) == 0 || !slices.Equal(here, there) {
			t.Errorf("the sides disagree on their addresses:\n%v\n%v", ends[0], ends[1])
		}
	}
}

var addressLine = regexp.MustCompile(`(?m)^ (local|remote) address: (LID \w+ QPN \w+ PSN \w+.*)$`)

// addresses returns the addresses that a side prints for its own queue pairs, or for the
// other side's.
func addresses(whose string, p *rdmatest.Process) (found []string) {
	for _, match := range addressLine.FindAllStringSubmatch(p.Stdout(), -1) {
		if match[1] == whose {
			found = append(found, strings.TrimSpace(match[2]))
		}
	}
	return found
}

// rows returns the table's rows as numbers. The standard deviation of C's latencies is -nan if one of
// them is longer than 46 ms, as on a busy machine: its square exceeds an int.
func rows(t *testing.T, p *rdmatest.Process) (all [][]float64) {
	t.Helper()
lines:
	for text := range strings.Lines(p.Stdout()) {
		var row []float64
		for field := range strings.FieldsSeq(text) {
			v, err := strconv.ParseFloat(strings.Replace(field, "-nan", "nan", 1), 64)
			if err != nil {
				continue lines
			}
			row = append(row, v)
		}
		if len(row) > 0 {
			all = append(all, row)
		}
	}
	return all
}

// checkRows checks that the table has perftest's columns, and a row for each size.
func checkRows(t *testing.T, r run, p *rdmatest.Process, sizes []int) {
	t.Helper()
	got := rows(t, p)
	if len(got) != len(sizes) {
		t.Fatalf("%d rows, want %d: %v", len(got), len(sizes), p)
	}
	columns := 5
	switch {
	case r.quiet:
		columns = 1
	case r.latency() && strings.Contains(r.args, "-D"):
		columns = 4
	case r.latency():
		columns = 9
	}
	for i, row := range got {
		if len(row) != columns {
			t.Errorf("%d columns, want %d: %v", len(row), columns, p)
			continue
		}
		if r.quiet {
			continue
		}
		if int(row[0]) != sizes[i] || r.iters > 0 && int(row[1]) != r.iters {
			t.Errorf("size and iterations %v, want %d and %d: %v", row[:2], sizes[i], r.iters, p)
		}
		switch {
		case !r.latency():
			checkRate(t, r, p, row)
		case columns == 4 && row[2] <= 0:
			t.Errorf("the average is %v: %v", row[2], p)
		case columns == 9:
			least, most, typical, average := row[2], row[3], row[4], row[5]
			if average <= 0 || least > typical || typical > most || row[7] < typical || row[8] < row[7] {
				t.Errorf("the latencies are in disorder: %v", p)
			}
		}
	}
}

// checkRate checks a row of bandwidths. The average has two digits, too few for a few short
// messages on a slow machine. The rate has six.
func checkRate(t *testing.T, r run, p *rdmatest.Process, row []float64) {
	t.Helper()
	size, average, rate := row[0], row[3], row[4]
	unit := float64(1 << 20)
	if strings.Contains(r.args, "--report_gbits") {
		unit = 1e9 / 8
	}
	implied, rounding := rate*1e6*size/unit, 0.005+0.5*size/unit
	if rate <= 0 || math.Abs(average-implied) > 1.01*rounding {
		t.Errorf("%v messages per µs of %v bytes make an average of %v, not %v: %v", rate, size, implied, average, p)
	}
}
