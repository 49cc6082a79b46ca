package why

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/monitor"
	"github.com/goverbs/goverbs/rdmanl"
)

// serving returns the port of a server for a host.
func serving(t *testing.T, h *Host) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- serve(t.Context(), h, "", l, func(string) {}) }()
	t.Cleanup(func() {
		l.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return l.Addr().(*net.TCPAddr).Port
}

// TestPeer: the side is blamed whose fault it is.
func TestPeer(t *testing.T) {
	// there is the bed of the other end of 17.
	there := func(t *testing.T) *bed {
		b := mlx5(t)
		b.qps[117] = b.qps[17]
		b.qps[117].remote = 17
		b.process(7, "peer", "S", "0")
		delete(b.qps, 17)
		delete(b.qps, 18)
		return b
	}
	nothing := func(*bed) {}
	for name, c := range map[string]struct {
		plant, happen func(*bed) // here
		other         func(*bed) // there
		want          string
	}{
		"idle": {nothing, nothing, nothing, ""},
		"posts no receives": {(*bed).unanswered, func(b *bed) { b.count["rnr_nak_retry_err"]++ }, nothing,
			"peer-not-ready 127.0.0.1: its program posts no receives"},
		"stopped": {(*bed).unanswered, func(b *bed) { b.count["rnr_nak_retry_err"]++ }, func(b *bed) { b.process(7, "peer", "T", "0") },
			"peer-not-ready 127.0.0.1: peer (pid 7) was stopped"},
		"gone":  {(*bed).unanswered, nothing, func(b *bed) { delete(b.qps, 117) }, "no-ack 127.0.0.1: the queue pair is gone"},
		"error": {(*bed).unanswered, nothing, func(b *bed) { b.qps[117].state = ib.QPErr }, "no-ack 127.0.0.1: QP 117 is in the state ERR"},
		"other": {(*bed).unanswered, nothing, func(b *bed) { b.qps[117].remote = 16 }, "no-ack 127.0.0.1: the queue pair is gone"},
		"lost":  {(*bed).unanswered, nothing, nothing, "no-ack network: both ends exist, and packets or their answers are lost"},
		"peer waits": {nothing, nothing, func(b *bed) { b.qps[117].fields[qpNextPSN] = 9; b.qps[117].fields[qpSQPosted] += 2 },
			"no-ack network: this end exists, and gets nothing or can't answer"},
		"paused": {func(b *bed) { b.qps[17].fields[qpSQPosted] += 3; b.count["port_xmit_wait"] = 1 }, func(b *bed) { b.count["port_xmit_wait"]++ }, nothing,
			"paused network: a switch or a receiver holds the port back"},
		"peer overran":   {nothing, nothing, func(b *bed) { b.cqs[1].fields[cqStatus] = 9 }, "cq-overrun 127.0.0.1"},
		"program's own":  {func(b *bed) { b.cqs[1].fields[cqStatus] = 9 }, nothing, nothing, "cq-overrun here"},
		"both in error":  {func(b *bed) { b.qps[17].state = ib.QPErr }, nothing, func(b *bed) { b.qps[117].state = ib.QPErr }, "in-error unknown: both ends are in error"},
		"broken by peer": {func(b *bed) { b.qps[17].state = ib.QPErr }, nothing, func(b *bed) { delete(b.qps, 117) }, "in-error 127.0.0.1: the queue pair is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			mine, theirs := mlx5(t), there(t)
			delete(mine.qps, 18)
			c.plant(mine)
			c.other(theirs)
			r := looks(t, mine.host(), func() { c.happen(mine) })
			if err := r.ask(t.Context(), "127.0.0.1", serving(t, theirs.host()), time.Millisecond); err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, f := range r.Findings {
				got += f.ID + " " + f.Guilty
			}
			if got != c.want {
				t.Errorf("%q, want %q: %+v", got, c.want, r.Findings)
			}
		})
	}
}

