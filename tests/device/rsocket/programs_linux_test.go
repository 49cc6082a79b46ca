package rsocket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rsocket"
)

var _ = rdmatest.Test(TestIbvRstream, rdmatest.Peers, rdmatest.AlsoSIW)

// TestIbvRstream runs `ibv rstream` and `ibv riostream` with themselves and with rdma-core's
// programs. The sides check each other's data.
func TestIbvRstream(t *testing.T) {
	checkLeaks(t)
	for _, program := range []string{"rstream", "riostream"} {
		for _, who := range []struct{ server, client string }{{"go", "go"}, {"c", "go"}, {"go", "c"}} {
			t.Run(program+", "+who.server+"-"+who.client, func(t *testing.T) {
				port := freePort()
				args := []string{"-p", port, "-f", "ip", "-S", "3000", "-C", "50", "-I", "3", "-T", "v", "-T", "b"}
				run := func(maker string, more ...string) *rdmatest.Process {
					return rdmatest.Start(t, slices.Concat(madeBy(t, maker, program), args, more)...)
				}
				server := run(who.server, "-b", host)
				listens(t, server, port)
				client := run(who.client, "-s", host)
				says(t, client, "878k")
				says(t, server, "878k")
			})
		}
	}
}

// madeBy returns the command of rdma-core's program of a name, "c", or of ibv's, "go".
func madeBy(t testing.TB, maker, program string) []string {
	t.Helper()
	if maker == "go" {
		return []string{rdmatest.Program(t, "ibv"), program}
	}
	return []string{program}
}

var _ = rdmatest.Test(TestRcopy, rdmatest.Peers, rdmatest.AlsoSIW)

// TestRcopy: rcopy and `ibv rcopy` copy files to each other.
func TestRcopy(t *testing.T) {
	checkLeaks(t)
	ibv := rdmatest.Program(t, "ibv")
	for _, who := range []struct{ server, client string }{{"go", "go"}, {"c", "go"}, {"go", "c"}} {
		sizes := []int{1, 1<<20 + 1}
		if testing.Short() {
			sizes = []int{1<<18 + 1}
		}
		for _, size := range sizes {
			t.Run(fmt.Sprintf("%s-%s, %d B", who.server, who.client, size), func(t *testing.T) {
				dir := t.TempDir()
				from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
				want := make([]byte, size)
				newStream(1).Read(want)
				rdmatest.Check(t, os.WriteFile(from, want, 0o600))
				command := map[string][]string{"go": {ibv, "rcopy"}, "c": {"rcopy"}}
				port := freePort()
				args := append(command[who.server], "-p", port)
				if who.server == "go" { // soft-iWARP takes no IPv4 at IPv6's unspecified address
					args = append(args, "-b", host)
				}
				server := rdmatest.Start(t, args...)
				listens(t, server, port)
				client := rdmatest.Start(t, append(command[who.client], from, host+":"+to, "-p", port)...)
				if out := client.Succeeds(t); !strings.Contains(out, fmt.Sprintf("%d bytes in", size)) {
					t.Error(client)
				}
				if got := rdmatest.Must(os.ReadFile(to))(t); !bytes.Equal(got, want) {
					t.Errorf("the copy has %d bytes, and is another: %v", len(got), server)
				}
				server.Kill()
			})
		}
	}
}

// listens waits until a program listens on a port of the connection manager.
func listens(t testing.TB, p *rdmatest.Process, port string) {
	t.Helper()
	var n uint16
	fmt.Sscan(port, &n)
	p.Until(t, func() bool { return rdmatest.ListeningCM(t, "TCP", n) })
}

// programSize returns how many bytes the programs that know only TCP send and receive.
func programSize() int {
	switch {
	case long():
		return 1 << 30
	case testing.Short():
		return 1 << 18
	}
	return 1 << 20
}

// TestNetcat runs nc, which knows only TCP, as client and server under librspreload. nc sends
// a stream and receives another: 1 GiB each with GOVERBS_LONG.
func TestNetcat(t *testing.T) {
	size := programSize()
	for name, connect := range map[string]func(start func(args ...string) *rdmatest.Process) (*rdmatest.Process, net.Conn){
		"client": func(start func(args ...string) *rdmatest.Process) (*rdmatest.Process, net.Conn) {
			l := listen(t, rsocket.Options{})
			p := start(host, portOf(l))
			return p, accept(t, l)
		},
		"server": func(start func(args ...string) *rdmatest.Process) (*rdmatest.Process, net.Conn) {
			port := freePort()
			p := start("-l", "-s", host, "-p", port)
			return p, dialWhenUp(t, p, port)
		},
	} {
		t.Run(name, func(t *testing.T) {
			received := newSink()
			p, c := connect(func(args ...string) *rdmatest.Process {
				cmd := preloaded(t, append([]string{"nc.traditional", "-n"}, args...)...)
				cmd.Stdin, cmd.Stdout = io.LimitReader(newStream(2), int64(size)), received
				return rdmatest.StartCmd(t, cmd)
			})
			rdmatest.Check(t, c.SetDeadline(time.Now().Add(patience())))
			go io.CopyN(c, newStream(3), int64(size))
			sum, err := checksum(c, size, 1<<16, rand.New(rand.NewPCG(1, 2)))
			if want := sumOf(t, 2, size); err != nil || sum != want {
				t.Errorf("received %#x, %v, want %#x", sum, err, want)
			}
			p.Until(t, func() bool { n, _ := received.total(); return n == size })
			rdmatest.Check(t, c.Close())
			p.Succeeds(t)
			n, sum := received.total()
			if want := sumOf(t, 3, size); n != size || sum != want {
				t.Errorf("nc received %d of %d bytes, %#x, want %#x: %s", n, size, sum, want, p.Stderr())
			}
		})
	}
}

