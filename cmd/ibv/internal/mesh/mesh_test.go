package mesh

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestFind(t *testing.T) {
	unknown := Given{Rank: -1, Size: -1}
	with := func(change func(*Given)) Given {
		g := unknown
		change(&g)
		return g
	}
	for name, test := range map[string]struct {
		given Given
		env   map[string]string
		want  Place
		says  string
	}{
		"nothing": {given: unknown, says: "use --hosts"},
		"Slurm": {given: unknown, env: map[string]string{"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_STEP_NODELIST": "node[03-07,12],login1"},
			want: Place{3, 8, "node03", "Slurm"}},
		"Open MPI on one host": {given: unknown,
			env:  map[string]string{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "SLURM_PROCID": "0"},
			want: Place{1, 4, "localhost", "Open MPI"}},
		"Open MPI on several": {given: unknown, env: map[string]string{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
			says: "use --root"},
		"Open MPI with a root": {given: with(func(g *Given) { g.Root = "n1" }), env: map[string]string{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"},
			want: Place{1, 4, "n1", "Open MPI"}},
		"a Job": {given: with(func(g *Given) { g.Size = 5 }), env: map[string]string{"JOB_COMPLETION_INDEX": "2", "hostname": "mesh-2.svc"},
			want: Place{2, 5, "mesh-0.svc", "an indexed Job"}},
		"a Job without a size":         {given: unknown, env: map[string]string{"JOB_COMPLETION_INDEX": "2", "hostname": "mesh-2"}, says: "use --size"},
		"an environment that is wrong": {given: unknown, env: map[string]string{"SLURM_PROCID": "x", "SLURM_NTASKS": "8"}, says: `"x" is not a number`},
		"the command line":             {given: Given{Rank: 1, Size: 2, Root: "n0"}, want: Place{1, 2, "n0", "the command line"}},
		"rank 0 without a root":        {given: Given{Rank: 0, Size: 2}, want: Place{0, 2, "", "the command line"}},
		"rank 1 without a root":        {given: Given{Rank: 1, Size: 2}, says: "where rank 0 is: use --root"},
		"no rank":                      {given: Given{Rank: -1, Size: 3}, says: "doesn't say which rank"},
		"a rank that is too large":     {given: Given{Rank: 2, Size: 2, Root: "n0"}, says: "rank 2 is not one of 2"},
		"one process":                  {given: Given{Rank: 0, Size: 1, Root: "n0"}, says: "only one"},
		"hosts by name":                {given: with(func(g *Given) { g.Hosts = "n0, n1.example n2" }), env: map[string]string{"hostname": "n1"}, want: Place{1, 3, "n0", "--hosts"}},
		"hosts by address":             {given: with(func(g *Given) { g.Hosts = "192.0.2.1,192.0.2.2" }), want: Place{1, 2, "192.0.2.1", "--hosts"}},
		"not in hosts":                 {given: with(func(g *Given) { g.Hosts = "n0,n1" }), says: "not in --hosts"},
		"twice in hosts":               {given: with(func(g *Given) { g.Hosts = "192.0.2.2,here" }), says: "twice"},
	} {
		host := test.env["hostname"]
		if host == "" {
			host = "here"
		}
		got, err := Find(test.given, func(name string) string { return test.env[name] }, host, []netip.Addr{netip.MustParseAddr("192.0.2.2")})
		switch {
		case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: %v, want %q in it", name, err, test.says)
		case test.says == "" && (err != nil || got != test.want):
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, test.want)
		}
	}
	for list, want := range map[string]string{"n1": "n1", "n1,n2": "n1", "n[1,3]": "n1", "rack[09-12]-ib": "rack09-ib", "a[7]b,c": "a7b"} {
		if got := firstNode(list); got != want {
			t.Errorf("%s: %s, want %s", list, got, want)
		}
	}
}

// TestSchedule: every two ranks measure once, and no host is in two pairs of a round. If all
// hosts are different, there are as few rounds as possible.
func TestSchedule(t *testing.T) {
	for n := 2; n <= 33; n++ {
		for hostsEach := 1; hostsEach <= 3; hostsEach++ {
			hosts := make([]string, n)
			for i := range hosts {
				hosts[i] = fmt.Sprint(i / hostsEach)
			}
			seen := make(map[pair]int)
			rounds := schedule(hosts)
			for _, round := range rounds {
				busy := make(map[string]pair)
				for _, p := range round {
					seen[p]++
					if p.a >= p.b {
						t.Fatalf("%d: pair %v", n, p)
					}
					for _, h := range slices.Compact([]string{hosts[p.a], hosts[p.b]}) {
						if other, is := busy[h]; is {
							t.Fatalf("%d: %v and %v at the same time", n, p, other)
						}
						busy[h] = p
					}
				}
			}
			if len(seen) != n*(n-1)/2 || len(rounds) != n-1+n%2 && hostsEach == 1 {
				t.Errorf("%d ranks, %d a host: %d pairs in %d rounds", n, hostsEach, len(seen), len(rounds))
			}
			for p, times := range seen {
				if times != 1 {
					t.Errorf("%d: %v %d times", n, p, times)
				}
			}
		}
	}
}

// A model is a meter without a device.
type model struct {
	rank  int
	gbits func(a, b int) float64
	peer  int
	order func(do string) error // nil: nothing happens
}

func (m *model) does(do string) error {
	if m.order == nil {
		return nil
	}
	return m.order(do)
}

func (m *model) rails() []Rail { return []Rail{{"model0", "Ethernet", 100}} }

func (m *model) open(rail, size int) (*endpoint, error) {
	e := new(endpoint)
	e.QPN = uint32(m.rank)
	return e, m.does("open")
}

func (m *model) connect(peer *endpoint) error {
	m.peer = int(peer.QPN)
	return m.does("connect")
}

func (m *model) latency(time.Duration) (*Latency, error) { return &Latency{2, 3}, m.does("latency") }

func (m *model) bandwidth(time.Duration) (float64, error) {
	return m.gbits(m.rank, m.peer), m.does("bandwidth")
}

func (m *model) close() error { return m.does("close") }

var key = []byte("a key")

var settings = Settings{Bytes: 4096, Time: time.Millisecond, Patience: time.Minute, Wait: time.Minute}

// play runs a mesh of models, each on its own host.
func play(t *testing.T, models []*model, s Settings) *Result {
	t.Helper()
	return playDying(t, models, nil, s)
}

func newModels(n int, gbits func(a, b int) float64) (all []*model) {
	for i := range n {
		all = append(all, &model{rank: i, gbits: gbits})
	}
	return all
}

// TestMesh: all pairs are measured, and only a slow link and a slow host are named.
func TestMesh(t *testing.T) {
	r := play(t, newModels(8, func(a, b int) float64 {
		switch {
		case a == 5 || b == 5:
			return 40
		case a == 1 && b == 2:
			return 50
		}
		return 90
	}), settings)
	if err := r.Bad(); err != nil || len(r.Links) != 28 {
		t.Fatalf("%v, %+v", err, r)
	}
	if !slices.Equal(r.Slow.Hosts, []string{"host5"}) || len(r.Slow.Links) != 1 || !strings.HasPrefix(r.Slow.Links[0], "host1 – host2: bandwidth 50 Gb/s (usual: 90 Gb/s)") {
		t.Errorf("%+v", r.Slow)
	}
	for _, l := range r.Links {
		if l.A == 1 && l.B == 2 && (l.AB != 50 || l.BA != 90 || l.Both != 140 || l.Latency.Median != 2) {
			t.Errorf("%+v", l)
		}
	}
	var b strings.Builder
	r.Print(&b)
	for _, want := range []string{"8 ranks, 28 links", "median 90 Gb/s, from 40 Gb/s to 90 Gb/s", "slow host: host5", "slow link: host1 – host2"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in %s", want, b.String())
		}
	}
	if lines := r.Compare(r); len(lines) != 2 || !strings.Contains(lines[1], "Nothing differs") {
		t.Errorf("%q", lines)
	}
	later := play(t, newModels(8, func(a, b int) float64 {
		if a == 5 || b == 5 {
			return 80
		}
		if a == 3 && b == 4 {
			return 45
		}
		return 90
	}), settings)
	lines := later.Compare(r)
	text := strings.Join(lines, "\n")
	if !strings.Contains(text, "worse: host3 – host4: bandwidth 90 Gb/s to 45 Gb/s (-50 %)") || !strings.Contains(text, "better: host0 – host5: bandwidth 40 Gb/s to 80 Gb/s (+100 %)") ||
		!strings.HasPrefix(lines[1], "worse") || !strings.Contains(lines[0], "28 of 28") {
		t.Errorf("%s", text)
	}
}

