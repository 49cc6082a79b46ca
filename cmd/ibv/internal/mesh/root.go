package mesh

import (
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
)

// Settings are how to measure.
type Settings struct {
	Bytes    int           // size of the writes
	Time     time.Duration // of each measurement
	Patience time.Duration // how long a rank may be late
	Wait     time.Duration // for ranks, at the beginning
	Progress func(round, rounds int) (goOn bool)
}

// A member is rank 0's record of a rank. One goroutine at a time uses it.
type member struct {
	hello
	wire *stranger.Wire // nil: not connected
	lost string         // why it no longer takes part; "" if it does
}

// order sends an order to a rank, and returns the answer. A rank that doesn't answer in time is lost.
func (m *member) order(o order, limit time.Duration) (a answer, err error) {
	if m.lost != "" {
		return a, fmt.Errorf("rank %d on %s %s", m.Rank, m.Host, m.lost)
	}
	if err = m.wire.Tell(o, limit); err == nil {
		err = m.wire.Hear(&a, limit)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		m.lost = fmt.Sprintf("hangs: it hasn't done %q within %v", o.Do, limit)
	case err != nil:
		m.lost = fmt.Sprintf("has died while it did %q: %v", o.Do, err)
	default:
		if err = a.check(o.Do); a.Error != "" {
			err = errors.New(a.Error)
		}
		if err != nil {
			err = fmt.Errorf("rank %d on %s: %s: %w", m.Rank, m.Host, o.Do, err)
		}
		return a, err
	}
	m.wire.Close()
	return a, fmt.Errorf("rank %d on %s %s", m.Rank, m.Host, m.lost)
}

const (
	mostRails    = 32
	mostHost     = 255 // bytes of a host's name
	mostAway     = 8   // processes that are turned away and named
	mostStranger = 64  // silent connections at a time, besides those of the ranks
)

// unknown is the host of a rank that hasn't connected.
const unknown = "an unknown host"

// A gathering is the wait for the ranks.
type gathering struct {
	key  []byte
	size int
	end  time.Time

	mu      sync.Mutex
	members []*member
	missing int
	away    []string
}

// gather waits for the ranks except rank 0, which is own. Ranks that don't connect are lost. Processes that
// don't belong to the mesh are turned away. away lists them with the reasons.
func gather(l net.Listener, own *member, size int, key []byte, wait time.Duration) (members []*member, away []string) {
	g := &gathering{key: key, size: size, end: time.Now().Add(wait), members: make([]*member, size), missing: size - 1}
	for i := range g.members {
		g.members[i] = &member{hello: hello{Rank: i, Host: unknown}, lost: fmt.Sprintf("hasn't come within %v", wait)}
	}
	g.members[0] = own
	defer time.AfterFunc(wait, func() { l.Close() }).Stop()
	door := stranger.Door[*member]{
		Most:  size + mostStranger,
		Greet: g.greet,
		Serve: func(conn net.Conn, m *member) {
			if err := g.take(m); err != nil {
				g.turnAway(conn, m, err)
			} else if g.complete() {
				l.Close()
			}
		},
	}
	_ = door.Open(l) // closed when all ranks have connected, or the wait has ended
	return g.members, g.away
}

// greet finds out which rank has connected.
func (g *gathering) greet(conn net.Conn) (*member, error) {
	m := &member{wire: newWire(conn)}
	left := max(time.Until(g.end), 1)
	mine := challenge{rand.Text()}
	if err := m.wire.Tell(mine, left); err != nil {
		return nil, err
	}
	if err := m.wire.Hear(&m.hello, left); err != nil {
		return nil, err
	}
	var why error
	switch {
	case m.Size != g.size || m.Rank < 0 || m.Rank >= g.size:
		why = fmt.Errorf("the mesh has %d ranks", g.size)
	case m.Rank == 0:
		why = errors.New("rank 0 is the process that listens here")
	case !hmac.Equal(m.Proof, proof(g.key, m.who(), mine.Nonce, m.Nonce)):
		why = errors.New("it hasn't this mesh's key (--key)")
	case len(m.Host) > mostHost:
		why = fmt.Errorf("the name of its host has %d bytes: %d are the most", len(m.Host), mostHost)
	case len(m.Rails) > mostRails:
		why = fmt.Errorf("it has %d rails: %d are the most", len(m.Rails), mostRails)
	default:
		m.Proof = proof(g.key, whoLeads, m.Nonce, mine.Nonce)
		return m, nil
	}
	g.turnAway(conn, m, why)
	return nil, why
}