// TestNoServer: the error says once, and rightly, how to start the server.
func TestNoServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	said, err := os.Create(filepath.Join(t.TempDir(), "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	stderr := os.Stderr
	os.Stderr = said
	defer func() { os.Stderr = stderr }()
	c := Why()
	c.Run = func([]string) error {
		return looks(t, mlx5(t).host(), func() {}).ask(t.Context(), "127.0.0.1", l.Addr().(*net.TCPAddr).Port, 1)
	}
	status := c.Main("ibv why", nil)
	text, err := os.ReadFile(said.Name())
	if want := "connection refused; start the server there: ibv why --serve\n"; status != cli.Failed || err != nil || !strings.HasSuffix(string(text), want) || strings.Count(string(text), "--serve") != 1 {
		t.Errorf("status %d, %v, %q", status, err, text)
	}
}

// TestInterrupted: who interrupts the command while the peer is silent is told nothing about connections.
func TestInterrupted(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_ = stranger.NewWire(c, mostQuestion).Hear(new(question), time.Minute)
		interrupt()
		_, _ = io.Copy(io.Discard, c)
	}()
	r := looks(t, mlx5(t).host(), func() {})
	if err := r.ask(ctx, "127.0.0.1", l.Addr().(*net.TCPAddr).Port, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// twins is a kernel with the devices of two beds.
type twins struct{ a, b *bed }

func (k twins) Devices(context.Context) ([]rdmanl.Device, error) {
	return []rdmanl.Device{{Index: 3, Name: k.a.name, Ports: 1}, {Index: 4, Name: k.b.name, Ports: 1}}, nil
}

func (k twins) of(dev uint32) *bed {
	if dev == 3 {
		return k.a
	}
	return k.b
}

func (k twins) QPs(ctx context.Context, dev uint32) ([]rdmanl.QP, error) {
	return k.of(dev).QPs(ctx, dev)
}

func (k twins) CQs(ctx context.Context, dev uint32) ([]rdmanl.CQ, error) {
	return k.of(dev).CQs(ctx, dev)
}

func (k twins) CMIDs(ctx context.Context, dev uint32) ([]rdmanl.CMID, error) {
	return k.of(dev).CMIDs(ctx, dev)
}

func (k twins) Raws(ctx context.Context, dev uint32, kind rdmanl.RawKind) ([][]byte, error) {
	return k.of(dev).Raws(ctx, dev, kind)
}

func (k twins) Port(ctx context.Context, device string, port int) (monitor.Port, error) {
	if device == k.a.name {
		return k.a.Port(ctx, device, port)
	}
	return k.b.Port(ctx, device, port)
}

func (k twins) Counters(context.Context, monitor.Port) (map[string]uint64, error) { return nil, nil }

// TestPeerTwins: adapters give the same numbers to queue pairs of a program that uses them alike. Each has its other
// end.
func TestPeerTwins(t *testing.T) {
	twin := func(number, remote uint32) (*Host, *bed) {
		var beds [2]*bed
		for i := range beds {
			b := mlx5(t)
			b.name = fmt.Sprint("mlx5_", i)
			q := b.qps[17]
			q.remote = remote
			b.qps = map[uint32]*bedQP{number: q}
			beds[i] = b
		}
		return &Host{beds[0].root, twins{beds[0], beds[1]}}, beds[0]
	}
	here, mine := twin(17, 117)
	there, _ := twin(117, 17)
	mine.unanswered()
	r := looks(t, here, func() {})
	if err := r.ask(t.Context(), "127.0.0.1", serving(t, there), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if len(r.Findings) != 1 || r.Findings[0].Device != "mlx5_0" || !strings.HasPrefix(r.Findings[0].Guilty, "network: both ends exist") {
		t.Errorf("%+v", r.Findings)
	}
}

// TestStrangers: a server tells nothing about queue pairs that a client doesn't know, and a client believes nothing
// that isn't an answer.
func TestStrangers(t *testing.T) {
	port := serving(t, mlx5(t).host())
	ask := func(q question) (a answer) {
		t.Helper()
		c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		w := stranger.NewWire(c, mostAnswer)
		if err := w.Tell(q, time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := w.Hear(&a, time.Minute); err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := ask(question{version, [][2]uint32{{17, 117}, {17, 1}, {117, 17}}, 1}); a.Error != "" || len(a.Ends) != 3 || a.Ends[0].QP == nil || a.Ends[1].QP != nil || a.Ends[2].QP != nil {
		t.Errorf("%+v", a)
	} else if p := a.Ends[0].QP.Process; p.Comm != "victim" || p.Waits != nil || p.Cgroup != "" {
		t.Errorf("%+v", p)
	}
	for want, q := range map[string]question{
		"versions":     {Version: 9},
		"queue pairs":  {version, nil, 1},
		"4097":         {version, make([][2]uint32, mostPairs+1), 1},
		"an interval":  {version, make([][2]uint32, 1), 0},
		"1m0s is the ": {version, make([][2]uint32, 1), time.Hour},
	} {
		if a := ask(q); !strings.Contains(a.Error, want) || len(a.Ends) != 0 {
			t.Errorf("%+v: %+v", q.Version, a)
		}
	}
	for _, says := range []string{"", "SSH-2.0\n", "{}\n", `{"ends":[]}` + "\n", `{"ends":[{"qp":{}}]}` + "\n", `{"error":"no\u001b[2J"}` + "\n"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			c, err := l.Accept()
			if err == nil {
				_, _ = io.WriteString(c, says)
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, c)
				c.Close()
			}
		}()
		b := mlx5(t)
		delete(b.qps, 18)
		r := looks(t, b.host(), func() {})
		err = r.ask(t.Context(), "127.0.0.1", l.Addr().(*net.TCPAddr).Port, 1)
		if err == nil || strings.Contains(err.Error(), "\x1b") || len(r.Findings) != 0 {
			t.Errorf("%q: %v", says, err)
		}
		l.Close()
	}
}