// TestCompareOtherOrder: hosts may have other ranks than before. A link's directions are those of
// its hosts, not of their ranks.
func TestCompareOtherOrder(t *testing.T) {
	link := func(a, b int, ab, ba, both float64) Link {
		return Link{A: a, B: b, AB: ab, BA: ba, Both: both, Latency: &Latency{Median: 2}}
	}
	before := &Result{Hosts: []Host{{Name: "x"}, {Name: "y"}, {Name: "z"}}, Links: []Link{link(0, 1, 90, 40, 100), link(0, 2, 10, 20, 30)}}
	same := &Result{Hosts: []Host{{Name: "z"}, {Name: "y"}, {Name: "x"}}, Links: []Link{link(1, 2, 40, 90, 100), link(0, 2, 20, 10, 30)}}
	if lines := same.Compare(before); len(lines) != 2 || !strings.Contains(lines[1], "Nothing differs") {
		t.Errorf("%q", lines)
	}
	other := &Result{Hosts: same.Hosts, Links: []Link{link(1, 2, 40, 45, 100), link(0, 2, 40, 10, 30)}}
	text := strings.Join(other.Compare(before), "\n")
	for _, want := range []string{
		"worse: y – x: bandwidth back 90 Gb/s to 45 Gb/s (-50 %)", "better: z – x: bandwidth 20 Gb/s to 40 Gb/s (+100 %)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
	if strings.Count(text, "Gb/s (") != 2 {
		t.Error(text)
	}
}

// TestNobodySlow: if half of the hosts are slow, their links are named, and no host is.
func TestNobodySlow(t *testing.T) {
	r := play(t, newModels(4, func(a, b int) float64 {
		if min(a, b) == 0 {
			return 1 + float64(a+b)
		}
		return 1
	}), settings)
	if len(r.Slow.Hosts) != 0 || len(r.Slow.Links) == 0 {
		t.Errorf("%+v", r.Slow)
	}
}

// TestLost: a rank that dies, hangs, can't take part or never connects is named, and all other
// pairs are measured.
func TestLost(t *testing.T) {
	for name, says := range map[string]string{"dies": "has died", "hangs": "hangs"} {
		for _, when := range []string{"open", "connect", "latency", "bandwidth", "close"} {
			if name == "hangs" && when != "open" && when != "bandwidth" {
				continue // each of these takes as long as the patience
			}
			t.Run(name+"/"+when, func(t *testing.T) {
				t.Parallel()
				hang := make(chan struct{})
				defer close(hang)
				models := newModels(4, func(int, int) float64 { return 90 })
				dying := errors.New("dying")
				models[1].order = func(do string) error {
					switch {
					case do != when:
					case name == "dies":
						return dying
					default:
						<-hang
					}
					return nil
				}
				s := settings
				if name == "hangs" {
					s.Patience = 3 * time.Second
				}
				r := playDying(t, models, dying, s)
				good := 0
				for _, l := range r.Links {
					if l.Error == "" && l.A != 1 && l.B != 1 {
						good++
					}
				}
				if !strings.Contains(r.Hosts[1].Lost, says) || good != 3 || r.Bad() == nil || len(r.Links) != 6 {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}

// playDying is play, but the connection of a rank other than 0 ends when its model returns dying.
func playDying(t *testing.T, models []*model, dying error, s Settings) *Result {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hi := func(rank int) hello {
		return hello{Rank: rank, Size: len(models), Host: fmt.Sprintf("host%d", rank), Rails: models[rank].rails()}
	}
	for i, m := range models[1:] {
		go func() {
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				return
			}
			defer conn.Close()
			if inner := m.order; inner != nil {
				m.order = func(do string) error {
					err := inner(do)
					if dying != nil && errors.Is(err, dying) {
						conn.Close()
					}
					return err
				}
			}
			w := newWire(conn)
			if err := join(w, hi(i+1), key, s.Wait); err != nil {
				t.Error(err)
				return
			}
			_ = serve(w, m)
		}()
	}
	members, away := gather(l, newOwn(hi(0), models[0], make(chan error, 1)), len(models), key, s.Wait)
	return lead(members, away, s)
}

// TestInterrupted: the rounds before an interrupt are the result.
func TestInterrupted(t *testing.T) {
	s := settings
	s.Progress = func(round, rounds int) bool { return round < 3 }
	r := play(t, newModels(6, func(int, int) float64 { return 90 }), s)
	if err := r.Bad(); len(r.Links) != 6 || err == nil || err.Error() != "interrupted: 3 rounds are left" {
		t.Errorf("%d links, %v", len(r.Links), err)
	}
}

// TestFails: a measurement that fails is reported, and its ranks go on.
func TestFails(t *testing.T) {
	models := newModels(3, func(int, int) float64 { return 90 })
	models[2].order = func(do string) error {
		if do == "connect" && models[2].peer == 0 {
			return errors.New("no route")
		}
		return nil
	}
	r := play(t, models, settings)
	failed := 0
	for _, l := range r.Links {
		if l.Error != "" {
			failed++
			if l.A != 0 || l.B != 2 || !strings.Contains(l.Error, "rank 2 on host2: connect: no route") {
				t.Errorf("%+v", l)
			}
		}
	}
	if failed != 1 || r.Bad() == nil {
		t.Errorf("%+v", r)
	}
}

// come connects ranks, which may not belong to it, to a mesh of 3, one by one. It returns
// the mesh's members and the processes turned away, and the result of each rank's join.
func come(t *testing.T, wait time.Duration, hellos ...hello) (members []*member, away []string, joined []error) {
	t.Helper()
	l := listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, h := range hellos {
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			k := key
			if h.Nonce != "" { // of a rank with another key
				k = []byte(h.Nonce)
			}
			joined = append(joined, join(newWire(conn), h, k, time.Minute))
		}
		if wait < time.Minute {
			l.Close() // the time is over
		}
	}()
	members, away = gather(l, &member{hello: hello{Size: 3, Host: "n0"}}, 3, key, time.Minute)
	<-done
	return members, away, joined
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestGather: processes that don't belong to the mesh get the reason, and are named. They take no rank's place,
// and later ranks are welcomed.
func TestGather(t *testing.T) {
	good := hello{Rank: 1, Size: 3, Host: "n1"}
	last := hello{Rank: 2, Size: 3, Host: "n2", Error: "no device"}
	for _, test := range []struct {
		name  string
		wrong hello
		says  string
	}{
		{"of another mesh", hello{Rank: 7, Size: 9, Host: "x"}, "rank 7 of 9, from 127.0.0.1:"},
		{"below", hello{Rank: -1, Size: 3, Host: "x"}, "the mesh has 3 ranks"},
		{"a second rank 0", hello{Rank: 0, Size: 3, Host: "x"}, "rank 0 is the process that listens here"},
		{"a million rails", hello{Rank: 2, Size: 3, Host: "x", Rails: make([]Rail, mostRails+1)}, "33 rails"},
		{"a long name", hello{Rank: 2, Size: 3, Host: strings.Repeat("x", 300)}, "300 bytes"},
		{"without the key", hello{Rank: 2, Size: 3, Host: "x", Nonce: "guessed"}, "hasn't this mesh's key"},
		{"twice", hello{Rank: 1, Size: 3, Host: "n9"}, "two processes are rank 1: on n1 and on n9"},
	} {
		t.Run(test.name, func(t *testing.T) {
			members, away, joined := come(t, time.Minute, good, test.wrong, last)
			if joined[0] != nil || !errors.Is(joined[1], errTurnedAway) || joined[2] != nil {
				t.Fatal(joined)
			}
			if members[1].Host != "n1" || members[1].lost != "" || members[2].Host != "n2" || !strings.Contains(members[2].lost, "no device") {
				t.Errorf("%+v", members)
			}
			if len(away) != 1 || !strings.Contains(away[0], test.says) {
				t.Errorf("%q, want %q", away, test.says)
			}
		})
	}
	members, _, _ := come(t, 0, good)
	if !strings.Contains(members[2].lost, "hasn't come") || members[1].lost != "" {
		t.Errorf("%+v", members)
	}
}

// TestStrangers: ranks are measured, whatever strangers send to rank 0's port, seeded and many times: silence,
// torn and endless messages, ranks that say hello and die. The result contains no text of a rank without
// the key.
func TestStrangers(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	rounds := uint64(0)
	rdmatest.Rounds(t, 20, 15, func(random *rand.Rand) {
		rounds++
		l := listen(t)
		defer l.Close()
		models := newModels(3, func(int, int) float64 { return 90 })
		var strangers sync.WaitGroup
		for range 15 {
			kind, n := random.IntN(len(strangeRanks)), random.IntN(1<<17)
			strangers.Go(func() {
				conn, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					return // all ranks have connected
				}
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				strangeRanks[kind](conn, n)
			})
		}
		for i := range 2 {
			go func() {
				w, err := reach(l.Addr().String(), time.Minute, func(w *stranger.Wire, limit time.Duration) error {
					return join(w, hello{Rank: i + 1, Size: 3, Host: fmt.Sprintf("host%d", i+1), Rails: models[i+1].rails()}, key, limit)
				})
				if err != nil {
					t.Error(err)
					return
				}
				defer w.Close()
				_ = serve(w, models[i+1])
			}()
		}
		own := newOwn(hello{Size: 3, Host: "host0", Rails: models[0].rails()}, models[0], make(chan error, 1))
		members, away := gather(l, own, 3, key, time.Minute)
		r := lead(members, away, settings)
		strangers.Wait()
		if err := r.Bad(); err != nil || len(r.Links) != 3 || len(r.Away) > mostAway {
			t.Fatalf("%v, %+v", err, r)
		}
		var text strings.Builder
		r.Print(&text)
		if strings.ContainsAny(text.String(), "\x1b\x07") || strings.Contains(text.String(), "evil") || strings.Contains(text.String(), "\nlost") {
			t.Fatalf("%q", text.String())
		}
	})
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > rounds*13<<20 {
		t.Errorf("%d MiB were allocated", used>>20)
	}
}

// strangeRanks come to rank 0's port.
var strangeRanks = []func(conn net.Conn, n int){
	func(conn net.Conn, _ int) { _, _ = conn.Read(make([]byte, 1)) },
	func(conn net.Conn, _ int) { _, _ = io.Copy(io.Discard, conn) }, // silent until it is disconnected
	func(conn net.Conn, n int) { // torn
		text := `{"rank":1,"size":3,"host":"evil","rails":[]}` + "\n"
		_, _ = io.WriteString(conn, text[:n%len(text)])
	},
	func(conn net.Conn, n int) { // long, perhaps too long
		_, _ = fmt.Fprintf(conn, `{"rank":1,"size":3,"host":"evil%s"}`+"\n", strings.Repeat("a", n))
	},
	func(conn net.Conn, _ int) { // endless
		for _, err := io.WriteString(conn, `{"host":"`); err == nil; {
			_, err = conn.Write(make([]byte, 1<<14))
		}
	},
	func(conn net.Conn, n int) { // an own key
		_ = join(newWire(conn), hello{Rank: n % 3, Size: 3, Host: "evil", Error: "h\x1b]0;evil\x07\nlost: rank 0"}, nil, time.Minute)
	},
	func(conn net.Conn, n int) { // huge numbers
		_, _ = fmt.Fprintf(conn, `{"rank":%d,"size":%d,"nonce":"\u001b[2J","rails":[%s{}]}`+"\n", n<<40, n<<40, strings.Repeat("{},", n%5000))
		_, _ = io.Copy(io.Discard, conn)
	},
	func(conn net.Conn, _ int) { _, _ = io.WriteString(conn, "SSH-2.0-evil\r\n") },
}

// TestHostileRank: a rank that is welcome and answers nonsense makes only its own links
// fail.
func TestHostileRank(t *testing.T) {
	for _, answer := range []string{
		`{}`, `{"latency":null}`, `{"endpoint":{},"gbits":-1,"latency":{"median":-1}}`, `{"endpoint":{},"gbits":1e300,"latency":{"median":1e300}}`,
		`{"endpoint":{},"gbits":1e-320,"latency":{"median":1}}`, `{"error":"h\u001b]0;evil\u0007\nlost: rank 0"}`, `[]`, `nonsense`,
		`{"error":"` + strings.Repeat("a", 1<<20) + `"}`, ``,
	} {
		l := listen(t)
		models := newModels(3, func(int, int) float64 { return 90 })
		for i := range 2 {
			go func() {
				conn, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				w := newWire(conn)
				if err := join(w, hello{Rank: i + 1, Size: 3, Host: fmt.Sprintf("host%d", i+1)}, key, time.Minute); err != nil {
					t.Error(err)
				}
				if i == 0 {
					_ = serve(w, models[1])
					return
				}
				for err = w.Hear(new(order), 0); err == nil && answer != ""; err = w.Hear(new(order), 0) {
					if _, err := io.WriteString(conn, answer+"\n"); err != nil {
						return
					}
				}
			}()
		}
		members, away := gather(l, newOwn(hello{Size: 3, Host: "host0"}, models[0], make(chan error, 1)), 3, key, time.Minute)
		r := lead(members, away, settings)
		for _, l := range r.Links {
			if (l.Error != "") != (l.B == 2) {
				t.Errorf("%.40q: %+v", answer, l)
			}
		}
		if _, err := json.Marshal(r); err != nil || r.Bad() == nil || r.Hosts[1].Lost != "" {
			t.Errorf("%.40q: %v, %+v", answer, err, r.Hosts)
		}
		var text strings.Builder
		if r.Print(&text); strings.ContainsAny(text.String(), "\x1b\x07") || strings.Contains(text.String(), "\nlost: rank 0") {
			t.Errorf("%q", text.String())
		}
	}
}

// TestHostileRoot: a rank refuses orders beyond the limits, and executes all others.
func TestHostileRoot(t *testing.T) {
	orders := []string{
		`{"do":"open","bytes":3}`, `{"do":"open","bytes":-1}`, `{"do":"open"}`, `{"do":"open","bytes":4611686018427387904}`,
		`{"do":"connect"}`, `{"do":"latency"}`, `{"do":"latency","ms":9000000000000}`, `{"do":"bandwidth","ms":-1}`, `{"do":"format"}`, `{}`,
	}
	mine, theirs := net.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- serve(newWire(mine), &model{order: func(do string) error {
			if do != "open" && do != "close" {
				t.Errorf("%s is done", do)
			}
			return nil
		}})
	}()
	root := newWire(theirs)
	for _, text := range append(orders, `{"do":"open","bytes":8}`) {
		if _, err := io.WriteString(theirs, text+"\n"); err != nil {
			t.Fatal(err)
		}
		var a answer
		if err := root.Hear(&a, time.Minute); err != nil || (a.Error == "") != strings.HasSuffix(text, `:8}`) {
			t.Errorf("%s: %+v, %v", text, a, err)
		}
	}
	go func() {
		for _, err := io.WriteString(theirs, `{"do":"`); err == nil; {
			_, err = theirs.Write(make([]byte, 1<<14))
		}
	}()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Error(err)
	}
	mine.Close()
	// A process that answers at rank 0's port without the key isn't rank 0.
	for _, text := range []string{"", "SSH\n", "{}\n{}\n", `{"nonce":"x"}` + "\n" + `{"do":"welcome","proof":"AAAA"}` + "\n"} {
		mine, theirs := net.Pipe()
		go func() {
			_, _ = io.WriteString(theirs, text)
			_ = theirs.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			_, _ = io.Copy(io.Discard, theirs)
			theirs.Close()
		}()
		if err := join(newWire(mine), hello{Rank: 1, Size: 3}, key, time.Minute); err == nil || errors.Is(err, errTurnedAway) {
			t.Errorf("%q: %v", text, err)
		}
		mine.Close()
	}
}

// TestDrawMesh: the picture is well-formed. With GOVERBS_PLOTS, it remains in that folder.
func TestDrawMesh(t *testing.T) {
	folder := os.Getenv("GOVERBS_PLOTS")
	if folder == "" {
		folder = t.TempDir()
	}
	for name, n := range map[string]int{"mesh.svg": 8, "mesh-large.svg": 40} {
		r := play(t, newModels(n, func(a, b int) float64 {
			v := 92 - float64((a*7+b*3)%5)
			switch {
			case a == 5 || b == 5:
				v -= 50
			case a == 1 && b == 2:
				v -= 30
			}
			return v
		}), settings)
		file := filepath.Join(folder, name)
		if err := r.Draw().WriteFile(file); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(strings.NewReader(string(b)))
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) || !strings.Contains(string(b), "slow host: host5") || strings.Contains(string(b), "NaN") {
			t.Errorf("%s: %v", name, err)
		}
		again := filepath.Join(t.TempDir(), "result.json")
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(again, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadResult(again); err != nil || len(got.Links) != len(r.Links) {
			t.Errorf("%v, %v", got, err)
		}
	}
	for _, text := range []string{"", "{}", `{"hosts": [{}], "links": [{"a": 0, "b": 7}]}`} {
		file := filepath.Join(t.TempDir(), "wrong.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadResult(file); err == nil {
			t.Errorf("%q is a result", text)
		}
	}
}