// TestCurl runs curl under librspreload, with a web server of package net/http. curl uploads
// a stream and downloads another: 1 GiB each with GOVERBS_LONG.
func TestCurl(t *testing.T) {
	l := listen(t, rsocket.Options{})
	size := programSize()
	uploaded := make(chan uint32, 1)
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := newSink()
		io.Copy(body, r.Body)
		_, sum := body.total()
		uploaded <- sum
		io.CopyN(w, newStream(4), int64(size))
	}))
	cmd := preloaded(t, "curl", "-sS", "-T", "-", "http://"+l.Addr().String()+"/")
	received := newSink()
	cmd.Stdin, cmd.Stdout = io.LimitReader(newStream(5), int64(size)), received
	p := rdmatest.StartCmd(t, cmd)
	p.Succeeds(t)
	if sum, want := <-uploaded, sumOf(t, 5, size); sum != want {
		t.Errorf("curl sent %#x, want %#x", sum, want)
	}
	n, sum := received.total()
	if want := sumOf(t, 4, size); n != size || sum != want {
		t.Errorf("%d of %d bytes came, %#x, want %#x: %s", n, size, sum, want, p.Stderr())
	}
}

// TestIperf: Debian's iperf under librspreload counts what a client sends: 1 GiB with GOVERBS_LONG. A client of its
// own sends as much.
func TestIperf(t *testing.T) {
	size := programSize()
	port := freePort()
	server := rdmatest.StartCmd(t, preloaded(t, "iperf", "-s", "-B", host, "-p", port, "-y", "C"))
	c := dialWhenUp(t, server, port)
	rdmatest.Check(t, c.SetDeadline(time.Now().Add(patience())))
	rdmatest.Must(c.Write(make([]byte, 128)))(t) // iperf's header, without requests
	rdmatest.Must(io.CopyN(c, newStream(6), int64(size-128)))(t)
	rdmatest.Check(t, c.Close())
	fields := strings.Split(server.Line(t), ",")
	server.Kill()
	if len(fields) < 8 || fields[7] != strconv.Itoa(size-4) { // iperf doesn't count the flags, which come first
		t.Errorf("iperf received %q, want %d bytes: %v", fields, size-4, server)
	}

	l := listen(t, rsocket.Options{})
	client := rdmatest.StartCmd(t, preloaded(t, "iperf", "-c", host, "-p", portOf(l), "-n", strconv.Itoa(size)))
	received := accept(t, l)
	rdmatest.Check(t, received.SetDeadline(time.Now().Add(patience())))
	n, err := io.Copy(io.Discard, received)
	if err != nil || n < int64(size) { // and iperf's final report
		t.Errorf("%d of %d bytes came, %v: %v", n, size, err, client)
	}
	rdmatest.Check(t, received.Close())
	client.Succeeds(t)
}

// TestProxy connects a TCP client to a TCP server over RDMA between two `ibv proxy`.
func TestProxy(t *testing.T) {
	ibv := rdmatest.Program(t, "ibv")
	server := rdmatest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer server.Close()
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				// From one TCP connection to another, Go would use a pipe and keep it.
				io.Copy(c, struct{ io.Reader }{c})
			}()
		}
	}()
	port := freePort()
	far := rdmatest.Start(t, ibv, "proxy", "-l", "rdma:"+host+":"+port, "-c", "tcp:"+server.Addr().String())
	far.Line(t)
	near := rdmatest.Start(t, ibv, "proxy", "-l", "tcp:127.0.0.1:0", "-c", "rdma:"+host+":"+port)
	_, addr, _ := strings.Cut(near.Line(t), "listening on ")
	for i := range 5 {
		c := rdmatest.Must(net.Dial("tcp", addr))(t)
		rdmatest.Check(t, c.SetDeadline(time.Now().Add(rdmatest.Patience)))
		want := make([]byte, 100_000*i+1)
		newStream(byte(i)).Read(want)
		go func() {
			c.Write(want)
			c.(*net.TCPConn).CloseWrite()
		}()
		if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d of %d bytes came back, %v: %v, %v", len(got), len(want), err, near, far)
		}
		rdmatest.Check(t, c.Close())
	}
	// The client notices that nothing listens.
	far.Kill()
	c := rdmatest.Must(net.Dial("tcp", addr))(t)
	defer c.Close()
	rdmatest.Check(t, c.SetDeadline(time.Now().Add(rdmatest.Patience)))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("without the far side: %d bytes, %v", n, err)
	}
	near.Kill()
}
