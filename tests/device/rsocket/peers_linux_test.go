package rsocket

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rsocket"
)

// A counter is the data of rstream with -T verify: bytes that count up, from the beginning of the
// connection.
type counter byte

func (c *counter) fill(b []byte) {
	for i := range b {
		b[i] = byte(*c)
		*c++
	}
}

func (c *counter) check(b []byte) error {
	for i := range b {
		if b[i] != byte(*c) {
			return fmt.Errorf("byte %d of %d is %d, want %d", i, len(b), b[i], byte(*c))
		}
		*c++
	}
	return nil
}

// An rstream is one side of rstream: both sides send and receive in turn, the client first.
type rstream struct {
	c        net.Conn
	out, in  counter
	client   bool
	size     int // of a transfer
	count    int // transfers one way, before as many the other way
	rounds   int
	transfer []byte
}

func (r *rstream) run() error {
	r.transfer = make([]byte, max(r.size, 16))
	if err := r.round(16, 1); err != nil { // a barrier
		return err
	}
	for range r.rounds {
		if err := r.round(r.size, r.count); err != nil {
			return err
		}
	}
	return nil
}

func (r *rstream) round(size, count int) error {
	for _, send := range []bool{r.client, !r.client} {
		b := r.transfer[:size]
		for range count {
			if send {
				r.out.fill(b)
				if _, err := r.c.Write(b); err != nil {
					return err
				}
			} else if _, err := io.ReadFull(r.c, b); err != nil {
				return err
			} else if err := r.in.check(b); err != nil {
				return err
			}
		}
	}
	return nil
}

var _ = rdmatest.Test(TestRstream, rdmatest.Peers, rdmatest.AlsoSIW)

// TestRstream plays against rstream, in both roles, with small and large transfers. rstream
// verifies the data, too.
func TestRstream(t *testing.T) {
	checkLeaks(t)
	for _, load := range []struct{ size, count, rounds int }{
		{1, 100, 20}, {16, 1000, 2}, {64, 1, 200}, {65, 1, 100}, {5000, 100, 3}, {1 << 20, 2, 2},
	} {
		if testing.Short() {
			if load.size == 1 || load.size == 64 { // inline, as are 16 bytes
				continue
			}
			load.count, load.rounds = min(load.count, 500), (load.rounds+9)/10
		}
		for _, how := range []string{"nonblocking", "blocking", "async"} {
			if testing.Short() && how != "blocking" && load.size != 5000 {
				continue
			}
			args := []string{"-S", fmt.Sprint(load.size), "-C", fmt.Sprint(load.count), "-I", fmt.Sprint(load.rounds), "-T", "v", "-T", how}
			name := fmt.Sprintf("%d x %d B, %s", load.count*load.rounds, load.size, how)
			t.Run("to C, "+name, func(t *testing.T) {
				port := freePort()
				server := rdmatest.Start(t, append([]string{"rstream", "-b", host, "-p", port}, args...)...)
				play(t, dialWhenUp(t, server, port), true, load.size, load.count, load.rounds)
				says(t, server, "custom")
			})
			t.Run("from C, "+name, func(t *testing.T) {
				l := listen(t, rsocket.Options{})
				client := rdmatest.Start(t, append([]string{"rstream", "-s", host, "-p", portOf(l)}, args...)...)
				play(t, accept(t, l), false, load.size, load.count, load.rounds)
				says(t, client, "custom")
			})
		}
	}
}

// play plays the other side of rstream, up to the end of the connection.
func play(t *testing.T, c net.Conn, client bool, size, count, rounds int) {
	t.Helper()
	rdmatest.Check(t, c.SetDeadline(time.Now().Add(rdmatest.Patience)))
	r := rstream{c: c, client: client, size: size, count: count, rounds: rounds}
	rdmatest.Check(t, r.run())
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("after the last transfer: %d bytes, %v", n, err)
	}
	rdmatest.Check(t, c.Close())
}

// says waits for the program's success, and checks its last line.
func says(t *testing.T, p *rdmatest.Process, want string) {
	t.Helper()
	out := p.Succeeds(t)
	if !strings.Contains(out, want) || strings.Contains(out, "verification failed") {
		t.Error(p)
	}
}

var lastPort = 7600

func freePort() string {
	lastPort++
	return fmt.Sprint(lastPort)
}

func portOf(l *rsocket.Listener) string {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func accept(t testing.TB, l *rsocket.Listener) net.Conn {
	t.Helper()
	rdmatest.Check(t, l.SetDeadline(time.Now().Add(rdmatest.Patience)))
	return rdmatest.Must(l.Accept())(t)
}

// dialWhenUp connects to a program once it listens.
func dialWhenUp(t testing.TB, server *rdmatest.Process, port string) net.Conn {
	t.Helper()
	var n uint16
	fmt.Sscan(port, &n)
	server.Until(t, func() bool { return rdmatest.ListeningCM(t, "TCP", n) })
	d := rsocket.Dialer{Timeout: rdmatest.Patience}
	return rdmatest.Must(d.Dial("tcp", host+":"+port))(t)
}

// preloaded returns a command that runs a program's TCP connections over RDMA.
func preloaded(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	found := rdmatest.Must(filepath.Glob("/usr/lib/*/rsocket/librspreload.so"))(t)
	if len(found) == 0 {
		t.Fatal("librspreload.so is not installed")
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+found[0])
	return cmd
}
