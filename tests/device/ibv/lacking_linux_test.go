package ibv

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var _ = rdmatest.Test(TestLacking, rdmatest.OnMLX5, rdmatest.Lacking)

// A lack is a missing feature of an adapter, and the programs' output about it. DEVICE stands
// for the adapter's name.
type lack struct {
	profile  string
	notThere map[string][]string // by groups of the self-test: patterns of all that is listed as not there
	refused  map[string]string   // command lines, and their whole output, on stderr
	prints   map[string]string   // command lines, and patterns of their output
	plays    []string            // command lines of both sides
	fails    map[string]string   // command lines of both sides, and the line of the side that first finds the feature missing
}

// On the software ConnectX with InfiniBand ports.
var lacks = []lack{
	{
		profile: "noatomics",
		notThere: map[string][]string{
			"data": {"atomic operations"},
			"syndromes": {"atomic with a wrong key", "atomic with a wrong local key", "atomic on memory without remote atomics",
				"atomic on a QP without remote atomics"},
		},
		refused: map[string]string{
			"ibv atomic_lat -d DEVICE": "ibv atomic_lat: DEVICE has no atomic operations",
			"ibv atomic_bw -d DEVICE":  "ibv atomic_bw: DEVICE has no atomic operations",
		},
		prints: map[string]string{"verbs -device DEVICE rdma": "read 5\nDEVICE has no atomic operations\n"},
		plays:  []string{"ibv write_lat -n 10", "ibv read_bw -n 10", "ibv pingpong rc -n 10"},
	},
	{
		profile:  "nomasks",
		notThere: map[string][]string{"data": {"masked atomics: they fail with LOC_QP_OP_ERR"}},
		prints:   map[string]string{"verbs -device DEVICE rdma": "(?s)read 5\nfetch-and-add .*\nthe peer has 100\n"},
		plays:    []string{"ibv atomic_lat -n 10", "ibv atomic_bw -n 10"},
	},
	{
		profile: "taken",
		notThere: map[string][]string{
			"data":      {"XRC: none is left", "shared receive queues: none is left"},
			"wraps":     {"shared receive queues: none is left", "XRC: none is left"},
			"syndromes": {"shared receive queues: none is left"},
		},
		refused: map[string]string{
			"ibv pingpong srq -d DEVICE":  "ibv pingpong: create SRQ .*: EAGAIN; .*",
			"ibv pingpong xsrq -d DEVICE": "ibv pingpong: open XRC domain: EAGAIN; .*",
			"verbs -device DEVICE srq":    ".* create SRQ .*: EAGAIN; .*",
			"verbs -device DEVICE xrc":    ".* open XRC domain: EAGAIN; .*",
		},
		prints: map[string]string{"verbs -device DEVICE uc": "(?s).*"},
		plays:  []string{"ibv send_lat -n 10", "ibv write_bw -n 10"},
		fails: map[string]string{
			"ibv send_bw -c XRC":    "ibv send_bw: .*open XRC domain: EAGAIN; .*",
			"ibv send_bw --use-srq": "ibv send_bw: .*create SRQ .*: EAGAIN; .*",
		},
	},
	{
		profile: "plain",
		notThere: map[string][]string{
			"data": {"memory windows of type 2"},
		},
		refused: map[string]string{
			"ibv pingpong rc -o -d DEVICE": "ibv pingpong: DEVICE has no on-demand paging for RC sends and receives",
			"verbs -device DEVICE mw":      ".* DEVICE has no memory windows of type 2",
			"verbs -device DEVICE odp":     ".* DEVICE has no on-demand paging",
		},
		plays: []string{"ibv send_lat -n 10", "ibv write_bw -n 10"},
		fails: map[string]string{"ibv send_lat --odp": "ibv send_lat: .*on-demand paging.*"},
	},
	{
		profile: "tiny",
		notThere: map[string][]string{
			"data": {"messages of more than 16384 bytes", "requests of 4 pieces: DEVICE has 2", "200 inline bytes in a request of RC: DEVICE has [0-9]+",
				"200 inline bytes in a request of UC: DEVICE has [0-9]+", "200 inline bytes in a request of UD: DEVICE has [0-9]+",
				"shared receives of 4 pieces: DEVICE has 1", "200 inline bytes in a request of XRC_INI: DEVICE has [0-9]+", "200 inline bytes in a request of DCI: DEVICE has [0-9]+"},
			"doorbells": {"requests of 8 pieces: DEVICE has 2", "300 inline bytes in a request of RC: DEVICE has [0-9]+", "200 inline bytes in a request of RC: DEVICE has [0-9]+"},
			"syndromes": {"requests of 4 pieces: DEVICE has 2", "receives of more than 2 pieces", "shared receives of 4 pieces: DEVICE has 1", "receives of more than 1 pieces"},
		},
		refused: map[string]string{
			"ibv pingpong rc -s 65536 -d DEVICE": "ibv pingpong: a message of 65536 bytes is larger than the port takes, 16384",
			"ibv pingpong srq -d DEVICE":         "ibv pingpong: create SRQ: MaxWR 500 is not in 1 to 31",
		},
		prints: map[string]string{"verbs -device DEVICE uc": "(?s).*", "verbs -device DEVICE srq": "(?s).*SRQ_LIMIT_REACHED\n"},
		plays:  []string{"ibv write_lat -n 10", "ibv send_lat -c UD -n 10", "ibv send_bw -n 10", "ibv read_bw -n 10", "ibv pingpong rc -n 10"},
		fails: map[string]string{
			"ibv send_bw -s 65536": "ibv send_bw: -s 65536: the port's largest message is 16384",
			"ibv write_lat -I 200": "ibv write_lat: .*create QP: mlx5: .*",
		},
	},
}