// take records a rank that has connected.
func (g *gathering) take(m *member) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if first := g.members[m.Rank]; first.wire != nil {
		return fmt.Errorf("two processes are rank %d: on %s and on %s", m.Rank, first.Host, m.Host)
	}
	if err := m.wire.Tell(order{Do: "welcome", Proof: m.Proof}, telling); err != nil {
		return err
	}
	if m.Error != "" {
		m.lost = cannot + m.Error
	}
	g.members[m.Rank] = m
	g.missing--
	return nil
}

const cannot = "can't take part: "

func (g *gathering) complete() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.missing == 0
}

// telling is the time limit for the few bytes that welcome a rank or turn it away.
const telling = time.Second

// turnAway sends a process the reason why it can't take part.
func (g *gathering) turnAway(conn net.Conn, m *member, why error) {
	_ = m.wire.Tell(order{Do: "leave", Why: why.Error()}, telling) // it may have left already
	m.wire.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.away) < mostAway {
		g.away = append(g.away, fmt.Sprintf("%s, from %v: %v", m.who(), conn.RemoteAddr(), why))
	}
}

// lead is rank 0's part: it lets all pairs measure, and returns the results.
func lead(members []*member, away []string, s Settings) *Result {
	r := &Result{Time: time.Now().Round(time.Second), Bytes: s.Bytes, Away: away}
	hosts := make([]string, len(members))
	rails := 0
	for i, m := range members {
		if hosts[i] = m.Host; m.Host == unknown {
			hosts[i] = fmt.Sprintf("rank %d", i)
		}
		rails = max(rails, len(m.Rails))
	}
	rounds := schedule(hosts)
	for i, round := range rounds {
		if s.Progress != nil && !s.Progress(i+1, len(rounds)) {
			r.Left = len(rounds) - i
			break
		}
		links := make([][]Link, len(round))
		var busy sync.WaitGroup
		for j, p := range round {
			busy.Go(func() {
				a, b := members[p.a], members[p.b]
				for rail := range min(rails, max(1, len(a.Rails), len(b.Rails))) {
					links[j] = append(links[j], measure(a, b, rail, s))
				}
				if rails == 0 {
					links[j] = append(links[j], measure(a, b, 0, s))
				}
			})
		}
		busy.Wait()
		for _, l := range links {
			r.Links = append(r.Links, l...)
		}
	}
	for i, m := range members {
		if m.lost == "" {
			_ = m.wire.Tell(order{Do: "end"}, s.Patience)
		}
		if m.wire != nil {
			m.wire.Close()
		}
		r.Hosts = append(r.Hosts, Host{Rank: i, Name: hosts[i], Rails: m.Rails, Lost: m.lost})
	}
	r.name()
	return r
}

// measure measures one rail of a pair.
func measure(a, b *member, rail int, s Settings) Link {
	l := Link{A: a.Rank, B: b.Rank, Rail: rail}
	if err := l.measure(a, b, s); err != nil {
		l.Error = err.Error()
	}
	for _, m := range []*member{a, b} {
		if m.lost == "" {
			_, _ = m.order(order{Do: "close"}, s.Patience)
		}
	}
	return l
}

