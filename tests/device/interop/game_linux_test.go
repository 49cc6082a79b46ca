package interop

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// A maker is the origin of a program: rdma-core or goverbs.
type maker string

const (
	ours   maker = "go"
	theirs maker = "c"
)

// A pairing has the makers of the server and the client.
type pairing struct{ server, client maker }

func (p pairing) String() string { return fmt.Sprintf("%s-%s", p.server, p.client) }

var pairings = []pairing{{ours, ours}, {ours, theirs}, {theirs, ours}}

// A game has the settings of both sides.
type game struct {
	transport   string
	size, iters int
	quick       bool // also played in a quick run
	qps         int  // of srq; 0 for the default
	args        []string
}

func (g game) String() string {
	name := fmt.Sprintf("%dx%d%s", g.size, g.iters, strings.Join(g.args, ""))
	if g.qps > 0 {
		name += fmt.Sprintf("-q%d", g.qps)
	}
	return name
}

// arguments returns the game's arguments. The data is always checked.
func (g game) arguments() []string {
	args := []string{"-c", "-s", strconv.Itoa(g.size), "-n", strconv.Itoa(g.iters)}
	if g.qps > 0 {
		args = append(args, "-q", strconv.Itoa(g.qps))
	}
	return append(args, g.args...)
}

// start starts one side: a client if host isn't empty, else a server.
func start(t *testing.T, m maker, transport string, port int, host string, args ...string) *rdmatest.Process {
	t.Helper()
	line := []string{"ibv_" + transport + "_pingpong"}
	if m == ours {
		line = []string{rdmatest.Program(t, "ibv"), "pingpong", transport}
	}
	line = append(append(append(line, rig.gid...), "-p", strconv.Itoa(port)), args...)
	if host != "" {
		line = append(line, host)
	}
	return rdmatest.Start(t, line...)
}

// listens returns when the server listens on the port.
func listens(t *testing.T, server *rdmatest.Process, port int) {
	t.Helper()
	server.Until(t, func() bool { return rdmatest.Listening(port) })
}

// A rigOf has the addresses by which programs reach each other over a kind of link.
type rigOf struct {
	address string   // of this host
	gid     []string // arguments; most InfiniBand ports need only LIDs
	gids    string   // a pattern
	mtu     int
}

var rig = func() rigOf {
	switch {
	case rdmatest.RoCE:
		return rigOf{address: "192.168.77.1", gid: []string{"-g", "1"}, gids: `::ffff:192\.168\.77\.[12]`, mtu: 1024}
	case global():
		return rigOf{address: "127.0.0.1", gid: []string{"-g", "0"}, gids: `fe80::[0-9a-f:]+`, mtu: 4096}
	}
	return rigOf{address: "127.0.0.1", gids: "::", mtu: 4096}
}()

// global reports whether the port requires a GRH. Without a device it doesn't.
func global() bool {
	c, err := verbs.Open(rdmatest.Device)
	if err != nil {
		return false
	}
	defer c.Close()
	port, err := c.QueryPort(rdmatest.Port)
	return err == nil && port.GRHRequired
}

var (
	localLine  = regexp.MustCompile(`(?m)^  local address:  (LID 0x\w{4}, QPN 0x\w{6}, PSN 0x\w{6})[,:] GID (` + rig.gids + `)$`)
	remoteLine = regexp.MustCompile(`(?m)^  remote address: (LID 0x\w{4}, QPN 0x\w{6}, PSN 0x\w{6}), GID (` + rig.gids + `)$`)
	bytesLine  = regexp.MustCompile(`(?m)^(\d+) bytes in \d+\.\d\d seconds = \S+ Mbit/sec$`)
	itersLine  = regexp.MustCompile(`(?m)^(\d+) iters in \d+\.\d\d seconds = \S+ usec/iter$`)
)

// addresses returns the addresses in the lines, one for each queue pair.
func addresses(line *regexp.Regexp, output string) []string {
	var found []string
	for _, match := range line.FindAllStringSubmatch(output, -1) {
		found = append(found, match[1]+" "+match[2])
	}
	return found
}

// checkReport checks one side's output and status against the game.
func checkReport(t *testing.T, p *rdmatest.Process, g game) {
	t.Helper()
	if !p.Wait().Success() {
		t.Fatal(p)
	}
	out := p.Said()
	if n := bytesLine.FindStringSubmatch(out); n == nil || n[1] != strconv.Itoa(2*g.size*g.iters) {
		t.Errorf("%d bytes are not reported: %v", 2*g.size*g.iters, p)
	}
	if n := itersLine.FindStringSubmatch(out); n == nil || n[1] != strconv.Itoa(g.iters) {
		t.Errorf("%d iters are not reported: %v", g.iters, p)
	}
	// rdma-core's programs exit with 0 even so.
	if strings.Contains(out, "invalid data") {
		t.Errorf("the data is wrong: %v", p)
	}
	want := max(g.qps, 1)
	if g.transport == "srq" && g.qps == 0 {
		want = 16
	}
	for _, line := range []*regexp.Regexp{localLine, remoteLine} {
		if n := len(addresses(line, out)); n != want {
			t.Errorf("%d lines of %d are like %v: %v", n, want, line, p)
		}
	}
}

// lastPort is the previous game's port.
var lastPort = 18515

// play plays g between two programs on this machine.
func play(t *testing.T, g game, who pairing) {
	t.Helper()
	lastPort++
	server := start(t, who.server, g.transport, lastPort, "", g.arguments()...)
	listens(t, server, lastPort)
	client := start(t, who.client, g.transport, lastPort, rig.address, g.arguments()...)
	checkBoth(t, g, server, client)
}

func checkBoth(t *testing.T, g game, server, client *rdmatest.Process) {
	t.Helper()
	checkReport(t, client, g)
	checkReport(t, server, g)
	for _, ends := range [][2]*rdmatest.Process{{server, client}, {client, server}} {
		here := addresses(localLine, ends[0].Said())
		there := addresses(remoteLine, ends[1].Said())
		if !slices.Equal(here, there) {
			t.Errorf("the sides disagree on their addresses:\n%v\n%v", ends[0], ends[1])
		}
	}
}