// On adapters that lack a feature, the self-test passes, and lists it as not there. Doctor
// has no findings. Programs that don't need the feature work, and others refuse in one line.
func TestLacking(t *testing.T) {
	profiles := strings.Split(os.Getenv(rdmatest.ProfileVariable), ",")
	for _, l := range lacks {
		number := slices.Index(profiles, l.profile)
		if number < 0 {
			t.Errorf("no adapter is %s", l.profile)
			continue
		}
		t.Run(l.profile, func(t *testing.T) { l.check(t, fmt.Sprintf("mlx5_%d", number)) })
	}
}

func (l *lack) check(t *testing.T, name string) {
	pattern := func(text string) *regexp.Regexp {
		return regexp.MustCompile("^(?:" + strings.ReplaceAll(text, "DEVICE", name) + ")$")
	}
	command := func(line string, more ...string) *exec.Cmd {
		words := append(strings.Fields(strings.ReplaceAll(line, "DEVICE", name)), more...)
		return exec.Command(rdmatest.Program(t, words[0]), words[1:]...)
	}
	r, _, status := selftest(t, "-t", "1s", "-p", rdmatest.Patience.String(), name)
	if status != 0 || r.Status != "shortened" && r.Status != "passed" {
		t.Errorf("the self-test: status %d, %s", status, r.Status)
	}
	for _, g := range r.Groups {
		for _, f := range g.Failures {
			t.Errorf("%s, %s: %s: expected %s, seen %s", f.Group, f.Check, f.Object, f.Expected, f.Seen)
		}
		switch g.Name {
		case "data", "doorbells", "wraps", "counters", "cqs", "syndromes":
			want := l.notThere[g.Name]
			if g.Name == "cqs" {
				want = []string{"compression CSUM_STRIDX"} // of no such adapter
			}
			if !slices.EqualFunc(g.NotThere, want, func(got, want string) bool { return pattern(want).MatchString(got) }) {
				t.Errorf("%s: not there: %q, want %q", g.Name, g.NotThere, want)
			}
			if g.Passed == 0 {
				t.Errorf("%s: nothing was checked", g.Name)
			}
		case "memory":
			for _, x := range []string{"windows of type 1", "windows of type 2", "on-demand paging", "implicit on-demand paging"} {
				absent := slices.ContainsFunc(g.NotThere, func(got string) bool { return strings.HasSuffix(got, x) })
				if absent != (l.profile == "plain") {
					t.Errorf("%s: not there: %q", x, g.NotThere)
				}
			}
		}
	}
	output(t, rdmatest.Program(t, "ibv"), "doctor", "-w", "0", name)
	for line, want := range l.prints {
		c := command(line)
		if got := output(t, c.Path, c.Args[1:]...); !pattern(want).MatchString(got) {
			t.Errorf("%s prints\n%s, want\n%s", line, got, want)
		}
	}
	for line, want := range l.refused {
		stdout, stderr, status := result(t, command(line))
		if status != 1 || stdout != "" || !pattern(want+"\n").MatchString(stderr) {
			t.Errorf("%s: status %d, prints %q and %q, want %q", line, status, stdout, stderr, want)
		}
	}
	for _, line := range l.plays {
		server, client := l.both(t, command(line, "-d", name, "-p", port), command(line, "-d", name, "-p", port, "localhost"))
		if !server.OK() || !client.OK() {
			t.Errorf("%s: %v, and %v", line, server, client)
		}
	}
	for line, want := range l.fails {
		server, client := l.both(t, command(line, "-d", name, "-p", port), command(line, "-d", name, "-p", port, "localhost"))
		said := false
		for _, p := range []*rdmatest.Process{server, client} {
			if p.OK() || strings.Count(p.Stderr(), "\n") != 1 {
				t.Errorf("%s: %v", line, p)
			}
			said = said || pattern(want+"\n").MatchString(p.Stderr())
		}
		if !said {
			t.Errorf("%s: %v, and %v, want %q", line, server, client, want)
		}
	}
}

// both runs a server and its client, until both have ended.
func (l *lack) both(t *testing.T, s, c *exec.Cmd) (server, client *rdmatest.Process) {
	t.Helper()
	server = rdmatest.StartCmd(t, s)
	server.Until(t, func() bool { return server.Ended() || rdmatest.Listening(portNumber) })
	client = rdmatest.StartCmd(t, c)
	client.Wait()
	server.Wait()
	return server, client
}

// Where the servers listen.
const (
	portNumber = 18600
	port       = "18600"
)