func (l *Link) measure(a, b *member, s Settings) error {
	open := order{Do: "open", Rail: l.Rail, Size: s.Bytes}
	atA, atB, err := both(a, b, open, open, s.Patience)
	if err != nil {
		return err
	}
	if _, _, err = both(a, b, order{Do: "connect", Peer: atB.Endpoint}, order{Do: "connect", Peer: atA.Endpoint}, s.Patience); err != nil {
		return err
	}
	ms := durationMS(s.Time.Milliseconds())
	limit := s.Time + s.Patience
	answer, err := a.order(order{Do: "latency", Time: ms}, limit)
	if err != nil {
		return err
	}
	l.Latency = answer.Latency
	write := order{Do: "bandwidth", Time: ms}
	if answer, err = a.order(write, limit); err != nil {
		return err
	}
	l.AB = round(answer.Gbits)
	if answer, err = b.order(write, limit); err != nil {
		return err
	}
	l.BA = round(answer.Gbits)
	if atA, atB, err = both(a, b, write, write, limit); err != nil {
		return err
	}
	l.Both = round(atA.Gbits + atB.Gbits)
	return nil
}

// round rounds to five digits.
func round(v float64) float64 {
	if v == 0 {
		return 0
	}
	unit := math.Pow(10, 4-math.Floor(math.Log10(v)))
	return math.Round(v*unit) / unit
}

// both sends orders to two ranks at the same time.
func both(a, b *member, toA, toB order, limit time.Duration) (atA, atB answer, err error) {
	var errB error
	var busy sync.WaitGroup
	busy.Go(func() { atB, errB = b.order(toB, limit) })
	atA, err = a.order(toA, limit)
	busy.Wait()
	return atA, atB, errors.Join(err, errB)
}

// A Config is a process's part.
type Config struct {
	Place
	Settings
	Bind    string   // address where rank 0 listens; "": all
	Port    int      // where rank 0 listens
	Key     []byte   // a secret of the processes; nil: anybody may be a rank
	Devices []string // the rails; none: the first device with an active port
	GID     int      // index; -1: the GID with the widest reach
}

// Run takes part in the measurement. Only rank 0 returns a result.
func Run(c Config) (*Result, error) {
	me := hello{Rank: c.Rank, Size: c.Size}
	me.Host, _ = os.Hostname()
	m, failed := openDevices(c.Devices, c.GID)
	if failed != nil {
		me.Error = failed.Error()
	} else {
		me.Rails = m.rails()
		defer m.end()
	}
	if c.Rank == 0 {
		return c.lead(me, m, failed)
	}
	w, err := reach(net.JoinHostPort(c.Root, fmt.Sprint(c.Port)), c.Wait, func(w *stranger.Wire, limit time.Duration) error {
		return join(w, me, c.Key, limit)
	})
	if err != nil {
		return nil, errors.Join(err, failed)
	}
	defer w.Close()
	if failed != nil {
		return nil, failed
	}
	return nil, serve(w, m)
}

// lead runs rank 0.
func (c *Config) lead(me hello, m meter, failed error) (*Result, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(c.Bind, fmt.Sprint(c.Port)))
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	var own *member
	if failed == nil {
		own = newOwn(me, m, ended)
	} else {
		own = &member{hello: me, lost: cannot + me.Error}
		ended <- nil
	}
	members, away := gather(l, own, c.Size, c.Key, c.Wait)
	r := lead(members, away, c.Settings)
	return r, <-ended
}

// newOwn returns rank 0 as a member like the others. No other process can take its place.
func newOwn(me hello, m meter, ended chan<- error) *member {
	mine, theirs := net.Pipe()
	go func() {
		defer mine.Close()
		ended <- serve(newWire(mine), m)
	}()
	return &member{hello: me, wire: newWire(theirs)}
}

// pause is the time between two attempts to reach rank 0.
const pause = 100 * time.Millisecond

// reach connects to rank 0, which may begin later, or be busy with too many other connections.
func reach(address string, wait time.Duration, join func(w *stranger.Wire, limit time.Duration) error) (*stranger.Wire, error) {
	for end := time.Now().Add(wait); ; time.Sleep(pause) {
		conn, err := net.DialTimeout("tcp", address, wait)
		if err == nil {
			w := newWire(conn)
			if err = join(w, wait); err == nil {
				return w, nil
			}
			w.Close()
		}
		if errors.Is(err, errTurnedAway) {
			return nil, err
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("rank 0 can't be reached: %w", err)
		}
	}
}
