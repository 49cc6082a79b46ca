package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"time"
)

// Settings are how to measure.
type Settings struct {
	Bytes    int           // size of the writes
	Time     time.Duration // of each measurement
	Patience time.Duration // how long a rank may be late
	Wait     time.Duration // for ranks, at the beginning
	Progress func(round, rounds int)
}

// A member is a rank as rank 0 sees it. One goroutine at a time uses it.
type member struct {
	hello
	conn net.Conn
	in   *json.Decoder
	lost string // why it takes part no longer
}

// order has a rank do something. A rank that doesn't answer in time is lost.
func (m *member) order(o order, limit time.Duration) (a answer, err error) {
	if m.lost != "" {
		return a, fmt.Errorf("rank %d on %s %s", m.Rank, m.Host, m.lost)
	}
	b, err := json.Marshal(o)
	if err != nil {
		return a, err
	}
	if err = m.conn.SetDeadline(time.Now().Add(limit)); err == nil {
		if _, err = m.conn.Write(append(b, '\n')); err == nil {
			err = m.in.Decode(&a)
		}
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		m.lost = fmt.Sprintf("hangs: it hasn't done %q within %v", o.Do, limit)
	case err != nil:
		m.lost = fmt.Sprintf("has died while it did %q: %v", o.Do, err)
	case a.Error != "":
		return a, fmt.Errorf("rank %d on %s: %s: %s", m.Rank, m.Host, o.Do, a.Error)
	default:
		return a, nil
	}
	m.conn.Close()
	return a, fmt.Errorf("rank %d on %s %s", m.Rank, m.Host, m.lost)
}

// gather waits for the ranks. Those that don't come are lost.
func gather(l net.Listener, size int, wait time.Duration) ([]*member, error) {
	members := make([]*member, size)
	for i := range members {
		members[i] = &member{hello: hello{Rank: i, Host: "an unknown host"}, lost: fmt.Sprintf("hasn't come within %v", wait)}
	}
	end := time.Now().Add(wait)
	arrived, enough := make(chan *member), make(chan struct{})
	defer close(enough)
	go func() {
		var greeting sync.WaitGroup
		defer func() {
			greeting.Wait()
			close(arrived)
		}()
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			greeting.Go(func() {
				m := &member{conn: conn, in: json.NewDecoder(conn)}
				_ = conn.SetDeadline(end)
				if m.in.Decode(&m.hello) == nil {
					select {
					case arrived <- m:
						return
					case <-enough:
					}
				}
				conn.Close() // no rank, or one too many
			})
		}
	}()
	defer l.Close()
	timer := time.AfterFunc(wait, func() { l.Close() })
	defer timer.Stop()
	for missing := size; missing > 0; missing-- {
		m, is := <-arrived
		switch {
		case !is:
			return members, nil
		case m.Size != size || m.Rank < 0 || m.Rank >= size:
			return nil, fmt.Errorf("rank %d of %d on %s has come to a mesh of %d", m.Rank, m.Size, m.Host, size)
		case members[m.Rank].conn != nil:
			return nil, fmt.Errorf("two processes are rank %d: on %s and on %s", m.Rank, members[m.Rank].Host, m.Host)
		case m.Error != "":
			m.lost = "can't take part: " + m.Error
		}
		members[m.Rank] = m
	}
	return members, nil
}

// lead is rank 0's part: it has all pairs measured, and returns the results.
func lead(members []*member, s Settings) *Result {
	r := &Result{Time: time.Now().Round(time.Second), Bytes: s.Bytes}
	hosts := make([]string, len(members))
	rails := 0
	for i, m := range members {
		if hosts[i] = m.Host; m.conn == nil {
			hosts[i] = fmt.Sprintf("rank %d", i)
		}
		rails = max(rails, len(m.Rails))
	}
	rounds := schedule(hosts)
	for i, round := range rounds {
		if s.Progress != nil {
			s.Progress(i+1, len(rounds))
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
			_ = json.NewEncoder(m.conn).Encode(order{Do: "end"})
		}
		if m.conn != nil {
			m.conn.Close()
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
	if atA.Endpoint == nil || atB.Endpoint == nil {
		return errors.New("a rank has opened nothing")
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

// round leaves five digits.
func round(v float64) float64 {
	if v == 0 {
		return 0
	}
	unit := math.Pow(10, 4-math.Floor(math.Log10(v)))
	return math.Round(v*unit) / unit
}

// both orders something from two ranks at the same time.
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
	Port    int      // where rank 0 listens
	Devices []string // the rails; none: the first device with an active port
	GID     int      // index; -1: the one that reaches farthest
}

// Run takes part. Only rank 0 returns a result.
func Run(c Config) (*Result, error) {
	me := hello{Rank: c.Rank, Size: c.Size}
	me.Host, _ = os.Hostname()
	m, failed := openDevices(c.Devices, c.GID)
	if failed != nil {
		me.Error = failed.Error()
	} else {
		defer m.end()
	}
	part := func(conn io.ReadWriteCloser) error {
		defer conn.Close()
		if failed != nil {
			return errors.Join(serve(conn, me, nil), failed)
		}
		return serve(conn, me, m)
	}
	if c.Rank != 0 {
		conn, err := reach(net.JoinHostPort(c.Root, fmt.Sprint(c.Port)), c.Wait)
		if err != nil {
			return nil, err
		}
		return nil, part(conn)
	}
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", c.Port))
	if err != nil {
		return nil, err
	}
	// Rank 0 is a rank like the others, too.
	mine := make(chan error, 1)
	go func() {
		conn, err := net.Dial("tcp", net.JoinHostPort("localhost", fmt.Sprint(c.Port)))
		if err == nil {
			err = part(conn)
		}
		mine <- err
	}()
	members, err := gather(l, c.Size, c.Wait)
	if err != nil {
		return nil, err
	}
	r := lead(members, c.Settings)
	if err := <-mine; err != nil && failed == nil {
		return r, err
	}
	return r, nil
}

// pause is the time between two attempts to reach rank 0.
const pause = 100 * time.Millisecond

// reach connects to rank 0, which may begin later.
func reach(address string, wait time.Duration) (net.Conn, error) {
	for end := time.Now().Add(wait); ; time.Sleep(pause) {
		conn, err := net.DialTimeout("tcp", address, wait)
		if err == nil {
			return conn, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("rank 0 can't be reached: %w", err)
		}
	}
}
