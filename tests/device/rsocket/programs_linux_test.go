package rsocket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rsocket"
)

var _ = rdmatest.Test(TestIbvRstream, rdmatest.Peers)

// TestIbvRstream: `ibv rstream` and `ibv riostream` with themselves and with rdma-core's, which check each
// other's data.
func TestIbvRstream(t *testing.T) {
	rdmatest.CheckLeaks(t)
	ibv := rdmatest.Program(t, "ibv")
	for _, program := range []string{"rstream", "riostream"} {
		for _, who := range []struct{ server, client string }{{"go", "go"}, {"c", "go"}, {"go", "c"}} {
			t.Run(program+", "+who.server+"-"+who.client, func(t *testing.T) {
				port := freePort()
				args := []string{"-p", port, "-f", "ip", "-S", "3000", "-C", "50", "-I", "3", "-T", "v", "-T", "b"}
				run := func(maker string, more ...string) *rdmatest.Process {
					command := []string{program}
					if maker == "go" {
						command = []string{ibv, program}
					}
					return rdmatest.Start(t, append(append(command, args...), more...)...)
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

var _ = rdmatest.Test(TestRcopy, rdmatest.Peers)

// TestRcopy: rcopy and `ibv rcopy` copy files to each other.
func TestRcopy(t *testing.T) {
	rdmatest.CheckLeaks(t)
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
				server := rdmatest.Start(t, append(command[who.server], "-p", port)...)
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

// TestNetcat: nc, which knows only TCP, as client and server under librspreload. It sends a file and
// receives another one.
func TestNetcat(t *testing.T) {
	size := 1 << 20
	if testing.Short() {
		size /= 4
	}
	theirs, ours := make([]byte, size), make([]byte, size)
	newStream(2).Read(theirs)
	newStream(3).Read(ours)
	in := filepath.Join(t.TempDir(), "in")
	rdmatest.Check(t, os.WriteFile(in, theirs, 0o600))
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
			p, c := connect(func(args ...string) *rdmatest.Process {
				cmd := preloaded(t, append([]string{"nc.traditional", "-n"}, args...)...)
				cmd.Stdin = rdmatest.Must(os.Open(in))(t)
				return rdmatest.StartCmd(t, cmd)
			})
			rdmatest.Check(t, c.SetDeadline(time.Now().Add(rdmatest.Patience)))
			go c.Write(ours)
			got := make([]byte, size)
			if n, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, theirs) {
				t.Errorf("received %d of %d bytes, %v, or others", n, size, err)
			}
			p.Until(t, func() bool { return len(p.Stdout()) == size })
			rdmatest.Check(t, c.Close())
			if out := p.Succeeds(t); out != string(ours) {
				t.Errorf("nc received %d of %d bytes, or others: %s", len(out), size, p.Stderr())
			}
		})
	}
}

// TestCurl: curl under librspreload, with a web server of package net/http.
func TestCurl(t *testing.T) {
	l := listen(t, rsocket.Options{})
	size := 1 << 20
	if testing.Short() {
		size /= 4
	}
	body := make([]byte, size)
	newStream(4).Read(body)
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Write(body)
	}))
	p := rdmatest.StartCmd(t, preloaded(t, "curl", "-sS", "-d", "some", "http://"+l.Addr().String()+"/"))
	if out := p.Succeeds(t); out != string(body) {
		t.Errorf("%d of %d bytes came, or others: %s", len(out), len(body), p.Stderr())
	}
}

// TestProxy: a TCP client and a TCP server, with RDMA between two `ibv proxy`.
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
				io.Copy(c, c)
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
	// Where nobody listens, the client learns it.
	far.Kill()
	c := rdmatest.Must(net.Dial("tcp", addr))(t)
	defer c.Close()
	rdmatest.Check(t, c.SetDeadline(time.Now().Add(rdmatest.Patience)))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("without the far side: %d bytes, %v", n, err)
	}
	near.Kill()
}
