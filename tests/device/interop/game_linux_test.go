package interop

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// patience bounds a run that hangs; nothing else depends on it.
const patience = rdmatest.Patience

// A maker is whose program plays.
type maker string

const (
	ours   maker = "go"
	theirs maker = "c"
)

// A pairing is who is the server, and who is the client.
type pairing struct{ server, client maker }

func (p pairing) String() string { return fmt.Sprintf("%s-%s", p.server, p.client) }

var pairings = []pairing{{ours, ours}, {ours, theirs}, {theirs, ours}}

// A game is what both sides are told to play.
type game struct {
	transport   string
	size, iters int
	quick       bool // played in a quick run too
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

// arguments are what g stands for; the data is always checked.
func (g game) arguments() []string {
	args := []string{"-c", "-s", strconv.Itoa(g.size), "-n", strconv.Itoa(g.iters)}
	if g.qps > 0 {
		args = append(args, "-q", strconv.Itoa(g.qps))
	}
	return append(args, g.args...)
}

// A program is one side that has been started.
type program struct {
	*exec.Cmd
	output bytes.Buffer // to be read when it has ended
	ended  chan struct{}
	err    error
}

// start starts a side: a client if there is a host. It does not outlive the
// test.
func start(t *testing.T, m maker, transport string, port int, host string, args ...string) *program {
	t.Helper()
	line := []string{"ibv_" + transport + "_pingpong"}
	if m == ours {
		line = []string{rdmatest.Program(t, "ibv"), "pingpong", transport}
	}
	line = append(append(append(line, rig.gid...), "-p", strconv.Itoa(port)), args...)
	if host != "" {
		line = append(line, host)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	p := &program{Cmd: exec.CommandContext(ctx, line[0], line[1:]...), ended: make(chan struct{})}
	p.Stdout, p.Stderr = &p.output, &p.output
	if err := p.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		p.err = p.Wait()
		cancel()
		close(p.ended)
	}()
	t.Cleanup(func() { <-p.ended })
	return p
}

// status waits for the program's end and returns its exit status, -1 if a
// signal ended it.
func (p *program) status() int {
	<-p.ended
	return p.ProcessState.ExitCode()
}

func (p *program) String() string {
	return fmt.Sprintf("%s ended with %v and said:\n%s", strings.Join(p.Args, " "), p.ProcessState, p.output.String())
}

// listens returns when the server listens on the port.
func (p *program) listens(t *testing.T, port int) {
	t.Helper()
	line := regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A `, port))
	for {
		for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			if table, err := os.ReadFile(file); err == nil && line.Match(table) {
				return
			}
		}
		select {
		case <-p.ended:
			t.Fatalf("the server ended too early: %v", p)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// A rigOf says how programs find each other over a kind of link.
type rigOf struct {
	address string   // of this host
	gid     []string // arguments: over InfiniBand, LIDs are enough
	gids    string   // a pattern
	mtu     int
}

var rig = map[bool]rigOf{
	true:  {address: "192.168.77.1", gid: []string{"-g", "1"}, gids: `::ffff:192\.168\.77\.[12]`, mtu: 1024},
	false: {address: "127.0.0.1", gids: "::", mtu: 4096},
}[rdmatest.RoCE]

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

// checkReport holds one side's end against what it was told to play.
func checkReport(t *testing.T, p *program, g game) {
	t.Helper()
	if status := p.status(); status != 0 {
		t.Fatal(p)
	}
	out := p.output.String()
	if n := bytesLine.FindStringSubmatch(out); n == nil || n[1] != strconv.Itoa(2*g.size*g.iters) {
		t.Errorf("%d bytes are not reported: %v", 2*g.size*g.iters, p)
	}
	if n := itersLine.FindStringSubmatch(out); n == nil || n[1] != strconv.Itoa(g.iters) {
		t.Errorf("%d iters are not reported: %v", g.iters, p)
	}
	// rdma-core's programs end with 0 all the same.
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

// lastPort is that of the game before.
var lastPort = 18515

// play plays g between two programs on this machine.
func play(t *testing.T, g game, who pairing) {
	t.Helper()
	lastPort++
	server := start(t, who.server, g.transport, lastPort, "", g.arguments()...)
	server.listens(t, lastPort)
	client := start(t, who.client, g.transport, lastPort, rig.address, g.arguments()...)
	checkBoth(t, g, server, client)
}

func checkBoth(t *testing.T, g game, server, client *program) {
	t.Helper()
	checkReport(t, client, g)
	checkReport(t, server, g)
	for _, ends := range [][2]*program{{server, client}, {client, server}} {
		here := addresses(localLine, ends[0].output.String())
		there := addresses(remoteLine, ends[1].output.String())
		if !slices.Equal(here, there) {
			t.Errorf("one side's address is not what the other side knows:\n%v\n%v", ends[0], ends[1])
		}
	}
}
