package mesh

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
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

var settings = Settings{Bytes: 4096, Time: time.Millisecond, Patience: time.Minute, Wait: time.Minute}

// play runs a mesh of models, each on a host of its own.
func play(t *testing.T, models []*model, s Settings) *Result {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, len(models))
	for i, m := range models {
		go func() {
			conn, err := net.Dial("tcp", l.Addr().String())
			if err == nil {
				err = serve(conn, hello{Rank: i, Size: len(models), Host: fmt.Sprintf("host%d", i)}, m)
				conn.Close()
			}
			ended <- err
		}()
	}
	members, err := gather(l, len(models), s.Wait)
	if err != nil {
		t.Fatal(err)
	}
	return lead(members, s)
}

func newModels(n int, gbits func(a, b int) float64) (all []*model) {
	for i := range n {
		all = append(all, &model{rank: i, gbits: gbits})
	}
	return all
}

// TestMesh: all pairs are measured, a slow link and a slow host are named, and nothing else is.
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
	if !slices.Equal(r.Slow.Hosts, []string{"host5"}) || len(r.Slow.Links) != 1 || !strings.HasPrefix(r.Slow.Links[0], "host1 – host2: bandwidth 50 Gb/s (usual: 90)") {
		t.Errorf("%+v", r.Slow)
	}
	for _, l := range r.Links {
		if l.A == 1 && l.B == 2 && (l.AB != 50 || l.BA != 90 || l.Both != 140 || l.Latency.Median != 2) {
			t.Errorf("%+v", l)
		}
	}
	var b strings.Builder
	r.Print(&b)
	for _, want := range []string{"8 ranks, 28 links", "median 90, from 40 to 90 Gb/s", "slow host: host5", "slow link: host1 – host2"} {
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
	if !strings.Contains(text, "worse: host3 – host4: bandwidth 90 to 45 Gb/s (-50 %)") || !strings.Contains(text, "better: host0 – host5: bandwidth 40 to 80 Gb/s (+100 %)") ||
		!strings.HasPrefix(lines[1], "worse") || !strings.Contains(lines[0], "28 of 28") {
		t.Errorf("%s", text)
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

// TestLost: a rank that dies, hangs, can't take part or never comes is named, and all other
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

// playDying is play, but the connection of a rank ends when a model says so.
func playDying(t *testing.T, models []*model, dying error, s Settings) *Result {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range models {
		go func() {
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				return
			}
			defer conn.Close()
			if inner := m.order; inner != nil {
				m.order = func(do string) error {
					err := inner(do)
					if errors.Is(err, dying) {
						conn.Close()
					}
					return err
				}
			}
			_ = serve(conn, hello{Rank: i, Size: len(models), Host: fmt.Sprintf("host%d", i)}, m)
		}()
	}
	members, err := gather(l, len(models), s.Wait)
	if err != nil {
		t.Fatal(err)
	}
	return lead(members, s)
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

func TestGather(t *testing.T) {
	t.Parallel() // it waits for a rank that doesn't come
	come := func(hellos ...hello) ([]*member, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range hellos {
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := json.NewEncoder(conn).Encode(h); err != nil {
				t.Fatal(err)
			}
		}
		return gather(l, 2, 2*time.Second)
	}
	members, err := come(hello{Rank: 1, Size: 2, Host: "n1", Error: "no device"})
	if err != nil || !strings.Contains(members[0].lost, "hasn't come") || !strings.Contains(members[1].lost, "no device") {
		t.Errorf("%+v, %v", members, err)
	}
	if _, err := come(hello{Rank: 1, Size: 2, Host: "n1"}, hello{Rank: 1, Size: 2, Host: "n2"}); err == nil || !strings.Contains(err.Error(), "two processes are rank 1") {
		t.Error(err)
	}
	if _, err := come(hello{Rank: 1, Size: 3, Host: "n1"}); err == nil || !strings.Contains(err.Error(), "has come to a mesh of 2") {
		t.Error(err)
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
